"""Synthesise speech: training material for words without recordings.

`get_engines` finds what is installed; `speak` makes one clip. Engines under the GPL are run as programs, never
imported.
"""

from kws_edge.audio.level import SAMPLE_RATE
from kws_export.voices.engine import Engine, Rendition, Utterance, speak, speak_all
from kws_export.voices.registry import ENGINES, get_engines

__all__ = ["ENGINES", "SAMPLE_RATE", "Engine", "Rendition", "Utterance", "get_engines", "speak", "speak_all"]

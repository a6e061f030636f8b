"""Synthesise speech: training material for words without recordings.

`get_engines` finds what is installed; `speak` makes one clip. Engines under the GPL are run as programs, never
imported.
"""

from kws_export.voices.engine import SAMPLE_RATE, Engine, Rendition, Utterance, speak, speak_all
from kws_export.voices.registry import ENGINES, get_engines

__all__ = ["ENGINES", "SAMPLE_RATE", "Engine", "Rendition", "Utterance", "get_engines", "speak", "speak_all"]

"""Measure a stream on recordings, and choose its thresholds from them.

What `kws-edge evaluate-stream` and `kws-edge calibrate` do, from Python: run the network once over recordings with
words and without (`trace_words`, `trace_negatives`), decide on them at many thresholds (`candidates`, `sweep`), and
take the settings that find most words within a limit of false accepts per hour (`choose`); then measure those on other
recordings (`assess`).

    from pathlib import Path

    from kws_edge import KeywordModel, Microphone, Spotter, StreamSettings
    from kws_edge.tuning import candidates, choose, sweep, trace_negatives, trace_words

    model = KeywordModel.load()
    clips = [(word, path) for word in ("yes", "no") for path in Path("my_words", word).glob("*.wav")]
    said, quiet = [trace_words(model, clips)], [trace_negatives(model, "my_room")]
    bases = [StreamSettings({"entropy": 1.0}, smoothing=0.3, crowding=surer) for surer in (0, 8)]
    tries = [(candidates(model.metadata, said, quiet, base, ["entropy"]), base) for base in bases]
    best = choose(list(sweep(model.metadata, said, quiet, tries)), 1.0)
    spotter = Spotter(model, settings=best.settings)
"""

from kws_edge.tuning.calibration import candidates, sweep
from kws_edge.tuning.choice import choose
from kws_edge.tuning.evaluation import StreamReport
from kws_edge.tuning.points import Point, assess
from kws_edge.tuning.recordings import trace_negatives, trace_words
from kws_edge.tuning.traced import Traced

__all__ = [
    "Point",
    "StreamReport",
    "Traced",
    "assess",
    "candidates",
    "choose",
    "sweep",
    "trace_negatives",
    "trace_words",
]

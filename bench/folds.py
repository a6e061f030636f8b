"""Cross-fitting: a model that was trained on all speakers, measured by networks that each left some of them out.

`models/stream.onnx` is the mean of two networks of one lineage, each trained on one half of the speakers that the
split sets aside (split_speech.py). Nothing is left that the mean did not hear, so its two networks stand for it: each
is run over the speech that it was not trained on, and what they give is put together. The words are shared out between
them; no network was trained on these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kws_edge import KeywordModel
from kws_edge.tuning import trace_negatives, trace_words
from kws_edge.tuning.recordings import recordings
from kws_edge.tuning.traced import Traced


@dataclass(frozen=True, eq=False)
class Fold:
    """A network, and the speech without words that it was not trained on, as a pattern."""

    model: KeywordModel
    speech: str

    @classmethod
    def of(cls, text: str) -> "Fold":
        """Read MODEL=PATTERN."""
        name, _, pattern = text.partition("=")
        if not pattern:
            raise ValueError(f"{text!r}; expected MODEL=PATTERN, such as runs/a.onnx='sets/evaluation/*'")
        return cls(KeywordModel.load(name), pattern)


def trace_folds(
    folds: Sequence[Fold],
    clips: Sequence[tuple[str, Path]],
    name: str,
    *,
    behind: str | None = None,
    over_speech: bool = False,
    snr: float = 10.0,
) -> list[Traced]:
    """Streams of the clips, a share of them for each network: in silence, over recordings, or over its own speech."""
    streams = []
    for i, fold in enumerate(folds):
        pattern = fold.speech if over_speech else behind
        background = recordings([pattern]) if pattern else None
        streams.append(trace_words(fold.model, clips[i :: len(folds)], name, background=background, snr=snr))
    return streams


def trace_speech(folds: Sequence[Fold]) -> list[Traced]:
    """The speech without words, each part as the network hears it that was not trained on it."""
    return [trace_negatives(fold.model, fold.speech) for fold in folds]

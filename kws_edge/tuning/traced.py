"""The network's outputs on a recording, and the words in it, to try thresholds on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kws_edge.arrays import F32
from kws_edge.errors import SettingError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.stream.framing import DEFAULT_HOP
from kws_edge.stream.settings import label_of
from kws_edge.stream.trace import Hops, trace
from kws_edge.tuning.soundscape import Word


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """The network's outputs on a recording, and the words in it.

    Attributes
    ----------
    name : name of the recording, or of the folder whose recordings are joined.
    hops : the network's outputs.
    words : the words and where they are. In negatives, an event at one of them is no false accept.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kws_edge import KeywordModel
    >>> from kws_edge.tuning import trace_words
    >>> model = KeywordModel.load()
    >>> said = [trace_words(model, [("yes", Path("kws_edge/samples/yes.flac"))])]
    >>> [word.label for word in said[0].words], said[0].seconds > 1
    (['yes'], True)
    """

    name: str
    hops: Hops
    words: tuple[Word, ...] = ()

    @property
    def seconds(self) -> float:
        """Duration, to a hop."""
        return float(self.hops.time[-1])


def trace_stream(
    model: KeywordModel, stretches: Iterable[tuple[F32, Iterable[Word]]], name: str, hop: float = DEFAULT_HOP
) -> Traced:
    """Run the network over a stream that comes in stretches, float32 [n], with the words in each; times in the stream.

    Words may be written in capitals or not.

    Raises
    ------
    SettingError : the stream is shorter than a hop, or the hop is out of its range.
    """
    words: list[Word] = []

    def blocks() -> Iterator[F32]:
        for samples, said in stretches:
            words.extend(replace(w, label=label_of(w.label, model.labels) or w.label) for w in said)
            yield samples

    hops = trace(model, blocks(), hop)
    if not len(hops):
        raise SettingError(f"{name}: shorter than a hop of {hop} s; expected more")
    return Traced(name, hops, tuple(words))

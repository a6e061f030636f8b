"""A wake word and the command after it: how often each is found, and how often commands count that nobody gave."""

from collections.abc import Collection, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

from kws_edge.model.metadata import Metadata
from kws_edge.stream.decision import decide
from kws_edge.stream.settings import StreamSettings
from kws_edge.stream.wake import gated
from kws_edge.tuning.evaluation import StreamReport, evaluate
from kws_edge.tuning.traced import Traced

PAUSES: Final = (0.5, 1.5)
"""Seconds between a wake word and its command, and between that and the next wake word."""


def pairs(wake: Sequence[tuple[str, Path]], commands: Sequence[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    """A wake word before each command, as (word, file); the wake words come again where there are fewer."""
    for before, command in zip(cycle(wake), commands, strict=False):
        yield before
        yield command


def assess_pairs(
    metadata: Metadata,
    recording: Traced,
    wake: Collection[str],
    commands: Collection[str],
    seconds: float,
    settings: StreamSettings,
    after_wake: StreamSettings,
) -> tuple[StreamReport, StreamReport]:
    """What becomes of the wake words of a recording, and of its commands, which count for a while after one is heard.

    Parameters
    ----------
    wake, commands : the labels of either kind.
    seconds : for how long commands count.
    settings, after_wake : of the decisions on the two.
    """
    woken = decide(metadata, recording.hops, settings, wake, abstentions="none")
    told = gated(woken, decide(metadata, recording.hops, after_wake, commands), seconds)
    obeyed = [event for event in told if not any(event is one for one in woken)]
    said = [[word for word in recording.words if word.label in labels] for labels in (wake, commands)]
    return (
        evaluate(woken, said[0], recording.seconds, wake),
        evaluate(obeyed, said[1], recording.seconds, commands),
    )

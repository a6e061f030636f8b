"""Draw renditions with varying voices, speeds and pitches, reproducibly by seed."""

from collections.abc import Iterator, Sequence

import numpy as np

from kws_edge.arrays import F32
from kws_export.voices.engine import Engine, Rendition, Utterance, VoiceError, speak_all

SPEEDS = (0.8, 1.3)
PITCHES = (0.88, 1.16)
"""Beyond these, what the engines say no longer sounds like a person."""
_MANNERS = 1 << 31
_TOGETHER = 50
"""Renditions that are asked of an engine at once: festival starts once for them."""


def cast(
    engine: Engine, utterances: Sequence[Utterance], each: int, seed: Sequence[int], *, varied: float = 0.0
) -> list[Rendition]:
    """`each` renditions of every utterance by one engine, voices dealt out in turn and in random order.

    Where an engine names single voices before blends of them (kokoro), half of the renditions go to single voices.

    Parameters
    ----------
    varied : the share of renditions with a `manner` of their own, 0 to 1.
    """
    rng = np.random.default_rng([*seed, *engine.name.encode()])
    renditions: list[Rendition] = []
    decks: dict[str, list[Iterator[str]]] = {}
    for utterance in utterances:
        if utterance.language not in decks:
            voices = engine.voices(utterance.language)
            single, blended = [v for v in voices if "+" not in v], [v for v in voices if "+" in v]
            decks[utterance.language] = [_dealt(deck, rng) for deck in (single, blended) if deck]
        for i in range(each):
            hands = decks[utterance.language]
            voice = next(hands[i % len(hands)])
            speed, pitch = float(rng.uniform(*SPEEDS)), float(rng.uniform(*PITCHES))
            manner = int(rng.integers(1, _MANNERS)) if varied and rng.random() < varied else 0
            renditions.append(Rendition(utterance, voice, speed, pitch, manner))
    return renditions


def perform(engine: Engine, renditions: Sequence[Rendition], *, spoken: int = 0) -> Iterator[tuple[Rendition, F32]]:
    """Each rendition with its samples; one that the engine cannot say is left out, unless that is many of them.

    Parameters
    ----------
    spoken : how many more it has said before, of which these are what is left.

    Raises
    ------
    VoiceError : the engine fails on more than one rendition in five, or on all of a few.
    """
    failed, of = 0, len(renditions) + spoken
    for start in range(0, len(renditions), _TOGETHER):
        batch = renditions[start : start + _TOGETHER]
        try:
            takes: list[F32 | None] = list(speak_all(engine, batch))
        except VoiceError:
            takes = [_alone(engine, rendition) for rendition in batch]
        failed += sum(samples is None for samples in takes)
        if failed > min(max(3, of // 5), of - 1):
            raise VoiceError(f"{engine.name} failed on {failed} of {of} renditions, such as {batch[-1].utterance}")
        yield from (
            (rendition, samples) for rendition, samples in zip(batch, takes, strict=True) if samples is not None
        )


def _alone(engine: Engine, rendition: Rendition) -> F32 | None:
    try:
        return next(speak_all(engine, [rendition]))
    except VoiceError:
        return None


def _dealt(deck: Sequence[str], rng: np.random.Generator) -> Iterator[str]:
    while True:
        yield from (deck[i] for i in rng.permutation(len(deck)))

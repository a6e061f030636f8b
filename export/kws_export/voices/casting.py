"""Who says what: takes drawn so that voices, speeds and pitches vary as speakers do, the same for the same seed."""

from collections.abc import Iterator, Sequence

import numpy as np

from kws_export.voices.engine import F32, Engine, Take, Utterance, VoiceError, speak_all

SPEEDS = (0.8, 1.3)
PITCHES = (0.88, 1.16)
"""Beyond these, what the engines say no longer sounds like a person."""
COST = {"kokoro": 0.6, "festival": 0.03, "flite": 0.02, "espeak": 0.01}
"""Seconds of a core that a word takes, about."""
_TOGETHER = 50
"""Takes that are asked of an engine at once: festival starts once for them."""


def cast(engine: Engine, utterances: Sequence[Utterance], each: int, seed: Sequence[int]) -> list[Take]:
    """`each` takes of every utterance by one engine, voices dealt out in turn and in random order.

    Where an engine names single voices before blends of them (kokoro), half of the takes go to single voices.
    """
    rng = np.random.default_rng([*seed, *engine.name.encode()])
    takes: list[Take] = []
    decks: dict[str, list[Iterator[str]]] = {}
    for utterance in utterances:
        if utterance.language not in decks:
            voices = engine.voices(utterance.language)
            single, blended = [v for v in voices if "+" not in v], [v for v in voices if "+" in v]
            decks[utterance.language] = [_dealt(deck, rng) for deck in (single, blended) if deck]
        for i in range(each):
            hands = decks[utterance.language]
            voice = next(hands[i % len(hands)])
            takes.append(Take(utterance, voice, float(rng.uniform(*SPEEDS)), float(rng.uniform(*PITCHES))))
    return takes


def perform(engine: Engine, takes: Sequence[Take]) -> Iterator[tuple[Take, F32]]:
    """Each take with its samples; one that the engine cannot say is left out, unless that is most of them.

    Raises
    ------
    VoiceError : the engine fails on more than one take in five.
    """
    failed = 0
    for start in range(0, len(takes), _TOGETHER):
        batch = takes[start : start + _TOGETHER]
        try:
            spoken: list[F32 | None] = list(speak_all(engine, batch))
        except VoiceError:
            spoken = [_alone(engine, take) for take in batch]
        failed += sum(samples is None for samples in spoken)
        if failed > max(3, len(takes) // 5):
            raise VoiceError(f"{engine.name} failed on {failed} of {len(takes)} takes, such as {batch[-1].utterance}")
        yield from ((take, samples) for take, samples in zip(batch, spoken, strict=True) if samples is not None)


def _alone(engine: Engine, take: Take) -> F32 | None:
    try:
        return next(speak_all(engine, [take]))
    except VoiceError:
        return None


def _dealt(deck: Sequence[str], rng: np.random.Generator) -> Iterator[str]:
    while True:
        yield from (deck[i] for i in rng.permutation(len(deck)))

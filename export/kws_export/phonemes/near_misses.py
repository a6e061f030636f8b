"""The words that a spotter is most likely to mistake for one it listens for."""

from dataclasses import dataclass

import numpy as np

from kws_export.phonemes.dictionary import Dictionary
from kws_export.phonemes.distance import distances, symbols

FARTHEST = 0.55
"""The distance, in parts of the target's length in phonemes, beyond which a word is no near-miss."""
HOMOPHONE = 0.12
"""Below this distance nobody could tell the two: accents differ by more."""
RARITY = 0.02
"""How much a word is farther for each doubling of its rank: what is said often fires often."""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A word or phrase that sounds like the target: its text, its pronunciation, and how far it is (0 is the same)."""

    text: str
    ipa: str
    distance: float


def near_misses(ipa: str, dictionary: Dictionary, count: int, avoid: tuple[str, ...] = ()) -> list[NearMiss]:
    """The words nearest to a pronunciation, nearest first, at most `count`.

    A homophone is none: it is the word. Nor is a word in which the target is heard whole ("forty" for "four"). A
    pronunciation without phonemes has none.

    Parameters
    ----------
    ipa : of the target, a word or a phrase.
    avoid : pronunciations of other words that are spotted too, left out as the target itself is.
    """
    length = len(symbols(ipa))
    if not length:
        return []
    heard = [symbols(said) for said in dictionary.pronunciations]
    excluded = np.zeros(len(heard), np.bool_)
    for target in (ipa, *avoid):
        excluded |= distances(target, heard, within=True) < HOMOPHONE
    rarity = RARITY * np.log2(1 + np.arange(len(heard)) / 100)
    far = distances(ipa, heard) / length + rarity
    found: dict[str, NearMiss] = {}
    for i in np.argsort(far, kind="stable"):
        if far[i] > FARTHEST or len(found) == count:
            break
        if not excluded[i]:
            found.setdefault(heard[i], NearMiss(dictionary.words[i], dictionary.pronunciations[i], float(far[i])))
    return list(found.values())

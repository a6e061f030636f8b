"""Foreign accents: a word's pronunciation with some of its sounds replaced by those that learners say instead.

Voices of speech engines say a word as the dictionary does; people with another first language do not. The replacements
are the common ones of M. Swan and B. Smith (eds.) 2001, "Learner English", Cambridge University Press, chapter by
chapter; several of them at once make no particular accent, but a wider range of sounds than any one.
"""

import re
from typing import Final

import numpy as np

SHARE: Final = 0.3
"""How often a replacement is made where its sound occurs."""
UNSTRESSED: Final = 0.15
"""How often no syllable is stressed."""
ACCENTED: Final = 0.5
"""Of the manners of a voice."""
REPLACEMENTS: Final = (
    # vowels: those of five-vowel languages, and lengths that are not told apart
    ("ɪ", "i"), ("iː", "ɪ"), ("æ", "ɛ"), ("æ", "a"), ("ʌ", "a"), ("ə", "ɛ"), ("ə", "a"), ("ʊ", "u"), ("ɜː", "ɛ"),
    ("ɜː", "œ"), ("ɑː", "a"), ("ɑː", "ɔ"), ("ɔː", "o"), ("oʊ", "o"), ("eɪ", "e"), ("juː", "u"), ("ɚ", "a"), ("ɚ", "ɛɹ"),
    ("ə", "o"),
    # th; w and v; v and b
    ("θ", "s"), ("θ", "t"), ("θ", "f"), ("ð", "d"), ("ð", "z"), ("w", "v"), ("v", "w"), ("v", "b"), ("v", "f"),
    # an American t; r: silent where no vowel follows, tapped, of the throat, or rolled
    ("ɾ", "t"), ("ɹ(?![ˈˌ]?[aeiouæʌəɪʊɛɔɑɜɐɚ])", ""), ("ɹ", "ɾ"), ("ɹ", "ʁ"), ("ɹ", "r"),
    ("dʒ", "tʃ"), ("dʒ", "ʒ"), ("dʒ", "j"), ("tʃ", "ʃ"), ("h", "x"), ("ŋ", "ŋɡ"),
    # the end of the word: voiced consonants become voiceless
    ("z$", "s"), ("s$", "z"), ("d$", "t"), ("ɡ$", "k"), ("b$", "p"), ("v$", "f"),
    ("ː", ""),
)  # fmt: skip
"""Regular expressions over IPA as espeak-ng writes it, and what takes their place; they are applied in this order."""


def accented(ipa: str, rng: np.random.Generator, share: float = SHARE) -> str:
    """A pronunciation with an accent, drawn at random.

    Parameters
    ----------
    ipa : in the International Phonetic Alphabet, with stress marks and lengths, such as "dʒˈɑːɹvɪs".
    rng : draws as often for every pronunciation.
    share : how often each replacement is made, 0 to 1.

    Examples
    --------
    >>> accented("dʒˈɑːɹvɪs", np.random.default_rng(3))
    'ʒˈɑːʁvis'
    """
    for (sound, other), made in zip(REPLACEMENTS, rng.random(len(REPLACEMENTS)) < share, strict=True):
        if made:
            ipa = re.sub(sound, other, ipa)
    return ipa.replace("ˈ", "").replace("ˌ", "") if rng.random() < UNSTRESSED else ipa


def perhaps_accented(ipa: str, rng: np.random.Generator) -> str:
    """With an accent in `ACCENTED` of the cases: what a rendition says whose `manner` is the seed of `rng`.

    Examples
    --------
    >>> perhaps_accented("dʒˈɑːɹvɪs", np.random.default_rng(1)), perhaps_accented("dʒˈɑːɹvɪs", np.random.default_rng(2))
    ('dʒˈɑːɹvɪs', 'dʒˈafis')
    """
    return accented(ipa, rng) if rng.random() < ACCENTED else ipa

"""How far two pronunciations are apart: an edit distance whose costs know which phonemes sound alike.

A pronunciation is text of the International Phonetic Alphabet, so no language is assumed. Symbols that differ in
little (p and b, i and ɪ) cost little to exchange; the table holds the place, manner and voicing of each consonant and
the height, backness and rounding of each vowel, as the alphabet's own chart arranges them.
"""

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np

from kws_edge.arrays import F64

_PLACES = ("pbmɸβʙ", "fvɱʋ", "θð", "tdnszlrɾɹɬɮ", "ʃʒɕʑ", "ʈɖɳʂʐɻɭɽ", "cɟɲçʝjʎ", "kɡŋxɣɰw", "qɢɴχʁʀ", "ħʕ", "ʔhɦ")
"""From the lips to the throat."""
_MANNERS = {
    "plosive": "pbtdʈɖcɟkɡqɢʔ",
    "nasal": "mɱnɳɲŋɴ",
    "fricative": "ɸβfvθðszʃʒɕʑʂʐçʝxɣχʁħʕhɦɬɮ",
    "approximant": "ʋɹɻjɰwlɭʎrɾɽʀʙ",
}
_LATERALS = set("lɭʎɬɮ")
_VOICED = set("bmβʙvɱʋðdnzlrɾɹɮʒʑɖɳʐɻɭɽɟɲʝjʎɡŋɣɰwɢɴʁʀʕɦ")
_MANNER_COSTS = {
    ("approximant", "fricative"): 0.5,
    ("approximant", "nasal"): 0.5,
    ("approximant", "plosive"): 0.7,
    ("fricative", "nasal"): 0.7,
    ("fricative", "plosive"): 0.5,
    ("nasal", "plosive"): 0.5,
}
# Height from 0 (open) to 1 (close), backness from 0 (front) to 1 (back), rounded.
_VOWELS: dict[str, tuple[float, float, bool]] = {
    "i": (1, 0, False), "y": (1, 0, True), "ɨ": (1, 0.5, False), "ʉ": (1, 0.5, True), "ɯ": (1, 1, False),
    "u": (1, 1, True), "ɪ": (0.85, 0.2, False), "ᵻ": (0.85, 0.4, False), "ʏ": (0.85, 0.2, True),
    "ʊ": (0.85, 0.8, True), "e": (0.67, 0, False), "ø": (0.67, 0, True), "ɘ": (0.67, 0.5, False),
    "ɵ": (0.67, 0.5, True), "ɤ": (0.67, 1, False), "o": (0.67, 1, True), "ə": (0.5, 0.5, False),
    "ɚ": (0.5, 0.5, False), "ᵊ": (0.5, 0.5, False), "ɛ": (0.33, 0, False), "œ": (0.33, 0, True),
    "ɜ": (0.33, 0.5, False), "ɝ": (0.33, 0.5, False), "ɞ": (0.33, 0.5, True), "ʌ": (0.33, 0.9, False),
    "ɔ": (0.33, 1, True), "æ": (0.17, 0, False), "ɐ": (0.17, 0.5, False), "a": (0, 0.2, False),
    "ɶ": (0, 0.2, True), "ɑ": (0, 1, False), "ɒ": (0, 1, True),
}  # fmt: skip
_SPLIT = {"ʧ": "tʃ", "ʤ": "dʒ", "ʦ": "ts", "ʣ": "dz", "g": "ɡ", "ɝ": "ɜɹ", "ɚ": "əɹ", "ɫ": "l", "ɾ": "d"}

CONSONANT_GAP, VOWEL_GAP = 0.7, 0.8
"""What a phoneme too many or too few costs; a weak vowel (ə) costs half."""


@cache
def symbols(ipa: str) -> str:
    """The phonemes of a pronunciation, one character each: no stress, length, ties or spaces; affricates as two."""
    # c with a cedilla is a fricative of its own, not a c: parting letters from their marks must not part these two.
    plain = (c for c in _keep_cedilla(ipa) if c in _VOWELS or c in _SPLIT or _place(c) is not None)
    # Before r, o and ɔ are one sound for most speakers of English: espeak-ng writes "for" with ɔ, "four" with o.
    return "".join(_SPLIT.get(c, c) for c in plain).replace("oɹ", "ɔɹ")


def distances(target: str, others: Sequence[str], *, within: bool = False) -> F64:
    """The cost of turning one pronunciation into each of others: 0 for homophones, about 0.7 a phoneme; float64 [n].

    Parameters
    ----------
    target, others : in the phonetic alphabet, with or without stress marks.
    within : measure to the stretch of the other that is nearest to the target, wherever it lies: 0 where the target is
        heard in the other.
    """
    heard = [symbols(other) for other in others]
    alphabet = {c: i + 1 for i, c in enumerate(sorted(set().union(*heard)))}  # 0 stands for "ended before"
    lengths = np.array([len(h) for h in heard])
    codes = np.zeros((len(heard), max(1, lengths.max(initial=0))), np.intp)
    for row, h in zip(codes, heard, strict=True):
        row[: len(h)] = [alphabet[c] for c in h]
    gaps = np.array([0.0, *map(_gap, alphabet)])
    # One column of the table of Needleman and Wunsch for each phoneme of the others, for all of them at once.
    goal = symbols(target)
    column = np.tile(np.concatenate([[0.0], np.cumsum([_gap(c) for c in goal])]), (len(heard), 1))
    result = column[:, -1].copy()
    for j in range(codes.shape[1]):
        before, column = column, np.empty_like(column)
        gap = gaps[codes[:, j]]
        column[:, 0] = 0.0 if within else before[:, 0] + gap
        for i, c in enumerate(goal):
            swap = np.array([0.0, *(exchange(c, other) for other in alphabet)])[codes[:, j]]
            moved = np.minimum(before[:, i] + swap, before[:, i + 1] + gap)
            column[:, i + 1] = np.minimum(moved, column[:, i] + _gap(c))
        there = j < lengths
        result = np.where(there, np.minimum(result, column[:, -1]) if within else column[:, -1], result)
    return result


@cache
def exchange(x: str, y: str) -> float:
    """What one phoneme for another costs: 0 to 1.2."""
    if x == y:
        return 0.0
    if x in _VOWELS and y in _VOWELS:
        (h, b, r), (h2, b2, r2) = _VOWELS[x], _VOWELS[y]
        return min(1.0, 0.1 + 0.5 * abs(h - h2) + 0.4 * abs(b - b2) + 0.1 * (r != r2))
    if x in _VOWELS or y in _VOWELS:
        glide = (set("jw") & {x, y}) and (set("iɪuʊ") & {x, y})
        return 0.4 if glide else 1.2
    (p, m, v), (p2, m2, v2) = _consonant(x), _consonant(y)
    manner = 0.0 if m == m2 else _MANNER_COSTS[(min(m, m2), max(m, m2))]
    lateral = 0.2 * ((x in _LATERALS) != (y in _LATERALS))
    return min(1.0, 0.1 + 0.06 * abs(p - p2) + manner + 0.15 * (v != v2) + lateral)


def _gap(c: str) -> float:
    if c in _VOWELS:
        return VOWEL_GAP / 2 if c in "əᵊᵻ" else VOWEL_GAP
    return CONSONANT_GAP


def _keep_cedilla(ipa: str) -> str:
    return "".join(c if c == "ç" else unicodedata.normalize("NFD", c) for c in unicodedata.normalize("NFC", ipa))


@cache
def _place(c: str) -> int | None:
    return next((i for i, place in enumerate(_PLACES) if c in place), None)


@cache
def _consonant(c: str) -> tuple[int, str, bool]:
    place = _place(c)
    assert place is not None
    return place, next(name for name, members in _MANNERS.items() if c in members), c in _VOICED

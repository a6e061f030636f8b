"""Kokoro-82M (hexgrad, Apache-2.0) as int8 ONNX: the most natural of the voices, and hundreds more by blending two.

It takes phonemes; they come from espeak-ng, run as a program. `kws-export download kokoro` puts its files in place.
"""

import json
import os
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kws_edge.arrays import F32
from kws_edge.errors import SettingError
from kws_export.data.credit import Credit
from kws_export.stored import stored
from kws_export.voices.accents import perhaps_accented
from kws_export.voices.engine import Rendition
from kws_export.voices.espeak import Espeak, languages, pronounce

if TYPE_CHECKING:
    import onnxruntime

RATE = 24_000
FILES = ("kokoro.onnx", "vocabulary.json", "voices.npz")
_MOST_SYMBOLS = 500
_INTONATION = slice(128, 256)
"""The part of a style that durations and pitch follow; the rest is the timbre."""
_LONG_PHRASE = 60
"""Symbols."""
_ENDINGS = ("", "", "", "", "", "", ".", "!", "?", ",")
_LANGUAGES = {
    "en-us": "abefhijpz", "en-gb": "baefhijpz", "en": "abefhijpz", "es": "e", "fr-fr": "f", "hi": "h", "it": "i",
    "pt-br": "p",
}  # fmt: skip
"""The first letters of the names of the voices that speak a language. Speakers of all languages speak English, with
their accents: of eight words, `softmax` names all as 19 of 26 foreign voices say them, and six or seven by 5 others."""
_FOREIGN = "abefip"
"""Speakers who are lent to languages without one, such as German: they say its phonemes, with an accent."""
_AS_ENGLISH = (("r", "ɹ"), ("x", "k"))
"""Sounds that English borrows, as Americans say them; an accent may bring them back."""
_AS_TRAINED = (
    ("eɪ", "A"), ("aɪ", "I"), ("oʊ", "O"), ("əʊ", "Q"), ("aʊ", "W"), ("ɔɪ", "Y"), ("tʃ", "ʧ"), ("dʒ", "ʤ"),
    ("ɬ", "l"), ("ɐ", "ə"), ("ɚ", "əɹ"), ("ɜː", "ɜɹ"), ("ɔːɹ", "ɔɹ"), ("oːɹ", "ɔɹ"), ("ː", ""),
)  # fmt: skip
"""Kokoro learnt American English with one symbol for a diphthong and without length marks."""
_NEAREST = (("ʏ", "y"), ("ɵ", "ø"), ("ɱ", "m"), ("ɦ", "h"), ("ʋ", "v"), ("ɫ", "l"), ("r", "ɾ"))
"""For other languages: what it does not know, or knows as another sound, by what is nearest."""


class Kokoro:
    """Kokoro. A voice is a name, `af_heart`, or two joined by a plus: `af_heart+am_puck` is half of each.

    Languages without a voice of their own are spoken from their phonemes by voices of others.
    """

    name = "kokoro"
    credit = Credit(
        "Kokoro-82M, phonemes by espeak-ng", "Apache-2.0; ONNX export MIT", "hexgrad; ONNX export by thewh1teagle"
    )
    takes_phonemes = True

    def missing(self) -> str | None:
        """None where its files and espeak-ng are there."""
        if not all((folder() / name).is_file() for name in FILES):
            return "run `kws-export download kokoro` first (80 MB)"
        return Espeak().missing()

    def voices(self, language: str) -> tuple[str, ...]:
        """Those of the language, and for English those of its other accent; then all blends of two.

        Where it has none of a language that espeak-ng pronounces, those of European languages speak it.
        """
        letters = _LANGUAGES.get(language, _FOREIGN if language in languages() else "")
        names = [name for letter in letters for name in sorted(_styles()) if name[0] == letter]
        blends = [f"{a}+{b}" for a, b in combinations(names, 2)]
        return (*names, *blends)

    def render(self, renditions: Sequence[Rendition]) -> Iterator[tuple[F32, int]]:
        """About 0.7 s of a core for a second of speech."""
        session = _session()
        pronounced = {u: pronounce(u) for u in {rendition.utterance for rendition in renditions}}
        for rendition in renditions:
            tokens, style = _delivery(rendition, pronounced[rendition.utterance])
            (samples, *_) = session.run(
                None,
                {
                    "tokens": np.array([[0, *tokens, 0]], np.int64),
                    "style": style.reshape(1, 256),
                    "speed": np.array([rendition.speed], np.float32),
                },
            )
            yield np.asarray(samples, np.float32).ravel(), RATE


def folder() -> Path:
    """Where the model's files are: `$KWS_EXPORT_CACHE/kokoro`, or ~/.cache/kws-export/kokoro."""
    return stored("kokoro")


def _delivery(rendition: Rendition, ipa: str) -> tuple[list[int], F32]:
    """What a rendition gives the model: its symbols, and the style, float32 [256], that speaks them.

    A manner takes the intonation of another voice, that of a part of a longer phrase, as a word said alone has but one.
    """
    rng, language = np.random.default_rng(rendition.manner), rendition.utterance.language
    ipa = _replaced(ipa, _AS_ENGLISH) if language.startswith("en") else ipa
    if rendition.manner:
        ipa = perhaps_accented(ipa, rng) + str(rng.choice(_ENDINGS))
    tokens = _tokens(ipa, language, _vocabulary())
    parts = [_styles()[name][len(tokens) - 1] for name in rendition.voice.split("+")]
    style: F32 = np.mean(parts, axis=0, dtype=np.float32)
    if rendition.manner:
        other = _styles()[str(rng.choice(sorted(_styles())))]
        style[_INTONATION] = other[rng.integers(len(tokens), max(_LONG_PHRASE, len(tokens) + 1)), _INTONATION]
    return tokens, style


def _replaced(ipa: str, pairs: Sequence[tuple[str, str]]) -> str:
    for written, other in pairs:
        ipa = ipa.replace(written, other)
    return ipa


def _tokens(ipa: str, language: str, symbols: dict[str, int]) -> list[int]:
    """A pronunciation as the model's symbols; those that it does not know are left out, as in its own training."""
    ipa = _replaced(ipa, _AS_TRAINED if language.startswith("en") else _NEAREST)
    tokens = [symbols[c] for c in ipa if c in symbols][:_MOST_SYMBOLS]
    if not tokens:
        raise SettingError(f"no phoneme of {ipa!r} is one that Kokoro knows")
    return tokens


@cache
def _session() -> "onnxruntime.InferenceSession":
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(folder() / FILES[0]), options, providers=["CPUExecutionProvider"])


@cache
def _vocabulary() -> dict[str, int]:
    vocabulary: dict[str, int] = json.loads((folder() / FILES[1]).read_text(encoding="utf-8"))
    return vocabulary


@cache
def _styles() -> dict[str, F32]:
    """name → float32 [510, 256], a style for each number of phonemes."""
    with np.load(folder() / FILES[2]) as styles:
        return {name: styles[name] for name in styles.files}

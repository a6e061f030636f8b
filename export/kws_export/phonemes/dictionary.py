"""A pronouncing dictionary of a language's most frequent words, made once by espeak-ng and kept."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from kws_edge.errors import SettingError
from kws_edge.files import replace_file
from kws_export.phonemes.distance import symbols
from kws_export.stored import stored
from kws_export.voices.espeak import transcribe

WORDS = 20_000


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Words, the most frequent first, and how each is pronounced, in the phonetic alphabet with stress marks."""

    language: str
    words: tuple[str, ...]
    pronunciations: tuple[str, ...]

    @classmethod
    def load(cls, language: str, count: int = WORDS) -> "Dictionary":
        """The `count` most frequent words of a language. The first call takes some 10 s, later ones read the result.

        Raises
        ------
        SettingError : there is no list of words in the language.
        DependencyError : there is no espeak-ng.
        """
        words = _frequent(language, count)
        kept = stored("phonemes") / f"{language}-{hashlib.sha256(chr(10).join(words).encode()).hexdigest()[:12]}.json"
        pronounced = _kept(kept, len(words))
        if pronounced is None:
            pronounced = transcribe(words, language)
            kept.parent.mkdir(parents=True, exist_ok=True)
            replace_file(kept, json.dumps(pronounced, ensure_ascii=False))
        said = [(word, ipa) for word, ipa in zip(words, pronounced, strict=True) if symbols(ipa)]
        return cls(language, tuple(word for word, _ in said), tuple(ipa for _, ipa in said))


def _kept(path: Path, count: int) -> list[str] | None:
    """The pronunciations that an earlier call left; None where there are none, or the file is damaged."""
    try:
        pronounced = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    whole = isinstance(pronounced, list) and len(pronounced) == count and all(isinstance(p, str) for p in pronounced)
    return pronounced if whole else None


def _frequent(language: str, count: int) -> list[str]:
    from wordfreq import available_languages, top_n_list

    code = language.split("-", maxsplit=1)[0]
    if code not in available_languages():
        raise SettingError(
            f"no list of words in {language}, from which near-misses are made; expected a language such as en or de, "
            "or no near-misses"
        )
    # Single letters and numbers are spoken by name, and are no words that anyone says among others.
    return [word for word in top_n_list(code, count) if word.isalpha() and len(word) > 1]

"""What is to be said, as texts: which can be, and what a folder or file of one is called."""

from collections.abc import Iterable
from typing import Final

from kws_edge.errors import SettingError
from kws_edge.text import folder_name, is_one_line, shown

UNSTATED: Final = "not stated"
"""For what nobody said: a licence, or whom to name."""
LONGEST: Final = 150
"""Bytes of a text as a part of a path; file systems take 255, and the name of a take says more than its text."""


def cell(text: str) -> str:
    """A text in a table of markdown, whose columns a bar would part."""
    return text.replace("|", "\\|")


def check_phonemes(phonemes: str) -> None:
    """Refuse a pronunciation that is no line of printable characters, with a SettingError; empty is none."""
    if phonemes and not (phonemes.strip() and is_one_line(phonemes)):
        raise SettingError(f"phonemes {shown(phonemes)}; expected espeak-ng's notation on one line, such as h'eI l'amp")


def check_texts(texts: Iterable[str]) -> None:
    """Refuse texts of which the takes could not be kept, or not be told apart.

    Raises
    ------
    SettingError : one has no letter and no digit, is longer than `LONGEST`, or cannot be printed on a line; or two have
        one folder.
    """
    seen: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        name = folder_name(text)
        if not any(c.isalnum() for c in name):
            raise SettingError(f"text {shown(text)}; expected one with a letter or digit, which can be said")
        if not is_one_line(text):
            raise SettingError(f"text {shown(text)}; expected one line of printable characters")
        if len(name.encode()) > LONGEST:
            raise SettingError(
                f"text {shown(text)} has {len(name.encode())} bytes; expected up to {LONGEST}, since its "
                "takes are called by it"
            )
        if (other := seen.setdefault(name.casefold(), text)) != text:
            raise SettingError(f"texts {other!r} and {text!r} have one folder, {name}; expected only one of them")

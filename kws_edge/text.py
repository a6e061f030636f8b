"""Show names from files safely on one line of output, count things in words, and name folders for texts."""

import unicodedata
from itertools import groupby
from typing import Final

_JOINERS: Final = "\u200c\u200d"  # within words of Persian, Hindi and others


def one_line(text: object) -> str:
    """A text with what would end the line, move the cursor or turn its direction as an escape, such as `\\n`."""
    text = str(text)
    if text.isprintable():  # by far the most are, and some are of megabytes
        return text
    return "".join(c if _stays(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def collapsed(text: object) -> str:
    """A text, such as an error's, with each run of white space, line breaks included, as one space."""
    return " ".join(str(text).split())


def is_one_line(text: str) -> bool:
    """Whether a text is shown as it is: `one_line` changes nothing of it."""
    return text.isprintable() or all(map(_stays, text))


def _stays(c: str) -> bool:
    return c.isprintable() or unicodedata.category(c) == "Zs" or c in _JOINERS


def shown(value: object, most: int = 80) -> str:
    """How Python writes a value that somebody else has chosen; its type where it is nested or long beyond that."""
    try:
        return shortened(repr(value), most)
    except (RecursionError, ValueError):  # ValueError: a whole number of thousands of digits
        return f"a {type(value).__name__}"


def shortened(text: str, most: int = 80) -> str:
    """The beginning of a text that somebody else has chosen, of so many characters."""
    return text if len(text) <= most else text[:most] + "…"


def counted(number: int, noun: str) -> str:
    """A number of things, such as "1 run" or "2,000 runs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def words_of(text: str) -> list[str]:
    """The words of a text of any script, without what parts them: its runs of letters, their marks, and digits."""
    runs = groupby(unicodedata.normalize("NFC", text), lambda c: unicodedata.category(c)[0] in "LMN")
    return ["".join(run) for of_word, run in runs if of_word]


def folder_name(text: str) -> str:
    """A text as a part of a path: of any script, without what a file system or a list of files gives a meaning."""
    return "_".join(words_of(text))

"""Show names from files safely on one line of output."""

import unicodedata
from typing import Final

_JOINERS: Final = "\u200c\u200d"  # within words of Persian, Hindi and others


def one_line(text: object) -> str:
    """A text with what would end the line, move the cursor or turn its direction as an escape, such as `\\n`."""
    text = str(text)
    if text.isprintable():  # by far the most are, and some are of megabytes
        return text
    return "".join(c if _stays(c) else c.encode("unicode_escape").decode("ascii") for c in text)


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

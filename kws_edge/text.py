"""Names that others have chosen, as files have them, on a line of output."""

import unicodedata


def one_line(text: object) -> str:
    """A text with what would end the line, move the cursor or turn its direction as an escape, such as `\\n`."""
    text = str(text)
    if text.isprintable():  # by far the most are, and some are of megabytes
        return text
    return "".join(
        c if c.isprintable() or unicodedata.category(c) == "Zs" else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def shortened(text: str, most: int = 80) -> str:
    """The beginning of a text that somebody else has chosen, of so many characters."""
    return text if len(text) <= most else text[:most] + "…"

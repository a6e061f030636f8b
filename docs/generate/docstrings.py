"""Read the project's docstrings for the site: `name : what it is` in one line, as the code has it, in numpydoc's form.

The types stand in the signatures, so a docstring's section says `target : the accuracy that ...`. numpydoc takes what
follows the colon for a type; here it becomes the description.
"""

import re
from typing import Any

from griffe import Extension, Object

_SECTIONS = ("Parameters", "Attributes", "Raises", "Returns", "Yields")
_HEAD = re.compile(rf"(?m)^({'|'.join(_SECTIONS)})\n-+\n")
_ENTRY = re.compile(r"^(?P<names>[*\w][\w, *.]*?) : (?P<text>.*)$")


class OneLineEntries(Extension):
    """Give every entry of a section its description on the lines below its name."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite an object's docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = numpydoc(obj.docstring.value)


def numpydoc(text: str) -> str:
    """The docstring with its sections in numpydoc's form.

    >>> print(numpydoc("Do it.\\n\\nRaises\\n------\\nSettingError : a rate\\n    below 1."))
    Do it.
    <BLANKLINE>
    Raises
    ------
    SettingError
        a rate
        below 1.
    """
    parts = _HEAD.split(text)
    result = [parts[0]]
    for section, body in zip(parts[1::2], parts[2::2], strict=True):
        lines: list[str] = []
        for line in body.split("\n"):
            entry = _ENTRY.match(line)
            if entry:
                names = entry["names"].split(", ")
                shared = [f"{name}\n    see `{names[-1]}`." for name in names[:-1]]
                lines += [*shared, names[-1], f"    {entry['text']}"]
            elif section in ("Returns", "Yields") and line and not line.startswith(" ") and not lines:
                lines += ["result", f"    {line}"]
            elif section in ("Returns", "Yields") and line and not line.startswith(" "):
                lines.append(f"    {line}")
            else:
                lines.append(line)
        result += [f"{section}\n{'-' * len(section)}\n", "\n".join(lines)]
    return "".join(result)

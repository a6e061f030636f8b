"""Whom to name for recordings or voices, and under which licence they are."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

NONE = "–"
_STATED = re.compile(r"(.+): (.+) \(([^()]+)\)\.?")
LICENCES = {
    "Apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
    "CC BY 3.0": "https://creativecommons.org/licenses/by/3.0/",
    "CC BY 4.0": "https://creativecommons.org/licenses/by/4.0/",
    "CC0-1.0": "https://creativecommons.org/publicdomain/zero/1.0/",
}
"""Where the text of a licence is."""


@dataclass(frozen=True, slots=True)
class Credit:
    """A source, as a card's table has it.

    Attributes
    ----------
    name : of the recordings or voices.
    licence : of them.
    by : who made them.
    """

    name: str
    licence: str
    by: str

    def __str__(self) -> str:
        """The same on one line, as in a model's file."""
        return f"{self.name}: {self.by} ({self.licence})"

    @classmethod
    def parse(cls, text: str) -> "Credit":
        """Read "NAME: BY (LICENCE)"; any other text is the name, and says what it says."""
        found = _STATED.fullmatch(text)
        return cls(found[1], found[3], found[2]) if found else cls(text, NONE, NONE)


def licence_links(named: Iterable[Credit]) -> str:
    """Links to the texts of the licences that are named, as markdown; empty where none is known."""
    licences = " ".join(credit.licence for credit in named)
    return ", ".join(f"[{name}]({address})" for name, address in LICENCES.items() if name in licences)

"""What recordings a model was trained on, whom to name for them, and under which licence its weights are.

Nobody but whoever made the recordings' folder, or wrote the recipe, knows that; so one of the two says it: the recipe
in `[about]`, or else the file about.toml in the folder. What neither says stays unsaid; nothing is assumed.
"""

from dataclasses import asdict, dataclass, fields
from pathlib import Path

from kws_edge.errors import SettingError
from kws_edge.text import shown
from kws_export.data.download import ABOUT_FILE
from kws_export.texts import UNSTATED
from kws_export.toml import read_toml


@dataclass(frozen=True, slots=True)
class About:
    """Texts for people, each on one line; empty for what is not known.

    Attributes
    ----------
    data : what the recordings are, such as "Speech Commands (P. Warden), v0.02".
    licence : of the weights, such as "Apache-2.0".
    attribution : whom to name for the recordings, with their licence.
    """

    data: str = ""
    licence: str = ""
    attribution: str = ""

    def __post_init__(self) -> None:
        """Join lines, of which a TOML text may have several: a card's table and a model's file take one."""
        for name, text in asdict(self).items():
            object.__setattr__(self, name, " ".join(text.split()))

    @classmethod
    def load(cls, path: Path) -> "About":
        """Read a TOML file: the table `[about]` of a recipe, or these keys alone.

        Raises
        ------
        SettingError : it cannot be read, is not TOML, or has other keys or values than texts.
        """
        settings = read_toml(path, "texts about recordings")
        table = settings.get("about", settings)
        names = [field.name for field in fields(cls)]
        texts = isinstance(table, dict) and all(isinstance(value, str) for value in table.values())
        if not texts or not set(table) <= set(names):
            raise SettingError(f"{path}: {shown(table)}; expected texts for {', '.join(names)}")
        return cls(**table)

    def or_else(self, other: "About") -> "About":
        """Fill in what is not known."""
        mine, theirs = asdict(self), asdict(other)
        return About(**{name: mine[name] or theirs[name] for name in mine})

    @property
    def stated(self) -> "About":
        """The same with a text for what is not known, for metadata and cards, which leave nothing empty."""
        return self.or_else(About(UNSTATED, UNSTATED, f"Source and licence of the recordings: {UNSTATED}."))


def about_folder(root: Path) -> About:
    """What a folder of recordings says of itself. Raises SettingError where its file is none."""
    path = root / ABOUT_FILE
    return About.load(path) if path.is_file() else About()

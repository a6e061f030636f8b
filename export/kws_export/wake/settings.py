"""Settings of `kws-export wake`: everything that determines the resulting model."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from kws_edge.errors import SettingError
from kws_edge.model.metadata import is_word
from kws_export.ranges import MOST_SEED, check_ranges, check_share
from kws_export.texts import check_phonemes, check_texts
from kws_export.voices import Utterance


@dataclass(frozen=True, slots=True)
class WakeWord:
    """A word or phrase.

    Attributes
    ----------
    text : as it is written, which is also its label.
    spoken : what the voices say, where that is not the text: its variants, such as another spelling.
    phonemes : how `text` is pronounced, in espeak-ng's notation; empty to leave that to the voices, as it is for all
        other spellings.
    """

    text: str
    spoken: tuple[str, ...] = ()
    phonemes: str = ""

    def __post_init__(self) -> None:
        """Refuse what can be no label."""
        if not self.text.strip() or not is_word(self.text) or self.text != self.text.strip() or "," in self.text:
            raise SettingError(
                f"wake word {self.text!r}; expected a text without commas, not beginning with _ or space"
            )
        check_texts([self.text])
        check_phonemes(self.phonemes)
        for said in self.spoken:  # two of them may differ by a comma alone, which a voice heeds
            check_texts([said])

    @property
    def said(self) -> tuple[str, ...]:
        """What the voices say."""
        return self.spoken or (self.text,)

    def utterances(self, language: str) -> list[Utterance]:
        """The same with their pronunciations."""
        return [Utterance(said, self.phonemes if said == self.text else "", language) for said in self.said]


@dataclass(frozen=True, slots=True)
class WakeSettings:
    """The words, the voices and the training.

    Attributes
    ----------
    words : at least one, all different.
    language : as espeak-ng calls it.
    voices : engines, or "auto", or "none".
    takes : of every word by the first engine; others by their share of naturalness (`sayings.SHARES`).
    near_misses : phrases that sound like a word, spoken as `_unknown_`.
    epochs, steps : length of the training; an epoch is so many steps.
    batch : windows in a step.
    peak_lr, final_lr, average : as in a recipe.
    memory : how much it counts that the first network's answers are kept, beside the words' own loss.
    limit : false accepts an hour, for the choice of the epoch and of the threshold.
    seed : of everything.
    """

    words: tuple[WakeWord, ...]
    language: str = "en-us"
    voices: tuple[str, ...] = ("auto",)
    takes: int = 600
    near_misses: int = 50
    epochs: int = 6
    steps: int = 120
    batch: int = 128
    peak_lr: float = 0.01
    final_lr: float = 0.0001
    average: float = 0.99
    memory: float = 0.3
    limit: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        labels = [word.text for word in self.words]
        if not labels or len({label.casefold() for label in labels}) < len(labels):
            raise SettingError(f"wake words {labels}; expected at least one, all different")
        check_texts(labels)
        least = {"takes": 1, "near_misses": 0, "epochs": 1, "steps": 1, "batch": 16}
        check_ranges("wake", self, {name: (low, math.inf) for name, low in least.items()})
        check_ranges("wake", self, {"seed": (0, MOST_SEED - 1_000_000)})  # a try that fails is followed by others
        if not self.limit > 0:
            raise SettingError(f"wake: limit={self.limit} false accepts an hour; expected above 0")
        if not self.memory >= 0:
            raise SettingError(f"wake: memory={self.memory}; expected at least 0")
        check_share("wake", self, "average")

    @property
    def labels(self) -> tuple[str, ...]:
        """The words, in the order of the outputs."""
        return tuple(word.text for word in self.words)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)

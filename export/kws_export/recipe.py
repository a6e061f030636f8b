"""A recipe: everything that decides what a training run produces, as one TOML file."""

import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from kws_edge.errors import SettingError
from kws_edge.variants import get_variant
from kws_export.augment import Augmentation
from kws_export.negatives import NegativeMix


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to train and how. The defaults are the design's, but for the epochs, which the machine's time decides.

    Attributes
    ----------
    name : of the run and of the model file that it becomes.
    variant : one of the nine evidential variants.
    labels : the words, in the order of the outputs; empty for every word with more than `min_clips` training clips.
    min_clips : see `labels`.
    repeat : R of MatchboxNet-3xRx64.
    epochs, batch : length of the run, clips per optimiser step over all processes.
    seed : of the weights, the sampling and the augmentation.
    balance : 0 draws clips as they come, 1 draws every word equally often, between them by n^(1 - balance).
    peak_lr, final_lr, warmup, hold : the warm-up-hold-decay schedule (schedule.py).
    weight_decay : None for the design's rule, 1e-3 without a KL term and 0 with one.
    augmentation : augment.py.
    negatives : windows without a word in every batch, negatives.py; only for variants with φ(e) = e + 1, since where
        φ(e) = e the data loss leaves the evidence without a scale, and "no evidence" would mean nothing.
    """

    name: str
    variant: str
    labels: tuple[str, ...] = ()
    min_clips: int = 300
    repeat: int = 1
    epochs: int = 200
    batch: int = 128
    seed: int = 1
    balance: float = 1.0
    peak_lr: float = 0.05
    final_lr: float = 0.001
    warmup: float = 0.05
    hold: float = 0.45
    weight_decay: float | None = None
    augmentation: Augmentation = field(default_factory=Augmentation)
    negatives: NegativeMix = field(default_factory=NegativeMix)

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        variant = get_variant(self.variant)
        if self.negatives.share > 0 and variant.alpha_offset == 0:
            raise SettingError(
                f"recipe {self.name}: negatives with variant {self.variant}, where φ(e) = e; "
                "expected a variant with φ(e) = e + 1, such as plugin_ce"
            )
        object.__setattr__(self, "labels", tuple(self.labels))
        for name in ("repeat", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise SettingError(f"recipe {self.name}: {name}={getattr(self, name)}; expected at least 1")
        if not 0 <= self.balance <= 1:
            raise SettingError(f"recipe {self.name}: balance={self.balance}; expected 0 to 1")

    @property
    def decay(self) -> float:
        """The weight decay that the run uses."""
        if self.weight_decay is not None:
            return self.weight_decay
        return 0.0 if get_variant(self.variant).kl_ramp_epochs else 1e-3

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, for the checkpoint and the model's metadata."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> "Recipe":
        """Rebuild from `to_dict` or a parsed TOML file. Raises SettingError for an unknown or missing key."""
        settings = dict(settings)
        augmentation, negatives = settings.pop("augmentation", {}), settings.pop("negatives", {})
        _check_keys(cls, settings, "recipe")
        _check_keys(Augmentation, augmentation, "recipe, [augmentation]")
        _check_keys(NegativeMix, negatives, "recipe, [negatives]")
        if missing := {"name", "variant"} - settings.keys():
            raise SettingError(f"recipe without {', '.join(sorted(missing))}; a recipe needs a name and a variant")
        return cls(**settings, augmentation=Augmentation(**augmentation), negatives=NegativeMix(**negatives))

    @classmethod
    def load(cls, path: Path) -> "Recipe":
        """Read a TOML file. Raises SettingError where it is missing, not TOML, or holds what a recipe cannot."""
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingError(f"cannot read the recipe {path}: {error.strerror}") from None
        except ValueError as error:
            raise SettingError(f"{path} is not a TOML file: {error}") from None
        return cls.from_dict({"name": path.stem, **settings})


def _check_keys(cls: type[Any], settings: dict[str, Any], where: str) -> None:
    known = {f.name for f in fields(cls)}
    if unknown := settings.keys() - known:
        raise SettingError(f"{where}: unknown {', '.join(sorted(unknown))}; expected among {', '.join(sorted(known))}")

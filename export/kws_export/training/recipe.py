"""A recipe: everything that decides what a training run produces, as one TOML file."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

from kws_edge.errors import SettingError
from kws_edge.model.metadata import Padding
from kws_edge.model.variants import get_variant
from kws_edge.text import is_one_line, shortened, shown
from kws_export.data.augment import Augmentation
from kws_export.data.negatives import NegativeMix
from kws_export.network.matchboxnet import WINDOW_STEP, Initialisation
from kws_export.ranges import MOST_SEED, check_ranges, check_share
from kws_export.toml import read_toml
from kws_export.training.about import About

MOST_WINDOWS = 10
"""That is 0.7 s more than one window; a stream that smooths for longer would answer too late."""


@dataclass(frozen=True, slots=True)
class Distillation:
    """What a run learns from other networks, beside the labels; distillation.py.

    Attributes
    ----------
    teacher : a checkpoint, a run's folder or an exported model of the same classes in the same order, of any size and
        variant, or several, whose mean answer counts; empty for none. Paths are seen from where the command runs.
    share : of the data loss that is the distance to the teacher's answers, not to the labels.
    temperature : how much both answers are softened before they are compared; 1 takes them as they are.
    """

    teacher: str | tuple[str, ...] = ""
    share: float = 0.5
    temperature: float = 2.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not isinstance(self.teacher, str):
            object.__setattr__(self, "teacher", tuple(self.teacher))
        if "" in self.teachers:
            raise SettingError(f"distillation: teacher={shown(self.teacher)}; expected no empty text among several")
        if not 0 < self.share <= 1:
            raise SettingError(f"distillation: share={self.share}; expected above 0, at most 1")
        check_ranges("distillation", self, {"temperature": (1, 20)})

    @property
    def teachers(self) -> tuple[str, ...]:
        """Each of them, also where there is one or none."""
        return self.teacher if isinstance(self.teacher, tuple) else tuple(filter(None, [self.teacher]))


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to train and how. The defaults are MatchboxNet's, but for the epochs, which the machine's time decides.

    Attributes
    ----------
    name : of the run and of the model file that it becomes; no spaces or path separators.
    variant : one of the evidential variants, kws_edge/model/variants.py.
    start : what the run takes its first weights from: a checkpoint, such as runs/softmax-base-1/best.pt, or an exported
        model, such as models/softmax.onnx. Of words that it does not know, the outputs start from random weights; of
        fewer channels, it is made wider (widen.py).
        Empty for random weights throughout.
    labels : the classes, in the order of the outputs: words, `_unknown_`, `_silence_` (splits.py); empty for every
        word with more than `min_clips` training clips.
    test_list : the list in the data set that names the test clips, such as official_test_v0.02.txt of the 12-class
        task; empty for the clips of the test split.
    min_clips : see `labels`.
    repeat, channels : R and C of MatchboxNet-3xRxC; channels in multiples of 16.
    padding : "same", or "valid" for a network that a stream computes hop by hop; see `MatchboxNet`.
    initialisation : of random weights: "fan_in", torch's own for convolutions, or "xavier", NeMo's.
    epochs, batch : length of the run, clips per optimiser step over all processes.
    seed : of the weights, the sampling and the augmentation.
    balance : 0 draws clips as they come, 1 draws every word equally often, between them by n^(1 - balance).
    peak_lr, final_lr, warmup, hold : the warm-up-hold-decay schedule (schedule.py).
    weight_decay : None for 1e-3 without a KL term and 0 with one.
    kl_end : None for the variant's own ramp of the KL term; else the weight that the ramp climbs to by the run's end.
    windows : how many windows in succession, 80 ms apart, are seen of each word: the loss is that of their mean answer,
        as a stream smooths (`smoothed_belief_ce`). More than one only for `belief_ce` and padding "valid", without a
        teacher.
    mixup : 0, or the parameter of the Beta distribution by which two clips are blended (mixup.py): 0.1 to 0.4 is usual.
    average : 0, or how much of the average of the weights, which is what is validated and exported, stays at each step:
        at 0.998 it covers about the last 500.
    augmentation : augment.py.
    distillation : see there.
    about : what the recordings are, for the model's card; empty for what about.toml in their folder says (about.py).
    negatives : windows without a word in every batch, negatives.py; only for variants with φ(e) = e + 1, since where
        φ(e) = e the data loss leaves the evidence without a scale, and "no evidence" would mean nothing.
    """

    name: str
    variant: str
    start: str = ""
    labels: tuple[str, ...] = ()
    test_list: str = ""
    min_clips: int = 300
    repeat: int = 1
    channels: int = 64
    padding: Padding = "same"
    initialisation: Initialisation = "fan_in"
    epochs: int = 200
    batch: int = 128
    seed: int = 1
    balance: float = 1.0
    peak_lr: float = 0.05
    final_lr: float = 0.001
    warmup: float = 0.05
    hold: float = 0.45
    weight_decay: float | None = None
    kl_end: float | None = None
    windows: int = 1
    mixup: float = 0.0
    average: float = 0.0
    augmentation: Augmentation = field(default_factory=Augmentation)
    about: About = field(default_factory=About)
    distillation: Distillation = field(default_factory=Distillation)
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
        if not self.name or any(c.isspace() or c in "/\\" for c in self.name) or not is_one_line(self.name):
            raise SettingError(
                f"recipe name {shown(self.name)}; expected printable characters without spaces or path separators"
            )
        if len(self.labels) == 1:
            raise SettingError(
                f'recipe {self.name}: labels={list(self.labels)}; expected "_unknown_" or "_silence_" beside one word, '
                "or `kws-export wake`, which adds both"
            )
        if len(set(self.labels)) < len(self.labels):
            raise SettingError(f"recipe {self.name}: labels={list(self.labels)}; expected all to be different")
        least = {"repeat": 1, "epochs": 1, "batch": 1, "min_clips": 0, "final_lr": 0}
        check_ranges(f"recipe {self.name}", self, {name: (low, math.inf) for name, low in least.items()})
        check_ranges(f"recipe {self.name}", self, {"seed": (0, MOST_SEED)})
        if self.channels < 16 or self.channels % 16:
            raise SettingError(f"recipe {self.name}: channels={self.channels}; expected a multiple of 16")
        if self.peak_lr <= 0:
            raise SettingError(f"recipe {self.name}: peak_lr={self.peak_lr}; expected above 0")
        if self.weight_decay is not None and self.weight_decay < 0:
            raise SettingError(f"recipe {self.name}: weight_decay={self.weight_decay}; expected at least 0")
        self._check_kl_end()
        if min(self.warmup, self.hold) < 0 or self.warmup + self.hold > 1:
            raise SettingError(
                f"recipe {self.name}: warmup={self.warmup}, hold={self.hold}; expected at least 0, together at most 1"
            )
        self._check_padding()
        self._check_windows()
        check_ranges(f"recipe {self.name}", self, {"mixup": (0, 10)})
        check_share(f"recipe {self.name}", self, "average")
        check_ranges(f"recipe {self.name}", self, {"balance": (0, 1)})

    def _check_kl_end(self) -> None:
        has_kl = get_variant(self.variant).kl_ramp_epochs is not None
        if self.kl_end is not None and (not 0 <= self.kl_end < math.inf or not has_kl):
            expected = "at least 0" if has_kl else "a variant with a KL term, such as plugin_ce_kl"
            raise SettingError(f"recipe {self.name}: kl_end={self.kl_end} with {self.variant}; expected {expected}")

    def _check_windows(self) -> None:
        check_ranges(f"recipe {self.name}", self, {"windows": (1, MOST_WINDOWS)})
        fits = self.variant == "belief_ce" and self.padding == "valid" and not self.distillation.teachers
        if self.windows > 1 and not fits:
            raise SettingError(
                f"recipe {self.name}: windows={self.windows}; "
                'expected variant "belief_ce", padding "valid" and no teacher'
            )

    def _check_padding(self) -> None:
        if self.padding == "valid" and self.repeat > 1:
            raise SettingError(
                f'recipe {self.name}: padding "valid" with repeat={self.repeat}, where one activation depends on more '
                "frames than a window has; expected repeat=1"
            )
        if self.padding == "same" and self.negatives.hard > 0:
            raise SettingError(
                f'recipe {self.name}: hard negatives with padding "same"; expected padding "valid", by which whole '
                "recordings are searched at once"
            )

    @property
    def extra_frames(self) -> int:
        """By which what is shown at once, all windows in succession, is longer than one window."""
        return (self.windows - 1) * WINDOW_STEP

    @property
    def decay(self) -> float:
        """The weight decay that the run uses."""
        if self.weight_decay is not None:
            return self.weight_decay
        return 0.0 if get_variant(self.variant).kl_ramp_epochs else 1e-3

    def differences(self, other: "Recipe") -> list[str]:
        """The names of the settings in which two recipes differ, apart from what they say about the recordings."""
        mine, others = self.to_dict(), other.to_dict()
        return [name for name in mine if mine[name] != others[name] and name != "about"]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, for the checkpoint and the model's metadata."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> "Recipe":
        """Rebuild from `to_dict` or a parsed TOML file. Raises SettingError for a key or value that cannot be."""
        settings = dict(settings)
        tables: dict[str, Any] = {}
        for name, kind in _TABLES.items():
            table = settings.pop(name, {})
            _check(kind, table, f"recipe, [{name}]")
            if kind is Distillation and table and "teacher" not in table:
                raise SettingError(
                    "recipe, [distillation] without a teacher; expected teacher = a file or run to learn from"
                )
            tables[name] = table
        _check(cls, settings, "recipe")
        if missing := {"name", "variant"} - settings.keys():
            raise SettingError(f"recipe without {', '.join(sorted(missing))}; a recipe needs a name and a variant")
        return cls(**settings, **{name: kind(**tables[name]) for name, kind in _TABLES.items()})

    @classmethod
    def load(cls, path: Path) -> "Recipe":
        """Read a TOML file. Raises SettingError where it is missing, not TOML, or holds what a recipe cannot."""
        return cls.from_dict({"name": path.stem, **read_toml(path, "a recipe")})


_TABLES: dict[str, type[Any]] = {
    "about": About,
    "augmentation": Augmentation,
    "distillation": Distillation,
    "negatives": NegativeMix,
}
"""The fields that are tables of a recipe's file."""


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def _is_list(value: Any, of: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and all(of(item) for item in value)


def _is_texts(value: Any) -> bool:
    return _is_list(value, lambda item: isinstance(item, str))


_KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    Initialisation: (
        f"one of {', '.join(get_args(Initialisation))}",
        lambda value: value in get_args(Initialisation),
    ),
    Padding: (f"one of {', '.join(get_args(Padding))}", lambda value: value in get_args(Padding)),
    str: ("a text", lambda value: isinstance(value, str)),
    int: ("a whole number", _is_whole),
    float: ("a number", _is_number),
    float | None: ("a number", lambda value: value is None or _is_number(value)),
    tuple[str, ...]: ("a list of texts", _is_texts),
    str | tuple[str, ...]: ("a text or a list of texts", lambda value: isinstance(value, str) or _is_texts(value)),
    tuple[float, float]: ("a list of two numbers", lambda value: _is_list(value, _is_number)),
}
"""A field's type → what to call it, and whether a value from a file is of it."""


def _check(cls: type[Any], settings: Any, where: str) -> None:
    """Refuse unknown keys, and values of another type than the dataclass's field."""
    known = get_type_hints(cls)
    if not isinstance(settings, dict):
        raise SettingError(f"{where}: {shown(settings)}; expected a table of named values")
    if unknown := settings.keys() - known:
        listed = shortened(", ".join(sorted(unknown)), 200)
        raise SettingError(f"{where}: unknown {listed}; expected among {', '.join(sorted(known))}")
    for name, value in settings.items():
        kind, fits = _KINDS[known[name]]
        if not fits(value):
            raise SettingError(f"{where}: {name}={shown(value)}; expected {kind}")

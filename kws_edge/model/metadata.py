"""The description of a model: the JSON in `metadata_props["kws_edge"]` of the ONNX file.

Whatever writes a model builds a `Metadata` and stores `to_json()`; whatever loads one reads it with `from_json`, which
refuses anything that it does not understand. Nothing about a model is known from elsewhere.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Final, Literal, NoReturn, TypeAlias, get_args

from kws_edge.errors import ModelError, SettingError
from kws_edge.model.features import FrontEnd
from kws_edge.model.score import SCORES, Score
from kws_edge.model.selection import OperatingPoint
from kws_edge.model.target import Target, parse_target
from kws_edge.model.variants import VARIANTS
from kws_edge.text import is_one_line, shown

KEY: Final = "kws_edge"
"""The key under which an ONNX file holds the JSON."""

SCHEMA: Final = 1
"""The version of the fields below; a change that an older reader would misread raises it."""

Padding: TypeAlias = Literal["same", "valid"]

SILENCE_CLASS: Final = "_silence_"

LONGEST_NAME: Final = 200
"""Characters of a model's name, and of a label."""
_LONGEST_NOTE: Final = 10_000

_ACCURACY = {"accuracy", "low", "high", "clips"}


def is_word(label: str) -> bool:
    """Whether a label is a word, and not a class such as `_unknown_` or `_silence_`."""
    return not label.startswith("_")


WAKE_WORD: Final = "wake word"
"""The `purpose`, in `Metadata.training`, of a model of `kws-export wake` or `kws-edge enroll`."""


def is_wake_model(metadata: "Metadata") -> bool:
    """Whether a model is to be silent about all but its words, so that "not sure" is no answer of its."""
    return metadata.training.get("purpose") == WAKE_WORD


TEMPLATE: Final = "template of takes"
"""The `method`, in `Metadata.training`, of a model of `kws-edge enroll`."""


def is_searched(metadata: "Metadata") -> bool:
    """Whether clips that fit the network's input are searched, too: a template knows a word only where it lies in the
    window as it lay in that of the takes, with room around it."""
    return metadata.training.get("method") == TEMPLATE


@dataclass(frozen=True, slots=True)
class Metadata:
    """A model's description; impossible or contradictory values are refused when it is made.

    Attributes
    ----------
    name : name of the model, without spaces or path separators, so that it can be given on the command line.
    labels : the words, in the order of α; at least two, all different, each of one line. A label that begins
        with an underscore (`_unknown_`, `_silence_`) is not a word, and is never an answer.
    variant : one of the twelve variants of the method, such as "softmax".
    front_end : the settings of the MFCC that the network was trained on.
    score : the uncertainty that decides by default whether a label is withheld.
    thresholds : score → its operating points, one per calibrated target, in rising order of targets. Empty if the
        model is not calibrated; otherwise it has at least the default score.
    calibration : how the thresholds were chosen: split, clips, method.
    training : how the weights were trained: data, recipe, epochs, seed, repeat, parameters and the like. `purpose` is
        "wake word" for a model that should report its words and nothing else.
    accuracy : split → {accuracy, low, high, clips}: a fraction, its 95 % interval and the number of clips.
    licence, attribution : licence of the weights, and whom to name for the training data.
    stream : settings for streams and their calibration; None if the model is not calibrated on streams.
    padding : "same" if the network sees zeros beyond the edges of a window, so that each window of a stream is computed
        anew. "valid" if not: a window of a stream then has `front_end.frames` frames of sound, and its outputs can be
        computed from the new frames alone. A file without this field is "same".
    schema : the version of this list of fields.

    Raises
    ------
    ModelError : names the field, what was found and what was expected.

    Examples
    --------
    >>> from kws_edge import KeywordModel
    >>> metadata = KeywordModel.load("softmax").metadata
    >>> metadata.score, [point.target for point in metadata.thresholds["entropy"]]
    ('entropy', [0.99, 0.995, 0.999])
    """

    name: str
    labels: tuple[str, ...]
    variant: str
    front_end: FrontEnd
    score: Score
    thresholds: Mapping[str, tuple[OperatingPoint, ...]]
    calibration: Mapping[str, Any]
    training: Mapping[str, Any]
    accuracy: Mapping[str, Mapping[str, float]]
    licence: str
    attribution: str
    stream: Mapping[str, Any] | None = None
    padding: Padding = "same"
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Check every field."""
        _check_schema(self.schema)
        for field, most in (("name", LONGEST_NAME), ("licence", _LONGEST_NOTE), ("attribution", _LONGEST_NOTE)):
            if not _is_text(getattr(self, field), most):
                _refuse(field, getattr(self, field), f"a text of one line, up to {most} characters")
        if any(c.isspace() or c in "/\\" for c in self.name):
            _refuse("name", self.name, "no spaces or path separators")
        if not isinstance(self.labels, tuple) or not all(_is_text(w, LONGEST_NAME) for w in self.labels):
            _refuse("labels", self.labels, f"a list of words, each of one line and up to {LONGEST_NAME} characters")
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            _refuse("labels", self.labels, "at least 2 words, all different")
        if not isinstance(self.variant, str) or self.variant not in VARIANTS:
            _refuse("variant", self.variant, f"one of {', '.join(VARIANTS)}")
        if self.padding not in get_args(Padding):
            _refuse("padding", self.padding, f"one of {', '.join(get_args(Padding))}")
        if not isinstance(self.front_end, FrontEnd):
            _refuse("front_end", self.front_end, "front-end settings")
        for field in ("thresholds", "calibration", "training", "accuracy"):
            _check_object(field, getattr(self, field))
        if self.stream is not None:
            _check_object("stream", self.stream)
        self._check_thresholds()
        self._check_accuracy()

    def _check_thresholds(self) -> None:
        if self.score not in SCORES:
            _refuse("score", self.score, f"one of {', '.join(SCORES)}")
        unknown = self.thresholds.keys() - set(SCORES)
        if unknown:
            _refuse("thresholds", sorted(unknown), f"scores among {', '.join(SCORES)}")
        if self.thresholds and self.score not in self.thresholds:
            _refuse("thresholds", sorted(self.thresholds), f"the default score, {self.score}, among them")
        for score, points in self.thresholds.items():
            if not points or not all(isinstance(point, OperatingPoint) for point in points):
                _refuse(f"thresholds.{score}", points, "at least one operating point")
            targets = [point.target for point in points]
            if any(b <= a for a, b in pairwise(targets)):
                _refuse(f"thresholds.{score}", targets, "rising targets")

    def _check_accuracy(self) -> None:
        for split, result in self.accuracy.items():
            _check_object(f"accuracy.{split}", result)
            if result.keys() != _ACCURACY:
                _refuse(f"accuracy.{split}", sorted(result), ", ".join(sorted(_ACCURACY)))
            clips = result["clips"]
            if not isinstance(clips, int) or isinstance(clips, bool) or clips < 1:
                _refuse(f"accuracy.{split}.clips", clips, "a whole number above 0")
            bounds = [result[key] for key in ("low", "accuracy", "high")]
            if not all(isinstance(b, int | float) for b in bounds) or not 0 <= bounds[0] <= bounds[1] <= bounds[2] <= 1:
                _refuse(f"accuracy.{split}", dict(result), "0 <= low <= accuracy <= high <= 1")

    def threshold(self, score: str, target: Target) -> OperatingPoint:
        """The operating point of a score, `entropy` or `vacuity`, for a target: 0.995, 99.5 and "99.5 %" are one.

        Raises
        ------
        SettingError : not a target, or no threshold for this score and target; the message lists those that exist.

        Examples
        --------
        >>> from kws_edge import KeywordModel
        >>> metadata = KeywordModel.load().metadata
        >>> point = metadata.threshold("entropy", 0.995)
        >>> point.accepted_accuracy >= 0.995
        True
        >>> metadata.threshold("entropy", 0.999).coverage <= point.coverage
        True
        """
        target = parse_target(target)
        for point in self.thresholds.get(score, ()) if isinstance(score, str) else ():
            if math.isclose(point.target, target, abs_tol=1e-9):
                return point
        calibrated = "; ".join(
            f"{name} at {', '.join(f'{point.target:g} ({100 * point.target:g} %)' for point in points)}"
            for name, points in self.thresholds.items()
        )
        raise SettingError(
            f"model {self.name}: no threshold for score {score!r} at target {target:g} ({100 * target:g} %); "
            f"expected {calibrated or 'a calibrated model: this one has no thresholds at all'}"
        )

    def to_json(self) -> str:
        """The text that goes into the file: plain JSON, without NaN or infinities.

        Raises
        ------
        ModelError : a free field (calibration, training, stream) holds something that JSON cannot.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["front_end"] = self.front_end.to_dict()
        values["thresholds"] = {score: [p.to_dict() for p in points] for score, points in self.thresholds.items()}
        try:
            return json.dumps(values, allow_nan=False, ensure_ascii=False, sort_keys=True)
        except (TypeError, ValueError) as error:
            raise ModelError(f"metadata: {error}; expected values that JSON can hold") from None

    @classmethod
    def from_json(cls, text: str) -> "Metadata":
        """Read `to_json`'s text.

        Raises
        ------
        ModelError : it is not JSON; its schema is not the one that this version reads; a field is missing, unknown or
            impossible.
        """
        try:
            values = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"metadata: not JSON ({error}); expected what kws-export writes") from None
        _check_object("metadata", values)
        _check_schema(values.get("schema"))  # before the fields: another version has others
        names = {field.name for field in fields(cls)}
        values.setdefault("padding", "same")
        if values.keys() != names:
            missing, unknown = sorted(names - values.keys()), sorted(values.keys() - names)
            raise ModelError(f"metadata: missing {missing}, unknown {shown(unknown, 200)}; expected {sorted(names)}")
        if isinstance(values["labels"], list):
            values["labels"] = tuple(values["labels"])
        thresholds = _check_object("thresholds", values["thresholds"])
        try:
            values["front_end"] = FrontEnd.from_dict(_check_object("front_end", values["front_end"]))
            values["thresholds"] = {score: _operating_points(score, points) for score, points in thresholds.items()}
        except (SettingError, OverflowError) as error:  # JSON has integers that no float can hold
            raise ModelError(f"metadata: {error}") from None
        return cls(**values)


def _operating_points(score: str, points: Any) -> tuple[OperatingPoint, ...]:
    field = f"thresholds.{score}"
    if not isinstance(points, list):
        _refuse(field, points, "a list of operating points")
    return tuple(OperatingPoint.from_dict(_check_object(field, point)) for point in points)


def _is_text(value: object, most: int) -> bool:
    """Whether it can be shown to somebody: not a line end, nor what moves a terminal's cursor or turns a line round."""
    return isinstance(value, str) and bool(value.strip()) and len(value) <= most and is_one_line(value)


def _check_schema(schema: Any) -> None:
    if isinstance(schema, bool) or schema != SCHEMA:
        _refuse("schema", schema, f"{SCHEMA}, the version that this kws-edge supports")


def _check_object(field: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        _refuse(field, value, "an object of named values")
    return value


def _refuse(field: str, found: object, expected: str) -> NoReturn:
    found = list(found) if isinstance(found, tuple) else found
    raise ModelError(f"metadata: {field}: found {shown(found)}; expected {expected}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")

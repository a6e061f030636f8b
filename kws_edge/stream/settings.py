"""What decides: the settings of a stream, and the words that give events."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from kws_edge.errors import ModelError, SettingError, check_names
from kws_edge.model.metadata import Metadata, is_word
from kws_edge.model.score import SCORES
from kws_edge.model.search import MAX_SMOOTHING
from kws_edge.model.selection import DEFAULT_TARGET, WITHHOLD_ALL
from kws_edge.model.target import Target
from kws_edge.text import folder_name, shortened, shown

MAX_CROWDING: Final = 20.0


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Settings of the decision; a calibrated model has its own. Durations are in seconds, whatever the hop.

    Attributes
    ----------
    thresholds : score → the highest accepted uncertainty; if there are two, both must hold.
    labels : label → thresholds that replace those above for that label.
    probability : the lowest accepted p̂, 0 to 1.
    smoothing : time over which windows are averaged, 0 (the last window alone) to 0.9.
    hysteresis : how far a score must rise from its threshold towards 1 to arm the decision again, 0 to 1.
    rearm : how long it must stay there, or another label be the best, 0 to 10.
    refractory : shortest time between events, 0 to 60.
    crowding : how much more certain a word must be amid sound as loud as itself, such as running speech, 0 (not at all)
        to 20: it is added to the logit of the scores for each recent second of such sound. 0 in older files.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from kws_edge import KeywordModel, Spotter, StreamSettings
    >>> model = KeywordModel.load()
    >>> settings = StreamSettings.of(model.metadata)
    >>> patient = Spotter(model, settings=replace(settings, refractory=2.0))
    >>> patient.settings.refractory
    2.0
    """

    thresholds: Mapping[str, float]
    labels: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    probability: float = 0.0
    smoothing: float = 0.3
    hysteresis: float = 0.25
    rearm: float = 0.3
    refractory: float = 0.8
    crowding: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, with a SettingError that names the field."""
        if not isinstance(self.labels, Mapping):
            raise SettingError(
                f"stream settings: labels={shown(self.labels)}; expected an object of label to thresholds"
            )
        for name, thresholds in (("thresholds", self.thresholds), *self.labels.items()):
            if not isinstance(thresholds, Mapping) or not thresholds or thresholds.keys() - set(SCORES):
                raise SettingError(
                    f"stream settings: {shortened(name)}={shown(thresholds)}; expected a number for one "
                    f"or both of {', '.join(SCORES)}"
                )
            for score, threshold in thresholds.items():
                _check(f"{name}.{score}", threshold, WITHHOLD_ALL, -WITHHOLD_ALL)
        for label, thresholds in self.labels.items():
            if thresholds.keys() - self.thresholds.keys():
                raise SettingError(
                    f"stream settings: {label}={dict(thresholds)}; expected scores among {', '.join(self.thresholds)}"
                )
        ranges = {"probability": 1, "smoothing": MAX_SMOOTHING, "hysteresis": 1, "rearm": 10, "refractory": 60}
        ranges["crowding"] = MAX_CROWDING
        for name, most in ranges.items():
            _check(name, getattr(self, name), 0, most)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        labels = {label: dict(thresholds) for label, thresholds in self.labels.items()}
        return asdict(replace(self, thresholds=dict(self.thresholds), labels=labels))

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "StreamSettings":
        """Rebuild from `to_dict`. Raises SettingError for a missing, unknown or impossible setting."""
        settings = {"crowding": 0.0, **settings}
        check_names("stream settings", settings, [f.name for f in fields(cls)])
        return cls(**settings)

    @classmethod
    def of(cls, metadata: Metadata, *, score: str | None = None, target: Target | None = None) -> "StreamSettings":
        """The settings in a model file.

        These are `stream["settings"]` of its metadata. If the model is not calibrated on streams, or a score or target
        is given, the thresholds are those for clips.

        Parameters
        ----------
        score : "entropy", "vacuity" or "both"; None for the model's own.
        target : the accuracy of accepted clips, as 0.995, 99.5 or "99.5 %"; None for 0.995.

        Raises
        ------
        SettingError : there is no threshold for this score and target.
        ModelError : the file's stream settings are malformed.
        """
        calibrated = None
        if metadata.stream is not None:
            try:
                calibrated = cls.from_dict(metadata.stream["settings"])
            except (KeyError, TypeError, SettingError) as e:
                raise ModelError(f"model {metadata.name}: stream: {e}; calibrate it again") from None
            if score is None and target is None:
                return calibrated
        scores = SCORES if score == "both" else (score or metadata.score,)
        thresholds = {s: metadata.threshold(s, DEFAULT_TARGET if target is None else target).threshold for s in scores}
        return replace(calibrated, thresholds=thresholds, labels={}, crowding=0.0) if calibrated else cls(thresholds)

    @classmethod
    def after_wake(cls, metadata: Metadata) -> "StreamSettings":
        """The settings for commands after a wake word.

        These are `stream["after_wake"]` of the metadata (`kws-edge calibrate --after-wake`), or otherwise the
        thresholds for clips at a target of 0.995, which are looser than those for streams. The latter have no crowding,
        because the wake word itself was said just before.

        Raises
        ------
        SettingError, ModelError : as `of`.
        """
        stored = (metadata.stream or {}).get("after_wake")
        if stored is None:
            return cls.of(metadata, target=DEFAULT_TARGET)
        try:
            return cls.from_dict(stored["settings"])
        except (KeyError, TypeError, SettingError) as e:
            raise ModelError(f"model {metadata.name}: stream: after_wake: {e}; calibrate it again") from None


def label_of(word: str, labels: Sequence[str]) -> str | None:
    """The label that is meant by a word; None where it is none, or might be one of several.

    It may be written in capitals or not, or as the folder of its takes, such as hey_computer for "hey computer".
    """
    name = word.casefold()
    folders = {label: folder_name(label).casefold() for label in labels if is_word(label)}
    alike = [label for label in labels if name in (label.casefold(), folders.get(label))]
    return labels[labels.index(word)] if word in labels else alike[0] if len(alike) == 1 else None


def chosen_labels(words: Collection[str] | None, labels: Sequence[str]) -> list[str]:
    """The labels that are meant by words in capitals or not; all of them for None.

    Raises
    ------
    SettingError : no collection of texts, none at all, or one that is no label, or of which two labels differ by
        capitals alone and neither is written so; or none of them is a word, of which alone there are events.
    """
    if words is None:
        return list(labels)
    if isinstance(words, str) or not isinstance(words, Collection) or not all(isinstance(word, str) for word in words):
        example, given = shown(words if isinstance(words, str) and words in labels else labels[0]), shown(words)
        raise SettingError(f"words={given}; expected a set or a list of words, such as {{{example}}}")
    chosen, unknown = [], []
    for word in words:
        label = label_of(word, labels)
        if label is None:
            unknown.append(word)
        else:
            chosen.append(label)
    if unknown or not any(map(is_word, chosen)):
        listed = shortened(", ".join(word or shown(word) for word in unknown or chosen), 200) or "none"
        raise SettingError(f"words: {listed}; expected one or more of {', '.join(filter(is_word, labels))}")
    return list(dict.fromkeys(chosen))


def commands_of(words: Collection[str], wakes: Collection[str], labels: Sequence[str]) -> list[str]:
    """The words that are commands: a wake word is none too, else it would be an event of each decision.

    Raises SettingError where none is left, so that nothing could follow the wake word.
    """
    commands = [word for word in words if word not in wakes]
    if not any(map(is_word, commands)):
        others = ", ".join(word for word in labels if is_word(word) and word not in wakes)
        raise SettingError(
            f"words: no command beside the wake words {', '.join(wakes)}; expected "
            f"{f'one or more of {others}' if others else 'a model with other words'}, or no wake word"
        )
    return commands


def event_words(
    metadata: Metadata, words: Collection[str] | None, *, own_settings: bool, after_wake: bool = False
) -> list[str]:
    """The labels that give events: those chosen, or those for which alone the model's own settings hold, or all.

    Where they follow a wake word, the model's own settings are those for after one.

    Raises
    ------
    SettingError, ModelError : as `chosen_labels` and `calibrated_words`.
    """
    if words is None and own_settings:
        words = calibrated_words(metadata, after_wake=after_wake)
    return chosen_labels(words, metadata.labels)


def calibrated_words(metadata: Metadata, *, after_wake: bool = False) -> list[str] | None:
    """The words for which alone the model's stream settings were calibrated; None where for all.

    Raises ModelError where the file names others than the model's.
    """
    stream = metadata.stream or {}
    settings = stream.get("after_wake") if after_wake else stream
    calibration = settings.get("calibration") if isinstance(settings, Mapping) else None
    words = calibration.get("words_chosen") if isinstance(calibration, Mapping) else None
    try:
        return None if words is None else chosen_labels(words, metadata.labels)
    except SettingError as e:
        raise ModelError(f"model {metadata.name}: stream: calibrated for {e}; calibrate it again") from None


def _check(name: str, value: float, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise SettingError(
            f"stream settings: {shortened(name)}={shown(value)}; expected a number from {least:g} to {most:g}"
        )

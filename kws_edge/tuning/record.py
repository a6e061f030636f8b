"""Record a calibration on streams in all forms of a model."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kws_edge.errors import SettingError
from kws_edge.model.metadata import Metadata
from kws_edge.model.onnx_file import check_target, model_name, write_copy
from kws_edge.stream.framing import DEFAULT_HOP
from kws_edge.stream.incremental import SUFFIX
from kws_edge.tuning.false_accepts import FalseAccepts
from kws_edge.tuning.points import Point

FORMS: Final = (SUFFIX, ".audio.onnx", f".audio{SUFFIX}")
"""The endings of other forms of NAME.onnx, which lie beside it: the same network, and the same metadata."""


def stream_record(
    point: Point,
    limit: float,
    *,
    method: str,
    words: Sequence[str] | None,
    positives: Mapping[str, Any],
    tried: Mapping[str, Any],
    seed: int,
    hop: float = DEFAULT_HOP,
    sounds: Collection[str] = (),
) -> dict[str, Any]:
    """The `stream` of a model's metadata: the chosen settings, and what they were chosen on, in JSON types.

    Parameters
    ----------
    point : what was chosen, and what it gave.
    limit : false accepts per hour that were allowed on each of the recordings without words.
    method : how it was chosen, in a phrase.
    words : that it was chosen for; None for all of the model's.
    positives : `clips`, how many; `from`, their list or folder; `snr`, in dB, None for silence.
    tried : what was tried: `smoothing`, `score`, `crowding`, `per_label`.
    sounds : names of the recordings without words that hold no speech.
    """
    negatives = FalseAccepts(point.negatives, sounds)
    about = {
        "method": method,
        "limit": limit,
        "limit_shown": negatives.shows(limit),
        "words_chosen": None if words is None else list(words),
        "hop": hop,
        "seed": seed,
        "positives": positives,
        "tried": tried,
        "words": point.words.to_dict(),
        **negatives.to_dict(),
    }
    plain: dict[str, Any] = json.loads(json.dumps({"settings": point.settings.to_dict(), "calibration": about}))
    return plain


def write_forms(source: Path, out: Path, metadata: Metadata, *, overwrite: bool) -> None:
    """Write a model with other metadata, and the forms of it that lie beside it; the copy is named as its file.

    Forms that lie beside the target and that the source lacks are removed: they are another network's, and would be
    taken for this one's.

    Raises
    ------
    SettingError, ModelError : as `write_copy`, for each of the forms, and before any is written where one exists.
    """
    check_targets(source, out, overwrite=overwrite)
    metadata = replace(metadata, name=model_name(out))
    for form in FORMS:
        beside, target = source.with_suffix(form), out.with_suffix(form)
        if beside.exists():
            write_copy(beside, target, metadata, overwrite=overwrite)
        else:
            _remove(target)
    write_copy(source, out, metadata, overwrite=overwrite)  # last, as it says that the others are there


def name_for(out: Path) -> str:
    """What a model is called that is written to a path. Raises SettingError where that is no name, or a form's."""
    for form in FORMS:
        if out.name.endswith(form):
            raise SettingError(f"cannot write {out}; expected a name that does not end in {form}, as a form of a model")
    return model_name(out)


def check_targets(source: Path, out: Path, *, overwrite: bool) -> None:
    """Raise SettingError where `write_forms` must not write: over the model itself, or what is not to be overwritten.

    A form that the source lacks counts too, since it would be taken for the new model's. And so does what `name_for`
    refuses.
    """
    name_for(out)
    for target in (out, *(out.with_suffix(form) for form in FORMS)):
        check_target(source, target, overwrite=overwrite)


def remove_forms(out: Path) -> None:
    """Remove the forms that lie beside a model that is to be overwritten, where the new model has none.

    Raises SettingError where one cannot be removed.
    """
    for form in FORMS:
        _remove(out.with_suffix(form))


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise SettingError(
            f"cannot remove {path}: {error.strerror}; expected to, since it is a form of the model that was overwritten"
        ) from None

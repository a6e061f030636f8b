"""Write new metadata into a copy of a model file, without the onnx package.

An ONNX file is a protobuf message. The metadata are its fields 14, each a message of a name (field 1) and a text
(field 2). All others are copied as they are.

Source: ModelProto and StringStringEntryProto of onnx.proto.
"""

import os
import re
from pathlib import Path

from kws_edge.errors import ModelError, SettingError
from kws_edge.files import check_new, read_model, write_named
from kws_edge.model.metadata import KEY, LONGEST_NAME, Metadata
from kws_edge.model.onnx_fields import METADATA_PROPS
from kws_edge.model.protobuf import bytes_field, fields, values
from kws_edge.text import is_one_line, one_line, shortened

_NAME, _TEXT = 1, 2  # of StringStringEntryProto


def write_copy(source: Path, target: Path, metadata: Metadata, *, overwrite: bool = False) -> None:
    """Copy a model's file, with other metadata. The copy appears whole or not at all; the source is never touched.

    Raises
    ------
    ModelError : the source cannot be read, or is no ONNX file.
    SettingError : the target is the source, exists and is not to be overwritten, or cannot be written.
    """
    try:
        data = read_model(source)
    except OSError as error:
        raise ModelError(f"{source}: {error.strerror}; expected an ONNX file") from None
    check_target(source, target, overwrite=overwrite)
    try:
        changed = with_metadata(data, metadata)
    except ModelError as error:
        raise ModelError(f"{source}: {error}") from None
    write_whole(target, changed, mode=source.stat().st_mode & 0o666)


def write_whole(target: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a model's file, which appears whole or not at all. Raises SettingError where it cannot be written."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"cannot write {target}: {error.strerror}") from None
    write_named(target, data, mode=mode)


def model_name(path: Path) -> str:
    """What a model is called that is written to a path: as the file, without spaces.

    Raises SettingError where that cannot be shown on a line, or is too long for it.
    """
    name = re.sub(r"[\s/\\]+", "_", path.stem)
    if not is_one_line(name) or len(name) > LONGEST_NAME:
        raise SettingError(
            f"cannot write {shortened(one_line(path), 300)}; expected a name of printable characters, up to "
            f"{LONGEST_NAME} of them"
        )
    return name


def check_target(source: Path, target: Path, *, overwrite: bool) -> None:
    """Raise SettingError where a copy of `source` must not go to `target`."""
    if target.suffix != ".onnx":
        raise SettingError(f"cannot write {target}; expected a name that ends in .onnx")
    folder = next(parent for parent in target.absolute().parents if parent.exists())  # those below it are made
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise SettingError(f"cannot write {target}; expected a folder that can be written, not {folder}")
    if target.exists() and source.exists() and target.samefile(source):
        raise SettingError(f"{target} is the model itself; expected another name, for a copy")
    check_new(target, overwrite=overwrite)


def with_metadata(data: bytes, metadata: Metadata) -> bytes:
    """The bytes of an ONNX file with these metadata in place of its own. Raises ModelError where it is damaged."""
    kept = b"".join(
        data[start:end]
        for number, start, value, end in fields(data)
        if number != METADATA_PROPS or _name(data[value:end]) != KEY.encode()
    )
    entry = bytes_field(_NAME, KEY.encode()) + bytes_field(_TEXT, metadata.to_json().encode())
    return kept + bytes_field(METADATA_PROPS, entry)


def _name(entry: bytes) -> bytes | None:
    """The name in a metadata entry; of several, the last counts."""
    names = values(entry, _NAME)
    return names[-1] if names else None

"""The models that come with the package, and what is meant by a model's name."""

import os
from pathlib import Path
from typing import Final

from kws_edge.errors import SettingError
from kws_edge.text import shortened

DEFAULT_MODEL: Final = "stream"

_package = Path(__file__).parent.parent
MODELS: Final = _package / "models" if (_package / "models").is_dir() else _package.parent / "models"
"""The folder of the shipped models: inside an installed package, or at the top of a checkout."""


def shipped_models(folder: Path | None = None) -> dict[str, Path]:
    """The models that come with the package, or those of another folder, name → file.

    The other forms of a model are not listed: NAME.step.onnx for streams, and NAME.audio.onnx and NAME.audio.step.onnx,
    whose graphs include the front end.

    Examples
    --------
    >>> from kws_edge import shipped_models
    >>> "stream" in shipped_models(), shipped_models()["softmax"].name
    (True, 'softmax.onnx')
    """
    files = (path for path in (folder or MODELS).glob("*.onnx") if "." not in path.stem)
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def find_model(model: str | os.PathLike[str] | None) -> Path:
    """The file that is meant by None (the default model), the name of a shipped model, or a path.

    Raises
    ------
    SettingError : there is no shipped model of that name.
    """
    name = DEFAULT_MODEL if model is None else model
    if not isinstance(name, str | os.PathLike):
        raise SettingError(f"a model of type {type(name).__name__}; expected the name of a shipped one, or a path")
    if not isinstance(name, str) or name.endswith(".onnx") or Path(name).name != name:
        return Path(name)
    shipped = shipped_models()
    if name not in shipped:
        names = ", ".join(shipped) or f"none in {MODELS}"
        raise SettingError(
            f"no shipped model {shortened(repr(name))}; expected one of: {names}; or a path to an .onnx file"
        )
    return shipped[name]

"""TOML files, whoever wrote them."""

import tomllib
from pathlib import Path
from typing import Any

from kws_edge.errors import SettingError
from kws_edge.files import read_text


def read_toml(path: Path, expected: str) -> dict[str, Any]:
    """Read a file.

    Parameters
    ----------
    expected : what it should be, for messages, such as "a recipe".

    Raises
    ------
    SettingError : it cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(read_text(path))
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}; expected {expected}") from None
    except ValueError as error:
        raise SettingError(f"{path} is not a TOML file: {error}; expected {expected}") from None
    except RecursionError:
        raise SettingError(f"{path} is nested too deeply; expected {expected}") from None

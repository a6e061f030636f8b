"""Where what is downloaded or made once is kept for later commands, and whether a place takes what is to be made."""

import os
from pathlib import Path
from tempfile import TemporaryFile

from kws_edge.errors import SettingError


def stored(name: str) -> Path:
    """The folder of that name in `$KWS_EXPORT_CACHE`, or else in ~/.cache/kws-export; it may not exist yet."""
    return Path(os.environ.get("KWS_EXPORT_CACHE") or "~/.cache/kws-export").expanduser() / name


def check_writable(out: Path) -> None:
    """Make the folder of a file that will take long to make. Raises SettingError where nothing can be written there."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out.parent).close()
    except OSError as error:
        raise SettingError(f"cannot write {out}: {error.strerror}") from None

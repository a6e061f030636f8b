"""Where what is downloaded or made once is kept for later commands."""

import os
from pathlib import Path


def stored(name: str) -> Path:
    """The folder of that name in `$KWS_EXPORT_CACHE`, or else in ~/.cache/kws-export; it may not exist yet."""
    return Path(os.environ.get("KWS_EXPORT_CACHE") or "~/.cache/kws-export").expanduser() / name

"""Files that appear whole or not at all."""

import os
import secrets
from pathlib import Path

PARTIAL = ".partial"
"""The suffix of a file that is still being written; one that is left over, after a power cut, can be deleted."""


def replace_file(path: Path, content: bytes | str, *, mode: int | None = None) -> None:
    """Write a file whole: whoever looks, or a power cut at any moment, finds the old content or the new.

    Parameters
    ----------
    content : bytes, or text, which becomes UTF-8.
    mode : permissions; None for those of a new file.

    Raises
    ------
    OSError : it cannot be written; what was there stays as it was.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        with partial.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())  # else a power cut can leave the new name without its content
        if mode is not None:
            partial.chmod(mode)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise

"""Where what is downloaded or made once is kept for later commands, and whether a place takes what is to be made."""

import os
from pathlib import Path
from tempfile import TemporaryFile

from kws_edge.errors import SettingError
from kws_edge.files import check_new
from kws_edge.model.onnx_file import model_name


def stored(name: str) -> Path:
    """The folder of that name in `$KWS_EXPORT_CACHE`, or else in ~/.cache/kws-export; it may not exist yet."""
    return Path(os.environ.get("KWS_EXPORT_CACHE") or "~/.cache/kws-export").expanduser() / name


def check_card(model: Path, *, overwrite: bool) -> None:
    """Raise SettingError where another text lies in the place of a model's card, which begins with the model's name."""
    card = model.with_suffix(".md")
    if card.is_file() and not model.exists():
        with card.open("rb") as file:
            head = file.readline(1 << 10)
        if head.decode(errors="replace").rstrip() != f"# {model_name(model)}":  # as a stopped command may have left
            check_new(card, overwrite=overwrite)


def check_writable(out: Path) -> None:
    """Make the folder of a file that will take long to make. Raises SettingError where nothing can be written there."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out.parent).close()
    except OSError as error:
        raise SettingError(f"cannot write {out}: {error.strerror}") from None

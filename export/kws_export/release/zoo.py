"""The tables of a folder's models, in its README.md: a row a file, from what the file and its card say.

The card has what the file has not: what its thresholds gave on the test split. Models of wake words have a table of
their own.
"""

import re
from collections.abc import Callable
from pathlib import Path

from kws_edge.errors import ModelError
from kws_edge.files import replace_file
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import is_wake_model, is_word
from kws_edge.model.shipped import DEFAULT_MODEL, shipped_models
from kws_edge.tuning.evaluation import per_hour
from kws_export.report.tables import NONE, Table

TARGET = "99.5 %"

_HEAD = [
    "model", "variant", "classes", "size", "test accuracy", f"entropy at {TARGET}: accepted", "coverage",
    "others withheld", f"vacuity at {TARGET}: accepted", "coverage", "others withheld",
]  # fmt: skip
_WAKE_HEAD = ["wake word model", "listens for", "size", "found, held out", "false accepts an hour, held out"]
_BEGIN, _END = "<!-- kws-export zoo -->", "<!-- end -->"


def update(folder: Path) -> int:
    """Write the table into `folder/README.md`, between its two marks; how many models it has.

    Raises
    ------
    ModelError : a model has no card, it or its card lacks a figure of a row, or README.md lacks the marks.
    """
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    if text.count(_BEGIN) != 1 or text.count(_END) != 1:
        raise ModelError(f"{readme}: expected a table between the lines {_BEGIN} and {_END}")
    files = sorted(shipped_models(folder).values(), key=lambda path: path.stem != DEFAULT_MODEL)
    waking = [file for file in files if is_wake_model(KeywordModel.load(file).metadata)]
    rows = {file: _cells(file, wake_row if file in waking else row) for file in files}
    table = Table("zoo", "", "", _HEAD, [rows[file] for file in files if file not in waking]).to_markdown()
    if waking:
        table += "\n\n" + Table("wake", "", "", _WAKE_HEAD, [rows[file] for file in waking]).to_markdown()
    before, rest = text.split(_BEGIN)
    replace_file(readme, f"{before}{_BEGIN}\n{table}\n{_END}{rest.split(_END)[1]}")
    return len(files)


def _cells(file: Path, row: Callable[[Path], list[str]]) -> list[str]:
    try:
        return row(file)
    except KeyError as error:
        raise ModelError(
            f"{file} does not say its {error.args[0]}; expected models of kws-export export, quantise and wake alone"
        ) from None


def wake_row(file: Path) -> list[str]:
    """The cells of a wake word's model, from its calibration: words in silence and 10 dB over sounds and speech.

    False accepts are those of all its recordings without the word together.
    """
    metadata = KeywordModel.load(file).metadata
    calibration = (metadata.stream or {})["calibration"]
    found, seconds = calibration["words"], {name: n["seconds"] for name, n in calibration["negatives"].items()}
    counts = [rate["value"] * seconds[name] / 3600 for name, rate in calibration["false_accepts_per_hour"].items()]
    fired = per_hour(round(sum(counts)), sum(seconds.values()))
    return [
        f"[{metadata.name}]({_card(file).name})",
        ", ".join(f'"{label}"' for label in metadata.labels if is_word(label)),
        f"{file.stat().st_size / 1000:.0f} kB",
        f"{found['hit_rate']['value']:.1%}",
        f"{fired.value:.2f} ({fired.low:.2f} to {fired.high:.2f})",
    ]


def _card(file: Path) -> Path:
    card = file.with_suffix(".md")
    if not card.is_file():
        raise ModelError(f"{file} has no card {card.name}; expected one, as kws-export export writes it")
    return card


def row(file: Path) -> list[str]:
    """A model's cells."""
    card = _card(file)
    metadata, text = KeywordModel.load(file).metadata, card.read_text(encoding="utf-8")
    return [
        f"[{metadata.name}]({card.name})",
        f"`{metadata.variant}`",
        str(len(metadata.labels)),
        f"{file.stat().st_size / 1000:.0f} kB",
        f"{100 * metadata.accuracy['test']['accuracy']:.2f} %",
        *_observed(text, "entropy", card),
        *_observed(text, "vacuity", card),
    ]


def _observed(card: str, score: str, path: Path) -> list[str]:
    """Accepted accuracy, coverage and share of other words withheld, on the test split."""
    found = re.search(rf"^\| {score} \| {re.escape(TARGET)} \|(.*)\|$", card, re.MULTILINE)
    if not found:
        raise ModelError(f"{path} has no operating point of {score} at {TARGET}; expected a card of kws-export")
    _, _, _, _, accepted, coverage, _, *others = (cell.strip() for cell in found[1].split("|"))
    return [accepted, coverage, others[0] if others else NONE]

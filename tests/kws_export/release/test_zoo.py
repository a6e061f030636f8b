"""`kws-export zoo`: the table of models says what the files and their cards say."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from paths import ROOT

from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.onnx_file import write_copy
from kws_edge.model.shipped import shipped_models
from kws_export.cli import main

MODELS = ROOT / "models"
MARKS = "<!-- kws-export zoo -->\n<!-- end -->"


def zoo(folder: Path) -> Result:
    return CliRunner().invoke(main, ["zoo", str(folder)])


def table(folder: Path) -> dict[str, list[str]]:
    rows = re.findall(
        r"^\| \[(\S+)\]\(\S+\) \|(.*)\|$", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One shipped model with its card, and a text around the marks."""
    for file in ("softmax.onnx", "softmax.md", "softmax.audio.onnx"):
        shutil.copy(MODELS / file, tmp_path)
    (tmp_path / "README.md").write_text(f"before\n\n{MARKS}\n\nafter\n")
    return tmp_path


def test_the_shipped_table_is_up_to_date(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(MODELS, tmp_path / "models"))
    assert zoo(copy).exit_code == 0
    assert (copy / "README.md").read_bytes() == (MODELS / "README.md").read_bytes()
    assert table(MODELS).keys() == shipped_models().keys()


def test_a_row_has_the_figures_of_the_file_and_of_its_card(folder: Path) -> None:
    result = zoo(folder)
    assert (result.exit_code, result.stdout) == (0, f"wrote 1 rows into {folder / 'README.md'}\n")
    accuracy = KeywordModel.load(folder / "softmax.onnx").metadata.accuracy["test"]["accuracy"]
    variant, classes, size, test, *points = table(folder)["softmax"]
    assert (variant, classes, test) == ("`softmax`", "20", f"{100 * accuracy:.2f} %")
    assert size == f"{(folder / 'softmax.onnx').stat().st_size / 1000:.0f} kB"
    card = (folder / "softmax.md").read_text(encoding="utf-8")
    for score, figures in (("entropy", points[:3]), ("vacuity", points[3:])):
        (line,) = [line for line in card.splitlines() if line.startswith(f"| {score} | 99.5 %")]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert figures == [cells[6], cells[7], cells[9]]


def test_a_wake_words_false_accepts_are_those_of_all_its_recordings_without_it() -> None:
    calibration = (KeywordModel.load(MODELS / "computer.onnx").metadata.stream or {})["calibration"]
    seconds = [n["seconds"] for n in calibration["negatives"].values()]
    rates = [rate["value"] for rate in calibration["false_accepts_per_hour"].values()]
    assert len(seconds) > 1
    expected = sum(r * s for r, s in zip(rates, seconds, strict=True)) / sum(seconds)
    *_, fired = table(MODELS)["computer"]
    assert float(fired.partition(" ")[0]) == pytest.approx(expected, abs=0.006)


def test_the_text_around_the_table_stays_and_writing_again_changes_nothing(folder: Path) -> None:
    zoo(folder)
    text = (folder / "README.md").read_text()
    assert text.startswith("before\n\n<!-- kws-export zoo -->\n| model |")
    assert text.endswith("|\n<!-- end -->\n\nafter\n")
    zoo(folder)
    assert (folder / "README.md").read_text() == text


@pytest.mark.parametrize(
    ("name", "changes", "lacks"), [("softmax", {"accuracy": {}}, "test"), ("computer", {"stream": None}, "calibration")]
)
def test_a_model_that_lacks_a_figure_is_named(folder: Path, name: str, changes: dict[str, Any], lacks: str) -> None:
    model = MODELS / f"{name}.onnx"
    metadata = replace(KeywordModel.load(model).metadata, **changes)
    write_copy(model, folder / f"{name}.onnx", metadata, overwrite=True)
    shutil.copy(model.with_suffix(".md"), folder)
    result = zoo(folder)
    assert result.exit_code == 1
    assert f"{name}.onnx does not say its {lacks}; expected models of kws-export export" in result.stderr


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("README.md", "no marks", "expected a table between the lines"),
        ("softmax.md", None, "has no card softmax.md"),
        ("softmax.md", "# softmax", "has no operating point of entropy at 99.5 %"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_written(
    folder: Path, file: str, content: str | None, message: str
) -> None:
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    before = (folder / "README.md").read_bytes()
    result = zoo(folder)
    assert result.exit_code != 0
    assert message in result.stderr
    assert (folder / "README.md").read_bytes() == before

"""What people measure on their boards becomes a table, and what says nothing of a board is refused."""

import json
from pathlib import Path
from typing import Any

import boards
import pytest
from paths import ROOT

from kws_edge.errors import SettingError


def measured(path: Path, taken: str = "2026-01-02T03:04:05+00:00", **machine: Any) -> Path:
    """A real report of bench/results, of another machine."""
    report = json.loads((ROOT / "bench" / "results" / "bench.json").read_text())
    report["machine"] |= {"cpu": "Raspberry Pi 4 Model B", "load": 0.1, **machine}
    report["taken"] = taken
    path.write_text(json.dumps(report))
    return path


def test_a_line_holds_the_hop_the_clip_and_the_memory_of_each_model(tmp_path: Path) -> None:
    found = boards.lines(measured(tmp_path / "a.json"))
    assert {line[1] for line in found} == {"stream", "softmax", "softmax-int8"}
    stream = next(line for line in found if line[1] == "stream")
    assert stream[0] == "Raspberry Pi 4 Model B"
    rows = json.loads((ROOT / "bench" / "results" / "bench.json").read_text())["rows"]
    row = next(r for r in rows if (r["model"], r["task"], r["threads"], r["batch"]) == ("stream", "stream", 1, 1))
    assert (stream[2], stream[-1]) == (f"{row['p50_ms']:.2f}", "2026-01-02")


def test_of_two_files_of_a_machine_the_newer_counts(tmp_path: Path) -> None:
    new, old = measured(tmp_path / "a.json", "2026-05-01"), measured(tmp_path / "b.json", "2026-01-01")
    table = boards.table([new, old])
    assert table.count("Raspberry Pi 4") == 3
    assert "2026-01-01" not in table


@pytest.mark.parametrize(
    ("machine", "why"),
    [({"cpu": "aarch64 emulated by qemu-aarch64"}, "a real processor"), ({"load": 9.0}, "nothing else to run")],
    ids=["emulated", "busy"],
)
def test_what_does_not_say_what_the_board_can_do_is_refused(tmp_path: Path, machine: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingError, match=why):
        boards.lines(measured(tmp_path / "a.json", **machine))


def test_another_hop_than_that_of_the_other_lines_is_refused(tmp_path: Path) -> None:
    report = json.loads(measured(tmp_path / "a.json").read_text())
    report["settings"]["hop"] = 0.01
    (tmp_path / "a.json").write_text(json.dumps(report))
    with pytest.raises(SettingError, match=r"a hop of 0\.01 s; expected 0\.1"):
        boards.lines(tmp_path / "a.json")


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(SettingError, match="kws-edge bench --out"):
        boards.table([tmp_path / "a.json"])


def test_the_page_has_the_table_of_all_files() -> None:
    page = boards.PAGE.read_text()
    assert boards.rewrite(page, boards.table(boards.sources())) == page

"""Merge what people measured on their machines into the table of docs/how-to/boards.md.

    kws-edge bench --out my-board.json      # on the board, with nothing else running
    python bench/boards.py my-board.json    # in a checkout: checks the file and prints the table with it
    python bench/boards.py --write          # the table anew, from bench.json and boards/*.json of bench/results

A line for each machine and model: rows of one thread, a batch of one and the CPU. A file of an emulated processor is
refused, and so is one that was measured beside other work: neither says what the board can do. So is one of another hop
than 0.1 s, which would be another share of a core.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from kws_edge.bench.report import BenchReport
from kws_edge.errors import KwsEdgeError, SettingError
from kws_edge.stream.framing import DEFAULT_HOP

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "how-to" / "boards.md"
BEGIN, END = "<!-- measured: python bench/boards.py --write -->", "<!-- end of measured -->"
HEADING = ["machine", "model", "hop p50 ms", "of a core", "clip p50 ms", "load ms", "memory MB", "onnxruntime", "taken"]


def lines(path: Path) -> list[list[str]]:
    """The lines of a file's machine. Raises SettingError where it does not count."""
    report = BenchReport.read(path)
    machine = str(report.machine["cpu"])
    if "emulated" in machine:
        raise SettingError(f"{path}: {machine}; expected a real processor")
    if report.busy is not None:
        raise SettingError(f"{path}: measured at a load of {report.busy:.1f}; expected nothing else to run")
    if report.settings["hop"] != DEFAULT_HOP:
        raise SettingError(f"{path}: a hop of {report.settings['hop']} s; expected {DEFAULT_HOP}, as the others have")
    rows = [row for row in report.rows if (row.provider, row.threads, row.batch) == ("cpu", 1, 1)]
    found = []
    for model in dict.fromkeys(row.model for row in rows):
        tasks = {row.task: row for row in rows if row.model == model}
        clip, stream = tasks.get("clip"), tasks.get("stream")
        any_row = stream or clip
        if any_row is None:
            continue
        memory = any_row.memory_mb
        found.append(
            [
                machine,
                model,
                f"{stream.p50_ms:.2f}" if stream else "-",
                f"{stream.core_share:.2%}" if stream else "-",
                f"{clip.p50_ms:.2f}" if clip else "-",
                f"{any_row.load_ms:.0f}",
                "-" if memory is None else f"{memory:.0f}",
                any_row.versions.get("onnxruntime", "-"),
                report.taken[:10],
            ]
        )
    if not found:
        raise SettingError(f"{path}: no row of one thread and a batch of one on the CPU; expected kws-edge bench alone")
    return found


def table(paths: Iterable[Path]) -> str:
    """The table in Markdown; of two files of one machine and model, the newer counts."""
    newest: dict[tuple[str, str], list[str]] = {}
    for line in sorted((line for path in paths for line in lines(path)), key=lambda line: line[-1]):
        newest[line[0], line[1]] = line
    rules = ["---", "---", *["---:"] * 5, "---", "---"]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEADING, rules, *sorted(newest.values())))


def rewrite(page: str, new: str) -> str:
    """A page with another table between the two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SettingError(f"no {BEGIN} and {END} in the page; expected both")
    return f"{before}{BEGIN}\n\n{new}\n\n{END}{after}"


def sources() -> list[Path]:
    """The files that the table in the docs is made of: the reference, and what people sent."""
    return [RESULTS / "bench.json", *sorted((RESULTS / "boards").glob("*.json"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="what kws-edge bench --out wrote")
    parser.add_argument("--write", action="store_true", help="write the table into the docs")
    options = parser.parse_args()
    try:
        merged = table([*sources(), *options.files])
        print(merged)
        if options.write:
            PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8"), merged), encoding="utf-8")
    except KwsEdgeError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()

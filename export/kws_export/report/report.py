"""The report of a comparison: tables, figures and one page that shows them, from score files alone.

OUT/report.md, OUT/figures.csv (every figure of every run), OUT/tables/NAME.csv and .tex, OUT/plots/NAME.png and .svg.
The same score files give the same bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kws_edge.errors import SettingError
from kws_edge.text import counted
from kws_export.evaluation.score_file import RunScores
from kws_export.report.comparison import Comparison, kl_end
from kws_export.report.findings import findings
from kws_export.report.panels import Plot
from kws_export.report.plots import all_plots
from kws_export.report.report_tables import all_tables
from kws_export.report.tables import Table


def load_scores(folder: Path) -> list[RunScores]:
    """The score files of a folder, in order of name. Raises SettingError where there are none."""
    runs = [RunScores.load(path) for path in sorted(folder.glob("*.npz"))]
    if not runs:
        raise SettingError(f"no score files in {folder}; expected NAME.npz, as `kws-export score` writes them")
    return runs


def write_report(c: Comparison, out: Path, step: Callable[[], None] = lambda: None) -> None:
    """Write everything; `step` is called after each plot. Tables and plots of an earlier report are removed."""
    tables = all_tables(c)
    plots = all_plots(c)
    _remove_others(out / "tables", {table.name for table in tables}, (".csv", ".tex"))
    _remove_others(out / "plots", {plot.name for plot in plots}, (".png", ".svg"))
    (out / "tables").mkdir(parents=True, exist_ok=True)
    for table in tables:
        (out / "tables" / f"{table.name}.csv").write_text(table.to_csv(), encoding="utf-8")
        (out / "tables" / f"{table.name}.tex").write_text(table.to_latex(), encoding="utf-8")
    for plot in plots:
        plot.save(c, out / "plots")
        step()
    (out / "figures.csv").write_text(c.to_csv(), encoding="utf-8")
    (out / "report.md").write_text(page(c, tables, plots, out.resolve().name), encoding="utf-8")


def _remove_others(folder: Path, written: set[str], endings: Sequence[str]) -> None:
    """Remove what an earlier report left that this one has not: it would be taken for a part of it."""
    for name in {part for _, parts in SECTIONS for part in parts} - written:
        for ending in endings:
            (folder / f"{name}{ending}").unlink(missing_ok=True)


def page(c: Comparison, tables: list[Table], plots: list[Plot], name: str) -> str:
    """The page, as markdown; `name` is that of the report's folder, and of the recipe and runs by the same name."""
    of_table, of_plot = {t.name: t for t in tables}, {p.name: p for p in plots}
    lines = [
        "# The variants, compared and calibrated",
        "",
        *_about(c),
        "## What the figures say",
        "",
        *(line for paragraph in findings(c) for line in (paragraph, "")),
    ]
    for title, parts in SECTIONS:
        shown = [_table_lines(of_table[part]) for part in parts if part in of_table]
        shown += [_plot_lines(of_plot[part]) for part in parts if part in of_plot]
        if shown:
            lines += [f"## {title}", "", *(line for part in shown for line in part)]
    return "\n".join([*lines, *_commands(c, name)]) + "\n"


SECTIONS = (
    ("The paper's table", ("accuracy", "conclusions", "thresholds-entropy", "thresholds-vacuity", "risk-coverage")),
    ("Plug-in loss and EDL in pairs, and the KL term's weight", ("pairs", "kl-weight")),
    ("Theory: the gap between the losses", ("theory", "gap-ce", "gap-mse")),
    ("Training", ("loss-times", "training")),
    ("Ranking of errors, and probabilities", ("quality", "density-entropy", "density-vacuity", "reliability")),
    ("Does a promise made on validation hold on test?", ("promise", "conservative", "halves")),
    ("Two thresholds", ("two-thresholds",)),
    ("Sounds from outside the vocabulary", ("outside-auroc", "outside-withheld", "outside")),
    ("Noise", ("noise-accuracy", "noise")),
)
"""Title → names of tables and plots; tables come first."""


def _about(c: Comparison) -> Iterator[str]:
    runs = [run for some in c.runs.values() for run in some]
    first = runs[0]
    seeds = ", ".join(f"`{v}` {len(some)}" for v, some in c.runs.items())
    yield (
        f"{counted(len(c.runs), 'variant')}, {counted(len(runs), 'run')} of one recipe ({first.epochs} epochs; only "
        f"what the method's table says differs), {len(first.labels)} words, {c.clips('validation'):,} validation and "
        f"{c.clips('test'):,} test clips of Speech Commands. Seeds: {seeds}. The weights of each run are "
        "those of its best epoch on validation."
    )
    yield ""
    yield (
        "The paper trains on 30 words and the whole data set for 200 epochs; its figures stand beside these for their "
        "order and size, not as a target of the same task."
    )
    yield ""
    yield (
        "Tables are also in `tables/` as CSV and LaTeX (booktabs), plots in `plots/` as PNG and SVG, every figure of "
        "every run in `figures.csv`."
    )
    yield ""


def _table_lines(table: Table) -> list[str]:
    lines = [f"**{table.caption}**", "", table.to_markdown(), ""]
    return [*lines, table.note, ""] if table.note else lines


def _plot_lines(plot: Plot) -> list[str]:
    return [f"![{plot.name}](plots/{plot.name}.png)", "", f"*{plot.caption}*", ""]


def _commands(c: Comparison, name: str) -> Iterator[str]:
    by_seeds: dict[str, list[str]] = {}
    for v, runs in c.runs.items():
        by_seeds.setdefault(",".join(str(run.seed) for run in runs), []).append(v)
    first = next(iter(c.runs.values()))[0]
    recordings = "".join(f" --{o} '{p}'" for o, patterns in sorted(first.patterns.items()) for p in patterns)
    sweep = f"    kws-export sweep --recipe export/recipes/{name}.toml --data speech_commands"
    yield "## Rebuild"
    yield ""
    yield "From the score files, in minutes; the same files give the same report:"
    yield ""
    times = f" --loss-times research/{name}/losses.json" if c.loss_times else ""
    yield f"    kws-export report research/{name}/scores --out research/{name}{times}"
    yield ""
    yield "From the recordings:"
    yield ""
    for seeds, variants in by_seeds.items():
        yield f"{sweep} --variants {','.join(variants)} --seeds {seeds}"
    for v, seed in dict.fromkeys((run.variant, run.seed) for run in c.weighted):
        ends = ",".join(f"{kl_end(r):g}" for r in c.weighted if (r.variant, r.seed) == (v, seed))
        yield f"{sweep} --variants {v} --seeds {seed} --kl-ends {ends}"
    yield f"    kws-export score runs/{name}/*/ --data speech_commands{recordings} --out research/{name}/scores"

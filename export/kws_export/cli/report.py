"""`kws-export report`."""

from pathlib import Path

import click

from kws_edge.text import counted
from kws_export.cli.options import existing_file, existing_folder


@click.command()
@click.argument("scores", type=existing_folder, metavar="FOLDER")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Folder to write.")
@click.option(
    "--loss-times",
    type=existing_file,
    metavar="FILE.json",
    help="Also show the cost of each loss, as `python bench/losses.py --json` measured it.",
)
def report(scores: Path, out: Path, loss_times: Path | None) -> None:
    """Compare scored runs in tables and plots.

    FOLDER holds the score files that `kws-export score` wrote. The report is report.md with its plots (PNG and SVG) and
    tables (CSV and LaTeX), and figures.csv with every figure of every run. It needs neither recordings nor checkpoints,
    and the same score files give the same report.

    \b
    kws-export report runs/scores --out runs/report
    kws-export report research/nine/scores --out research/nine
    """
    from dataclasses import replace

    from kws_edge.cli.progress import bar
    from kws_export.report.comparison import Comparison
    from kws_export.report.loss_times import LossTimes
    from kws_export.report.plots import all_plots
    from kws_export.report.report import load_scores, write_report
    from kws_export.stored import check_writable

    runs, times = load_scores(scores), LossTimes.load(loss_times) if loss_times else None
    check_writable(out / "report.md")
    with bar("computing", len(runs) + len({run.variant for run in runs})) as step:
        comparison = replace(Comparison.of(runs, step), loss_times=times)
    with bar("drawing", len(all_plots(comparison))) as step:
        write_report(comparison, out, step)
    variants, scored = counted(len(comparison.runs), "variant"), counted(len(runs), "run")
    click.echo(f"wrote {out / 'report.md'}: {variants}, {scored}")

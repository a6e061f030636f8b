"""`kws-export report`."""

from pathlib import Path

import click

from kws_export.cli.options import existing_file, existing_folder


@click.command()
@click.argument("scores", type=existing_folder)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the report.")
@click.option("--loss-times", type=existing_file, help="Output of `python bench/losses.py --json`, to show too.")
def report(scores: Path, out: Path, loss_times: Path | None) -> None:
    """Compare the runs whose score files are in SCORES: tables, plots and a page that shows them.

    It needs neither recordings nor checkpoints, and the same files give the same report. OUT gets report.md,
    figures.csv with every figure of every run, tables as CSV and LaTeX, plots as PNG and SVG.

    \b
    kws-export report research/nine/scores --out research/nine --loss-times research/nine/losses.json
    """
    from dataclasses import replace

    from kws_edge.cli.progress import bar
    from kws_export.report.comparison import Comparison
    from kws_export.report.loss_times import LossTimes
    from kws_export.report.plots import all_plots
    from kws_export.report.report import load_scores, write_report

    runs, times = load_scores(scores), LossTimes.load(loss_times) if loss_times else None
    with bar("computing", len(runs) + len({run.variant for run in runs})) as step:
        comparison = replace(Comparison.of(runs, step), loss_times=times)
    with bar("drawing", len(all_plots(comparison))) as step:
        write_report(comparison, out, step)
    click.echo(f"wrote {out / 'report.md'}: {len(comparison.runs)} variants, {len(runs)} runs")

"""`kws-export score`."""

from pathlib import Path

import click

from kws_export.cli.options import CACHE, existing_folder, existing_path


@click.command()
@click.argument("runs", type=existing_path, nargs=-1, required=True, metavar="RUN...")
@click.option("--data", type=existing_folder, required=True, help="Folder of Speech Commands, in its public layout.")
@click.option("--noise", multiple=True, metavar="PATH", help="Recordings to mix under the test split; repeatable.")
@click.option("--sounds", multiple=True, metavar="PATH", help="Recordings without speech, cut into seconds.")
@click.option("--speech", multiple=True, metavar="PATH", help="Recordings of running speech, cut into seconds.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of score files, one a run.")
@click.option("--cache", type=click.Path(path_type=Path), default=CACHE, show_default=True, help="Decoded clips.")
def score(
    runs: tuple[Path, ...],
    data: Path,
    noise: tuple[str, ...],
    sounds: tuple[str, ...],
    speech: tuple[str, ...],
    out: Path,
    cache: Path,
) -> None:
    """Write each RUN's outputs into a file of about 900 kB, from which `kws-export report` makes tables and figures.

    A RUN is a folder of `kws-export train`, or a file of `kws-export export` or `quantise`, which is scored as it is.

    Scored are: validation, test, words outside the vocabulary, silence; with --noise the test split at 20, 10, 5 and
    0 dB; with --sounds and --speech recordings without words. A PATH is a folder, a file or a pattern in quotes. Use
    recordings that training did not use. What has been scored already is skipped, unless the checkpoint or the clips
    changed; so are runs that are still training.

    \b
    kws-export score runs/nine/*/ --data speech_commands --noise 'esc10/*/[23]-*' --sounds 'esc10/*/3-*' \\
      --speech libri_speech/test-other --out research/nine/scores
    kws-export score models/softmax.onnx models/softmax-int8.onnx --data speech_commands --out runs/scores
    """
    from kws_edge.cli.progress import bar
    from kws_edge.tuning.recordings import recordings, short_name
    from kws_export.evaluation.score_runs import RunScores, ScoredRun, common_front_end, missing
    from kws_export.evaluation.score_runs import score as score_all
    from kws_export.evaluation.score_sets import clip_sets

    given = {"noise": noise, "sounds": sounds, "speech": speech}
    found = {name: list(recordings(patterns).paths) if patterns else [] for name, patterns in given.items()}
    kept = {name: [short_name(pattern) for pattern in patterns] for name, patterns in given.items() if patterns}
    opened = [ScoredRun.open(path) for path in runs if path.is_file() or _is_started(path)]
    for run in opened:
        if not run.is_finished:
            click.echo(f"{run.name}: {len(run.history)} of {run.recipe.epochs} epochs; left out", err=True)
    finished = [run for run in opened if run.is_finished]
    if not finished:
        raise click.ClickException(
            "no finished run among those given; expected folders of `kws-export train`, or .onnx files"
        )
    labels, front_end = common_front_end(finished)
    todo = missing(finished, clip_sets(data, labels, front_end, cache, **found), out)
    with bar("scoring", sum(len(some) for _, some in todo)) as step:
        for _ in score_all(todo, out, kept):
            step()
    for run in finished:
        path = out / f"{run.name}.npz"
        test = RunScores.load(path).sets["test"].correct.mean()
        new = sum(run in some for _, some in todo)
        click.echo(f"{path}: test accuracy {test:.4f}, {path.stat().st_size / 1000:.0f} kB, {new} sets scored now")


def _is_started(folder: Path) -> bool:
    started = (folder / "best.pt").is_file()
    if not started:
        click.echo(f"{folder.name}: no best.pt; left out", err=True)
    return started

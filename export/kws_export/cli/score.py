"""`kws-export score`."""

from pathlib import Path

import click

from kws_export.cli.options import cache_option, data_option, existing_path


@click.command()
@click.argument("runs", type=existing_path, nargs=-1, required=True, metavar="RUN...")
@data_option
@click.option("--noise", multiple=True, metavar="PATH", help="Recordings to mix with the test split; repeatable.")
@click.option(
    "--sounds", multiple=True, metavar="PATH", help="Recordings without speech, cut into seconds; repeatable."
)
@click.option("--speech", multiple=True, metavar="PATH", help="Speech without the words, cut into seconds; repeatable.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Where to write the score files."
)
@cache_option
def score(
    runs: tuple[Path, ...],
    data: Path,
    noise: tuple[str, ...],
    sounds: tuple[str, ...],
    speech: tuple[str, ...],
    out: Path,
    cache: Path,
) -> None:
    """Store what each RUN answers on test recordings.

    `kws-export report` makes tables and plots of the result. A RUN is a folder that `kws-export train` wrote, or a
    model file. For each, a score file of about 900 kB keeps the outputs on the validation and test splits, on words
    outside the vocabulary and on silence; with --noise also on the test split at 20, 10, 5 and 0 dB, and with --sounds
    and --speech on recordings without the words.

    A PATH is a folder, a file or a pattern in quotes; use recordings that training did not use. Runs that are still
    training are skipped, and so is what has been scored before, unless the checkpoint or the clips have changed.

    \b
    kws-export score runs/nine/*/ --data speech_commands --noise 'esc10/*/[23]-*' --sounds 'esc10/*/3-*' \\
      --speech libri_speech/test-other --out research/nine/scores
    kws-export score models/softmax.onnx models/softmax-int8.onnx --data speech_commands --out runs/scores
    """
    from kws_edge.cli.progress import bar
    from kws_edge.tuning.recordings import recordings, short_name
    from kws_export.evaluation.score_file import RunScores
    from kws_export.evaluation.score_runs import RunToScore, common_settings, missing
    from kws_export.evaluation.score_runs import score as score_all
    from kws_export.evaluation.score_sets import clip_sets
    from kws_export.stored import check_writable

    given = {"noise": noise, "sounds": sounds, "speech": speech}
    found = {name: list(recordings(patterns).paths) if patterns else [] for name, patterns in given.items()}
    kept = {name: [short_name(pattern) for pattern in patterns] for name, patterns in given.items() if patterns}
    opened = [RunToScore.open(path) for path in runs if path.is_file() or _is_started(path)]
    for run in opened:
        if not run.is_finished:
            click.echo(f"{run.name}: {len(run.history)} of {run.recipe.epochs} epochs; skipped", err=True)
    finished = [run for run in opened if run.is_finished]
    if not finished:
        raise click.ClickException(
            "no finished run among those given; expected folders of `kws-export train`, or .onnx files"
        )
    check_writable(out / "scores.npz")
    shared = common_settings(finished)
    sets = clip_sets(data, shared.labels, shared.front_end, cache, test_list=shared.test_list, **found)
    todo = missing(finished, sets, out)
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
        click.echo(f"{folder.name}: no best.pt; skipped", err=True)
    return started

"""`kws-export average`."""

from pathlib import Path

import click

from kws_edge.cli.options import force_option
from kws_export.cli.options import existing_file


@click.command()
@click.argument("checkpoints", nargs=-1, required=True, type=existing_file, metavar="CHECKPOINT...")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE.pt", help="Checkpoint to write.")
@force_option
def average(checkpoints: tuple[Path, ...], out: Path, force: bool) -> None:
    """Average the weights of several CHECKPOINTs into one.

    The result can be exported, or trained further. Averaging works for runs that started from the same weights, or one
    from another.

    \b
    kws-export average runs/stream-hours-1/last.pt runs/stream-words-1/last.pt --out runs/mean.pt
    """
    from kws_edge.errors import SettingError
    from kws_edge.files import check_new
    from kws_export.training.averaging import mean_of_runs
    from kws_export.training.run_folder import write_checkpoint

    if out.suffix == ".onnx":
        raise SettingError(
            f"cannot write {out}; expected a name such as mean.pt: `kws-export export` makes .onnx of it"
        )
    check_new(out, overwrite=force)
    write_checkpoint(out, mean_of_runs(checkpoints))
    click.echo(f"mean of {len(checkpoints)} checkpoints: {out}")

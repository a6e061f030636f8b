"""`kws-export quantise`."""

import json
import shlex
from pathlib import Path

import click

from kws_edge.cli.options import Number, force_option
from kws_export.cli.options import cache_option, data_option, existing_file

MAX_LOSS = 0.3


@click.command()
@click.argument("model", type=existing_file, metavar="MODEL.onnx")
@data_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE.onnx",
    help="File to write  [default: MODEL-int8.onnx]",
)
@click.option(
    "--clips",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    metavar="N",
    help="Training clips that give the ranges.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Seed for drawing these clips."
)
@click.option(
    "--max-loss",
    type=Number(0),
    default=MAX_LOSS,
    show_default=True,
    metavar="POINTS",
    help="Largest acceptable loss of test accuracy, in percentage points.",
)
@force_option
@cache_option
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as one JSON object, for scripts.")
def quantise(
    model: Path,
    data: Path,
    out: Path | None,
    clips: int,
    seed: int,
    max_loss: float,
    force: bool,
    cache: Path,
    as_json: bool,
) -> None:
    """Make an int8 version of MODEL.onnx, and compare the two.

    All convolutions but the first use integer arithmetic, with ranges measured on training clips; the output layer
    stays float. Thresholds are chosen again on the validation split. The card compares accuracy, thresholds and speed
    with the original.

    The result can replace the original, with two exceptions: thresholds for streams are not carried over (choose new
    ones with `kws-edge calibrate`), and there is no NAME.step.onnx, because the steps of a stream are too small to gain
    from int8.

    Exit status: 0 success; 1 the test accuracy fell by more than --max-loss, and nothing was written.

    \b
    Write models/softmax-int8.onnx and models/softmax-int8.md:
      kws-export quantise models/softmax.onnx --data speech_commands
    Read the comparison in a script:
      kws-export quantise models/softmax.onnx --data speech_commands --out try.onnx --json | jq .accuracy_change
    """
    from kws_edge.cli.progress import bar
    from kws_export.release.card import parity_rows
    from kws_export.release.quantise import SETS
    from kws_export.release.quantise import quantise as make

    out = out or model.with_name(f"{model.stem}-int8.onnx")
    # The card shows the command, without the folders of this machine.
    command = ["kws-export", "quantise", f"models/{model.name}", "--data", data.resolve().name]
    command += ["--out", f"models/{out.name}", "--clips", str(clips), "--seed", str(seed)]
    command += ["--max-loss", f"{max_loss:g}"] if max_loss != MAX_LOSS else []
    with bar("quantising", len(SETS) + 1) as step:
        made = make(
            model, data, out, cache=cache, clips=clips, seed=seed, command=shlex.join(command), overwrite=force,
            step=step,
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(made.parity.to_dict(), allow_nan=False))
    else:
        for rows in parity_rows(made.parity):
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            for name, *values in rows:
                cells = [value.rjust(width) for value, width in zip(values, widths[1:], strict=True)]
                click.echo("  ".join([name.ljust(widths[0]), *cells]).rstrip())
            click.echo()
    made.parity.require(max_loss / 100)
    made.save(out)
    click.echo(f"wrote {out} and {out.with_suffix('.md')}", err=as_json)

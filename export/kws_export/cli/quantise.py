"""`kws-export quantise`."""

import json
import shlex
from pathlib import Path

import click

from kws_export.cli.options import CACHE, existing_file, existing_folder

MAX_LOSS = 0.3


@click.command()
@click.argument("model", type=existing_file)
@click.option("--data", type=existing_folder, required=True, help="Folder of Speech Commands, in its public layout.")
@click.option("--out", type=click.Path(path_type=Path), help="The file to write  [default: NAME-int8.onnx, beside it]")
@click.option(
    "--clips", type=click.IntRange(1), default=512, show_default=True, help="Training clips to calibrate on, at most."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides which clips.")
@click.option(
    "--max-loss",
    type=click.FloatRange(0),
    default=MAX_LOSS,
    show_default=True,
    help="Test accuracy that it may lose, in percentage points.",
)
@click.option("--json", "as_json", is_flag=True, help="The comparison as JSON, for scripts.")
@click.option("--cache", type=click.Path(path_type=Path), default=CACHE, show_default=True, help="Decoded clips.")
def quantise(
    model: Path,
    data: Path,
    out: Path | None,
    clips: int,
    seed: int,
    max_loss: float,
    as_json: bool,
    cache: Path,
) -> None:
    """Make the int8 form of a MODEL file, and compare it with the original: accuracy, thresholds, speed.

    Convolutions but for the first become integer arithmetic, with ranges from training clips; the head stays float.
    Thresholds are chosen again on the validation split, and the card has the comparison. The file can replace the
    float one, with two exceptions. Settings for streams are not carried over: `kws-edge calibrate` finds new ones. And
    there is no step form, NAME.step.onnx: a stream's steps are too small for int8 to be faster.

    Exit status: 0, or 1 where the test accuracy falls by more than --max-loss; nothing is written then.

    \b
    models/softmax-int8.onnx and models/softmax-int8.md:
      kws-export quantise models/softmax.onnx --data speech_commands
    The comparison for a script:
      kws-export quantise models/softmax.onnx --data speech_commands --out /tmp/try.onnx --json | jq .accuracy_change
    """
    from kws_edge.cli.progress import bar
    from kws_export.release.card import parity_rows
    from kws_export.release.quantise import SETS
    from kws_export.release.quantise import quantise as make

    out = out or model.with_name(f"{model.stem}-int8.onnx")
    # For the card, so without the folders of this machine.
    command = ["kws-export", "quantise", f"models/{model.name}", "--data", "speech_commands"]
    command += ["--out", f"models/{out.name}", "--clips", str(clips), "--seed", str(seed)]
    command += ["--max-loss", f"{max_loss:g}"] if max_loss != MAX_LOSS else []
    with bar("quantising", len(SETS) + 1) as step:
        made = make(model, data, out, cache=cache, clips=clips, seed=seed, command=shlex.join(command), step=step)
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

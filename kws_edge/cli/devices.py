"""`kws-edge devices`: the microphones of this machine."""

import json

import click

from kws_edge.text import one_line


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each microphone, for scripts.")
def devices(as_json: bool) -> None:
    """List the microphones.

    --device of `kws-edge listen`, `record` and `doctor` takes their number, or a part of their name.

    Exit status: 0 success, even if there are none; 2 sounddevice or PortAudio is not installed.
    """
    from kws_edge.audio.devices import input_devices

    found = input_devices()
    if as_json:
        for device in found:
            click.echo(json.dumps(device.to_dict()))
    elif not found:
        click.echo("No microphone found; is one plugged in?", err=True)
    else:
        click.echo(f"  {'NUMBER':>6}  {'CHANNELS':>8}  {'RATE':>9}  {'SYSTEM':12} NAME")
        for device in found:
            click.echo(
                f"{'*' if device.default else ' '} {device.index:6}  {device.channels:8}  {device.rate:6} Hz  "
                f"{device.api:12} {one_line(device.name)}"
            )
        if any(device.default for device in found):
            click.echo("* is the default.")

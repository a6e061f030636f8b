"""`kws-edge version`: what runs here, for a bug report."""

import json
import platform

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for scripts.")
def version(as_json: bool) -> None:
    """Print the versions of kws-edge and of what it stands on, and the execution providers of this machine."""
    from importlib.metadata import version as version_of

    from kws_edge.model import available_providers

    versions = {name: version_of(name) for name in ("kws-edge", "onnxruntime", "numpy")}
    versions |= {"python": platform.python_version(), "platform": platform.platform()}
    providers = available_providers()
    if as_json:
        click.echo(json.dumps({**versions, "providers": providers}))
        return
    for name, value in {**versions, "providers": ", ".join(providers)}.items():
        click.echo(f"{name:12} {value}")

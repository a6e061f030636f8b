"""`kws-edge version`: what runs here, for a bug report."""

import json
import platform

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for scripts.")
def version(as_json: bool) -> None:
    """Print the versions of everything that runs here."""
    import numpy
    import onnxruntime

    from kws_edge.model.runtime import available_providers
    from kws_edge.version import installed_version

    versions = {"kws-edge": installed_version(), "onnxruntime": onnxruntime.__version__, "numpy": numpy.__version__}
    versions |= {"python": platform.python_version(), "platform": platform.platform()}
    providers = available_providers()
    if as_json:
        click.echo(json.dumps({**versions, "providers": providers}))
        return
    for name, value in {**versions, "providers": ", ".join(providers)}.items():
        click.echo(f"{name:12} {value}")

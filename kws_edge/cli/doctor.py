"""`kws-edge doctor`: whether keyword spotting works on this machine, and what to do if it does not."""

import json
import sys

import click

from kws_edge.cli.options import Number, device_option, model_option
from kws_edge.text import one_line

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@model_option
@click.option("--listen", is_flag=True, help="Also open the microphone and measure its level.")
@click.option(
    "--seconds",
    type=Number(0.5, 60),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How long --listen listens.",
)
@device_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for scripts.")
def doctor(model: str | None, listen: bool, seconds: float, device: int | str | None, as_json: bool) -> None:
    """Check that keyword spotting works on this machine.

    It checks the processor and memory, onnxruntime and the execution providers that really run, audio decoding and the
    microphones, loads the model, and classifies bundled recordings whose words are known. Where something is missing or
    broken, it says how to fix it.

    \b
    kws-edge doctor
    kws-edge doctor --listen --device USB
    kws-edge doctor --json | jq '.findings[] | select(.status != "ok")'

    Exit status: 0 words can be recognised, possibly with warnings; 1 a problem prevents it.
    """
    from kws_edge.doctor import Finding, Status, examine

    findings: list[Finding] = []
    for finding in examine(model, listen=seconds if listen else None, device=device):
        findings.append(finding)
        if not as_json:
            status = click.style(f"{finding.status:8}", _COLOURS[finding.status])
            click.echo(f"{status} {finding.check}: {one_line(finding.message)}")  # devices' names may hold anything
            if finding.advice:
                click.echo(f"{'':8} → {one_line(finding.advice)}")
    counts = {status: sum(f.status == status for f in findings) for status in Status}
    ready = not counts[Status.PROBLEM]
    if as_json:
        values = {"ok": ready, "findings": [finding.to_dict() for finding in findings]}
        click.echo(json.dumps(values, allow_nan=False))
    else:
        verdict = "words can be recognised here" if ready else "this machine is not ready"
        click.echo(f"{verdict}: {counts[Status.PROBLEM]} problems, {counts[Status.WARNING]} warnings")
    if not ready:
        sys.exit(1)

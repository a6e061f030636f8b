"""`kws-edge doctor`: is this machine fit, and what is to be done where it is not?"""

import json
import sys

import click

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.option("--model", metavar="NAME|PATH", help="A name that `kws-edge models` lists, or a path to an .onnx file.")
@click.option("--listen", is_flag=True, help="Open the microphone for a moment, and measure its level.")
@click.option(
    "--seconds", type=click.FloatRange(0.5, 60), default=2.0, show_default=True, help="How long --listen listens."
)
@click.option("--device", metavar="NUMBER|NAME", help="Which microphone, as `kws-edge devices` lists them.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for scripts.")
def doctor(model: str | None, listen: bool, seconds: float, device: str | None, as_json: bool) -> None:
    """Check the installation on this machine, and say how to mend what is missing or broken.

    The onnxruntime that is installed and the execution providers that really run, the versions of models that it takes,
    a model on bundled recordings with known answers, processor, memory, audio formats, microphones.

    \b
    kws-edge doctor
    kws-edge doctor --listen --device USB
    kws-edge doctor --json | jq '.findings[] | select(.status != "ok")'

    Exit status: 0 words can be recognised here, possibly with warnings; 1 a problem keeps that from working.
    """
    from kws_edge.doctor import Finding, Status, examine

    findings: list[Finding] = []
    for finding in examine(
        model, listen=seconds if listen else None, device=int(device) if device and device.isdecimal() else device
    ):
        findings.append(finding)
        if not as_json:
            status = click.style(f"{finding.status:8}", _COLOURS[finding.status])
            click.echo(f"{status} {finding.check}: {finding.message}")
            if finding.advice:
                click.echo(f"{'':8} → {finding.advice}")
    worst = [status for status in (Status.PROBLEM, Status.WARNING) if any(f.status == status for f in findings)]
    if as_json:
        values = {"ok": Status.PROBLEM not in worst, "findings": [finding.to_dict() for finding in findings]}
        click.echo(json.dumps(values, allow_nan=False))
    else:
        counts = {status: sum(f.status == status for f in findings) for status in Status}
        verdict = "words can be recognised here" if Status.PROBLEM not in worst else "this machine is not ready"
        click.echo(f"{verdict}: {counts[Status.PROBLEM]} problems, {counts[Status.WARNING]} warnings")
    if Status.PROBLEM in worst:
        sys.exit(1)

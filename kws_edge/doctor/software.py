"""Python, onnxruntime, the models and the server: what is installed, and whether it runs.

What can end the process, as a wheel for another processor does, is tried in a process of its own; where none can be
started, that is a finding, and the rest is tried in this one.
"""

import re
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kws_edge.doctor.findings import Finding, Found, Status, cannot_probe
from kws_edge.errors import KwsEdgeError, ModelError, ProviderError
from kws_edge.text import collapsed

SAMPLES: Final = Path(__file__).parents[1] / "samples"
WORD: Final = "yes"
"""A word that the shipped models know; the sample of that name says it."""

_FUTURE = 999


def software() -> Found:
    """Versions of Python, the packages and the system."""
    import platform

    from kws_edge.bench.machine import versions

    found = ", ".join(f"{name} {number}" for name, number in versions().items())
    yield Finding("software", Status.OK, f"{found}; {platform.platform()}")


def wheels() -> Found:
    """Builds of onnxruntime that write over each other."""
    check = "onnxruntime wheels"
    found = {
        dist.metadata["Name"]: dist.version
        for dist in distributions()
        if (dist.metadata["Name"] or "").lower().startswith(("onnxruntime", "ort-"))
        and "onnxruntime" in (dist.read_text("top_level.txt") or "").split()
    }
    names = ", ".join(f"{name} {number}" for name, number in sorted(found.items()))
    if len(found) > 1:
        advice = f"pip uninstall -y {' '.join(sorted(found))}; then pip install the one that you need"
        message = f"{names} are all installed, and write over each other's files: which of them runs is undefined"
        yield Finding(check, Status.WARNING, message, advice)
    elif found:
        yield Finding(check, Status.OK, names)
    else:
        yield Finding(check, Status.WARNING, "no distribution of it is known to pip", "pip install onnxruntime")


def runtime() -> Found:
    """Whether onnxruntime can be imported."""
    check = "onnxruntime"
    code = "import onnxruntime; print(onnxruntime.__version__, *onnxruntime.get_available_providers())"
    try:
        result = subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=120
        )
    except OSError as error:
        yield cannot_probe(check, error)
        import onnxruntime

        yield Finding(check, Status.OK, f"{onnxruntime.__version__} loads")
        return
    if result.returncode < 0:
        advice = "install an older or another build of it: this one may need instructions that this processor lacks"
        yield Finding(check, Status.PROBLEM, f"importing it ends the process with signal {-result.returncode}", advice)
    elif result.returncode:
        said = (result.stderr.strip().splitlines() or ["no message"])[-1]
        yield Finding(check, Status.PROBLEM, f"cannot be imported: {said}", "pip install --force-reinstall onnxruntime")
    else:
        number, *providers = result.stdout.split()
        yield Finding(check, Status.OK, f"{number} loads, with {', '.join(providers)}")


def limits() -> Found:
    """Whether it takes files as new as the shipped models."""
    from kws_edge.model.onnx_fields import GRAPH, GRAPH_NAME, IR_VERSION, OPSET_IMPORT, SET_VERSION
    from kws_edge.model.protobuf import bytes_field, read_varint, values, varint_field
    from kws_edge.model.shipped import shipped_models

    check = "versions of models"
    opset = bytes_field(OPSET_IMPORT, varint_field(SET_VERSION, _FUTURE))
    graph = bytes_field(GRAPH, bytes_field(GRAPH_NAME, b"empty"))
    most_opset = _limit(varint_field(IR_VERSION, 8) + opset + graph, r"till opset (\d+)")
    opset = bytes_field(OPSET_IMPORT, varint_field(SET_VERSION, 17))
    most_ir = _limit(varint_field(IR_VERSION, _FUTURE) + opset + graph, r"max supported IR version: (\d+)")
    limits = f"IR version up to {most_ir or 'unknown'}, opset up to {most_opset or 'unknown'}"
    needs = {}
    for name, path in shipped_models().items():
        with suppress(ModelError, IndexError, ValueError):  # of a damaged file; loading it says so
            data = path.read_bytes()
            opsets = [read_varint(values(opset, SET_VERSION)[0])[0] for opset in values(data, OPSET_IMPORT)]
            needs[name] = read_varint(values(data, IR_VERSION)[0])[0], max(opsets)
    for name, (ir_version, version) in needs.items():
        if (most_ir and ir_version > most_ir) or (most_opset and version > most_opset):
            message = f"{name} has IR version {ir_version} and opset {version}; this onnxruntime takes {limits}"
            yield Finding(check, Status.PROBLEM, message, "pip install --upgrade onnxruntime")
            return
    found = ", ".join(sorted({f"{ir_version} and {version}" for ir_version, version in needs.values()}))
    yield Finding(check, Status.OK, f"{limits}; the shipped models need {found or 'unknown versions'}")


def _limit(data: bytes, pattern: str) -> int | None:
    """What onnxruntime says it supports when it refuses a file from the future."""
    from kws_edge.model.runtime import CPU, open_session

    try:
        open_session(data, CPU, 1)
    except Exception as error:  # onnxruntime's errors have no class in common
        if found := re.search(pattern, str(error)):
            return int(found[1])
    return None


def model(name: str | None) -> Found:
    """Whether a model runs on the CPU, and hears what the samples say."""
    from kws_edge.bench.runner import probe
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.model.shipped import DEFAULT_MODEL, shipped_models

    check = "model"
    try:
        probe(name or DEFAULT_MODEL, "cpu")
    except ProviderError as error:
        yield Finding(check, Status.PROBLEM, f"running it on the CPU: {error}", "try another build of onnxruntime")
        return
    except OSError as error:
        yield cannot_probe(check, error)
    for other in shipped_models():
        try:
            KeywordModel.load(other)
        except KwsEdgeError as error:
            yield Finding(
                check, Status.PROBLEM, collapsed(error), "in a checkout of kws-edge, pip install --force-reinstall ."
            )
    start = time.perf_counter()
    model = KeywordModel.load(name)
    answer = model.classify(SAMPLES / f"{WORD}.flac")
    took = time.perf_counter() - start
    silence = model.classify(SAMPLES / "silence.flac")
    said = f"{model.name} hears {answer.label or f'{answer.guess}, not sure'} in the sample of {WORD!r}"
    if silence.label is not None:
        yield Finding(
            check,
            Status.PROBLEM,
            f"{model.name} hears {silence.label} in silence",
            "report this, with the output of kws-edge doctor --json",
        )
    elif WORD not in model.labels:
        yield Finding(check, Status.OK, f"{said}, a word that it does not know; {1e3 * took:.0f} ms including loading")
    elif answer.guess != WORD:
        yield Finding(check, Status.PROBLEM, said, "this onnxruntime computes wrongly here, or the model is damaged")
    elif answer.label is None:
        yield Finding(check, Status.WARNING, said, "thresholds may be too strict: kws-edge calibrate")
    else:
        yield Finding(check, Status.OK, f"{said}, and nothing in silence; {1e3 * took:.0f} ms including loading")


def providers(model: str | None) -> Found:
    """Which execution providers run the model."""
    from kws_edge.bench.runner import probe
    from kws_edge.model.runtime import REMOTE, available_providers
    from kws_edge.model.shipped import DEFAULT_MODEL

    check = "providers"
    for provider in available_providers():
        if provider == "cpu" or provider in REMOTE:
            continue
        try:
            nodes = probe(model or DEFAULT_MODEL, provider)
            total = sum(nodes.values())
            yield Finding(check, Status.OK, f"{provider} runs {nodes[provider]} of {total} nodes of the model")
        except ProviderError as error:
            message = f"{provider} is in this onnxruntime and does not run here: {collapsed(error)}"
            yield Finding(check, Status.WARNING, message, "install its driver and libraries, or stay with the CPU")
        except OSError as error:
            yield cannot_probe(check, error)
    yield Finding(check, Status.OK, f"available: {', '.join(available_providers())}; the CPU is the default")


def server() -> Found:
    """Whether the server has what it needs."""
    missing = [name for name in ("fastapi", "uvicorn", "pydantic_settings", "prometheus_client") if not find_spec(name)]
    if missing:
        message = f"not installed ({', '.join(missing)}); for kws-edge serve, in a checkout, pip install '.[server]'"
        yield Finding("server", Status.OK, message)
    else:
        yield Finding("server", Status.OK, "what kws-edge serve needs is installed")

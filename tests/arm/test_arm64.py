"""On 64-bit Arm, emulated: the wheel installs from wheels alone, and everything answers as it does on this machine.

nice python -m pytest tests/arm -m arm [--arm-cpu cortex-a53 ...]
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import arm64
import httpx
import numpy as np
import pytest
from paths import ROOT

from kws_edge import WavFile
from kws_edge.client import Client

pytestmark = pytest.mark.arm

SAMPLES = ROOT / "kws_edge" / "samples"
ANSWERS = Path(__file__).parent / "answers.py"
STEP_GRAPH = ROOT / "models" / "stream.audio.step.onnx"  # which the wheel lacks
MAIN = "from kws_edge.cli import main; main()"
PATIENCE = 600.0
"""Seconds; emulation takes some tens of times as long as the machine itself."""

INT8 = 0.02
"""How far alpha may be off, relatively, where products of int8 are added up in another order and with other rounding:
x86 without VNNI saturates pairs of them, which Arm does not."""


def run(python: Path | str, *arguments: object, accept: tuple[int, ...] = (0,)) -> str:
    """What a program prints; none of this process's Python settings reach it."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"OMP_NUM_THREADS": "1"}
    command = [str(python), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean, timeout=PATIENCE)
    assert done.returncode in accept, f"{command}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def here() -> dict[str, Any]:
    """The answers of this machine."""
    return json.loads(run(sys.executable, ANSWERS, SAMPLES, STEP_GRAPH))


@pytest.fixture(scope="session")
def there(python: Path) -> dict[str, Any]:
    """The answers of the emulated one."""
    return json.loads(run(python, ANSWERS, SAMPLES, STEP_GRAPH))


def difference(a: list[float], b: list[float]) -> float:
    """The largest relative difference between two lists of numbers above 0."""
    return float(np.max(np.abs(np.divide(a, b) - 1)))


def test_the_wheel_runs_on_arm(there: dict[str, Any]) -> None:
    assert there["machine"] == "aarch64"


def test_every_sample_gets_the_same_answer(here: dict[str, Any], there: dict[str, Any]) -> None:
    assert there["clips"].keys() == here["clips"].keys()
    for name, answer in here["clips"].items():
        other = there["clips"][name]
        for key in ("label", "guess", "reason", "start", "end"):
            assert other[key] == answer[key], (name, key)


def test_every_sample_gets_the_same_evidence(here: dict[str, Any], there: dict[str, Any]) -> None:
    off = {name: difference(there["clips"][name]["alpha"], a["alpha"]) for name, a in here["clips"].items()}
    for kind in ("float", "int8"):
        most = max(value for name, value in off.items() if ("int8" in name) == (kind == "int8"))
        print(f"{kind}: alpha differs by at most {most:.1e}, relatively")
    assert {name: value for name, value in off.items() if value > (INT8 if "int8" in name else 1e-4)} == {}


def test_the_step_graph_hears_a_stream_as_it_does_here(here: dict[str, Any], there: dict[str, Any]) -> None:
    ours, theirs = here["step graph"], there["step graph"]
    assert theirs["class"] == ours["class"]
    assert max(difference(a, b) for a, b in zip(theirs["alpha"], ours["alpha"], strict=True)) < 1e-4


def test_a_recording_gives_the_same_events(python: Path) -> None:
    replay = ("listen", "--replay", SAMPLES / "demo.flac", "--fast", "--json")
    ours, theirs = (
        [json.loads(line) for line in run(interpreter, "-c", MAIN, *replay).splitlines()]
        for interpreter in (sys.executable, python)
    )
    assert len(ours) >= 3
    kept = ("label", "guess", "reason", "start", "end", "time")
    assert [[event[key] for key in kept] for event in theirs] == [[event[key] for key in kept] for event in ours]
    assert max(difference(a["alpha"], b["alpha"]) for a, b in zip(theirs, ours, strict=True)) < 1e-4


def test_the_doctor_finds_the_board_fit(first_python: Path) -> None:
    report = json.loads(run(first_python, "-c", MAIN, "doctor", "--json", accept=(0, 1)))
    assert [f for f in report["findings"] if f["status"] == "problem"] == []
    assert any("emulated by qemu-aarch64" in f["message"] for f in report["findings"] if f["check"] == "processor")


def test_where_programs_cannot_start_others_the_doctor_says_so_and_goes_on(environment: arm64.Arm64) -> None:
    command = environment.bare_command("cortex-a53")
    code = f"import sys; sys.path.insert(0, {str(environment.site)!r}); {MAIN}"
    report = json.loads(run(*command, "-c", code, "doctor", "--json", accept=(0, 1)))
    found = {f["check"]: f for f in reversed(report["findings"])}
    assert "cannot be started" in found["onnxruntime"]["message"]
    assert "binfmt_misc" in found["onnxruntime"]["advice"]
    assert [f for f in report["findings"] if f["status"] == "problem"] == []


def test_the_bench_measures_there(first_python: Path) -> None:
    report = json.loads(run(first_python, "-c", MAIN, "bench", "--seconds", "2", "--json"))
    assert {(row["task"], row["provider"]) for row in report["rows"]} == {("clip", "cpu"), ("stream", "cpu")}
    assert all(row["p50_ms"] > 0 for row in report["rows"])


@contextlib.contextmanager
def serving(python: Path) -> Iterator[str]:
    """The address of `kws-edge serve` in the emulated environment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KWS_EDGE"))}
    server = subprocess.Popen([str(python), "-c", MAIN, "serve", "--port", str(port)], env=clean)
    try:
        end = time.monotonic() + PATIENCE
        while server.poll() is None and time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=30).is_success:
                    break
            time.sleep(0.5)
        assert server.poll() is None, "the server did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def test_the_server_answers_a_request_and_a_stream(first_python: Path) -> None:
    with serving(first_python) as url, Client(url, timeout=PATIENCE) as client:
        assert client.classify(SAMPLES / "yes.flac").label == "yes"
        words = [event.label for event in client.listen(WavFile(SAMPLES / "demo.flac", realtime=False)) if event.label]
    assert words[:1] == ["yes"]

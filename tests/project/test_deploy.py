"""deploy/: the unit lets the server run, with one process and with several, and a listener; all packages are pinned."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution, requires
from pathlib import Path

import confined
import httpx
import pytest
from live_server import PATIENT
from made_audio import WAV, tone, wav
from packaging.requirements import Requirement
from paths import ROOT
from tiny_model import TONES, save

UNIT = ROOT / "deploy" / "kws-edge.service"
CODE = "from kws_edge.cli import main; main()"
CONFINED = [sys.executable, str(ROOT / "tests" / "support" / "confined.py"), str(UNIT), sys.executable, "-c", CODE]

needs_filter = pytest.mark.skipif(confined.lacking() is not None, reason=f"needs {confined.lacking()}")


@contextmanager
def serving(model: Path, *arguments: str) -> Iterator[str]:
    """The URL of a server that is confined as its unit says."""
    command = [*CONFINED, "serve", "--models", str(model), "--port", "0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        lines = (json.loads(line) for line in process.stderr)
        yield next(line["url"] for line in lines if line["message"] == "listening")
    finally:
        process.terminate()
        process.communicate(timeout=PATIENT)
    assert process.returncode == 0


@needs_filter
@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_server_runs_under_its_unit(tmp_path: Path, processes: str) -> None:
    with (
        serving(save(tmp_path), "--processes", processes) as url,
        httpx.Client(base_url=url, timeout=PATIENT) as client,
    ):
        answer = client.post("/v1/classify", content=wav(tone(TONES["mid"])), headers=WAV)
        assert answer.json()["label"] == "mid"
        assert "kws_edge_predictions_total" in client.get("/metrics").text


@needs_filter
def test_a_listener_runs_under_the_unit_too(tmp_path: Path) -> None:
    model = save(tmp_path)
    pcm = (tone(TONES["mid"], 3.0) * 32767).astype("<i2").tobytes()
    with serving(model) as url:
        for options in (["--model", str(model)], ["--server", url]):
            command = [*CONFINED, "listen", "-", "--json", *options]
            done = subprocess.run(command, input=pcm, capture_output=True, check=False, timeout=PATIENT)
            assert done.returncode == 0, done.stderr


@needs_filter
def test_the_filter_is_that_of_the_unit(tmp_path: Path) -> None:
    other = tmp_path / "other.service"
    other.write_text(UNIT.read_text().replace(" AF_UNIX\n", "\n"))
    code = "import socket; socket.socket(socket.AF_UNIX)"
    command = [sys.executable, CONFINED[1], str(other), sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Address family not supported" in done.stderr
    code = "import os, ctypes; ctypes.CDLL(None).reboot(0)"
    assert subprocess.run([*command[:-1], code], capture_output=True, check=False).returncode == -31  # SIGSYS


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/kws-edge/bin/kws-edge", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "kws-edge.service" not in done.stderr, done.stderr


def needed(texts: list[str], extras: set[str], found: dict[str, str]) -> dict[str, str]:
    """The packages of requirements, and those that they need in turn: name → version that is installed."""
    for requirement in map(Requirement, texts):
        environments = [{"extra": extra} for extra in extras or {""}]
        if requirement.marker and not any(requirement.marker.evaluate(e) for e in environments):
            continue
        key = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if key not in found:
            found[key] = distribution(requirement.name).version
            needed(requires(requirement.name) or [], requirement.extras, found)
    return found


def test_all_that_a_server_installs_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    pins = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    installed = needed([*project["dependencies"], *extras["server"], *extras["client"]], set(), {})
    assert {"uvloop", "httptools", "pydantic-core", "anyio", "h11", "starlette"} <= set(installed)
    assert {name for name in installed if name not in pins} == set()


def test_the_image_installs_what_is_pinned_by_hash() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    assert "--require-hashes" in dockerfile
    text = (ROOT / "deploy" / "requirements.txt").read_text()
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
    constraints = (ROOT / "constraints.txt").read_text()
    for name, version in pins.items():
        assert re.search(rf"^{name.replace('-', '[-_.]')}=={re.escape(version)}$", constraints, re.M | re.I), name
    entries = re.split(r"\n(?=[a-z0-9-]+==)", text)[1:]
    assert len(entries) == len(pins) > 20
    assert all("--hash=sha256:" in entry for entry in entries)

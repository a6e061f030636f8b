"""The units of deploy/ under a real systemd with all its restrictions: they work, and cannot do what they forbid."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from live_server import PATIENT, free_port, wait_for
from paths import ROOT
from systemd import Manager, adapted, manager

from kws_edge import WavFile
from kws_edge.client import Client

SERVE, LISTEN = (ROOT / "deploy" / name for name in ("kws-edge.service", "kws-edge-listen.service"))
SAMPLES = ROOT / "kws_edge" / "samples"
KWS_EDGE = f'{sys.executable} -c "from kws_edge.cli import main; main()"'
ENVIRONMENT = f"PYTHONPATH={ROOT} PYTHONDONTWRITEBYTECODE=1"

PROBE = """
import json, os, signal, socket, subprocess, sys

def possible(what):
    try:
        return what() is not False
    except OSError:
        return False

def killed_by(code):
    status = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode
    return signal.Signals(-status).name if status < 0 else None

status = open("/proc/self/status").read()
print(json.dumps({
    "new privileges": "NoNewPrivs:\\t1" not in status,
    "capabilities": "CapEff:\\t0000000000000000" not in status,
    "write /usr": possible(lambda: open("/usr/written-by-a-test", "w")),
    "write /etc": possible(lambda: open("/etc/written-by-a-test", "w")),
    "see homes": possible(lambda: os.listdir("/home") != []),
    "mount": possible(lambda: os.system("mount -t tmpfs tmpfs /mnt 2>/dev/null") == 0),
    "make namespaces": possible(lambda: os.system("unshare --user true 2>/dev/null") == 0),
    "call the kernel at will": killed_by("import ctypes; ctypes.CDLL(None).reboot(0)") != "SIGSYS",
    "netlink": possible(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
    "internet": possible(lambda: socket.socket(socket.AF_INET)),
    "reach a network": %r and [n for n in open("/proc/net/dev") if ":" in n and n.split(":")[0].strip() != "lo"] != [],
    "own temporary files": possible(lambda: open("/tmp/written-by-a-test", "w")),
}))
"""


@pytest.fixture
def serving(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Manager, str]]:
    """The server's unit, running, and where it listens."""
    port = free_port()
    environment = f"{ENVIRONMENT} KWS_EDGE_PORT={port} KWS_EDGE_MODELS=stream"
    unit = adapted(SERVE, f"{KWS_EDGE} serve --processes {getattr(request, 'param', 1)}", Environment=environment)
    with manager({"serve.service": unit}, tmp_path) as running:
        running.control("start", "serve.service")
        yield running, f"http://127.0.0.1:{port}"


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize("serving", [1, 2], ids=["one process", "two processes"], indirect=True)
def test_the_server_answers_clips_and_streams_under_its_restrictions(serving: tuple[Manager, str]) -> None:
    _, url = serving
    wait_for(lambda: answers(url), PATIENT)
    with Client(url) as client:
        assert client.classify(SAMPLES / "yes.flac").label == "yes"
        assert "yes" in [event.label for event in client.listen(WavFile(SAMPLES / "demo.flac"))]


def test_a_server_that_is_killed_is_started_again(serving: tuple[Manager, str]) -> None:
    running, url = serving
    wait_for(lambda: answers(url), PATIENT)
    before = running.property("serve.service", "NRestarts")
    running.control("kill", "--signal=SIGKILL", "serve.service")
    wait_for(lambda: running.property("serve.service", "NRestarts") != before, PATIENT)
    wait_for(lambda: answers(url), PATIENT)


def test_a_server_that_is_stopped_ends_by_itself(serving: tuple[Manager, str]) -> None:
    running, url = serving
    wait_for(lambda: answers(url), PATIENT)
    running.control("stop", "serve.service")
    assert running.property("serve.service", "Result") == "success"
    assert running.property("serve.service", "ExecMainStatus") == "0"


def run_once(unit: Path, command: str, folder: Path) -> str:
    """What a unit prints when it runs another command, to its end."""
    folder.mkdir(exist_ok=True)
    output = folder / "output"
    output.touch()
    text = adapted(unit, command, Environment=ENVIRONMENT, StandardOutput=f"append:{output}", BindPaths=str(folder))
    text = re.sub(r"(?m)^Restart=.*$", "Restart=no", text)
    with manager({"once.service": text}, folder) as running:
        running.control("start", "once.service")
        wait_for(lambda: running.property("once.service", "ActiveState") in ("inactive", "failed"), PATIENT)
        assert running.property("once.service", "Result") == "success", running.control("status", "once.service")
    return output.read_text(encoding="utf-8")


@pytest.mark.parametrize(("unit", "internet"), [(SERVE, True), (LISTEN, False)], ids=lambda v: getattr(v, "name", ""))
def test_a_unit_cannot_do_what_it_has_no_use_for(unit: Path, internet: bool, tmp_path: Path) -> None:
    folder = tmp_path / "unit"
    folder.mkdir()
    (folder / "probe.py").write_text(PROBE.replace("%r", repr(not internet)), encoding="utf-8")
    found = json.loads(run_once(unit, f"{sys.executable} {folder / 'probe.py'}", folder))
    possible = {what for what, is_possible in found.items() if is_possible}
    assert possible == {"own temporary files"} | ({"internet"} if internet else set())


def test_a_listener_gives_events_under_its_restrictions(tmp_path: Path) -> None:
    command = f"{KWS_EDGE} listen --json --fast --replay {SAMPLES / 'demo.flac'}"
    events = [json.loads(line) for line in run_once(LISTEN, command, tmp_path / "unit").splitlines()]
    assert "yes" in [event["label"] for event in events]


def test_a_listener_that_ends_is_started_again(tmp_path: Path) -> None:
    unit = adapted(LISTEN, f"{sys.executable} -c 'raise SystemExit(2)'").replace("RestartSec=5", "RestartSec=0.2")
    with manager({"listen.service": unit}, tmp_path) as running:
        running.control("start", "--no-block", "listen.service")
        wait_for(lambda: int(running.property("listen.service", "NRestarts") or 0) > 10, PATIENT)


def test_a_listener_may_use_the_microphone() -> None:
    text = LISTEN.read_text(encoding="utf-8")
    assert "\nSupplementaryGroups=audio\n" in text
    assert "\nDeviceAllow=char-alsa rw\n" in text
    assert "PrivateDevices" not in text  # which hides the sound card

"""A real Chromium, driven over its DevTools protocol; its microphone is a recording."""

import contextlib
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_server import PATIENT
from websockets.sync.client import ClientConnection, connect

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = """
    --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update
    --disable-sync --remote-debugging-port=0 --use-fake-ui-for-media-stream --use-fake-device-for-media-stream
"""


CONNECTION: dict[str, Any] = {"max_size": None, "ping_interval": None, "open_timeout": PATIENT}
"""No pings: a browser on a busy machine does not answer them in time, and is not gone for that."""


class Page:
    """A tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._ids = socket, itertools.count(1)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENT))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message["method"]:
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Network.webSocketCreated":
                self.requests.append(parameters["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.complaints.append(parameters["entry"]["text"])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && document.querySelector('#bars')?.children.length > 0")

    def js(self, expression: str) -> Any:
        """The value of an expression of JavaScript, awaited where it is a promise."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str, seconds: float = PATIENT) -> Any:
        """Wait until it is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.js(expression)):
            assert time.monotonic() < deadline, f"never true: {expression}; page: {self.js('document.body.innerText')}"
            time.sleep(0.05)
        return value

    def text(self, selector: str) -> str:
        return self.js(f"document.querySelector({selector!r}).innerText")

    def upload(self, selector: str, *files: Path) -> None:
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def look(self, width: int, height: int, scheme: str) -> None:
        """Be so large, in CSS pixels, and light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@contextlib.contextmanager
def chromium(profile: Path, microphone: Path | None = None) -> Iterator[Page]:
    """Start it with an empty profile; skips where there is none. The microphone's recording repeats."""
    if EXECUTABLE is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    flags = [*FLAGS.split(), f"--user-data-dir={profile}"]
    if microphone:
        flags.append(f"--use-file-for-fake-audio-capture={microphone}")
    browser = subprocess.Popen([EXECUTABLE, *flags, "about:blank"], stderr=subprocess.DEVNULL)
    try:
        port_file = profile / "DevToolsActivePort"
        deadline = time.monotonic() + PATIENT
        while not (port_file.exists() and len(port_file.read_text().split()) == 2):
            assert time.monotonic() < deadline, "Chromium did not start"
            time.sleep(0.05)
        port, path = port_file.read_text().split()
        with connect(f"ws://127.0.0.1:{port}{path}", **CONNECTION) as socket:
            tabs = Page.__new__(Page)
            tabs._socket, tabs._ids = socket, itertools.count(1)
            tabs.requests, tabs.complaints = [], []
            (tab, *_) = (t for t in tabs.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        with connect(f"ws://127.0.0.1:{port}/devtools/page/{tab['targetId']}", **CONNECTION) as socket:
            yield Page(socket)
    finally:
        browser.terminate()
        browser.wait(10)

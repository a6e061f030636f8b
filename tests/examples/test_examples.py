"""Each example is run as its user would: real broker, real browser, real compiler; pins alone are made up."""

import contextlib
import functools
import http.server
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import soundfile
from chromium import chromium
from live_server import free_port, in_thread, live_server
from paths import ROOT

from kws_edge import KeywordModel, Spotter, WavFile
from kws_edge.model.shipped import shipped_models

EXAMPLES = ROOT / "examples"
SAMPLES = ROOT / "kws_edge" / "samples"
DEMO = SAMPLES / "demo.flac"
STREAM = shipped_models()["stream"]


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def words() -> list[str]:
    """What the default model names in the demo."""
    events = Spotter(KeywordModel.load()).listen(WavFile(DEMO))
    found = [event.label for event in events if event.label]
    assert len(found) >= 2
    return found


@pytest.fixture
def pcm(tmp_path: Path) -> Path:
    """The demo as raw samples."""
    samples, rate = soundfile.read(DEMO, dtype="int16")
    assert rate == 16_000
    (tmp_path / "demo.pcm").write_bytes(samples.astype("<i2").tobytes())
    return tmp_path / "demo.pcm"


# --- GPIO


def test_the_light_goes_on_and_off_by_words(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gpiozero", reason="needs gpiozero: pip install gpiozero")
    from gpiozero import LED, Device
    from gpiozero.pins.mock import MockFactory

    sys.path.insert(0, str(EXAMPLES / "gpio"))
    try:
        import light
    finally:
        sys.path.pop(0)
    Device.pin_factory = MockFactory()
    try:
        pin = Device.pin_factory.pin(17)
        lamp = LED(17)
        pin.clear_states()
        on, off = words[:2]
        light.switch(lamp, Spotter(KeywordModel.load(), words={on, off}).listen(WavFile(DEMO)), on, off)
        pin.assert_states([False, True, False])
        assert f"{on}; the light is on" in capsys.readouterr().out
    finally:
        Device.pin_factory.reset()
        Device.pin_factory = None


def test_the_light_runs_as_a_program(words: list[str]) -> None:
    pytest.importorskip("gpiozero", reason="needs gpiozero: pip install gpiozero")
    environment = {**os.environ, "GPIOZERO_PIN_FACTORY": "mock"}
    script = EXAMPLES / "gpio" / "light.py"
    done = run(sys.executable, script, "--replay", DEMO, "--on", words[0], "--off", words[1], env=environment)
    assert f"{words[0]}; the light is on" in done.stdout
    assert f"{words[1]}; the light is off" in done.stdout


def test_a_machine_without_pins_is_an_error_in_one_line() -> None:
    pytest.importorskip("gpiozero", reason="needs gpiozero: pip install gpiozero")
    environment = {**os.environ, "GPIOZERO_PIN_FACTORY": "mock"}
    command = [sys.executable, str(EXAMPLES / "gpio" / "light.py"), "--replay", str(DEMO), "--pin", "99"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert done.stderr.startswith("error: no pin 99 here (")
    assert done.stderr.count("\n") == 1


# --- MQTT


@contextlib.contextmanager
def mosquitto(folder: Path, port: int) -> Iterator[None]:
    """A real broker, which remembers nothing once it has ended."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("needs a broker: apt-get install mosquitto")
    settings = folder / "mosquitto.conf"
    settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    process = subprocess.Popen([program, "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < deadline, "the broker did not start"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    """The port of a real broker."""
    port = free_port()
    with mosquitto(tmp_path, port):
        yield port


@contextlib.contextmanager
def subscribed(port: int) -> Iterator["Subscriber"]:
    pytest.importorskip("paho.mqtt", reason="needs a client: pip install paho-mqtt")
    reader = Subscriber(port)
    yield reader
    reader.client.disconnect()
    reader.client.loop_stop()


class Subscriber:
    """Everything that a broker passes on."""

    def __init__(self, port: int) -> None:
        from paho.mqtt import client as mqtt
        from paho.mqtt.enums import CallbackAPIVersion

        self.messages: list[tuple[str, str]] = []
        self._ready = threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self.client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
        self.client.on_subscribe = lambda *_: self._ready.set()
        self.client.on_message = lambda _, __, m: self.messages.append((m.topic, m.payload.decode()))
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self._ready.wait(30)

    def of(self, topic: str) -> list[str]:
        return [payload for name, payload in self.messages if name == topic]

    def wait_for(self, topic: str, payload: str) -> None:
        deadline = time.monotonic() + 60
        while payload not in self.of(topic):
            assert time.monotonic() < deadline, self.messages
            time.sleep(0.05)


@pytest.fixture
def subscriber(broker: int) -> Iterator[Subscriber]:
    with subscribed(broker) as reader:
        yield reader


def publish(port: int, *options: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / "mqtt" / "publish.py"), "--port", str(port), "--name", "kitchen", *options]


def test_words_come_through_the_broker_with_what_home_assistant_needs(
    broker: int, subscriber: Subscriber, words: list[str]
) -> None:
    run(*publish(broker, "--replay", str(DEMO)))
    subscriber.wait_for("kws-edge/kitchen/status", "offline")
    events = [json.loads(payload) for payload in subscriber.of("kws-edge/kitchen/event")]
    assert [event["event_type"] for event in events] == words
    (config,) = (json.loads(p) for p in subscriber.of("homeassistant/event/kws-edge-kitchen/words/config"))
    assert config["state_topic"] == "kws-edge/kitchen/event"
    assert config["availability_topic"] == "kws-edge/kitchen/status"
    assert {event["event_type"] for event in events} <= set(config["event_types"])
    assert subscriber.of("kws-edge/kitchen/status")[0] == "online"


def test_abstentions_are_published_where_they_are_asked_for(broker: int, subscriber: Subscriber) -> None:
    run(*publish(broker, "--replay", str(DEMO), "--abstentions", "all"))
    subscriber.wait_for("kws-edge/kitchen/status", "offline")
    events = [json.loads(payload) for payload in subscriber.of("kws-edge/kitchen/event")]
    assert any(event["event_type"] == "not_sure" and event["reason"] == "uncertain" for event in events)


@pytest.fixture
def long(tmp_path: Path) -> str:
    """A recording of 47 minutes, many seconds to hear."""
    samples, rate = soundfile.read(DEMO, dtype="int16")
    soundfile.write(tmp_path / "long.flac", np.tile(samples, 200), rate)
    return str(tmp_path / "long.flac")


def test_a_broker_that_was_restarted_is_told_of_the_device_again(tmp_path: Path, long: str) -> None:
    port = free_port()
    with mosquitto(tmp_path, port), subscribed(port) as reader:
        process = subprocess.Popen(publish(port, "--replay", long))
        reader.wait_for("kws-edge/kitchen/status", "online")
    try:
        with mosquitto(tmp_path, port), subscribed(port) as reader:
            reader.wait_for("kws-edge/kitchen/status", "online")
            assert reader.of("homeassistant/event/kws-edge-kitchen/words/config")
    finally:
        process.kill()
        process.wait()


def test_the_broker_says_offline_where_the_program_is_killed(broker: int, subscriber: Subscriber, long: str) -> None:
    process = subprocess.Popen(publish(broker, "--replay", long))
    subscriber.wait_for("kws-edge/kitchen/status", "online")
    process.kill()
    process.wait()
    subscriber.wait_for("kws-edge/kitchen/status", "offline")


def test_a_broker_that_is_not_there_is_an_error_in_one_line() -> None:
    port = free_port()
    command = publish(port, "--replay", str(DEMO), "--words", "yes, left,")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: no connection to 127.0.0.1:{port} (Connection refused); expected ")
    assert done.stderr.count("\n") == 1


def test_a_name_that_no_topic_can_hold_is_refused() -> None:
    done = subprocess.run(publish(1, "--name", "kitchen+1"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("'kitchen+1'; expected letters, digits, - and _")


def test_a_login_that_the_broker_refuses_is_an_error_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            connection.recv(1000)
            connection.sendall(b"\x20\x02\x00\x05")  # CONNACK of MQTT 3.1.1: not authorised
            connection.close()

        threading.Thread(target=refuse, daemon=True).start()
        command = publish(server.getsockname()[1], "--replay", str(DEMO))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the broker refuses the connection: Not authorized; expected its --user")


# --- a page


@contextlib.contextmanager
def pages(folder: Path) -> Iterator[str]:
    """Serve a folder from another origin than kws-edge's."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, in_thread(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


def test_the_page_hears_words_through_the_server(words: list[str], tmp_path: Path) -> None:
    samples, rate = soundfile.read(DEMO, dtype="float32")
    soundfile.write(tmp_path / "microphone.wav", np.concatenate([np.zeros(rate, np.float32), samples]), rate)
    with (
        pages(EXAMPLES / "web") as origin,
        live_server(STREAM, cors_origins=(origin,)) as server,
        chromium(tmp_path / "profile", tmp_path / "microphone.wav") as page,
    ):
        address = f"ws://127.0.0.1:{server.base_url.port}"
        page.call("Page.navigate", url=f"{origin}/?server={address}")
        page.wait("document.readyState === 'complete' && document.querySelector('#listen') !== null")
        page.js("document.querySelector('#listen').click()")
        page.wait("document.querySelector('#status').textContent.startsWith('listening')", 60)
        page.wait(f"document.querySelector('#words').innerText.includes({words[0]!r})", 120)
        assert page.complaints == []


# --- Node


def test_the_script_of_the_reference_says_which_node_it_needs(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node 20 or newer: apt-get install nodejs")
    page = (ROOT / "docs" / "reference" / "server.md").read_text(encoding="utf-8")
    script = next(block for block in page.split("```js\n")[1:] if block.startswith("// stream.mjs")).partition("```")[0]
    (tmp_path / "stream.mjs").write_text(f"delete globalThis.WebSocket;\n{script}", encoding="utf-8")
    done = subprocess.run([node, tmp_path / "stream.mjs"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "has no WebSocket; expected Node 22 or newer" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["http://127.0.0.1:3", "README.md"], "error: connect ECONNREFUSED 127.0.0.1:3"),
        (["http://127.0.0.1:3", "no.flac"], "error: ENOENT: no such file or directory, open 'no.flac'"),
        ([], "error: expected client.mjs SERVER CLIP [SAMPLES.pcm]"),
    ],
)
def test_node_says_in_one_line_what_it_cannot_do(arguments: list[str], message: str) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node 20 or newer: apt-get install nodejs")
    command = [node, str(EXAMPLES / "node" / "client.mjs"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, f"{message}\n")


def test_node_classifies_and_listens_through_the_server(words: list[str], pcm: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node 20 or newer: apt-get install nodejs")
    major = int(run(node, "--version").stdout.lstrip("v").split(".")[0])
    if major < 20:
        pytest.skip(f"needs Node 20 or newer for WebSocket; this is {major}")
    options = [] if major >= 22 else ["--experimental-websocket"]
    with live_server(STREAM) as server:
        script, url = EXAMPLES / "node" / "client.mjs", str(server.base_url)
        done = run(node, *options, script, url, SAMPLES / "yes.flac", pcm)
    lines = done.stdout.splitlines()
    assert lines[0] == "clip: yes"
    assert [line.split(": ")[1] for line in lines[1:] if "not sure" not in line] == words


# --- C++


@pytest.fixture(scope="module")
def kws(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program. The header is looked for where .ci/run puts it, and in the system."""
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler: apt-get install g++")
    folders = [Path(os.environ.get("ONNXRUNTIME_INCLUDE", "")), Path("/usr/include/onnxruntime")]
    folder = next((f for f in folders if (f / "onnxruntime_c_api.h").is_file()), None)
    if folder is None:
        pytest.skip("needs ONNX Runtime's C header: examples/cpp/build.sh fetches it, ONNXRUNTIME_INCLUDE names it")
    out = tmp_path_factory.mktemp("cpp")
    environment = {**os.environ, "PYTHON": sys.executable, "ONNXRUNTIME_INCLUDE": str(folder)}
    run("bash", EXAMPLES / "cpp" / "build.sh", out, env=environment)
    return out / "kws"


def build(out: Path, path: Path | str, **environment: str) -> subprocess.CompletedProcess[str]:
    """build.sh with a PATH of its own, up to the compiler, in place of which echo says with what it is called."""
    command = [shutil.which("bash") or "bash", str(EXAMPLES / "cpp" / "build.sh"), str(out)]
    environment = {"PATH": str(path), "PYTHON": sys.executable, "CXX": "echo", **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def header(tmp_path: Path) -> Path:
    """A folder with a file of the header's name."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "onnxruntime_c_api.h").touch()
    return tmp_path / "include"


def test_cpp_is_built_by_a_user_whose_path_has_no_sbin(header: Path, tmp_path: Path) -> None:
    done = build(tmp_path / "out", "/usr/bin:/bin", ONNXRUNTIME_INCLUDE=str(header))
    assert done.returncode == 0, done.stderr
    assert "/libonnxruntime.so" in done.stdout.splitlines()[0]


def test_cpp_without_its_library_is_an_error_in_one_line(header: Path, tmp_path: Path) -> None:
    done = build(tmp_path / "out", "/usr/bin:/bin", ONNXRUNTIME_INCLUDE=str(header), PYTHON="no-python")
    if done.returncode == 0:
        pytest.skip("the system has a libonnxruntime")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("no libonnxruntime: ")


def test_cpp_without_its_header_where_there_is_no_apt_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("dirname", "mkdir"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    if Path("/usr/include/onnxruntime/onnxruntime_c_api.h").is_file():
        pytest.skip("the system has the header")
    done = build(tmp_path / "out", tmp_path / "bin")
    assert done.returncode == 2
    assert done.stderr == "no mirror of Debian is set up here; expected onnxruntime's headers in ONNXRUNTIME_INCLUDE\n"


@pytest.mark.parametrize("word", ["yes", "happy", "noise", "left", "three", "silence"])
def test_cpp_answers_as_python_does_for_a_clip(kws: Path, tmp_path: Path, word: str) -> None:
    samples, rate = soundfile.read(SAMPLES / f"{word}.flac", dtype="int16")
    soundfile.write(tmp_path / "clip.wav", samples, rate)
    answer = run(kws, STREAM.with_suffix(".audio.onnx"), tmp_path / "clip.wav").stdout
    p = KeywordModel.load().classify(tmp_path / "clip.wav")
    assert answer.split(" probability")[0] == (p.label or "not sure")
    entropy = float(answer.split("entropy ")[1].split()[0])
    assert entropy == pytest.approx(p.entropy, abs=2e-3)


def test_cpp_hears_the_same_words_in_a_stream(kws: Path, words: list[str], pcm: Path) -> None:
    with pcm.open("rb") as stream:
        answer = run(kws, STREAM.with_suffix(".audio.step.onnx"), "-", stdin=stream).stdout
    assert [line.split()[2] for line in answer.splitlines()] == words


def test_cpp_hears_by_the_thresholds_of_streams_and_not_by_those_after_a_wake_word(
    kws: Path, pcm: Path, tmp_path: Path
) -> None:
    model = onnx.load(STREAM.with_suffix(".audio.step.onnx"))
    (entry,) = (entry for entry in model.metadata_props if entry.key == "kws_edge")
    about = json.loads(entry.value)
    assert about["stream"]["after_wake"]["settings"]["thresholds"]
    about["stream"]["settings"]["thresholds"] = {"vacuity": 0.0}
    entry.value = json.dumps(about)
    onnx.save(model, tmp_path / "strict.onnx")
    with pcm.open("rb") as stream:
        assert not run(kws, tmp_path / "strict.onnx", "-", stdin=stream).stdout


def without_a_word(source: Path, word: str, path: Path) -> Path:
    """A model that has _unknown_ in place of a word."""
    model = onnx.load(source)
    (entry,) = (entry for entry in model.metadata_props if entry.key == "kws_edge")
    about = json.loads(entry.value)
    about["labels"][about["labels"].index(word)] = "_unknown_"
    entry.value = json.dumps(about)
    onnx.save(model, path)
    return path


def test_cpp_takes_no_unknown_word_for_a_word(kws: Path, words: list[str], pcm: Path, tmp_path: Path) -> None:
    samples, rate = soundfile.read(SAMPLES / "yes.flac", dtype="int16")
    soundfile.write(tmp_path / "clip.wav", samples, rate)
    clips = without_a_word(STREAM.with_suffix(".audio.onnx"), "yes", tmp_path / "clips.onnx")
    assert run(kws, clips, tmp_path / "clip.wav").stdout.startswith("not sure probability")
    streams = without_a_word(STREAM.with_suffix(".audio.step.onnx"), words[0], tmp_path / "streams.onnx")
    with pcm.open("rb") as stream:
        answer = run(kws, streams, "-", stdin=stream).stdout
    assert [line.split()[2] for line in answer.splitlines()] == [word for word in words if word != words[0]]


def chunk(kind: bytes, data: bytes, size: int | None = None) -> bytes:
    return kind + struct.pack("<I", len(data) if size is None else size) + data


FORMAT = chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16))


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([FORMAT, chunk(b"LIST", b"", 0xFFFFFFF8), chunk(b"data", bytes(9000))], "no samples"),
        ([chunk(b"JUNK", bytes(24), 0xFFFFFFF7), FORMAT], "no samples"),
        ([FORMAT, chunk(b"data", b"")], "no samples"),
        ([FORMAT, chunk(b"data", bytes(100))], "50 samples; expected 400 to 20879"),
        ([FORMAT, chunk(b"data", bytes(90_000))], "45000 samples; expected 400 to 20879"),
        ([chunk(b"fmt ", b"\1\0"), chunk(b"data", bytes(9000))], "expected 16-bit mono"),
    ],
)
def test_cpp_ends_with_a_damaged_wav_in_one_line(kws: Path, tmp_path: Path, chunks: list[bytes], message: str) -> None:
    (tmp_path / "clip.wav").write_bytes(b"RIFF" + bytes(4) + b"WAVE" + b"".join(chunks))
    command = [str(kws), str(STREAM.with_suffix(".audio.onnx")), str(tmp_path / "clip.wav")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr


def test_cpp_refuses_a_model_of_more_words_than_its_network_has(kws: Path, tmp_path: Path) -> None:
    model = onnx.load(STREAM.with_suffix(".audio.onnx"))
    (entry,) = (entry for entry in model.metadata_props if entry.key == "kws_edge")
    about = json.loads(entry.value)
    about["labels"] += [f"more{i}" for i in range(100_000)]
    entry.value = json.dumps(about)
    onnx.save(model, tmp_path / "m.onnx")
    soundfile.write(tmp_path / "clip.wav", np.zeros(16_000, np.int16), 16_000)
    command = [str(kws), str(tmp_path / "m.onnx"), str(tmp_path / "clip.wav")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "20 numbers from the network; expected 100020 by its metadata" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.onnx", "clip.wav"], "no.onnx"),
        ([STREAM.with_suffix(".audio.onnx"), ROOT / "README.md"], "no WAV file"),
        ([STREAM.with_suffix(".audio.step.onnx"), "clip.wav"], "expected the one without .step"),
        ([STREAM.with_suffix(".audio.onnx"), "-"], "expected MODEL.audio.step.onnx"),
        ([], "expected kws MODEL"),
    ],
)
def test_cpp_refuses_in_one_line_what_it_cannot_use(kws: Path, arguments: list[object], message: str) -> None:
    command = [str(word) for word in (kws, *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr

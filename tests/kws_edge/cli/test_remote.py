"""`--server URL` of `classify` and `listen`: the same answers as from here, and one line where there are none."""

import http.server
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner, Result
from listen_sounds import SOUND
from live_server import KEY, PATIENT, answering, in_thread, live_server, taken_port
from tiny_model import METADATA, TONES, save
from websockets.sync.client import connect

from kws_edge.cli import main, remote
from kws_edge.model.metadata import WAKE_WORD

RATE = 16_000
COMMANDS = [["classify", "words"], ["listen", "--replay", "words.wav", "--fast"]]
HERE = ("--model", "tiny.onnx")
COMMAND = [sys.executable, "-c", "from kws_edge.cli import main; main(prog_name='kws-edge')"]


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[str]:
    with live_server(path, max_body=1_000_000) as client:
        yield str(client.base_url)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, a clip per word, noise, and a recording with words in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kws_edge.cli.actions._PATIENCE", PATIENT)  # for what the commands of events write
    monkeypatch.delenv(remote.KEY_VARIABLE, raising=False)
    save(tmp_path)
    t = np.arange(RATE) / RATE
    (tmp_path / "words").mkdir()
    for word, frequency in TONES.items():
        soundfile.write(f"words/{word}.wav", 0.3 * np.sin(2 * np.pi * frequency * t), RATE)
    soundfile.write("words/noise.flac", 0.05 * np.random.default_rng(1).standard_normal(RATE), RATE)
    soundfile.write("words.wav", SOUND, RATE)
    return tmp_path


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def refused(result: Result, status: int = 2) -> str:
    """The one line of an error."""
    assert result.exit_code == status, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


def same(found: str, expected: str) -> None:
    """JSON lines that agree, numbers to the rounding of float32."""
    pairs = list(zip(map(json.loads, found.splitlines()), map(json.loads, expected.splitlines()), strict=True))
    assert pairs
    for x, y in pairs:
        numbers = {key: pytest.approx(value, rel=1e-4) for key, value in y.items() if isinstance(value, float | list)}
        changing = {"clock": x["clock"]} if "clock" in y else {}
        assert x == y | numbers | changing


# Clips


@pytest.mark.parametrize("options", [[], ["--target", "99", "--score", "entropy"], ["--score", "vacuity"]])
def test_files_are_answered_as_by_the_same_model_here(server: str, options: list[str]) -> None:
    files = ["words", "words/../words.wav", *options]
    here, there = (run("classify", *where, *files) for where in (HERE, ("--server", server)))
    assert (there.exit_code, there.stdout) == (0, here.stdout)
    here, there = (run("classify", "--json", *where, *files) for where in (HERE, ("--server", server)))
    same(there.stdout, here.stdout)


def test_standard_input_is_sent_too(server: str, folder: Path) -> None:
    found = run("classify", "-", "--server", server, "--json", stdin=(folder / "words/mid.wav").read_bytes())
    assert json.loads(found.stdout)["label"] == "mid"
    line = refused(run("classify", "-", "--server", server, "--json", stdin=b"no audio"), 1)
    assert line.startswith("Error: standard input: not readable")


def test_what_cannot_be_read_gets_a_line_with_its_path_and_the_rest_an_answer(server: str, folder: Path) -> None:
    (folder / "words" / "broken.wav").write_bytes(b"RIFF, but not really")
    (folder / "words" / "large.wav").write_bytes(bytes(2_000_000))
    result = run("classify", "words", "gone.wav", "--server", server, "--json")
    assert result.exit_code == 1
    assert [json.loads(line)["label"] for line in result.stdout.splitlines()] == ["high", "low", "mid", None]
    broken, large, gone = result.stderr.splitlines()
    assert broken.startswith("Error: words/broken.wav: not readable")
    assert large.startswith(
        "Error: words/large.wav: expected a body of at most 1000000 bytes, the server's --max-body; cut it"
    )
    assert gone.startswith("Error: gone.wav: No such file")


def test_a_file_that_ends_early_is_answered_with_a_warning_as_here(
    server: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "cut.wav").write_bytes((folder / "words/mid.wav").read_bytes()[:-2000])
    said = []
    for where in (HERE, ("--server", server)):
        caplog.clear()
        assert run("classify", "cut.wav", *where).exit_code == 0
        said.append([record.getMessage() for record in caplog.records if record.name.startswith("kws_edge.")])
    here, there = said
    assert here == [message for message in there if message.startswith("cut.wav: ")] != []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "nope"], "expected one that the server has: tiny"),
        (["--model", "tiny.onnx"], "expected one that the server has: tiny"),
        (["--target", "50"], "0.995"),
        (["--score", "vacuity", "--target", "99"], "vacuity at 0.995"),
    ],
)
def test_what_the_server_cannot_be_asked_ends_the_command(server: str, options: list[str], said: str) -> None:
    result = run("classify", "words", "--server", server, *options)
    assert said in refused(result)
    assert result.stdout == ""  # no head of a table that does not come


def test_a_clip_that_is_too_long_for_the_server_is_told_its_setting(path: Path) -> None:
    with live_server(path, max_clip_seconds=2) as client:
        line = refused(run("classify", "words.wav", "--json", "--server", str(client.base_url)), 1)
    assert line.startswith("Error: words.wav: ")
    assert "expected at most 2 s" in line
    assert "the server's --max-clip-seconds" in line


@pytest.mark.parametrize("options", [["--provider", "cpu"], ["--strict"]])
def test_how_a_model_runs_is_not_for_the_caller_of_a_server(server: str, options: list[str]) -> None:
    result = run("classify", "words", "--server", server, *options)
    assert result.exit_code == 2
    assert "cannot be used with --server" in result.stderr


# Streams


def replay(url: str, *options: str) -> Result:
    return run("listen", "--replay", "words.wav", "--fast", "--server", url, *options)


def here(*options: str) -> Result:
    return run("listen", "--replay", "words.wav", "--fast", "--model", "tiny.onnx", *options)


@pytest.mark.parametrize(
    "options",
    [[], ["--words", "low, high"], ["--target", "99.9"], ["--score", "both", "--hop", "0.05"]],
    ids=["plain", "words", "target", "score and hop"],
)
def test_a_recording_gives_the_events_of_the_same_model_here(server: str, options: list[str]) -> None:
    assert replay(server, *options).stdout == here(*options).stdout != ""
    same(replay(server, "--json", *options).stdout, here("--json", *options).stdout)


@pytest.mark.parametrize("options", [[], ["--verbose"], ["--abstentions", "all"]], ids=" ".join)
@pytest.mark.parametrize("named", [True, False])
def test_a_wake_word_model_is_as_silent_as_here(folder: Path, options: list[str], named: bool) -> None:
    waking = replace(METADATA, name="waking", training={**METADATA.training, "purpose": WAKE_WORD})
    model = save(folder, "waking", metadata=waking)
    found = {}
    with live_server(model, *([folder / "tiny.onnx"] if named else [])) as client:
        where = ["--server", str(client.base_url), *(["--model", "waking"] if named else [])]
        for kind, place in (("here", ["--model", "waking.onnx"]), ("there", where)):
            found[kind] = run("listen", "--replay", "words.wav", "--fast", "--json", *place, *options).stdout
    same(found["there"], found["here"])
    assert ('"label": null' in found["here"]) == bool(options)


def test_a_server_that_has_no_models_is_one_line() -> None:
    with answering(b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\nConnection: close\r\n\r\n{"models": []}') as url:
        assert url in refused(replay(url))


def test_a_pipe_is_listened_to_at_the_server(server: str) -> None:
    pcm = (SOUND * 32767).astype("<i2").tobytes()
    here, there = (run("listen", "-", "--json", *where, stdin=pcm) for where in (HERE, ("--server", server)))
    same(there.stdout, here.stdout)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.05, "nothing was heard: 0.05 s of sound came in"),  # less than a hop
        (2, "nothing was heard: too quiet: at most -70 dBFS in 2.0 s"),
    ],
)
def test_a_recording_in_which_nothing_was_heard_is_said_to_be_one(server: str, seconds: float, said: str) -> None:
    faint = 10 ** (-70 / 20) * np.random.default_rng(1).standard_normal(round(seconds * RATE))
    soundfile.write("faint.wav", faint, RATE)
    result = run("listen", "--replay", "faint.wav", "--fast", "--server", server)
    assert (result.exit_code, result.stdout) == (0, "")
    (line,) = result.stderr.splitlines()
    assert said in line


def test_events_run_the_command_and_their_sound_is_kept(server: str, folder: Path) -> None:
    assert replay(server, "--on-event", "cat >> said.txt", "--save-events", "kept").exit_code == 0
    labels = [json.loads(line)["label"] for line in (folder / "said.txt").read_text().splitlines()]
    assert sorted(labels, key=str) == sorted(["mid", None, "low"], key=str)
    sounds = {file.stem.split("_", 2)[2]: soundfile.read(file)[0] for file in (folder / "kept").iterdir()}
    spectrum = np.abs(np.fft.rfft(sounds["low"]))
    assert np.argmax(spectrum) * RATE / len(sounds["low"]) == pytest.approx(TONES["low"], abs=2)


def test_on_a_terminal_the_live_screen_follows_the_server(server: str) -> None:
    shown, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "listen", "--replay", "words.wav", "--fast", "--server", server],
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )
    os.close(terminal)
    output = b""
    while select.select([shown], [], [], PATIENT)[0]:
        try:
            output += os.read(shown, 65_536)
        except OSError:  # the last writer went away
            break
    os.close(shown)
    assert process.wait(PATIENT) == 0
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", output).decode()
    last = text[text.rindex("words.wav") :]
    assert "model tiny" in last
    assert re.search(r"0:01\.5-0:02\.1 +mid", last)
    assert "accepted up to 0.500" in last


def test_ctrl_c_ends_it_at_once(server: str) -> None:
    soundfile.write("long.wav", np.tile(SOUND, 30), RATE)
    process = subprocess.Popen(
        [*COMMAND, "listen", "--replay", "long.wav", "--json", "--server", server], stdout=subprocess.PIPE
    )
    assert process.stdout
    assert json.loads(process.stdout.readline())["label"] == "mid"
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENT) == 130  # and the recording goes on for four minutes
    process.stdout.close()


def test_a_server_that_stops_ends_it_in_one_line(path: Path) -> None:
    soundfile.write("long.wav", np.tile(SOUND, 30), RATE)
    with live_server(path) as client:
        process = subprocess.Popen(
            [*COMMAND, "listen", "--replay", "long.wav", "--json", "--server", str(client.base_url)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        process.stdout.readline()
    assert process.wait(PATIENT) == 2
    _, said = process.communicate()
    assert said == "Error: The server is stopping: the server is stopping; connect again\n"


# Keys


def test_the_key_comes_from_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live_server(path, api_keys=(KEY,)) as client:
        url = str(client.base_url)
        for command in (["classify", "words"], ["listen", "--replay", "words.wav", "--fast"]):
            assert "asks for an API key; expected it in the variable KWS_EDGE_API_KEY" in refused(
                run(*command, "--json", "--server", url)
            )
            monkeypatch.setenv(remote.KEY_VARIABLE, KEY[::-1])
            assert KEY[::-1] not in refused(run(*command, "--json", "--server", url))
            monkeypatch.setenv(remote.KEY_VARIABLE, KEY)
            assert run(*command, "--json", "--server", url).exit_code == 0
            monkeypatch.delenv(remote.KEY_VARIABLE)


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(remote.KEY_VARIABLE, "secrét\n")
    assert "secr" not in refused(run("classify", "words", "--server", server, "--json"))


# Servers that are busy, away, or something else


@pytest.mark.parametrize("command", COMMANDS)
def test_a_busy_server_is_asked_again_as_it_says(path: Path, command: list[str]) -> None:
    with live_server(path, client_rate=2, client_burst=1) as client:
        client.get("/v1/models")
        assert run(*command, "--json", "--server", str(client.base_url)).exit_code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_server_that_is_busy_for_long_is_given_up_at_once(path: Path, command: list[str]) -> None:
    with live_server(path, client_rate=0.001, client_burst=1) as client:
        client.get("/v1/models")
        began = time.monotonic()
        assert "try again in" in refused(run(*command, "--json", "--server", str(client.base_url)))
        assert time.monotonic() - began < remote.PATIENCE / 2


def test_a_place_for_a_stream_is_waited_for(path: Path) -> None:
    with live_server(path, max_streams=1) as client:
        url = str(client.base_url)
        with connect(f"{url.replace('http', 'ws')}/v1/stream") as first:
            first.recv()
            threading.Timer(0.5, first.close).start()
            assert replay(url, "--json").exit_code == 0


@contextmanager
def something_else(status: int, body: bytes, kind: str = "application/json") -> Iterator[str]:
    """A server that gives one answer to everything."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other, in_thread(other):
        yield f"http://127.0.0.1:{other.server_address[1]}"


@pytest.mark.parametrize("command", COMMANDS)
def test_no_server_is_one_line_with_its_address(command: list[str]) -> None:
    with taken_port() as port:
        url = f"http://127.0.0.1:{port}"
        assert url in refused(run(*command, "--json", "--server", url))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("url", ["localhost:8765", "ws://h", "http://", "http://[::1", "http://h:port"])
def test_what_is_no_address_is_refused(command: list[str], url: str) -> None:
    assert "expected http://HOST:PORT" in refused(run(*command, "--json", "--server", url))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("status", "body"), [(404, b"<html>"), (200, b"<html>"), (200, b"[]"), (500, b""), (503, b"upstream"), (404, b"{}")]
)
def test_something_else_at_that_address_is_one_line(
    command: list[str], status: int, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 0)
    with something_else(status, body) as url:
        line = refused(run(*command, "--json", "--server", url))
    assert url in line
    assert "expected a kws-edge server" in line


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, {"models": [{"name": "tiny", "default": True}]}),
        (200, {"models": None}),
        (200, {"engines": []}),
        (404, {"type": "urn:kws-edge:problem:not-found", "detail": "no such path"}),
    ],
)
def test_a_server_of_another_version_is_one_line(status: int, answer: Any) -> None:
    with something_else(status, json.dumps(answer).encode()) as url:
        assert "kws-edge of the same version" in refused(run("classify", "words", "--server", url, "--json"))


@pytest.mark.parametrize("command", COMMANDS)
def test_an_address_with_the_path_of_a_route_is_said_with_it(server: str, command: list[str]) -> None:
    line = refused(run(*command, "--json", "--server", f"{server.rstrip('/')}/v1"))
    assert f"{server.rstrip('/')}/v1/v1/" in line
    assert "expected the address of a server without its /v1" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_tls_to_a_server_without_it_is_told_the_address_that_would_do(server: str, command: list[str]) -> None:
    line = refused(run(*command, "--json", "--server", server.replace("http://", "https://")))
    assert line.endswith(f"expected TLS there, or {server}")


def test_without_the_client_its_extra_is_named(server: str) -> None:
    code = "import sys; sys.modules['httpx'] = None\nfrom kws_edge.cli import main; main()"
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-c", code, *command, "--server", server], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        expected = "in a checkout of kws-edge, pip install '.[client]'"
        assert done.stderr == f"Error: the client needs httpx, which is not installed; {expected}\n"

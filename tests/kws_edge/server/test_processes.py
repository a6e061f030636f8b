"""`kws-edge serve --processes`: several processes are one server to whoever calls, starts, stops or measures it."""

import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import PATIENT, free_port, serve_command, wait_for
from made_audio import WAV, tone, wav
from tiny_model import TONES, save
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kws_edge.server.inference import InferencePool
from kws_edge.server.processes.sharing import _Telling
from kws_edge.server.processes.supervisor import BEAT
from kws_edge.server.settings import ServerSettings

CLIP = wav(tone(TONES["mid"]))


def heed_hang_up() -> None:
    """Under nohup the signal is ignored, and every program that is started inherits that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class ServeCommand:
    """A server of two processes, in a group of its own as a terminal would give it, and its log."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            serve_command("--processes", "2", *arguments),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=heed_hang_up,  # noqa: PLW1509
        )
        self.text: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        self.text.extend(self.process.stderr)  # to the end, which comes with that of the last process

    def logged(self, message: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.text if line.startswith("{")]
        return [line for line in lines if line["message"].startswith(message)]

    @property
    def url(self) -> str:
        wait_for(lambda: self.logged("listening") or self.process.poll() is not None)
        return self.logged("listening")[0]["url"]

    @property
    def started(self) -> list[int]:
        """The processes, as their logs say."""
        return [int(line["message"].split("[")[1].rstrip("]")) for line in self.logged("Started server process")]

    def end(self) -> str:
        """Wait until all processes have ended; all that was said that is no line of the log."""
        self.process.wait(PATIENT)
        self._reader.join(PATIENT)
        assert not self._reader.is_alive(), "a process is left"
        return "".join(line for line in self.text if not line.startswith("{"))


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[ServeCommand]:
    server = ServeCommand(*arguments)
    try:
        yield server
    finally:
        server.process.terminate()
        try:
            server.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait()


@contextlib.contextmanager
def connection(url: str) -> Iterator[httpx.Client]:
    """A new connection, whose requests all go to one process."""
    with httpx.Client(base_url=url, timeout=PATIENT) as client:
        yield client


@pytest.fixture(scope="module")
def shared(path: Path) -> Iterator[ServeCommand]:
    with serving("--models", str(path)) as server:
        yield server


def instance(url: str) -> str:
    """Which process answers to a new connection."""
    with connection(url) as client:
        return client.get("/health/ready").json()["instance"]


def instances(url: str) -> set[str]:
    """Two processes that answer."""
    found: set[str] = set()
    end = time.monotonic() + PATIENT
    while len(found) < 2:
        found.add(instance(url))
        assert time.monotonic() < end, "only one answers"
    return found


def children(pid: int) -> list[int]:
    """The processes that serve, of their parent, from the moment that they are started."""
    found = []
    with contextlib.suppress(OSError):  # one ended meanwhile
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def metrics(client: httpx.Client) -> dict[str, float]:
    """The numbers, of whichever process answers."""
    lines = client.get("/metrics").text.splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def port_is_free(url: str) -> bool:
    try:
        with socket.create_server((httpx.URL(url).host, httpx.URL(url).port or 0)):
            return True
    except OSError:
        return False


def test_they_answer_at_one_address_and_their_numbers_add_up_whichever_tells_them(shared: ServeCommand) -> None:
    url = shared.url
    assert len(shared.logged("listening")) == 1
    assert len(instances(url)) == 2
    for _ in range(20):
        with connection(url) as client:
            assert client.post("/v1/classify", content=CLIP, headers=WAV).json()["label"] == "mid"
    told: list[dict[str, float]] = []
    asked: set[str] = set()
    while len(asked) < 2 or len(told) < 5:
        with connection(url) as client:
            asked.add(client.get("/health/ready").json()["instance"])
            told.append(metrics(client))
    assert {found['kws_edge_predictions_total{model="tiny",outcome="accepted"}'] for found in told} == {20}
    assert {found["kws_edge_batch_clips_sum"] for found in told} == {20}
    health = 'kws_edge_requests_total{method="GET",route="/health/ready",status="200"}'
    asked_for = [found[health] for found in told]
    assert asked_for == sorted(asked_for)


def test_streams_of_all_are_counted_and_told_when_the_server_stops(path: Path) -> None:
    with serving("--models", str(path)) as server, contextlib.ExitStack() as streams:
        url = server.url
        opened = []
        said: set[str] = set()
        while len(said) < 2:
            opened.append(streams.enter_context(connect(f"{url.replace('http', 'ws')}/v1/stream")))
            opened[-1].send(bytes(32_000))
            said.add(json.loads(opened[-1].recv(PATIENT))["instance"])
        with connection(url) as client:
            assert metrics(client)["kws_edge_streams"] == len(opened)
        os.killpg(server.process.pid, signal.SIGTERM)  # as systemd does; others tell the first process alone
        for stream in opened:
            assert json.loads(stream.recv(PATIENT))["problem"]["type"].endswith("not-ready")
            with pytest.raises(ConnectionClosed) as closed:
                stream.recv(PATIENT)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
        assert server.end() == ""
        assert server.process.returncode == 0
        assert port_is_free(url)


def test_a_process_that_is_killed_is_logged_and_replaced_and_its_counts_stay(path: Path) -> None:
    with serving("--models", str(path)) as server:
        url = server.url
        before = instances(url)
        with connection(url) as client:
            client.post("/v1/classify", content=CLIP, headers=WAV).raise_for_status()
        killed = server.started[0]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: len(server.started) == 3)
        wait_for(lambda: instance(url) not in before)
        line = server.logged(f"process {killed} ended with exit code -9")[0]
        assert line["level"] == "error"
        with connection(url) as client:
            assert metrics(client)["kws_edge_batch_clips_sum"] == 1
        server.process.terminate()
        assert server.end() == ""
        assert server.process.returncode == 0


def test_without_the_first_process_the_others_end(path: Path) -> None:
    with serving("--models", str(path)) as server:
        url = server.url
        with connect(f"{url.replace('http', 'ws')}/v1/stream") as stream:
            assert json.loads(stream.recv(PATIENT))["type"] == "hello"
            server.process.kill()
            assert json.loads(stream.recv(PATIENT))["problem"]["type"].endswith("not-ready")
        assert server.end() == ""
        assert port_is_free(url)


def test_ctrl_c_on_a_terminal_stops_and_a_second_one_stops_at_once(path: Path) -> None:
    with serving("--models", str(path), "--drain-seconds", "3000") as server:
        url = server.url
        os.killpg(server.process.pid, signal.SIGINT)
        wait_for(lambda: httpx.get(f"{url}/health/ready", timeout=PATIENT).status_code == 503)
        assert httpx.get(f"{url}/health/live", timeout=PATIENT).status_code == 200
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.end() == ""
        assert server.process.returncode == 130


def test_ctrl_c_at_the_start_says_nothing(path: Path) -> None:
    with serving("--models", str(path)) as server:
        wait_for(lambda: children(server.process.pid))
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.end() == ""
        assert server.process.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_all_of_them_at_the_start_stops_as_one_to_the_first(path: Path, number: signal.Signals) -> None:
    with serving("--models", str(path)) as server:
        wait_for(lambda: len(children(server.process.pid)) == 2)
        os.killpg(server.process.pid, number)
        assert server.end() == ""
        assert server.process.returncode == 0


def test_a_terminal_that_is_closed_stops_it_and_leaves_nothing_behind(path: Path) -> None:
    with serving("--models", str(path)) as server:
        url = server.url
        environment = Path(f"/proc/{server.started[0]}/environ").read_bytes().split(b"\0")
        (folder,) = [
            Path(os.fsdecode(line[25:])) for line in environment if line.startswith(b"PROMETHEUS_MULTIPROC_DIR")
        ]
        assert any(folder.iterdir())
        os.killpg(server.process.pid, signal.SIGHUP)
        assert server.end() == ""
        assert server.process.returncode == 0
    assert not folder.exists()
    assert port_is_free(url)


def test_a_process_that_hangs_is_killed_once_its_time_to_stop_is_over(path: Path) -> None:
    with serving("--models", str(path), "--shutdown-grace", "0") as server:
        assert server.url
        os.kill(server.started[0], signal.SIGSTOP)
        server.process.terminate()
        assert server.end() == ""
        assert server.process.returncode == 0
        assert server.logged(f"process {server.started[0]} does not stop, and is killed")


def test_of_two_servers_that_are_started_together_one_has_the_port(path: Path) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        given = "--models", str(path), "--port", str(port)
        servers = [stack.enter_context(serving(*given)) for _ in range(2)]
        wait_for(lambda: any(server.process.poll() is not None for server in servers))
        refused, serves = sorted(servers, key=lambda server: server.process.poll() is None)
        assert refused.end().startswith(f"Error: cannot listen on 127.0.0.1:{port}: Address already in use; ")
        assert refused.process.returncode == 2
        assert len(instances(serves.url)) == 2


def test_a_port_that_another_program_takes_while_the_models_load_is_one_line(path: Path) -> None:
    port = free_port()
    with serving("--models", str(path), "--port", str(port)) as server:
        wait_for(lambda: len(children(server.process.pid)) == 2)
        loading = children(server.process.pid)
        for child in loading:
            os.kill(child, signal.SIGSTOP)
        with socket.create_server(("127.0.0.1", port)):
            for child in loading:
                os.kill(child, signal.SIGCONT)
            said = server.end()
        assert said.startswith(f"Error: cannot listen on 127.0.0.1:{port}: Address already in use; ")
        assert said.count("\n") == 1
        assert server.process.returncode == 2
        assert server.logged("listening") == []


def test_a_model_that_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with serving("--models", str(tmp_path / "broken.onnx"), "--drain-seconds", "3000") as server:
        said = server.end()
        assert server.process.returncode == 2
    assert said.startswith("Error: ")
    assert "broken.onnx" in said
    assert said.count("\n") == 1
    assert server.logged("listening") == []


def test_a_process_whose_place_cannot_be_taken_is_tried_again_while_the_others_serve(tmp_path: Path) -> None:
    model = save(tmp_path)
    whole = model.read_bytes()
    with serving("--models", str(model)) as server:
        url = server.url
        before = instances(url)
        model.write_bytes(b"no model")
        os.kill(server.started[0], signal.SIGKILL)
        wait_for(lambda: any("tiny.onnx" in line["message"] for line in server.logged("")))
        assert httpx.get(f"{url}/health/live", timeout=PATIENT).status_code == 200
        model.write_bytes(whole)
        wait_for(lambda: instance(url) not in before)
        server.process.terminate()
        assert server.end() == ""
        assert server.process.returncode == 0


def test_without_any_process_that_serves_a_model_that_is_gone_stops_the_server(tmp_path: Path) -> None:
    model = save(tmp_path)
    with serving("--models", str(model)) as server:
        url = server.url
        model.write_bytes(b"no model")
        for pid in server.started:
            os.kill(pid, signal.SIGKILL)
        said = server.end()
        assert server.process.returncode == 2
    assert said.startswith("Error: ")
    assert "tiny.onnx" in said
    assert said.count("\n") == 1
    assert port_is_free(url)


def test_a_process_that_is_killed_while_it_starts_is_tried_again_and_the_others_serve(path: Path) -> None:
    with serving("--models", str(path)) as server:
        wait_for(lambda: len(children(server.process.pid)) == 2)
        os.kill(children(server.process.pid)[0], signal.SIGKILL)
        assert len(instances(server.url)) == 2
        assert server.logged("process")[0]["message"].endswith("trying again in 1 s")
        served = server.started
        os.kill(served[0], signal.SIGKILL)
        wait_for(lambda: set(children(server.process.pid)) - set(served))
        (starting,) = set(children(server.process.pid)) - set(served)
        os.kill(starting, signal.SIGKILL)
        wait_for(lambda: len(server.logged("process")) >= 3)
        assert httpx.get(f"{server.url}/health/live", timeout=PATIENT).status_code == 200
        assert len(instances(server.url)) == 2


def test_a_process_that_hangs_is_replaced(path: Path) -> None:
    with serving("--models", str(path), "--hang-timeout", "2") as server:
        url = server.url
        before = instances(url)
        hung = server.started[0]
        os.kill(hung, signal.SIGSTOP)
        wait_for(lambda: server.logged(f"process {hung} says nothing for"))
        wait_for(lambda: len(server.started) == 3)
        wait_for(lambda: instance(url) not in before)
        server.process.terminate()
        assert server.end() == ""
        assert server.process.returncode == 0


def test_a_process_whose_thread_is_at_one_piece_of_work_for_too_long_falls_silent(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = multiprocessing.Pipe()
    settings = ServerSettings.load(models=(str(path),), hang_timeout=5, inference_timeout=2)
    server = _Telling(settings, str(tmp_path), there)
    server._service.pool.close()
    server.config.load()

    def says(longest: float) -> bool:
        monkeypatch.setattr(InferencePool, "longest", longest)
        asyncio.run(server.on_tick(0))
        return here.poll() and here.recv() == BEAT

    assert [says(longest) for longest in (0.0, 6.9, 7.1, 0.0)] == [True, True, False, True]


def test_after_a_pause_of_all_of_them_none_is_replaced(path: Path) -> None:
    with serving("--models", str(path), "--hang-timeout", "2") as server:
        url = server.url
        group = [server.process.pid, *server.started]
        for pid in group:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(8)
        for pid in group:
            os.kill(pid, signal.SIGCONT)
        time.sleep(1)
        assert len(instances(url)) == 2
        assert server.logged("process") == []


def test_numbers_have_their_room_before_they_are_written(path: Path) -> None:
    with serving("--models", str(path)) as server:
        assert server.url
        environment = Path(f"/proc/{server.started[0]}/environ").read_bytes().split(b"\0")
        (folder,) = [
            Path(os.fsdecode(line[25:])) for line in environment if line.startswith(b"PROMETHEUS_MULTIPROC_DIR")
        ]
        files = list(folder.glob(f"*_{server.started[0]}.db"))
        assert len(files) == 3
        assert all(file.stat().st_blocks * 512 >= file.stat().st_size == 2**20 for file in files)
        os.kill(server.started[0], signal.SIGKILL)
        wait_for(lambda: sum(file.stat().st_size for file in files if file.exists()) < 2**17)


def test_hang_up_is_ignored_where_it_was_ignored_before(path: Path) -> None:
    command = ["nohup", *serve_command("--processes", "2", "--models", str(path))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stderr
        lines = (json.loads(line) for line in process.stderr if line.startswith("{"))
        url = next(line["url"] for line in lines if line["message"] == "listening")
        os.killpg(process.pid, signal.SIGHUP)
        time.sleep(1)
        assert len(instances(url)) == 2
    finally:
        process.terminate()
        process.wait(PATIENT)


def test_processes_that_are_killed_at_their_start_stop_the_server(path: Path) -> None:
    with serving("--models", str(path)) as server:
        while server.process.poll() is None:  # those that were quicker are replaced, and killed again
            for child in children(server.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        said = server.end()
        assert server.process.returncode == 2
    assert "ended with exit code -9 (killed) before it could serve; expected memory" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_address_that_is_taken_is_one_line(shared: ServeCommand, path: Path, processes: str) -> None:
    port = str(httpx.URL(shared.url).port)
    with serving("--models", str(path), "--port", port, "--processes", processes) as second:
        assert second.end().startswith(f"Error: cannot listen on 127.0.0.1:{port}: ")
        assert second.process.returncode == 2
        assert second.logged("") == []


def test_several_processes_share_the_cores_among_their_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads(cores: int, **given: int) -> int:
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        return ServerSettings.load(**given).threads

    assert [threads(cores) for cores in (1, 2, 4, 8)] == [1, 1, 3, 4]
    assert [threads(8, processes=n) for n in (2, 4, 8, 64)] == [3, 1, 1, 1]
    assert threads(2, processes=2, workers=5) == 5

"""What a hostile client or page may not do: freeze the server, take it all for itself, or fill its log or memory."""

import asyncio
import contextlib
import json
import logging
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from live_server import PATIENT, ServerProcess, live_server, wait_for
from made_audio import WAV, tone, wav
from problems import problem
from tiny_model import METADATA, TONES, save
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kws_edge.errors import AudioError, ModelError, SettingError
from kws_edge.server.decoder import Decoder
from kws_edge.server.fairness import FairQueue
from kws_edge.server.http.connections import client_of
from kws_edge.server.http.limits import Pace
from kws_edge.server.http.websocket import MOST_CONTROL, MOST_FRAMES
from kws_edge.server.observe import Metrics
from kws_edge.server.service import Service, models_of
from kws_edge.server.settings import ServerSettings

CLIP = wav(tone(TONES["mid"]))
HANDSHAKE = (
    b"GET /v1/stream%b HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def dial(server: httpx.Client, sent: bytes = b"") -> socket.socket:
    """A connection, on which something was sent."""
    sock = socket.create_connection((server.base_url.host, server.base_url.port), timeout=PATIENT)
    sock.sendall(sent)
    return sock


def received(sock: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(65_536):
            answer += piece
    return answer


def stream(server: httpx.Client, query: bytes = b"") -> socket.socket:
    """A raw connection of a stream, after the handshake and the hello."""
    sock = dial(server, HANDSHAKE % query)
    head = b""
    while b'"max_message"' not in head:
        head += sock.recv(65_536)
    assert head.startswith(b"HTTP/1.1 101 ")
    return sock


def frame(opcode: int, data: bytes, *, final: bool = True) -> bytes:
    """A frame under a mask of 0."""
    first = opcode | (0x80 if final else 0)
    size = len(data)
    if size < 126:
        return struct.pack(">BB", first, 0x80 | size) + bytes(4) + data
    if size < 65_536:
        return struct.pack(">BBH", first, 0x80 | 126, size) + bytes(4) + data
    return struct.pack(">BBQ", first, 0x80 | 127, size) + bytes(4) + data


CLOSE = {"Connection": "close"}
"""A connection for each request: one that is kept may be closed as it is used again, where the machine is slow."""


def seconds(count: int, ask: Callable[[], httpx.Response]) -> list[float]:
    """How long each of some requests takes; alone, how fast this machine is, to which other times are compared."""
    took = []
    for _ in range(count):
        began = time.monotonic()
        assert ask().status_code == 200
        took.append(time.monotonic() - began)
    return took


# Web pages


@pytest.mark.parametrize("charset", ["punycode", "undefined", "idna", "utf-7", "unicode_escape", "none"])
def test_a_form_is_utf_8_whatever_charset_it_names(server: httpx.Client, charset: str) -> None:
    field = b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % ("ä".encode() * 20, b"a-" * 1000)
    body = field + b"--x--\r\n"
    began = time.monotonic()
    kind = f"multipart/form-data; boundary=x; charset={charset}"
    detail = problem(
        server.post("/v1/classify", content=body, headers={"Content-Type": kind}), 422, "invalid-parameter"
    )
    assert "ä" in detail
    assert time.monotonic() - began < 20


def test_a_long_text_in_a_form_is_refused_unread(server: httpx.Client) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"a-" * 100_000 + b"\r\n--x--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=x; charset=punycode"}
    assert "Part exceeded" in problem(server.post("/v1/classify", content=body, headers=kind), 400, "malformed")


@pytest.mark.parametrize("boundary", ["", '""', "x" * 71, '"a\\"b"', "ä"])
def test_a_boundary_that_cannot_be_is_refused(server: httpx.Client, boundary: str) -> None:
    kind = {b"Content-Type": f"multipart/form-data; boundary={boundary}".encode()}
    problem(server.post("/v1/classify", content=b"--x--", headers=kind), 400, "malformed")


def test_what_is_said_in_a_form_is_not_written_to_the_disk(
    server: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("a file was to be written")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    long = server.post("/v1/classify", files={"file": ("long.wav", bytes(3 * 2**20))})
    assert "not readable" in problem(long, 422, "invalid-audio")


PAGES: list[dict[str, str]] = [
    {"Origin": "https://example.org"},
    {"Origin": "null"},
    {"Origin": "http://localhost:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "https://example.org", "Sec-Fetch-Site": "same-origin"},
]


@pytest.mark.parametrize("headers", PAGES)
@pytest.mark.parametrize(("method", "route"), [("POST", "/v1/classify"), ("GET", "/v1/models"), ("GET", "/metrics")])
def test_a_page_of_another_origin_is_refused(
    server: httpx.Client, headers: dict[str, str], method: str, route: str
) -> None:
    problem(server.request(method, route, content=CLIP, headers={**WAV, **headers}), 403, "forbidden")


@pytest.mark.parametrize("route", ["/", "/page/app.js", "/health/live", "/openapi.json"])
def test_a_link_from_elsewhere_leads_to_the_page(server: httpx.Client, route: str) -> None:
    assert server.get(route, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_its_own_page_may_call(server: httpx.Client) -> None:
    own = {"Origin": str(server.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert server.post("/v1/classify", content=CLIP, headers={**WAV, **own}).status_code == 200


def test_a_page_that_is_named_may_call(path: Path) -> None:
    origin = {"Origin": "https://example.org", "Sec-Fetch-Site": "cross-site"}
    with live_server(path, cors_origins="https://example.org") as server:
        assert server.post("/v1/classify", content=CLIP, headers={**WAV, **origin}).status_code == 200


@pytest.mark.parametrize("host", ["rebound.example", "localhost.example", "127.0.0.1.example", "", "[::1", "a b"])
@pytest.mark.parametrize("route", ["/", "/v1/models", "/page/app.js"])
def test_a_name_that_has_come_to_mean_this_address_is_refused(server: httpx.Client, host: str, route: str) -> None:
    problem(server.get(route, headers={"Host": host, "Origin": f"http://{host}"}), 421, "misdirected")


def test_a_stream_under_a_name_that_is_not_its_own_is_refused(server: httpx.Client) -> None:
    asked = HANDSHAKE.replace(b"localhost", b"rebound.example\r\nOrigin: http://rebound.example") % b""
    with dial(server, asked) as sock:
        assert received(sock).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "kws.localhost", "127.0.0.1:80", "[::1]:8765", "10.0.0.1", socket.gethostname()],
)
def test_an_address_in_digits_and_its_own_names_are_served(server: httpx.Client, host: str) -> None:
    assert server.get("/v1/models", headers={"Host": host}).status_code == 200


def test_a_balancer_may_ask_for_its_health_under_any_name(server: httpx.Client) -> None:
    assert server.get("/health/ready", headers={"Host": "pool-7"}).status_code == 200


def test_names_that_are_allowed_are_served(path: Path) -> None:
    with live_server(path, allowed_hosts="kws.example.org, *.example.com") as server:
        for host, status in {
            "kws.example.org": 200,
            "a.example.com:1": 200,
            "example.com": 421,
            "example.org": 421,
        }.items():
            assert server.get("/v1/models", headers={"Host": host}).status_code == status


# Budgets


def test_bodies_of_one_client_take_their_share_of_the_memory_at_most(path: Path) -> None:
    limits = {"max_body": 1000, "max_upload_bytes": 4000, "max_client_upload_bytes": 2500}
    half = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: audio/wav\r\nContent-Length: 1000\r\n\r\nR"
    with live_server(path, **limits) as server, dial(server, half), dial(server, half):
        wait_for(lambda: server.post("/v1/classify", content=bytes(600), headers=WAV).status_code == 429)
        problem(server.post("/v1/classify", content=bytes(600), headers=WAV), 429, "too-many-requests")
        assert server.post("/v1/classify", content=bytes(400), headers=WAV).status_code == 422


def test_bodies_of_all_take_the_memory_that_there_is_at_most(path: Path) -> None:
    limits = {"max_body": 1000, "max_upload_bytes": 1500, "max_client_upload_bytes": 5000}
    half = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: audio/wav\r\nContent-Length: 1000\r\n\r\nR"
    with live_server(path, **limits) as server, dial(server, half):
        wait_for(lambda: server.post("/v1/classify", content=bytes(600), headers=WAV).status_code == 503)
        chunks = (bytes(300) for _ in range(3))
        refused = server.post("/v1/classify", content=chunks, headers={**WAV, "Connection": "close"})
        problem(refused, 503, "overloaded")


def test_half_sent_bodies_of_one_client_leave_room_for_others(path: Path) -> None:
    half = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: audio/wav\r\nContent-Length: 9\r\n\r\nR"
    with live_server(path) as server, contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(dial(server, half))
        wait_for(lambda: server.post("/v1/classify", content=CLIP, headers=WAV).status_code == 429)
        assert 'status="503"' not in server.get("/metrics").text
        other = {"X-Forwarded-For": "192.0.2.7"}
        with live_server(path, trusted_proxies="127.0.0.1") as proxied:
            for _ in range(40):
                stack.enter_context(dial(proxied, half))
            wait_for(lambda: proxied.post("/v1/classify", content=CLIP, headers=WAV).status_code == 429)
            assert proxied.post("/v1/classify", content=CLIP, headers={**WAV, **other}).status_code == 200


def test_a_clip_of_many_samples_is_refused_before_it_is_decoded(server: httpx.Client) -> None:
    heavy = wav(np.zeros((192_000 * 20, 8), np.float32), rate=192_000, container="FLAC")
    assert len(heavy) < 100_000
    began = time.monotonic()
    detail = problem(server.post("/v1/classify", content=heavy, headers=WAV), 422, "invalid-audio")
    assert "192000 Hz in 8 channels" in detail
    assert time.monotonic() - began < 10


def test_a_file_that_takes_too_long_is_given_up_and_the_next_is_decoded() -> None:
    decoder = Decoder(max_seconds=600, max_samples=1e12, max_body=2**24, timeout=0.05)
    try:
        with pytest.raises(Exception, match=r"clip: not decoded within 0\.05 s of"):
            decoder.load(wav(np.zeros((192_000 * 30, 8), np.int16), rate=192_000, container="FLAC"), "clip")
        assert len(Decoder.load(decoder, CLIP, "clip").samples) == 16_000
    finally:
        decoder.close()


def test_a_decoder_that_dies_costs_one_answer(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with live_server(path, workers=1) as server:
        children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
        pids = [int(pid) for file in children for pid in file.read_text().split()]
        decoders = [pid for pid in pids if b"kws_edge.server.decoder" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        for pid in decoders:
            os.kill(pid, 9)
        assert server.post("/v1/classify", content=CLIP, headers=WAV).status_code in (200, 422)
        assert server.post("/v1/classify", content=CLIP, headers=WAV).status_code == 200


def test_a_model_whose_stream_settings_are_malformed_is_refused_at_the_start(tmp_path: Path) -> None:
    bad = replace(METADATA, name="bad", stream={"settings": {"thresholds": {}}})
    with pytest.raises(ModelError, match="bad"):
        models_of(ServerSettings.load(models=(str(save(tmp_path, "bad", metadata=bad)),)))


def test_two_models_of_one_name_are_refused_at_the_start(tmp_path: Path) -> None:
    files = [save(tmp_path, file, metadata=METADATA) for file in ("a", "b")]
    with pytest.raises(SettingError, match="two are called 'tiny'; expected different names"):
        models_of(ServerSettings.load(models=tuple(map(str, files))))


def test_when_the_server_has_ended_no_decoder_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoders: list[Decoder] = []
    start = Decoder.__init__
    monkeypatch.setattr(Decoder, "__init__", lambda self, **given: (decoders.append(self), start(self, **given))[1])
    with live_server(path, workers=2):
        processes = [decoder._process for decoder in decoders]
    assert len(processes) == 2
    assert all(process and process.poll() is not None for process in processes)


def a_decoder() -> Decoder:
    return Decoder(max_seconds=60, max_samples=2**24, max_body=2**23, timeout=60)


def test_nothing_is_imported_from_the_folder_in_which_the_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "soundfile.py").write_text("raise ImportError")
    monkeypatch.chdir(tmp_path)
    decoder = a_decoder()
    try:
        assert len(decoder.load(CLIP, "a.wav").samples) == 16_000
    finally:
        decoder.close()


def test_a_decoder_that_says_nothing_is_ended_and_the_next_clip_is_decoded() -> None:
    decoder = a_decoder()
    assert decoder._process
    os.kill(decoder._process.pid, signal.SIGSTOP)
    failed: list[AudioError] = []

    def load() -> None:
        try:
            decoder.load(CLIP, "a.wav")
        except AudioError as error:
            failed.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        wait_for(lambda: decoder._began is not None)
        decoder.end_if_late(PATIENT)  # not yet
        assert thread.is_alive()
        wait_for(lambda: decoder.end_if_late(0.0) or not thread.is_alive())
        assert "its decoder failed" in str(failed[0])
        assert len(decoder.load(CLIP, "a.wav").samples) > 0
    finally:
        decoder.close()
        thread.join(PATIENT)


def test_a_clip_whose_decoder_hangs_does_not_keep_its_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kws_edge.server.inference._HUNG", 1)
    decoders: list[Decoder] = []
    start = Decoder.__init__
    monkeypatch.setattr(Decoder, "__init__", lambda self, **given: (decoders.append(self), start(self, **given))[1])
    with live_server(path, workers=1, inference_timeout=1.0) as server:
        hung = decoders[0]._process
        assert hung
        os.kill(hung.pid, signal.SIGSTOP)
        post = {"content": CLIP, "headers": WAV}
        assert server.post("/v1/classify", **post).status_code == 503
        wait_for(lambda: hung.poll() is not None)  # though nothing else comes that wants its thread
        monkeypatch.setattr("kws_edge.server.inference._HUNG", 1000)  # or a new one may be, before it has started
        wait_for(lambda: server.post("/v1/classify", **post).status_code == 200)


@pytest.mark.parametrize(("text", "samples"), [(2**32 - 1, 0), (2, 2**62)])
def test_a_decoder_that_a_file_got_hold_of_cannot_fill_the_server(
    text: int, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie = f"sys.stdin.buffer.read(9); sys.stdout.buffer.write(struct.pack('<?IQ', True, {text}, {samples}))"
    forever = (
        f"import struct, sys; {lie}; sys.stdout.flush(); [sys.stdout.buffer.write(bytes(2**16)) for _ in iter(int, 1)]"
    )
    start = subprocess.Popen
    monkeypatch.setattr(
        "kws_edge.server.decoder.subprocess.Popen",
        lambda _, **options: start([sys.executable, "-c", forever], **options),
    )
    decoder = a_decoder()
    try:
        with pytest.raises(AudioError, match="its decoder failed"):
            decoder.load(CLIP, "a.wav")
    finally:
        decoder.close()


@pytest.mark.parametrize(
    ("decoded", "text", "samples"),
    [
        (True, b"{}", b""),
        (False, b"[]", b""),
        (True, b"no JSON", b""),
        (True, b"[" * 100_000, b""),
        (True, b'{"rate": 1, "channels": 1, "warnings": 1}', b""),
        (True, b'{"rate": 1, "channels": 1, "warnings": []}', b"abc"),
    ],
    ids=["no rate", "no error", "no JSON", "endless nesting", "no warnings", "half a sample"],
)
def test_a_decoder_that_says_something_else_is_ended_as_one_that_died(
    decoded: bool, text: bytes, samples: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "said").write_bytes(struct.pack("<?IQ", decoded, len(text), len(samples)) + text + samples)
    start = subprocess.Popen
    monkeypatch.setattr(
        "kws_edge.server.decoder.subprocess.Popen",
        lambda _, **options: start(["sh", "-c", f"cat {tmp_path / 'said'}; exec cat > /dev/null"], **options),
    )
    decoder = a_decoder()
    process = decoder._process
    try:
        with pytest.raises(AudioError, match=r"a\.wav: its decoder failed"):
            decoder.load(CLIP, "a.wav")
        assert process
        assert process.poll() is not None
    finally:
        decoder.close()


def test_a_decoder_can_open_no_file_and_knows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KWS_EDGE_API_KEYS", "a-key-that-is-secret")
    decoder = Decoder(max_seconds=60, max_samples=2**24, max_body=2**23, timeout=10)
    try:
        decoder.load(CLIP, "clip")
        assert decoder._process
        pid = decoder._process.pid
        assert b"a-key-that-is-secret" not in Path(f"/proc/{pid}/environ").read_bytes()
        for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
            assert resource.prlimit(pid, limit) == (0, 0)
        assert resource.prlimit(pid, resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        inside = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        assert all(name.startswith("pipe:") or name == "/dev/null" for name in inside)
    finally:
        decoder.close()


class Job:
    def __init__(self, client: str) -> None:
        self.client = client


def test_of_two_clients_each_has_half_of_the_time_however_much_one_asks_for() -> None:
    queue: FairQueue[Job] = FairQueue()
    for _ in range(100):
        queue.append(Job("greedy"))
    for _ in range(10):
        queue.append(Job("modest"))
    turns = []
    for _ in range(20):
        turns.append(queue.pop(1.0).client)
    assert turns.count("modest") == 10


def test_whoever_took_long_waits_for_longer() -> None:
    queue: FairQueue[Job] = FairQueue()
    for _ in range(50):
        queue.append(Job("heavy"))
        queue.append(Job("light"))
    turns = []
    for _ in range(30):
        job = queue.pop(1.0)
        turns.append(job.client)
        queue.charge(job.client, 8.0 if job.client == "heavy" else 0.0)
    assert turns.count("light") > 5 * turns.count("heavy")


def test_a_client_that_was_away_has_saved_up_nothing() -> None:
    queue: FairQueue[Job] = FairQueue()
    for _ in range(200):
        queue.append(Job("a"))
    for _ in range(100):
        queue.pop(1.0)
    for _ in range(100):
        queue.append(Job("b"))
    assert {queue.pop(1.0).client for _ in range(4)} == {"a", "b"}


def test_whoever_asks_for_one_thing_at_a_time_pays_for_it_too() -> None:
    queue: FairQueue[Job] = FairQueue()
    for client in ("heavy", "light"):
        queue.append(Job(client))
    turns = []
    for _ in range(30):
        job = queue.pop(1.0)
        turns.append(job.client)
        queue.charge(job.client, 8.0 if job.client == "heavy" else 0.0)
        queue.append(Job(job.client))  # now that it has its answer
    assert turns.count("light") > 5 * turns.count("heavy")


def test_clients_that_come_once_are_forgotten() -> None:
    queue: FairQueue[Job] = FairQueue()
    for i in range(1000):
        for client in ("regular", str(i)):
            queue.append(Job(client))
        for _ in range(2):
            queue.charge(queue.pop(1.0).client, 0.0)
    assert len(queue._spent) < 10


def test_what_is_put_back_is_the_next_of_its_client() -> None:
    queue: FairQueue[Job] = FairQueue()
    jobs = [Job("a"), Job("a")]
    for job in jobs:
        queue.append(job)
    first = queue.pop(1.0)
    queue.put_back(first)
    assert queue.pop(1.0) is first is jobs[0]


def test_a_message_of_many_hops_leaves_turns_for_others(path: Path) -> None:
    with live_server(path, workers=1, idle_timeout=300) as server:
        alone = seconds(5, lambda: server.post("/v1/classify", content=CLIP, headers=WAV | CLOSE))
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                sock = stack.enter_context(stream(server, b"?rate=4000&hop=0.01"))
                noise = np.random.default_rng(0).integers(-9000, 9000, 2**17 - 8).astype("<i2").tobytes()
                threading.Thread(target=lambda s=sock, n=noise: s.sendall(frame(2, n)), daemon=True).start()
            time.sleep(0.3)
            beside = seconds(5, lambda: server.post("/v1/classify", content=CLIP, headers=WAV | CLOSE))
        assert max(beside) < 2 + 20 * max(alone)


# Connections


def test_an_ipv6_network_is_one_client() -> None:
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:2") != client_of("2001:db8:0:1::1")
    assert client_of("::ffff:192.0.2.1") == client_of("192.0.2.1") == "192.0.2.1"
    assert client_of("fe80::1%eth0") == client_of("fe80::2")
    assert client_of("nowhere") == "nowhere"


def test_one_client_has_its_share_of_the_connections(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with live_server(path, max_client_connections=5) as server, contextlib.ExitStack() as stack:
        server.get("/health/live")
        socks = [stack.enter_context(dial(server)) for _ in range(8)]
        assert any(b"503" in received(sock) for sock in socks[-3:])
        assert server.get("/health/live").status_code == 200
        wait_for(lambda: "connections refused" in caplog.text)


def test_the_share_of_one_address_leaves_room_for_others_until_all_is_taken(path: Path) -> None:
    with live_server(path, max_connections=4, max_client_connections=2) as server, contextlib.ExitStack() as stack:
        server.close()  # of whose connection nothing is left below
        address = server.base_url.host, server.base_url.port

        def answer(source: str) -> bytes:
            sock = socket.create_connection(address, PATIENT, source_address=(source, 0))
            stack.enter_context(sock).sendall(ASKED)
            return sock.recv(12)[9:]

        assert [answer("127.0.0.1") for _ in range(3)] == [b"200", b"200", b"503"]
        assert [answer("127.0.0.2") for _ in range(2)] == [b"200", b"200"]
        assert answer("127.0.0.3") == b"503"


def test_streams_are_connections_too_and_a_place_is_free_again(path: Path) -> None:
    with live_server(path, max_client_connections=3) as server:
        server.get("/health/live")
        with stream(server), stream(server), dial(server) as sock:
            assert b"503" in received(sock)
        wait_for(lambda: dial(server, b"GET /health/live HTTP/1.0\r\n\r\n").recv(12) == b"HTTP/1.1 200")


@pytest.mark.parametrize("after", [b"\r\n", b"\r", b"\n\n"])
def test_a_line_end_after_an_answer_does_not_keep_a_connection(path: Path, after: bytes) -> None:
    asked = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with live_server(path, head_timeout=0.5) as server, dial(server, asked) as sock:
        assert sock.recv(65_536).startswith(b"HTTP/1.1 200 ")
        sock.sendall(after)
        received(sock)


ASKED = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("answered", [False, True], ids=["at first", "after an answer"])
def test_a_head_that_trickles_in_has_no_more_time_than_another(path: Path, answered: bool) -> None:
    with live_server(path, head_timeout=0.5) as server, dial(server, ASKED * answered) as sock:
        assert not answered or sock.recv(65_536).startswith(b"HTTP/1.1 200 ")
        sock.setblocking(False)
        head = iter(b"GET / HTTP/1.1\r\nX: " + b"a" * 7000)  # at 20 bytes a second: six minutes
        wait_for(lambda: is_closed(sock, bytes([next(head)])))


def test_a_frame_that_trickles_in_is_no_audio(path: Path) -> None:
    with live_server(path, idle_timeout=0.5) as server, stream(server) as sock:
        sock.sendall(struct.pack(">BBH", 0x82, 0x80 | 126, 16_000) + bytes(4))
        end = time.monotonic() + PATIENT
        heard = b""
        sock.settimeout(0.05)
        while struct.pack(">H", 4008) not in heard and time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                sock.sendall(b"a")
                heard += sock.recv(65_536)
        assert struct.pack(">H", 4008) in heard


def is_closed(sock: socket.socket, sent: bytes) -> bool:
    """Send bytes; whether the other side has closed the connection."""
    try:
        sock.sendall(sent)
        time.sleep(0.05)
        return sock.recv(65_536) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_connection_that_asks_and_reads_nothing_is_ended(path: Path) -> None:
    asked = b"GET /page/app.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with live_server(path, send_timeout=0.5, send_buffer=4096) as server, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((server.base_url.host, server.base_url.port))
        sock.settimeout(0.3)
        wait_for(lambda: is_cut_off(sock, asked))
        wait_for(lambda: server.get("/health/live").status_code == 200)


def test_many_requests_at_once_on_one_connection_are_refused(path: Path) -> None:
    asked = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
    with live_server(path) as server, dial(server, asked) as sock:
        assert received(sock).count(b"HTTP/1.1 400 ") == 1


def test_a_few_requests_at_once_are_answered(server: httpx.Client) -> None:
    asked = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4
    with dial(server, asked[:-2] + b"Connection: close\r\n\r\n") as sock:
        assert received(sock).count(b"HTTP/1.1 200 ") == 4


def test_the_whole_of_a_head_has_a_limit_also_in_one_piece(server: httpx.Client) -> None:
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: %b\r\n" % (i, b"a" * 7000) for i in range(12))
    with dial(server, head + b"\r\n") as sock:
        assert received(sock).startswith(b"HTTP/1.1 400 ")


def test_no_file_descriptors_are_told_in_the_log(path: Path) -> None:
    server = ServerProcess("--models", str(path), "--max-connections", "50")
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (40, 40))
    url = httpx.URL(server.url)
    with contextlib.ExitStack() as stack:
        for _ in range(45):
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_connection((url.host, url.port), timeout=PATIENT))
        for line in server.lines:
            if "no file descriptors are left" in line:
                break
        else:
            pytest.fail("nothing was said")
    server.process.kill()


def test_more_connections_than_the_soft_limit_of_files_are_made_room_for(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        server = ServerProcess("--models", str(path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0] >= 1000
    server.process.kill()


def is_cut_off(sock: socket.socket, sent: bytes) -> bool:
    """Whether the other side has ended a connection on which one goes on to send."""
    try:
        sock.sendall(sent)
    except TimeoutError:
        return False  # it is full
    except OSError:
        return True
    return False


# Streams


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff", b"\x00" * 64, b"\x82\x05hello", frame(3, b"x"), frame(9, b"x" * 126), frame(1, b"\xff\xfe"),
        frame(8, b"\x01"), frame(8, struct.pack(">H", 1005)), frame(0, b"x"),
        frame(1, b"a", final=False) + frame(1, b"b"), b"\xc2\x80" + bytes(4), b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=[
        "ff ff", "zeros", "unmasked", "unknown opcode", "long ping", "no UTF-8", "short close", "close 1005",
        "nothing to continue", "a second beginning", "reserved bit", "HTTP",
    ],
)  # fmt: skip
def test_a_client_that_breaks_the_protocol_leaves_no_traceback(
    path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with live_server(path) as server:
        for pause in (0.0, 0.02):
            with dial(server, HANDSHAKE % b"") as sock:
                assert sock.recv(12) == b"HTTP/1.1 101"
                time.sleep(pause)
                sock.sendall(sent)
                received(sock)
        for pause in (0.0, 0.02):
            with dial(server, HANDSHAKE % b"?posteriors=true" + sent):
                time.sleep(pause)
        wait_for(lambda: server.get("/health/ready").json()["streams"] == 0)
    assert [r.message for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR] == []


def test_a_client_that_leaves_in_the_middle_leaves_no_traceback(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with live_server(path) as server:
        for i in range(10):
            sock = dial(server, HANDSHAKE % b"?posteriors=true&hop=0.01")
            sock.sendall(frame(2, bytes(3200 * i)))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not a close
            sock.close()
        wait_for(lambda: server.get("/health/ready").json()["streams"] == 0)
    assert [r.message for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    ("flood", "code"),
    [
        (frame(2, b"", final=False) + frame(0, b"", final=False) * (2 * MOST_FRAMES), 1008),
        (frame(9, b"x") * (2 * MOST_CONTROL), 1008),
        (frame(10, b"x") * (2 * MOST_CONTROL), 1008),
    ],
    ids=["continuations", "pings", "pongs"],
)
def test_a_flood_of_frames_that_say_nothing_is_ended(server: httpx.Client, flood: bytes, code: int) -> None:
    with stream(server) as sock:
        sock.sendall(flood)
        assert struct.pack(">H", code) in received(sock)


def test_pings_of_one_that_reads_nothing_do_not_fill_the_memory(path: Path) -> None:
    with live_server(path, send_timeout=1, send_buffer=4096) as server, stream(server) as sock:
        sock.settimeout(0.2)
        pings = (frame(9, b"x" * 125) * 500 + frame(2, bytes(2))) * 4
        wait_for(lambda: is_cut_off(sock, pings))


def test_a_flood_of_empty_messages_leaves_turns_for_others(server: httpx.Client) -> None:
    alone = seconds(20, lambda: server.get("/health/live", headers=CLOSE))
    with stream(server) as sock:
        done = threading.Event()

        def flood() -> None:
            with contextlib.suppress(OSError):
                while not done.is_set():
                    sock.sendall(frame(2, b"") * 5000)

        thread = threading.Thread(target=flood, daemon=True)
        thread.start()
        beside = seconds(20, lambda: server.get("/health/live", headers=CLOSE))
        done.set()
    assert np.median(beside) < 0.5 + 20 * np.median(alone)


def test_tens_of_thousands_of_tiny_messages_at_once_leave_turns_for_others(server: httpx.Client) -> None:
    alone = seconds(20, lambda: server.get("/health/live", headers=CLOSE))
    with stream(server) as sock:
        threading.Thread(target=lambda: sock.sendall(frame(2, bytes(2)) * 30_000), daemon=True).start()
        beside = seconds(20, lambda: server.get("/health/live", headers=CLOSE))
    assert np.median(beside) < 0.5 + 20 * np.median(alone)


@pytest.mark.parametrize("flood", [frame(2, b"x"), frame(9, b"x") * 500 + frame(2, b"xy")], ids=["messages", "pings"])
def test_tiny_frames_in_all_streams_of_a_client_do_not_hold_up_others(path: Path, flood: bytes) -> None:
    piece = flood * (250_000 // len(flood))
    with live_server(path) as server, contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(stream(server)) for _ in range(30)]
        for sock in sockets:
            sock.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                sock.send(piece)
        assert max(seconds(20, lambda: server.get("/health/live", headers=CLOSE))) < 2


def test_the_streams_of_a_client_share_a_pace_and_no_other_client_has_it(path: Path) -> None:
    service = Service.start(ServerSettings.load(models=(str(path),)), Metrics())
    service.pool.close()
    first = service.pace("a")
    assert service.pace("a") is first
    assert service.pace("b") is not first


def test_messages_of_all_streams_of_a_client_have_one_pace() -> None:
    async def count() -> int:
        pace, handled = Pace(50), 0

        async def handle() -> None:
            nonlocal handled
            while True:
                await pace.wait()
                handled += 1

        tasks = [asyncio.create_task(handle()) for _ in range(10)]
        await asyncio.sleep(1.5)
        for task in tasks:
            task.cancel()
        return handled

    assert asyncio.run(count()) <= 2 * (50 + 10)


def test_a_stream_that_the_server_cannot_follow_is_told_how_far_it_is_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kws_edge.stream.spotter import Spotter

    push = Spotter.push

    def slowly(self: Any, samples: Any) -> Any:
        time.sleep(0.5)
        return push(self, samples)

    monkeypatch.setattr(Spotter, "push", slowly)
    with live_server(path) as server, connect(f"{str(server.base_url).replace('http', 'ws')}/v1/stream") as ws:
        ended = threading.Event()
        sent: list[float] = []

        def speak() -> None:
            with contextlib.suppress(ConnectionClosed):
                while not ended.wait(0.1):
                    sent.append(0.1)  # s
                    ws.send(bytes(3200))

        threading.Thread(target=speak, daemon=True).start()
        assert json.loads(ws.recv(PATIENT))["type"] == "hello"
        message = json.loads(ws.recv(PATIENT))
        most = sum(sent) + 0.01  # as it is rounded
        ended.set()
        assert re.search(r"^kws_edge_stream_slow_total [1-9]", server.get("/metrics").text, re.MULTILINE)
    assert message["type"] == "slow"
    assert 1 <= message["lag"] <= most


def test_a_recording_that_is_sent_as_fast_as_it_can_be_is_not_told_of_a_lag(
    server: httpx.Client,
) -> None:
    with connect(f"{str(server.base_url).replace('http', 'ws')}/v1/stream", ping_interval=None) as ws:
        for _ in range(300):
            ws.send(bytes(32_000))
        ws.send('{"type": "finish"}')
        types = set()
        with contextlib.suppress(ConnectionClosed):
            while True:
                types.add(json.loads(ws.recv(PATIENT))["type"])
    assert types == {"hello", "end"}


def test_a_client_whose_pongs_never_come_keeps_its_stream(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    config = uvicorn.Config.__init__

    def impatient(self: Any, *given: Any, **options: Any) -> None:
        config(self, *given, **options)
        self.ws_ping_interval = 0.05
        if self.ws_ping_timeout:
            self.ws_ping_timeout = 0.05

    monkeypatch.setattr(uvicorn.Config, "__init__", impatient)
    with live_server(path) as server, stream(server) as sock:
        sock.settimeout(0.5)
        came = b""
        with contextlib.suppress(TimeoutError):
            end = time.monotonic() + 1
            while time.monotonic() < end:
                came += sock.recv(65_536)
        assert came.count(b"\x89\x04") >= 3  # pings, of which none is answered
        sock.settimeout(PATIENT)
        sock.sendall(frame(1, b'{"type": "finish"}'))
        assert b'"end"' in received(sock)


# Answers and metrics


def test_an_answer_about_wrong_parameters_is_not_far_longer_than_the_question(server: httpx.Client) -> None:
    query = "&".join(f"p{i}=1" for i in range(800))
    answer = server.post(f"/v1/classify?{query}", content=CLIP, headers=WAV)
    assert "and 795 more" in problem(answer, 422, "invalid-parameter")
    assert len(answer.content) < 4000
    again = server.post("/v1/classify?" + "&".join(f"p{i % 400}=1" for i in range(800)), content=CLIP, headers=WAV)
    assert len(again.content) < 4000


def test_the_name_of_a_file_is_told_on_one_line_and_not_at_length(server: httpx.Client) -> None:
    answer = server.post("/v1/classify", files={"file": ("x%0A" + "y" * 3000 + ".wav", b"no audio")})
    assert len(problem(answer, 422, "invalid-audio")) < 300
    raw = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a\x1b[2Jb\xe2\x80\xa8c"\r\n\r\nno\r\n--b--\r\n'
    )
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    detail = problem(server.post("/v1/classify", content=raw, headers=kind), 422, "invalid-audio")
    assert r"a\x1b[2Jb\u2028c" in detail


def test_a_method_of_ones_own_and_the_description_have_their_place_in_the_metrics(path: Path) -> None:
    with live_server(path) as server:
        server.get("/openapi.json")
        for method in ("PROPFIND", "MKCOL", "LINK"):
            server.request(method, "/v1/models")
        text = server.get("/metrics").text
    assert 'kws_edge_requests_total{method="GET",route="/openapi.json",status="200"} 1.0' in text
    assert 'kws_edge_requests_total{method="other"' in text
    assert "PROPFIND" not in text

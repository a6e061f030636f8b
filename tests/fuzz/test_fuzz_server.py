"""Requests, forms, heads and frames that are damaged: the server answers or closes, logs no traceback, and goes on."""

import contextlib
import json
import logging
import socket
import struct
import time
from collections.abc import Iterator
from functools import cache

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_server import PATIENT, live_server
from made_audio import speech, tone, wav
from mutation import TELLING, budget, mutated
from tiny_model import TONES, save

CLIP = wav(tone(TONES["mid"], 0.1))
HOST = b"Host: localhost\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    many = {"max_client_uploads": 64, "max_client_connections": 1000, "body_timeout": 0.3, "head_timeout": 0.3}
    with live_server(save(tmp_path_factory.mktemp("models")), idle_timeout=0.2, **many) as client:
        yield client


@contextlib.contextmanager
def sound(server: httpx.Client, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After it the server answers at once, and has logged no failure."""
    caplog.clear()
    yield
    began = time.monotonic()
    assert server.get("/health/live").status_code == 200
    assert time.monotonic() - began < 10
    assert [r.getMessage() for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR] == []


def exchange(server: httpx.Client, sent: bytes, then: bytes = b"", *, wait: float = 0.3) -> bytes:
    """Send bytes, and others once there is an answer, and close this side; what comes back, for so long at most."""
    answer = b""
    address = server.base_url.host, server.base_url.port
    with socket.create_connection(address, timeout=PATIENT) as sock, contextlib.suppress(OSError):
        sock.sendall(sent)
        if then:
            answer += sock.recv(65_536)
            sock.sendall(then)
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(wait)
        while piece := sock.recv(65_536):
            answer += piece
    return answer


def form(parts: list[tuple[bytes, bytes]], boundary: bytes = b"b") -> bytes:
    body = b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, head, data) for head, data in parts)
    return body + b"--%b--\r\n" % boundary


def post(path: bytes, kind: bytes, body: bytes, *more: bytes) -> bytes:
    head = b"POST %b HTTP/1.1\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n" % (path, HOST, kind, len(body))
    return head + b"".join(line + b"\r\n" for line in more) + b"Connection: close\r\n\r\n" + body


@cache
def requests() -> tuple[bytes, ...]:
    """Sixty requests with forms, raw clips, queries and chunks."""
    file = b'Content-Disposition: form-data; name="file"; filename="a.wav"'
    files = b'Content-Disposition: form-data; name="files"; filename="%d.wav"'
    made = []
    for i in range(15):
        names = [(files % j, CLIP[: 300 * (j + 1)]) for j in range(1 + i % 4)]
        kind = b"multipart/form-data; boundary=b" + (b"; charset=utf-8" if i % 2 else b"")
        made.append(post(b"/v1/classify?target=0.99", kind, form([(file, CLIP)])))
        made.append(post(b"/v1/classify/batch", kind, form(names)))
        made.append(post(b"/v1/classify?score=vacuity&target=0.995", b"audio/wav", CLIP[: 44 + 200 * i]))
        chunks = b"".join(
            b"%x\r\n%b\r\n" % (len(CLIP[j : j + 999]), CLIP[j : j + 999]) for j in range(0, len(CLIP), 999)
        )
        head = b"POST /v1/classify HTTP/1.1\r\n" + HOST + b"Content-Type: audio/wav\r\nTransfer-Encoding: chunked\r\n"
        made.append(head + b"X-%d: y\r\nConnection: close\r\n\r\n%b0\r\n\r\n" % (i, chunks))
    return tuple(made)


@given(mutated(requests()))
@budget(40)
def test_a_damaged_request_is_answered_or_refused(
    server: httpx.Client, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    with sound(server, caplog):
        answer = exchange(server, sent)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert b"HTTP/1.1 500" not in answer


HEADS = [
    b"Sec-Fetch-Site: cross-site", b"Origin: null", b"Range: bytes=0-", b"Expect: 100-continue", b"Upgrade: h2c",
    b"Connection: Upgrade", b"Upgrade: websocket", b"X-Forwarded-For: 1", b"X-Request-ID: \xff",
    b"Authorization: Bearer",
    b"Content-Encoding: gzip", b"Content-Length: 0", b"Transfer-Encoding: chunked", b"Accept: */*;q=9",
]  # fmt: skip


@given(
    st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"PRI", b"get", b"TRACE"]),
    st.one_of(
        st.sampled_from([b"/", b"/v1/stream", b"/v1/models/tiny", b"/page/../../etc/passwd", b"//", b"*", b"/%00"]),
        st.text(max_size=40).map(lambda text: b"/" + text.encode("utf-8", "surrogatepass")),
    ),
    st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.1\r\nX: " + b"a" * 9000]),
    st.lists(st.sampled_from(HEADS), max_size=6),
)
@budget(40)
def test_any_head_is_answered_or_refused(
    server: httpx.Client,
    caplog: pytest.LogCaptureFixture,
    method: bytes,
    path: bytes,
    version: bytes,
    heads: list[bytes],
) -> None:
    sent = b" ".join([method, path, version]) + b"\r\n" + HOST + b"".join(line + b"\r\n" for line in heads) + b"\r\n"
    with sound(server, caplog):
        answer = exchange(server, sent)
    assert b"HTTP/1.1 500" not in answer
    assert b"root:" not in answer


def frame(first: int, data: bytes, mask: bytes | None = bytes(4), length: int | None = None) -> bytes:
    """A frame; its length may be a lie."""
    size = len(data) if length is None else length
    masked = 0x80 if mask is not None else 0
    head = struct.pack(">BB", first, masked | (size if size < 126 else 126 if size < 65_536 else 127))
    if size >= 126:
        head += struct.pack(">H", size) if size < 65_536 else struct.pack(">Q", size)
    return head + (mask or b"") + data


PCM = speech()[16_000:48_000].tobytes()
COMMANDS = [
    {"type": "finish"}, {"type": "reset"}, {"type": "gap", "samples": 0}, {"type": "gap", "samples": 99_999},
    {"type": "gap", "samples": -1}, {"type": "gap"}, {"type": None}, {}, [], 0,
]  # fmt: skip
FRAMES = st.one_of(
    st.integers(0, 8000).map(lambda size: frame(0x82, PCM[:size])),
    st.sampled_from(COMMANDS).map(lambda command: frame(0x81, json.dumps(command).encode())),
    st.text(max_size=30).map(lambda text: frame(0x81, text.encode("utf-8", "surrogatepass"))),
    st.sampled_from([0x00, 0x01, 0x02, 0x80, 0x88, 0x89, 0x8A, 0x83, 0xC2, 0x8F]).map(
        lambda first: frame(first, b"ab")
    ),
    st.builds(
        frame,
        st.integers(0, 255),
        st.one_of(st.binary(max_size=130), st.sampled_from(TELLING)),
        st.sampled_from([None, bytes(4), b"abcd"]),
        st.one_of(st.none(), st.integers(0, 2**63)),
    ),
)
QUERIES = st.sampled_from(
    [
        b"",
        b"?posteriors=true",
        b"?rate=4000&hop=0.01",
        b"?rate=192000&encoding=float32",
        b"?words=low",
        b"?hop=9",
        b"?a=b",
    ]
)


@given(QUERIES, st.lists(FRAMES, max_size=12))
@budget(40)
def test_any_sequence_of_frames_is_answered_or_ended(
    server: httpx.Client, caplog: pytest.LogCaptureFixture, query: bytes, frames: list[bytes]
) -> None:
    asked = (
        b"GET /v1/stream%b HTTP/1.1\r\n%bConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" % (query, HOST)
    )
    with sound(server, caplog):
        answer = exchange(server, asked, b"".join(frames))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert b"HTTP/1.1 500" not in answer
    assert b"problem:internal" not in answer

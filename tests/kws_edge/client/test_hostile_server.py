"""What a server may not do to its client: fail it by values of other kinds, flood it, hold it up, lead it elsewhere."""

import asyncio
import contextlib
import json
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from live_server import answering, in_thread
from made_audio import wav
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Response
from websockets.sync.server import ServerConnection, serve

from kws_edge.audio.sources import Block
from kws_edge.client import AsyncClient, Client, ServerError
from kws_edge.client.errors import Patience
from kws_edge.stream.events import Event

CLIP = wav(np.zeros(1600))
ANSWER = {
    "label": "yes", "guess": "yes", "probability": 0.9, "reason": None, "start": 0, "end": 1, "score": "entropy",
    "threshold": 0.1, "target": 0.99, "vacuity": 0.1, "entropy": 0.1, "alpha": [9, 1], "model": "m", "warnings": [],
}  # fmt: skip
EVENT = {"type": "event", **ANSWER, "time": 1, "clock": None}
HOP = {"type": "hop", "time": 1, "state": "listening", "level": -9, "noise": -60, "vacuity": 1, "entropy": 1}
HELLO = {
    "type": "hello", "version": "1", "model": "m", "labels": ["yes", "no"], "words": ["yes"], "hop": 0.1,
    "thresholds": {"entropy": 0.1}, "max_message": 262_144,
}  # fmt: skip
END = {"type": "end", "time": 1}
HUGE = int("9" * 400)


def http(body: object, status: str = "200 OK", more: str = "") -> bytes:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}Content-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


@contextlib.contextmanager
def streaming(*messages: object, refusal: Response | None = None) -> Iterator[str]:
    """A server whose streams say these, and then wait for the client to be done."""

    def handler(ws: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            for message in messages:
                ws.send(message if isinstance(message, str) else json.dumps(message))
            for _ in ws:
                pass

    with serve(handler, "127.0.0.1", 0, process_request=lambda *_: refusal) as server, in_thread(server):
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"


def listened(url: str) -> list[Event]:
    with Client(url, patience=0) as client:
        return list(client.listen([Block(np.zeros(1600, np.float32))], watch=lambda _: None))


async def listened_async(url: str) -> list[Event]:
    async with AsyncClient(url, patience=0) as client:
        return [event async for event in client.listen([Block(np.zeros(1600, np.float32))], watch=lambda _: None)]


def test_a_server_that_never_says_hello_is_given_up_with_a_reason() -> None:
    async def run() -> None:
        async with AsyncClient(url, timeout=0.2) as client:
            [event async for event in client.listen([])]

    with streaming() as url, pytest.raises(ServerError, match=f"{url}: no answer in time; expected a kws-edge server"):
        asyncio.run(run())


def test_the_answers_that_others_here_are_made_from_are_understood() -> None:
    with answering(http(ANSWER)) as url, Client(url) as client:
        assert client.classify(CLIP).label == "yes"
    with streaming(HELLO, {**HOP, "probability": [0.9, 0.1]}, EVENT, END) as url:
        assert [event.label for event in listened(url)] == ["yes"]


def test_how_far_a_server_is_behind_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with streaming(HELLO, {"type": "slow", "lag": 2.46}, EVENT, END) as url:
        assert [event.label for event in listened(url)] == ["yes"]
    own = [record.getMessage() for record in caplog.records if record.name == "kws_edge.client"]
    assert own == ["the server is 2.5 s behind"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"label": {"a": 1}}, {"guess": 5}, {"probability": "high"}, {"probability": [0.9]}, {"probability": HUGE},
        {"vacuity": float("nan")}, {"entropy": float("inf")}, {"alpha": "9"}, {"alpha": [HUGE]}, {"alpha": [[1], [2]]},
        {"alpha": None}, {"reason": []}, {"reason": "moody"}, {"start": None}, {"end": True}, {"threshold": None},
        {"score": 1}, {"model": None}, {"warnings": "abc"}, {"warnings": [1]}, {"warnings": None},
    ],
)  # fmt: skip
def test_an_answer_of_other_kinds_of_values_is_not_understood(wrong: dict[str, Any]) -> None:
    with answering(http({**ANSWER, **wrong})) as url, Client(url) as client, pytest.raises(ServerError) as error:
        client.classify(CLIP)
    assert error.value.code == "version"


@pytest.mark.parametrize(
    "messages",
    [
        [{**HELLO, "max_message": 0}], [{**HELLO, "max_message": -5}], [{**HELLO, "max_message": "x"}],
        [{**HELLO, "hop": "x"}], [{**HELLO, "labels": "ab"}], [{**HELLO, "labels": [1]}],
        [{**HELLO, "thresholds": [1]}], [{**HELLO, "thresholds": {"a": HUGE}}], ["[" * 100_000], ["9" * 5000],
        [HELLO, {**EVENT, "start": "x"}], [HELLO, {**EVENT, "alpha": [HUGE]}], [HELLO, {**EVENT, "clock": 5}],
        [HELLO, {**EVENT, "clock": "9999-99"}], [HELLO, {**HOP, "probability": [1]}],
        [HELLO, {**HOP, "probability": [1, 0], "level": "x"}], [HELLO, {"type": "slow", "lag": HUGE}],
        [HELLO, {"type": "error", "problem": 5}], [HELLO, {"type": "error", "problem": {"type": 5}}],
        [{"type": "error", "problem": {"type": "urn:x:overloaded"}, "retry_after": "soon"}],
    ],
)  # fmt: skip
def test_a_stream_of_other_kinds_of_values_is_not_understood(messages: list[object]) -> None:
    with streaming(*messages) as url:
        with pytest.raises(ServerError) as error:
            listened(url)
        assert error.value.code == "version"
        with pytest.raises(ServerError) as error:
            asyncio.run(listened_async(url))
        assert error.value.code == "version"


def test_a_flood_of_warnings_and_an_endless_detail_become_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    with answering(http({**ANSWER, "warnings": ["w" * 10_000] * 1000})) as url, Client(url) as client:
        client.classify(CLIP)
    assert 0 < len(caplog.records) < 20
    problem = {"type": "urn:x:internal", "title": "t" * 10_000, "detail": "d" * 1_000_000}
    with answering(http(problem, "500 X")) as url, Client(url) as client, pytest.raises(ServerError) as error:
        client.classify(CLIP)
    assert len(str(error.value)) < 3000
    assert max(len(record.getMessage()) for record in caplog.records) < 3000


@pytest.mark.parametrize("after", [0.0, -5.0])
def test_a_server_that_is_busy_and_says_to_come_back_at_once_is_not_asked_without_a_pause(after: float) -> None:
    patience = Patience(60)
    assert patience.wait(ServerError("", "overloaded", after)) > 0.1


def test_a_server_that_says_to_come_back_in_ages_is_waited_for_no_longer_than_a_day() -> None:
    assert Patience(math.inf).wait(ServerError("", "overloaded", 1e12)) == 86_400


def test_an_answer_that_trickles_in_for_longer_than_an_answer_may_take_is_given_up() -> None:
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def trickle() -> None:
            client, _ = sock.accept()
            with client, contextlib.suppress(OSError):
                client.recv(65_536)
                for byte in http(ANSWER):
                    client.sendall(bytes([byte]))
                    time.sleep(0.02 if byte != ord("{") else 0.3)

        thread = threading.Thread(target=trickle)
        thread.start()
        client = stack.enter_context(Client(f"http://127.0.0.1:{sock.getsockname()[1]}", timeout=0.6))
        with pytest.raises(ServerError, match=r"no whole answer within 0\.6 s"):
            client.classify(CLIP)
        thread.join()


@pytest.mark.parametrize("target", ["other", "/v1/stream", "file:///etc/passwd"])
def test_audio_goes_where_it_was_sent_and_follows_no_redirect(target: str) -> None:
    with streaming(HELLO, EVENT, END) as other:
        location = other.replace("http", "ws") + "/v1/stream" if target == "other" else target
        refusal = Response(302, "Found", Headers({"Location": location, "Content-Length": "0"}), b"")
        with streaming(refusal=refusal) as url:
            with pytest.raises(ServerError, match="status 302"):
                listened(url)
            with pytest.raises(ServerError, match="status 302"):
                asyncio.run(listened_async(url))


@pytest.mark.parametrize("body", [b"[" * 100_000, b"9" * 5000, b'{"type":5}', b"[]", b'{"type":"urn:x:y","detail":5}'])
def test_a_refused_handshake_with_any_body_is_one_line(body: bytes) -> None:
    refusal = Response(403, "No", Headers({"Content-Length": str(len(body))}), body)
    with streaming(refusal=refusal) as url, pytest.raises(ServerError, match="status 403 from something else"):
        listened(url)


def test_the_reasons_of_a_refusal_and_of_a_close_move_no_cursor() -> None:
    body = json.dumps({"type": "urn:x:internal", "title": "\x1b[31m", "detail": "a\nb"}).encode()
    refusal = Response(403, "No", Headers({"Content-Length": str(len(body))}), body)
    with streaming(refusal=refusal) as url, pytest.raises(ServerError, match=r"\\x1b\[31m: a\\nb"):
        listened(url)


def test_what_websockets_says_of_a_broken_protocol_is_not_printed_besides() -> None:
    code = (
        "from kws_edge.client.address import Address\n"
        "Address.of('http://h', None, 1).stream_options({})['logger'].error('unexpected internal error')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stderr == b""


def test_float32_holds_what_is_understood() -> None:
    largest = float(np.finfo(np.float32).max)
    with answering(http({**ANSWER, "alpha": [largest, 1.0]})) as url, Client(url) as client:
        assert np.isfinite(client.classify(CLIP).alpha).all()

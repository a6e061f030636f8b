"""The WebSocket route: hello, events, posteriors, commands, close codes, limits."""

import json
import logging
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
import pytest
import soxr
from live_server import KEY, PATIENT, ServerProcess, live_server, wait_for
from made_audio import speech
from problems import problem
from tiny_model import LABELS, METADATA, save
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from kws_edge import KeywordModel, Spotter, StreamSettings
from kws_edge.server.service import Service

RATE = 16_000


@pytest.fixture(scope="module")
def expected(path: Path) -> list[dict[str, Any]]:
    """What the package itself makes of `speech`."""
    spotter = Spotter(KeywordModel.load(path))
    return [event.to_dict() for event in [*spotter.push(speech()), *spotter.finish()]]


@contextmanager
def stream(server: httpx.Client, **options: Any) -> Iterator[ClientConnection]:
    """A connection; keyword arguments of `connect` begin with an underscore, all others are parameters."""
    parameters = options.pop("_query", {k: v for k, v in options.items() if not k.startswith("_")})
    url = f"{str(server.base_url).replace('http', 'ws')}/v1/stream?{urlencode(parameters)}"
    with connect(url, **{k.removeprefix("_"): v for k, v in options.items() if k.startswith("_")}) as ws:
        yield ws


def receive(ws: ClientConnection) -> dict[str, Any]:
    return json.loads(ws.recv(timeout=PATIENT))


def send(ws: ClientConnection, **command: Any) -> None:
    ws.send(json.dumps(command))


def rest(ws: ClientConnection) -> list[dict[str, Any]]:
    """All messages until the close."""
    messages = []
    while True:
        try:
            messages.append(receive(ws))
        except ConnectionClosed:
            return messages


def refusal(ws: ClientConnection) -> tuple[int, str, str]:
    """Close code, problem and detail of a stream that must be refused."""
    *_, error = rest(ws)
    assert error["type"] == "error"
    assert ws.close_code is not None
    problem = error["problem"]
    return ws.close_code, problem["type"].removeprefix("urn:kws-edge:problem:"), problem["detail"]


def events(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events among messages; that they say what time it was is checked, and left out, as it is never the same."""
    told = [{k: v for k, v in m.items() if k != "type"} for m in messages if m["type"] == "event"]
    assert all(datetime.fromisoformat(event["clock"]).tzinfo for event in told)
    return [{**event, "clock": None} for event in told]


def same(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events for comparison by ==: floats in float32's accuracy."""
    return [{k: pytest.approx(v, rel=1e-3, abs=1e-4) if k not in TEXTS else v for k, v in e.items()} for e in events]


TEXTS = ("label", "guess", "reason", "abstained", "model", "clock")


# Hello and events


def test_the_hello_says_what_will_be_understood(server: httpx.Client) -> None:
    with stream(server, rate=8000, encoding="float32", hop=0.05, words="HIGH,low", target=0.99) as ws:
        hello = receive(ws)
    assert hello["type"] == "hello"
    assert hello["model"] == "tiny"
    assert hello["labels"] == list(LABELS)
    assert hello["words"] == ["high", "low"]
    assert (hello["rate"], hello["encoding"], hello["hop"]) == (8000, "float32", 0.05)
    assert hello["thresholds"] == {"entropy": 0.7}
    assert (hello["window"], hello["posteriors"]) == (0.995, False)
    assert (hello["idle_timeout"], hello["max_message"]) == (30, 2**18)  # by default
    ready = server.get("/health/ready").json()
    assert (hello["version"], hello["instance"]) == (ready["version"], ready["instance"])


@pytest.mark.parametrize("chunk", [160, 1000, 1600, 16_001])
def test_the_events_are_those_of_the_package_however_the_audio_is_cut(
    server: httpx.Client, expected: list[dict[str, Any]], chunk: int
) -> None:
    samples = speech()
    with stream(server) as ws:
        for i in range(0, len(samples), chunk):
            ws.send(samples[i : i + chunk].tobytes())
        send(ws, type="finish")
        messages = rest(ws)
        assert ws.close_code == 1000
    assert events(messages) == same(expected)
    assert [event["label"] for event in expected if event["label"]] == ["high", "low"]
    assert messages[-1] == {"type": "end", "time": pytest.approx(len(samples) / RATE + 1)}


def test_an_event_comes_as_it_happens(server: httpx.Client) -> None:
    with stream(server) as ws:
        receive(ws)
        for chunk in np.array_split(speech()[: RATE * 3], 30):
            ws.send(chunk.tobytes())
        assert receive(ws)["label"] == "high"


def test_float_samples_at_another_rate_give_the_same_words(
    server: httpx.Client, expected: list[dict[str, Any]]
) -> None:
    samples = soxr.resample(speech().astype(np.float32) / 32768, RATE, 44_100)
    with stream(server, rate=44_100, encoding="float32") as ws:
        for chunk in np.array_split(samples.astype("<f4"), 200):
            ws.send(chunk.tobytes())
        send(ws, type="finish")
        found = events(rest(ws))
    assert [event["label"] for event in found] == [event["label"] for event in expected]
    assert [event["start"] for event in found] == pytest.approx([event["start"] for event in expected], abs=0.05)


def test_where_none_is_named_the_first_model_that_is_calibrated_on_streams_listens(path: Path, tmp_path: Path) -> None:
    calibrated = {"settings": StreamSettings.of(METADATA).to_dict() | {"thresholds": {"entropy": 0.4}}}
    streams = [save(tmp_path, name, metadata=replace(METADATA, name=name, stream=calibrated)) for name in ("b", "c")]
    with live_server(path, *streams) as server:
        assert [model["name"] for model in server.get("/v1/models").json()["models"] if model["default"]] == ["tiny"]
        with stream(server) as ws:
            hello = receive(ws)
    assert (hello["model"], hello["thresholds"]) == ("b", {"entropy": 0.4})


def test_every_hop_is_told_where_posteriors_are_asked_for(server: httpx.Client) -> None:
    samples = speech()
    with stream(server, posteriors="true") as ws:
        for chunk in np.array_split(samples, 7):
            ws.send(chunk.tobytes())
        send(ws, type="finish")
        messages = rest(ws)
    hops = [message for message in messages if message["type"] == "hop"]
    times = [hop["time"] for hop in hops]
    assert np.diff(times) == pytest.approx(0.1)
    assert len(hops) == pytest.approx(len(samples) / RATE * 10 + 10, abs=2)
    assert hops[0]["state"] == "silence"
    assert all(sum(hop["probability"]) == pytest.approx(1, abs=1e-4) for hop in hops)


def test_a_hop_is_told_as_the_package_tells_it(server: httpx.Client, path: Path) -> None:
    samples, spotter = speech(), Spotter(KeywordModel.load(path))
    with stream(server, posteriors="true") as ws:
        ws.send(samples.tobytes())
        send(ws, type="finish")
        hops = [message for message in rest(ws) if message["type"] == "hop"]
    for hop, part in zip(hops, np.split(samples, range(1600, len(samples), 1600)), strict=False):
        spotter.push(part)
        assert spotter.last
        assert hop["state"] == spotter.last.state
        assert hop["probability"] == pytest.approx(spotter.last.probability.tolist(), abs=1e-3)
        for name in ("time", "level", "noise", "vacuity", "entropy"):
            assert hop[name] == pytest.approx(getattr(spotter.last, name), rel=1e-3, abs=1e-3), name
    assert {hop["state"] for hop in hops} == {"silence", "listening"}


def test_silence_gives_no_event(server: httpx.Client) -> None:
    with stream(server) as ws:
        ws.send(bytes(RATE * 2 * 3))
        send(ws, type="finish")
        assert [message["type"] for message in rest(ws)] == ["hello", "end"]


def test_only_the_words_asked_for_give_events(server: httpx.Client) -> None:
    with stream(server, words="low") as ws:
        for chunk in np.array_split(speech(), 50):
            ws.send(chunk.tobytes())
        send(ws, type="finish")
        assert [event["label"] for event in events(rest(ws))] == ["low"]


def test_commands_count_only_after_a_wake_word(server: httpx.Client, expected: list[dict[str, Any]]) -> None:
    first, *_, last = [event["label"] for event in expected if event["label"]]

    def told(**parameters: Any) -> list[str]:
        with stream(server, abstentions="none", wake_seconds=20, **parameters) as ws:
            for chunk in np.array_split(speech(), 50):
                ws.send(chunk.tobytes())
            send(ws, type="finish")
            return [event["label"] for event in events(rest(ws))]

    assert told(wake=first, words=last)[0] == first
    assert last in told(wake=first, words=last)
    assert first not in told(wake=last, words=first)
    assert told(wake=first, wake_model="tiny", words=last) == told(wake=first, words=last)


def test_a_wake_word_counts_for_as_long_as_was_asked_for(server: httpx.Client) -> None:
    def told(seconds: float) -> list[str]:
        with stream(server, abstentions="none", wake="high", words="low", wake_seconds=seconds) as ws:
            ws.send(speech().tobytes())
            send(ws, type="finish")
            return [event["label"] for event in events(rest(ws))]

    assert told(1) == ["high"]  # the pause after it has two seconds
    assert told(10) == ["high", "low"]


def test_streams_do_not_hear_each_other(server: httpx.Client, expected: list[dict[str, Any]]) -> None:
    found: dict[int, list[dict[str, Any]]] = {}

    def one(i: int) -> None:
        samples = speech() if i % 2 else np.zeros(RATE * 4, np.int16)
        with stream(server) as ws:
            for chunk in np.array_split(samples, 40):
                ws.send(chunk.tobytes())
            send(ws, type="finish")
            found[i] = events(rest(ws))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENT)
    assert [found[i] for i in (0, 2, 4)] == [[]] * 3
    assert [found[i] for i in (1, 3, 5)] == [same(expected)] * 3


# Commands


def test_after_a_reset_the_stream_is_as_new(server: httpx.Client, expected: list[dict[str, Any]]) -> None:
    samples = speech()
    with stream(server) as ws:
        ws.send(samples[: RATE * 2 + 8000].tobytes())
        send(ws, type="reset")
        for chunk in np.array_split(samples, 30):
            ws.send(chunk.tobytes())
        send(ws, type="finish")
        found = events(rest(ws))
    assert found[-len(expected) :] == same(expected)


def test_after_a_reset_nothing_is_left_of_what_a_resampler_holds(server: httpx.Client) -> None:
    with stream(server, rate=44_100) as ws:
        ws.send(bytes(2 * 44_100))
        send(ws, type="reset")
        send(ws, type="finish")
        assert rest(ws)[-1] == {"type": "end", "time": 1.0}  # the silence at the end alone


def test_a_gap_moves_the_clock(server: httpx.Client) -> None:
    with stream(server, rate=8000) as ws:
        send(ws, type="gap", samples=80_000)
        send(ws, type="finish")
        end = rest(ws)[-1]
    assert end["time"] == pytest.approx(11, abs=0.01)


@pytest.mark.parametrize("rate", [8000, 44_100, 48_000])
def test_what_came_before_a_gap_is_heard_and_takes_its_time_at_any_rate(server: httpx.Client, rate: int) -> None:
    tenth = bytes(2 * (rate // 10))
    with stream(server, rate=rate) as ws:
        for _ in range(20):
            ws.send(tenth)
            send(ws, type="gap", samples=rate // 10)
        send(ws, type="finish")
        assert rest(ws)[-1]["time"] == pytest.approx(20 * 0.2 + 1, abs=0.005)


@pytest.mark.parametrize(
    "text",
    [
        "hello", "", "[]", "null", "{}", '{"type": "start"}', '{"type": "gap"}', '{"type": "gap", "samples": "9"}',
        '{"type": "gap", "samples": true}', '{"type": "gap", "samples": 1.5}', '{"type": "finish", "now": true}',
        '{"type": "audio"}', "[" * 100_000, '{"type": NaN}',
    ],
)  # fmt: skip
def test_a_text_that_is_no_command_ends_the_stream(server: httpx.Client, text: str) -> None:
    with stream(server) as ws:
        ws.send(text)
        assert refusal(ws)[:2] == (1003, "malformed")


@pytest.mark.parametrize("samples", [-1, 10**30])
def test_a_gap_that_cannot_be_is_refused(server: httpx.Client, samples: int) -> None:
    with stream(server) as ws:
        send(ws, type="gap", samples=samples)
        assert refusal(ws)[:2] == (4000, "invalid-parameter")


def test_an_hour_may_be_lost_at_once_at_any_rate_and_no_more(server: httpx.Client) -> None:
    hour = 3600 * 48_000
    with stream(server, rate=48_000) as ws:
        send(ws, type="gap", samples=hour)
        send(ws, type="finish")
        assert rest(ws)[-1]["time"] == 3601
    with stream(server, rate=48_000) as ws:
        send(ws, type="gap", samples=hour + 1)
        assert refusal(ws) == (4000, "invalid-parameter", f"a gap of {hour + 1}; expected 0 to {hour} samples")


# What is refused


@pytest.mark.parametrize(
    ("parameters", "wrong"),
    [
        ({"model": "nosuch"}, "model"),
        ({"wake_model": "nosuch"}, "wake_model"),
        ({"words": "foo"}, "words"),
        ({"wake": "foo"}, "wake"),
        ({"wake": "foo", "wake_model": "tiny"}, "wake"),
        ({"wake_seconds": "5"}, "wake_seconds"),
        ({"wake": "mid", "words": "mid"}, "words"),
        ({"hop": "0.015"}, "hop"),
        ({"hop": "7"}, "hop"),
        ({"target": "2"}, "target"),
        ({"score": "both", "target": "0.99"}, "target"),
        ([("hop", "0.1"), ("hop", "0.2")], "hop"),
    ],
)
def test_errors_name_the_parameter_that_is_wrong(server: httpx.Client, parameters: Any, wrong: str) -> None:
    with stream(server, _query=parameters) as ws:
        *_, error = rest(ws)
    assert error["problem"]["type"] == "urn:kws-edge:problem:invalid-parameter"
    assert [e["parameter"] for e in error["problem"]["errors"]] == [wrong]


def test_a_wake_model_without_thresholds_is_the_parameter_that_is_wrong(path: Path, tmp_path: Path) -> None:
    bare = save(tmp_path, "bare", metadata=replace(METADATA, name="bare", thresholds={}, calibration={}))
    with live_server(path, bare) as server, stream(server, wake_model="bare") as ws:
        *_, error = rest(ws)
    assert [e["parameter"] for e in error["problem"]["errors"]] == ["wake_model"]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"model": "nope"}, "expected one of tiny"),
        ({"words": "high,nope"}, "nope"),
        ({"words": ","}, "expected one or more"),
        ({"words": "nope," * 1000}, "nope, no…; expected one or more of low, mid, high"),
        ({"hop": "0.001"}, "hop"),
        ({"hop": "0.055"}, "hop"),
        ({"hop": "nan"}, "hop"),
        ({"rate": "0"}, "rate"),
        ({"rate": "1e9"}, "rate"),
        ({"encoding": "mp3"}, "encoding"),
        ({"score": "both", "target": "0.99"}, "no threshold"),
        ({"target": "1.5"}, "target"),
        ({"target": "1"}, "target=1; expected 100 % or 1 %"),
        ({"rate": "fast"}, "rate: 'fast'; expected a whole number from 4000 to 192000"),
        ({"score": "both ways"}, "score: 'both ways'; expected one of entropy, vacuity, both"),
        ({"posteriors": "maybe"}, "posteriors: 'maybe'; expected true or false"),
        ({"words": "a" * 7000, "speed": "2"}, "speed: no such parameter; expected some of model, rate, encoding"),
        ([("hop", "0.1"), ("hop", "0.2")], "hop: given more than once"),
    ],
)
def test_a_wrong_parameter_is_said_and_closes(server: httpx.Client, parameters: Any, said: str) -> None:
    with stream(server, _query=parameters) as ws:
        code, problem, detail = refusal(ws)
    assert (code, problem) == (4000, "invalid-parameter")
    assert said in detail
    assert "\n" not in detail


def test_a_query_that_is_far_too_long_is_refused_before_the_handshake(server: httpx.Client) -> None:
    with pytest.raises((InvalidStatus, InvalidMessage)), stream(server, words=",".join(["low"] * 3000)):
        pass


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        ("int16", b"\0\0\0"),
        ("float32", b"\0\0"),
        ("float32", np.array([0.1, np.nan], "<f4").tobytes()),
        ("float32", np.array([0.1, -np.inf], "<f4").tobytes()),
        ("float32", np.full(99, 30_000, "<f4").tobytes()),
    ],
)
@pytest.mark.parametrize("rate", [16_000, 48_000])
def test_audio_that_cannot_be_used_ends_the_stream(
    server: httpx.Client, encoding: str, message: bytes, rate: int
) -> None:
    with stream(server, encoding=encoding, rate=rate) as ws:
        for _ in range(20):
            try:
                ws.send(message)
            except ConnectionClosed:
                break
        code, problem, detail = refusal(ws)
    assert (code, problem) == (1007, "invalid-audio")
    assert ("samples of up to " in detail) == (encoding == "float32" and len(message) > 2)


def test_samples_that_overflow_in_the_resampler_are_said_as_they_came(server: httpx.Client) -> None:
    with stream(server, encoding="float32", rate=44_100) as ws:
        ws.send(np.full(16_000, 3e38, "<f4").tobytes())
        assert "samples of up to 3e+38" in refusal(ws)[2]


def test_an_empty_message_is_ignored(server: httpx.Client) -> None:
    with stream(server) as ws:
        ws.send(b"")
        send(ws, type="finish")
        assert rest(ws)[-1] == {"type": "end", "time": 1.0}


def test_a_message_that_is_too_long_ends_the_stream(path: Path) -> None:
    with live_server(path, max_message=1024) as server, stream(server) as ws:
        receive(ws)
        ws.send(bytes(2000))
        assert rest(ws) == []
        assert ws.close_code == 1009


def test_a_stream_without_audio_is_ended(path: Path) -> None:
    with live_server(path, idle_timeout=0.3) as server, stream(server) as ws:
        assert refusal(ws)[:2] == (4008, "idle")


@pytest.mark.parametrize(
    "message", [b"", '{"type": "reset"}', '{"type": "gap", "samples": 0}'], ids=["nothing", "resets", "gaps"]
)
def test_what_is_no_audio_does_not_keep_a_stream_open(path: Path, message: bytes | str) -> None:
    with live_server(path, idle_timeout=0.5) as server, stream(server) as ws:
        end = time.monotonic() + PATIENT
        while time.monotonic() < end:
            try:
                ws.send(message)
            except ConnectionClosed:
                break
            time.sleep(0.05)
        else:
            pytest.fail("it stays open")
        assert refusal(ws)[:2] == (4008, "idle")


def test_audio_keeps_a_stream_open(path: Path) -> None:
    # The limit is also the longest that a busy machine may keep this test from sending.
    with live_server(path, idle_timeout=2) as server, stream(server) as ws:
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            ws.send(bytes(320))
            time.sleep(0.1)
        send(ws, type="finish")
        assert rest(ws)[-1]["type"] == "end"


def test_a_client_that_never_reads_does_not_fill_the_memory(path: Path) -> None:
    def flood(sock: socket.socket) -> None:
        second = b"\x82\xfe" + struct.pack(">H", 32_000) + bytes(4) + bytes(32_000)  # a frame under a mask of 0
        for _ in range(10_000):
            sock.sendall(second)

    with live_server(path, idle_timeout=0.5, send_buffer=4096) as server:
        url = server.base_url
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that it is soon full
            sock.connect((url.host, url.port))
            sock.sendall(
                b"GET /v1/stream?posteriors=true&hop=0.02 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            sock.settimeout(1)
            with pytest.raises(OSError):  # noqa: PT011  that it is full, or closed
                flood(sock)
            wait_for(lambda: server.get("/health/ready").json()["streams"] == 0)


def test_more_streams_than_there_may_be_are_told_to_come_back(path: Path) -> None:
    with live_server(path, max_streams=1) as server:
        with stream(server) as first:
            receive(first)
            with stream(server) as second:
                assert refusal(second)[:2] == (1013, "overloaded")
        wait_for(lambda: server.get("/health/ready").json()["streams"] == 0)
        with stream(server) as third:
            assert receive(third)["type"] == "hello"


def test_who_opens_streams_too_often_is_told_when_to_come_back(path: Path) -> None:
    with live_server(path, client_rate=0.001, client_burst=1) as server:
        began = time.monotonic()
        with stream(server) as ws:
            assert receive(ws)["type"] == "hello"
        with stream(server) as ws:
            *_, error = rest(ws)
            took = time.monotonic() - began
            assert ws.close_code == 1013
    assert error["problem"]["type"] == "urn:kws-edge:problem:too-many-requests"
    assert 1000 - took <= error["retry_after"] <= 1001


def test_one_client_may_not_take_all_streams(path: Path) -> None:
    with live_server(path, max_client_streams=1) as server, stream(server) as first:
        receive(first)
        with stream(server) as second:
            assert refusal(second)[:2] == (1013, "too-many-requests")


def test_a_client_that_vanishes_leaves_its_place(path: Path) -> None:
    with live_server(path, max_streams=1) as server:
        with stream(server) as ws:
            receive(ws)
            ws.socket.close()
        wait_for(lambda: server.get("/health/ready").json()["streams"] == 0)


def test_a_key_comes_as_header_or_as_subprotocol(path: Path) -> None:
    with live_server(path, api_keys=(KEY,)) as server:
        for wrong in ({}, {"model": "nope"}):  # the answer to which would name the models
            with stream(server, **wrong) as ws:
                assert refusal(ws)[:2] == (1008, "unauthorized")
        for options in (
            {"_additional_headers": {"Authorization": f"Bearer {KEY}"}},
            {"_additional_headers": {"X-API-Key": KEY}},
            {"_subprotocols": ["kws-edge", f"kws-edge.key.{KEY}"]},
        ):
            with stream(server, **options) as ws:
                assert receive(ws)["type"] == "hello"
                # Browsers give up where none of those that they offered is chosen, and the key must not be told again.
                assert ws.subprotocol == ("kws-edge" if "_subprotocols" in options else None)


def test_no_stream_is_compressed_whatever_a_client_offers(server: httpx.Client) -> None:
    with stream(server, _compression="deflate") as ws:  # of which a few bytes can be very many
        assert receive(ws)["type"] == "hello"
        assert ws.protocol.extensions == []


def test_a_plain_request_is_told_that_a_handshake_is_missing(server: httpx.Client) -> None:
    response = server.get("/v1/stream")
    assert "expected a WebSocket" in problem(response, 426, "upgrade-required")
    assert response.headers["Upgrade"] == "websocket"


def denial(server: httpx.Client, path: str = "/v1/stream", **options: Any) -> tuple[int, str]:
    """Status and problem of a handshake that must be refused."""
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(f"{str(server.base_url).replace('http', 'ws')}{path}", **options),
    ):
        pass
    answer = refused.value.response
    assert answer.headers["Content-Type"] == "application/problem+json"
    return answer.status_code, json.loads(answer.body)["type"].removeprefix("urn:kws-edge:problem:")


@pytest.mark.parametrize("elsewhere", ["/", "/v1/models", "/v1/stream/", "/page/app.js", "/nothing"])
def test_a_handshake_elsewhere_is_a_problem_too(server: httpx.Client, elsewhere: str) -> None:
    assert denial(server, elsewhere) == (404, "not-found")


@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://[", "http://h@example.org", "x"])
def test_a_page_of_another_origin_may_not_listen_in(server: httpx.Client, origin: str) -> None:
    assert denial(server, origin=origin) == (403, "forbidden")


def test_a_refused_handshake_is_no_failure_in_the_log(server: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    denial(server, origin="https://example.org")
    denial(server, "/nothing")
    server.get("/health/live")
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_a_refused_handshake_is_counted_and_logged_as_a_request(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with live_server(path) as server, caplog.at_level(logging.INFO, "kws_edge.server"):
        denial(server, origin="https://example.org")
        assert 'kws_edge_requests_total{method="GET",route="unmatched",status="403"} 1.0' in server.get("/metrics").text
    requests = [r.fields for r in caplog.records if r.getMessage() == "request"]  # type: ignore[attr-defined]
    assert (requests[0]["status"], requests[0]["client"]) == (403, "127.0.0.1")


def test_a_proxy_that_changes_the_host_is_named_as_what_may_be_wrong(server: httpx.Client) -> None:
    with pytest.raises(InvalidStatus) as refused, stream(server, _origin="https://example.org"):
        pass
    detail = json.loads(refused.value.response.body or b"")["detail"]
    assert f"'https://example.org'; expected one of '{server.base_url.netloc.decode()}'" in detail
    assert "a proxy must pass on" in detail
    assert "--cors-origins" in detail


def test_its_own_page_and_those_that_are_named_may(path: Path, server: httpx.Client) -> None:
    with stream(server, _origin=str(server.base_url).rstrip("/")) as ws:
        assert receive(ws)["type"] == "hello"
    with (
        live_server(path, cors_origins=("https://example.org",)) as open_server,
        stream(open_server, _origin="https://example.org") as ws,
    ):
        assert receive(ws)["type"] == "hello"


def test_streams_are_counted(path: Path) -> None:
    with live_server(path) as server:
        with stream(server) as ws:
            for chunk in np.array_split(speech(), 20):
                ws.send(chunk.tobytes())
            send(ws, type="finish")
            rest(ws)
        text = server.get("/metrics").text
    assert 'kws_edge_stream_events_total{model="tiny",outcome="accepted"} 2.0' in text
    seconds = next(line for line in text.splitlines() if line.startswith("kws_edge_stream_audio_seconds_total"))
    assert float(seconds.split()[1]) == pytest.approx(len(speech()) / RATE + 1, abs=0.1)


def test_a_stream_that_has_ended_is_one_line_of_log_and_nothing_else_is_kept_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    services: list[Service] = []
    start = Service.start
    monkeypatch.setattr(Service, "start", lambda *given: services.append(start(*given)) or services[-1])

    def lines() -> list[dict[str, Any]]:
        return [r.fields for r in caplog.records if r.getMessage() == "stream"]  # type: ignore[attr-defined]

    with caplog.at_level(logging.INFO, "kws_edge.server"), live_server(path) as server:
        with stream(server) as ws:
            ws.send(bytes(2 * RATE))
            send(ws, type="finish")
            rest(ws)
        with stream(server, words="nope") as ws:
            rest(ws)
        wait_for(lambda: len(lines()) == 2)
        assert sorted(lines(), key=lambda line: line["code"]) == [
            {"code": 1000, "seconds": 2.0},
            {"code": 4000, "seconds": 0.0},
        ]
        wait_for(lambda: not services[0].open_streams)
        assert len(services[0].streams) == 0


def test_an_open_stream_is_told_that_the_server_restarts_and_does_not_hold_it_up(path: Path) -> None:
    grace = 50
    server = ServerProcess("--models", str(path), "--shutdown-grace", str(grace))
    with connect(f"{server.url.replace('http', 'ws')}/v1/stream") as ws:
        receive(ws)
        ws.send(bytes(3200))
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert refusal(ws)[:2] == (1012, "not-ready")
        assert server.process.wait(PATIENT) == 0
        assert time.monotonic() - began < grace / 2

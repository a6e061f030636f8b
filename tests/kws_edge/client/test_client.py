"""The client: the same answers, events and errors as from the package itself."""

import asyncio
import contextlib
import inspect
import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from live_server import KEY, PATIENT, live_server, taken_port
from made_audio import speech, tone, wav
from tiny_model import TONES

from kws_edge import AudioError, KeywordModel, Prediction, SettingError, Spotter, StreamSettings, Wake
from kws_edge.audio.sources import Block, WavFile
from kws_edge.client import AsyncClient, Client, ServerError
from kws_edge.client.asynchronous import _read_in_thread
from kws_edge.stream.events import Event


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[httpx.Client]:
    with live_server(path, max_body=2_000_000) as client:
        yield client


@pytest.fixture
def client(server: httpx.Client) -> Iterator[Client]:
    with Client(str(server.base_url)) as client:
        yield client


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recordings") / "two words.wav"
    file.write_bytes(wav(speech()))
    return file


def same(a: Prediction | Event, b: Prediction | Event) -> bool:
    x, y = a.to_dict(), b.to_dict()
    return all(x[key] == (pytest.approx(y[key], rel=1e-4) if key in FLOATS else y[key]) for key in y if key != "clock")


FLOATS = ("alpha", "probability", "vacuity", "entropy")


def blocks(samples: np.ndarray, size: int = 1600) -> list[Block]:
    floats = samples.astype(np.float32) / np.float32(32768)
    return [Block(floats[i : i + size]) for i in range(0, len(floats), size)]


# Clips


@pytest.mark.parametrize("as_what", ["path", "text", "bytes", "float array", "int16 array"])
def test_a_clip_is_answered_as_by_the_model(client: Client, model: KeywordModel, recording: Path, as_what: str) -> None:
    samples = speech()
    source: Any = {
        "path": recording,
        "text": str(recording),
        "bytes": recording.read_bytes(),
        "float array": samples.astype(np.float32) / np.float32(32768),
        "int16 array": samples,
    }[as_what]
    rate = 16_000 if "array" in as_what else None
    assert same(client.classify(source, rate), model.classify(source, rate))


@pytest.mark.parametrize("kind", ["uint8", "float16", "float64", "int32", "whole rate", "bytearray", "memoryview"])
def test_all_that_the_model_takes_is_taken(client: Client, model: KeywordModel, recording: Path, kind: str) -> None:
    samples = speech().astype(np.float64) / 32768
    source: Any = {
        "uint8": np.rint(samples * 127 + 128).astype(np.uint8),
        "float16": samples.astype(np.float16),
        "float64": samples,
        "int32": speech().astype(np.int32) << 16,
        "whole rate": speech(),
        "bytearray": bytearray(recording.read_bytes()),
        "memoryview": memoryview(recording.read_bytes()),
    }[kind]
    rate: Any = 16_000.0 if kind == "whole rate" else None if kind in ("bytearray", "memoryview") else np.int64(16_000)
    assert same(client.classify(source, rate), model.classify(source, rate))


@pytest.mark.parametrize("kind", [">i2", ">i4", ">f2", ">f4", ">f8"])
def test_samples_of_the_other_byte_order_are_taken_as_they_are_meant(
    client: Client, model: KeywordModel, kind: str
) -> None:
    scale = {">i2": 2.0**15, ">i4": 2.0**31}.get(kind, 1.0)
    samples = (speech() / 32768 * scale).astype(kind)
    assert same(client.classify(samples, 16_000), model.classify(samples, 16_000))


def test_quiet_samples_of_32_bits_keep_them_all(client: Client, model: KeywordModel) -> None:
    samples = np.rint(speech() * 0.005 * 2**16).astype(np.int32)
    assert same(client.classify(samples, 16_000), model.classify(samples, 16_000))


def test_target_and_score_and_model_are_passed_on(client: Client) -> None:
    p = client.classify(tone(TONES["low"]), 16_000, target=0.99, score="entropy", model="tiny")
    assert (p.target, p.score, p.threshold, p.model) == (0.99, "entropy", 0.7, "tiny")


def test_a_batch_gives_predictions_and_errors_in_order(client: Client, model: KeywordModel) -> None:
    clips = [wav(tone(TONES["low"])), b"no audio", wav(tone(TONES["high"]))]
    first, second, third = client.classify_batch(clips)
    assert isinstance(first, Prediction)
    assert isinstance(third, Prediction)
    assert same(first, model.classify(clips[0]))
    assert same(third, model.classify(clips[2]))
    assert isinstance(second, AudioError)
    assert client.classify_batch([]) == []


def test_what_is_odd_about_a_clip_goes_to_the_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    cut = wav(tone(TONES["low"]))[:-2000]
    with caplog.at_level(logging.WARNING, "kws_edge.client"):
        client.classify(cut)
    assert "the end is missing" in caplog.text


def test_models_are_listed_and_described(client: Client) -> None:
    (listed,) = client.models()
    assert listed["name"] == "tiny"
    assert client.model("tiny")["licence"] == "Apache-2.0"
    with pytest.raises(SettingError, match="expected one of tiny"):
        client.model("nope")


# Streams


def test_a_source_gives_the_events_of_a_spotter(client: Client, model: KeywordModel, recording: Path) -> None:
    expected = list(Spotter(model).listen(WavFile(recording)))
    found = list(client.listen(WavFile(recording)))
    assert [event.label for event in found] == ["high", "low"]
    assert len(found) == len(expected)
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


def test_a_block_is_cut_to_the_messages_that_the_server_takes(path: Path, recording: Path) -> None:
    with live_server(path, max_message=1024) as server, Client(str(server.base_url)) as client:
        assert [e.label for e in client.listen(WavFile(recording))] == ["high", "low"]


def test_settings_of_a_stream_are_passed_on(client: Client, recording: Path) -> None:
    assert [e.label for e in client.listen(WavFile(recording), words={"low"}, hop=0.05, target=0.99)] == ["low"]
    with pytest.raises(SettingError, match="nope"):
        list(client.listen(WavFile(recording), words={"nope"}))


@pytest.mark.parametrize("client_kind", ["blocking", "asyncio"])
def test_a_wake_word_is_given_as_to_a_spotter_or_by_name(
    client: Client, server: httpx.Client, model: KeywordModel, recording: Path, client_kind: str
) -> None:
    def labels(**options: Any) -> list[str | None]:
        async def run() -> list[str | None]:
            async with AsyncClient(str(server.base_url)) as other:
                return [e.label async for e in other.listen(WavFile(recording), abstentions="none", **options)]

        if client_kind == "asyncio":
            return asyncio.run(run())
        return [e.label for e in client.listen(WavFile(recording), abstentions="none", **options)]

    spotter = Spotter(model, words={"low"}, abstentions="none", wake=Wake({"high"}, 20))
    expected = [e.label for e in spotter.listen(WavFile(recording))]
    assert expected == ["high", "low"]
    assert labels(words={"low"}, wake=Wake({"high"}, 20)) == expected
    assert labels(words={"low"}, wake={"high"}, wake_seconds=20) == expected
    assert labels(words={"high"}, wake=Wake({"low"}, 20)) == ["low"]
    for given in ({"wake": Wake(None, 20)}, {"wake_seconds": 20}):
        with pytest.raises(SettingError, match="no command beside the wake words low, mid, high"):
            labels(words={"low"}, wake_model="tiny", **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wake": Wake({"high"}), "wake_seconds": 3}, "wake_seconds beside a Wake; expected Wake"),
        ({"wake": Wake()}, "a Wake without words; expected some, or .* wake_model"),
        ({"wake": Wake({"high"}, settings=StreamSettings({"vacuity": 0.5}))}, "a Wake with settings; expected none"),
        ({"wake": "high"}, "wake='high'; expected a set or a list of words, such as {'high'}"),
        ({"wake": 5}, "wake=5; expected a set or a list of words"),
        ({"words": "low"}, "words='low'; expected a set or a list of words"),
    ],
)
def test_words_that_cannot_be_sent_are_refused_and_the_source_is_closed(
    client: Client, options: dict[str, Any], message: str
) -> None:
    closed: list[bool] = []

    class Source:
        def __iter__(self) -> Iterator[Block]:
            yield Block(np.zeros(1600, np.float32))

        def close(self) -> None:
            closed.append(True)

    with pytest.raises(SettingError, match=message):
        list(client.listen(Source(), **options))
    assert closed == [True]


def test_a_wake_with_a_model_of_this_machine_is_told_to_name_a_served_one(client: Client, model: KeywordModel) -> None:
    with pytest.raises(SettingError, match=r"a Wake with a model of its own; expected the name .* as wake_model"):
        list(client.listen([], wake=Wake({"high"}, model=model)))


def test_events_come_while_the_source_goes_on(client: Client) -> None:
    closed = False

    class Endless:
        def __iter__(self) -> Iterator[Block]:
            yield from blocks(speech()[: 16_000 * 3])
            while not closed:
                yield Block(np.zeros(1600, np.float32))
                time.sleep(0.01)

        def close(self) -> None:
            nonlocal closed
            closed = True

    events = client.listen(Endless())
    assert next(events).label == "high"
    events.close()
    assert closed


def test_a_loss_is_passed_on(client: Client, model: KeywordModel) -> None:
    lossy = blocks(speech())
    lossy[5] = Block(lossy[5].samples, dropped=16_000)

    class Lossy:
        def __iter__(self) -> Iterator[Block]:
            return iter(lossy)

        def close(self) -> None:
            pass

    expected = list(Spotter(model).listen(Lossy()))
    found = list(client.listen(Lossy()))
    assert len(found) == len(expected) > 0
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


def test_an_error_of_the_source_reaches_the_listener(client: Client) -> None:
    def failing() -> Iterator[Block]:
        yield Block(np.zeros(1600, np.float32))
        raise AudioError("the file is damaged")

    with pytest.raises(AudioError, match="damaged"):
        list(client.listen(failing()))


def test_samples_that_are_refused_are_an_audio_error(client: Client) -> None:
    with pytest.raises(AudioError, match="samples of up to nan"):
        list(client.listen([Block(np.full(1600, np.nan, np.float32))] * 5))


class Held:
    """A generator that waits after its first blocks, so that its reader is inside of it until it may go on."""

    def __init__(self, first: list[Block]) -> None:
        self.waits, self.goes_on, self.closed = (threading.Event() for _ in range(3))
        self.blocks = self._generate(first)

    def _generate(self, first: list[Block]) -> Iterator[Block]:
        try:
            yield from first
            self.waits.set()
            self.goes_on.wait(PATIENT)
            while True:
                yield Block(np.zeros(1600, np.float32))
        finally:
            self.closed.set()


def listened_a_word(url: str, held: Held, kind: str) -> None:
    """Listen, by either client, until there is an event and the source waits."""

    async def run() -> None:
        async with AsyncClient(url) as client:
            events = client.listen(held.blocks)
            assert (await anext(aiter(events))).label == "high"
            assert await asyncio.to_thread(held.waits.wait, PATIENT)
            await events.aclose()

    if kind == "asyncio":
        asyncio.run(run())
        return
    with Client(url) as client:
        events = client.listen(held.blocks)
        assert next(events).label == "high"
        assert held.waits.wait(PATIENT)
        events.close()


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_generator_that_is_given_up_while_it_waits_is_closed_by_its_reader(server: httpx.Client, kind: str) -> None:
    held = Held(blocks(speech()[: 16_000 * 3]))
    listened_a_word(str(server.base_url), held, kind)
    assert not held.closed.is_set()
    held.goes_on.set()
    assert held.closed.wait(PATIENT)


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_the_error_of_a_stream_is_told_while_its_generator_waits(server: httpx.Client, kind: str) -> None:
    held = Held([Block(np.full(1600, np.nan, np.float32))] * 5)
    with pytest.raises(AudioError, match="samples of up to nan"):
        listened_a_word(str(server.base_url), held, kind)
    held.goes_on.set()
    assert held.closed.wait(PATIENT)


def test_an_error_of_closing_a_source_is_told(client: Client) -> None:
    class Source:
        def __iter__(self) -> Iterator[Block]:
            yield Block(np.zeros(1600, np.float32))

        def close(self) -> None:
            raise ValueError("the device is gone")

    with pytest.raises(ValueError, match="the device is gone"):
        list(client.listen(Source()))


@pytest.mark.parametrize("source", ["clip.wav", 3, [np.zeros(1600, np.float32)]], ids=["path", "number", "arrays"])
def test_what_gives_no_blocks_is_refused_with_what_does(client: Client, server: httpx.Client, source: Any) -> None:
    async def run() -> None:
        async with AsyncClient(str(server.base_url)) as asynchronous:
            [event async for event in asynchronous.listen(source)]

    for listen in (lambda: list(client.listen(source)), lambda: asyncio.run(run())):
        with pytest.raises(SettingError, match=r"expected one that gives Block, as WavFile\(path\)"):
            listen()


@pytest.mark.parametrize(
    "as_what",
    [
        lambda samples: samples,
        lambda samples: samples.tobytes(),
        lambda samples: samples / 32768,
        lambda samples: (samples / 32768).astype(np.float16),
        lambda samples: (samples / 32768).astype(">f4"),
    ],
    ids=["int16", "bytes", "float64", "float16", "big-endian"],
)
def test_blocks_hold_samples_as_a_spotter_takes_them(
    client: Client, model: KeywordModel, as_what: Callable[[np.ndarray], Any]
) -> None:
    block = Block(as_what(speech()), dropped=np.int64(800))  # type: ignore[arg-type]
    spotter = Spotter(model)
    spotter.gap(block.dropped)
    expected = [*spotter.push(block.samples), *spotter.finish()]
    assert [event.label for event in client.listen([block])] == [event.label for event in expected]


@pytest.mark.parametrize(
    ("block", "error", "said"),
    [
        (Block(np.zeros((1600, 2), np.float32)), AudioError, r"samples float32 \[1600, 2\]"),
        (Block(np.zeros(1600, np.complex64)), AudioError, "samples complex64"),  # type: ignore[arg-type]
        (Block([0.0] * 1600), AudioError, "samples of type list"),  # type: ignore[arg-type]
        (Block(np.zeros(1600, np.float32), dropped=-1), SettingError, "a gap of -1 samples"),
        (Block(np.zeros(1600, np.float32), dropped=0.5), SettingError, "a gap of 0.5 samples"),  # type: ignore[arg-type]
    ],
    ids=["two channels", "complex", "list", "less than no loss", "half a sample"],
)
def test_blocks_of_something_else_are_refused_as_by_a_spotter(
    client: Client, block: Block, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        list(client.listen([block]))


def test_a_loss_of_hours_is_passed_on(client: Client, model: KeywordModel) -> None:
    dropped = 3 * 3600 * 16_000 + 5
    first, *_ = client.listen([Block(speech().astype(np.float32) / 32768, dropped)], abstentions="none")
    assert first.time > dropped / 16_000
    assert first.label == "high"


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), TimeoutError("mine")], ids=["full", "late"])
def test_an_error_of_whoever_watches_is_its_own(server: httpx.Client, kind: str, error: Exception) -> None:
    def watch(_: object) -> None:
        raise error

    async def run() -> None:
        async with AsyncClient(str(server.base_url)) as client:
            [event async for event in client.listen([], watch=watch)]

    with Client(str(server.base_url)) as client, pytest.raises(type(error)) as raised:
        asyncio.run(run()) if kind == "asyncio" else list(client.listen([], watch=watch))
    assert raised.value is error


def test_an_asynchronous_generator_is_closed_when_the_iteration_is_given_up(server: httpx.Client) -> None:
    closed = False

    async def source() -> AsyncIterator[Block]:
        nonlocal closed
        try:
            for block in blocks(speech()):
                yield block
            await asyncio.sleep(PATIENT)
        finally:
            closed = True

    async def run() -> None:
        kept = source()  # so that it is not collected instead
        async with AsyncClient(str(server.base_url)) as client:
            events = client.listen(kept)
            assert (await anext(aiter(events))).label == "high"
            await events.aclose()
        assert closed

    asyncio.run(run())


def test_a_generator_that_another_task_reads_is_left_to_it(server: httpx.Client) -> None:
    async def source() -> AsyncIterator[Block]:
        await asyncio.sleep(PATIENT)
        yield Block(np.zeros(1600, np.float32))

    async def run() -> None:
        shared = source()
        async with AsyncClient(str(server.base_url)) as client:
            reading = asyncio.create_task(anext(shared))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="anext"):
                [event async for event in client.listen(shared)]
            reading.cancel()

    asyncio.run(run())


# Errors


def test_a_pipe_is_refused_and_not_waited_for(client: Client, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path(os.devnull)):
        with pytest.raises(AudioError, match="a directory, pipe or device; expected a readable file"):
            client.classify(path)


def test_a_file_that_no_server_takes_is_refused_unread(client: Client, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(AudioError, match="large: 1048576 MiB; expected up to 1024"):
        client.classify(tmp_path / "large")


@pytest.mark.parametrize("kind", ["pipe", "text"])
def test_a_file_object_that_is_of_another_kind_is_an_audio_error(client: Client, tmp_path: Path, kind: str) -> None:
    (tmp_path / "clip.wav").write_bytes(wav(tone(TONES["mid"])))
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe, (tmp_path / "clip.wav").open(encoding="utf-8") as text:
        source: Any = pipe if kind == "pipe" else text
        with pytest.raises(AudioError, match=r"file object: .*; expected a seekable binary file, or its bytes"):
            client.classify(source)


@pytest.mark.parametrize(
    "given",
    [
        {"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}, {"timeout": float("inf")}, {"timeout": None},
        {"timeout": "30"}, {"patience": -1}, {"patience": float("nan")}, {"patience": None}, {"key": b"0123456789abc"},
    ],
    ids=str,
)  # fmt: skip
def test_a_time_or_key_that_is_none_is_refused(given: dict[str, Any]) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(SettingError, match=r"expected a number of seconds|the API key"):
            kind("http://127.0.0.1:9", **given)


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://127.0.0.1:0", "ftp://user:secret@h", 5, None])
def test_an_address_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(SettingError, match="expected http://HOST:PORT or https://HOST") as refused:
        Client(url)
    assert "secret" not in str(refused.value)


def test_a_name_and_password_in_an_address_are_for_what_is_before_the_server(path: Path) -> None:
    with live_server(path, api_keys=(KEY,)) as server:
        url = str(server.base_url).replace("//", "//me:a%20secret@").rstrip("/")
        with Client(url, key=KEY) as client:
            assert client.models()[0]["name"] == "tiny"
            assert [event.label for event in client.listen(blocks(speech()), abstentions="none")] == ["high", "low"]
            assert client._address.headers["Authorization"] == "Basic bWU6YSBzZWNyZXQ="
    with taken_port() as port, Client(f"http://me:secret@127.0.0.1:{port}") as client:
        for call in (client.models, lambda: list(client.listen([]))):
            with pytest.raises(ServerError, match=f"^http://127.0.0.1:{port}: ") as refused:
                call()
            assert "secret" not in str(refused.value)


def test_requests_and_streams_trust_the_same_certificates() -> None:
    address = Client("https://127.0.0.1:9")._address
    assert address.http_options()["verify"] is address.stream_options({})["ssl"]


@pytest.mark.parametrize("content", [None, b"no certificate"], ids=["missing", "no PEM"])
def test_certificates_that_cannot_be_read_are_named_where_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "certificates.pem").write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificates.pem"))
    with pytest.raises(SettingError, match=r"^SSL_CERT_FILE='.*certificates\.pem': .*; expected certificates as PEM"):
        Client("https://127.0.0.1:9")
    Client("http://127.0.0.1:9").close()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "\ud800", None, 5])
def test_what_can_be_no_name_of_a_model_is_refused(client: Client, name: Any) -> None:
    with pytest.raises(SettingError, match=r"model .*; expected a name, as one of models\(\)"):
        client.model(name)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"words": {"\udcff"}}, r"words='\\udcff'; expected a text of Unicode"),
        ({"model": "\udcff"}, r"model='\\udcff'; expected a text of Unicode"),
        ({"words": {"high,low"}}, "words: 'high,low'; expected words one by one"),
        ({"wake": ["low", "high,mid"]}, "wake: 'high,mid'; expected words one by one"),
        ({"wake_seconds": 5}, "wake_seconds without a wake word"),
    ],
    ids=["words", "model", "two words in one", "two wake words in one", "seconds of nothing"],
)
def test_what_no_stream_can_be_asked_is_refused(client: Client, given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        list(client.listen([], **given))
    if "model" in given:
        with pytest.raises(SettingError, match=said):
            client.classify(b"", **given)


@pytest.mark.parametrize(
    ("source", "rate", "error", "said"),
    [
        (b"no audio", None, AudioError, "not readable"),
        (b"", None, AudioError, "no bytes"),
        ("missing.wav", None, AudioError, "missing.wav"),
        (np.zeros(100, np.float32), None, SettingError, "rate"),
        (np.zeros(16_000, np.complex64), 16_000, AudioError, "complex64"),
        (np.zeros(16_000, np.int64), 16_000, AudioError, "array of int64; expected one of uint8, int16"),
        (np.zeros((2, 2, 2), np.int16), 16_000, AudioError, r"shape \(2, 2, 2\); expected \[n\] or"),
        (np.zeros(16_000, np.int16), 0, AudioError, "sample rate of 0 Hz; expected 4000 to"),
        (np.zeros(16_000, np.int16), float("nan"), AudioError, "sample rate of nan Hz"),
        (np.zeros(16_000, np.int16), "16000", SettingError, "rate='16000' of an array; expected a number"),
        (np.zeros(16_000, np.int16), 16_000.5, SettingError, "rate=16000.5 of an array; expected a whole number"),
        ([0.0] * 16_000, None, AudioError, "audio of type list; expected a path"),
        (b"RIFF", 16_000, SettingError, "rate=16000"),
        (bytes(3_000_000), None, AudioError, "at most 2000000 bytes"),
    ],
    ids=[
        "text",
        "empty",
        "no file",
        "no rate",
        "complex",
        "int64",
        "three axes",
        "rate 0",
        "rate nan",
        "rate text",
        "half a rate",
        "list",
        "two rates",
        "too large",
    ],
)
def test_what_cannot_be_used_is_refused_as_by_the_package(
    client: Client, source: Any, rate: int | None, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        client.classify(source, rate)


def test_a_setting_that_there_is_not_is_refused(client: Client) -> None:
    with pytest.raises(SettingError, match=r"0\.995"):
        client.classify(tone(300), 16_000, target=0.5)
    with pytest.raises(SettingError, match="http://HOST:PORT"):
        Client("localhost:8765")


def test_a_key_is_given_to_both_kinds_of_route(path: Path) -> None:
    with live_server(path, api_keys=(KEY,)) as server:
        with Client(str(server.base_url), key=KEY) as client:
            assert client.models()
            assert list(client.listen(blocks(speech())))
        with Client(str(server.base_url)) as client:
            with pytest.raises(ServerError) as refused:
                client.models()
            assert refused.value.code == "unauthorized"
            assert "expected Client(url, key=...)" in str(refused.value)
            with pytest.raises(ServerError) as refused:
                list(client.listen([]))
            assert refused.value.code == "unauthorized"
            assert KEY not in str(refused.value)


def test_a_busy_server_says_when_to_come_back(path: Path) -> None:
    with live_server(path, client_rate=0.001, client_burst=1) as server, Client(str(server.base_url)) as client:
        client.models()
        with pytest.raises(ServerError, match="asks too often") as refused:
            client.models()
        assert refused.value.code == "too-many-requests"
        assert refused.value.retry_after is not None
        assert refused.value.retry_after >= 1


def test_no_server_is_an_error_that_names_the_address() -> None:
    with contextlib.ExitStack() as stack:
        url = f"http://127.0.0.1:{stack.enter_context(taken_port())}"
        client = stack.enter_context(Client(url))
        for call in (client.models, lambda: list(client.listen([]))):
            with pytest.raises(ServerError, match=url) as refused:
                call()
            assert refused.value.code == "unreachable"


def test_a_server_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with Client(url, timeout=0.2) as client:
            with pytest.raises(ServerError, match="no answer"):
                client.models()
            with pytest.raises(ServerError, match=url):
                list(client.listen([]))


def test_an_address_in_capitals_is_listened_to(server: httpx.Client, recording: Path) -> None:
    with Client(str(server.base_url).replace("http", "HTTP")) as client:
        assert client.models()
        assert [event.label for event in client.listen(WavFile(recording))] == ["high", "low"]


def test_a_closed_client_says_so(server: httpx.Client) -> None:
    async def run() -> None:
        client = AsyncClient(url, patience=5)
        await client.close()
        for call in (client.models(), anext(aiter(client.listen([])))):
            with pytest.raises(ServerError, match=f"{url}: this client is closed; expected an open one") as refused:
                await call
            assert refused.value.code == "no-client"

    url = str(server.base_url)
    with Client(url, patience=5) as client:
        client.models()
    for call in (client.models, lambda: client.classify(wav(speech())), lambda: list(client.listen([]))):
        with pytest.raises(ServerError, match=f"{url}: this client is closed; expected an open one") as refused:
            call()
        assert refused.value.code == "no-client"
    asyncio.run(run())


def test_without_its_packages_the_client_names_the_extra() -> None:
    code = "import sys; sys.modules['httpx'] = None\nfrom kws_edge.client import Client\nClient('http://h')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DependencyError: the client needs httpx, which is not installed; in a checkout" in run.stderr
    assert "pip install '.[client]'" in run.stderr


# asyncio


def test_the_async_client_gives_the_same(server: httpx.Client, model: KeywordModel, recording: Path) -> None:
    async def run() -> None:
        async with AsyncClient(str(server.base_url)) as client:
            clips = [wav(tone(TONES[word])) for word in TONES] * 4
            answers = await asyncio.gather(*(client.classify(clip) for clip in clips))
            assert all(same(p, model.classify(clip)) for p, clip in zip(answers, clips, strict=True))
            assert [p.label for p in await client.classify_batch(clips[:3])] == list(TONES)
            assert (await client.models())[0]["name"] == (await client.model("tiny"))["name"] == "tiny"
            found = [event async for event in client.listen(later(blocks(speech())))]
            expected = list(Spotter(model).listen(WavFile(recording)))
            assert len(found) == len(expected)
            assert all(same(a, b) for a, b in zip(found, expected, strict=True))

    asyncio.run(run())


async def later(blocks: list[Block]) -> AsyncIterator[Block]:
    for block in blocks:
        await asyncio.sleep(0)
        yield block


def parameters_of(client: type, method: str) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(getattr(client, method)).parameters.values()
    return [(p.name, p.kind, p.default) for p in parameters]


@pytest.mark.parametrize("method", ["__init__", "classify", "classify_batch", "models", "model", "listen", "close"])
def test_methods_of_both_clients_take_the_same_parameters(method: str) -> None:
    assert parameters_of(Client, method) == parameters_of(AsyncClient, method)


def test_errors_of_the_async_client_are_the_same(server: httpx.Client) -> None:
    async def failing() -> AsyncIterator[Block]:
        yield Block(np.zeros(1600, np.float32))
        raise AudioError("the file is damaged")

    async def run() -> None:
        async with AsyncClient(str(server.base_url)) as client:
            with pytest.raises(AudioError, match="not readable"):
                await client.classify(b"no audio")
            with pytest.raises(AudioError, match="damaged"):
                [event async for event in client.listen(failing())]
            with pytest.raises(SettingError, match="nope"):
                [event async for event in client.listen(later([]), words={"nope"})]

    asyncio.run(run())


def test_a_source_that_is_not_for_asyncio_is_read_in_a_thread_and_closed(
    server: httpx.Client, model: KeywordModel, recording: Path
) -> None:
    closed: list[bool] = []

    class File(WavFile):
        def close(self) -> None:
            super().close()
            closed.append(True)

    async def run() -> list[Event]:
        async with AsyncClient(str(server.base_url)) as client:
            return [event async for event in client.listen(File(recording))]

    found, expected = asyncio.run(run()), list(Spotter(model).listen(WavFile(recording)))
    assert len(found) == len(expected) > 0
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))
    assert closed == [True]


class Waiting:
    """A source that waits before a block, as a microphone does; `taken` blocks were asked of it."""

    def __init__(self, wait: Callable[[], Any] = lambda: None) -> None:
        self.wait, self.taken, self.closed = wait, 0, False

    def __iter__(self) -> Iterator[Block]:
        for block in [*blocks(speech()), *blocks(np.zeros(16_000 * 600, np.int16))]:
            if self.closed:
                return
            self.wait()
            self.taken += 1
            yield block

    def close(self) -> None:
        self.closed = True


def test_a_source_that_waits_does_not_hold_up_the_loop_and_ends_with_the_iteration(server: httpx.Client) -> None:
    goes_on = threading.Event()
    waits: list[bool] = []

    def wait() -> None:
        """For the loop: where the source holds that up, it waits in vain."""
        goes_on.clear()
        waits.append(goes_on.wait(PATIENT if all(waits) else 0))

    source = Waiting(wait)

    async def watch() -> None:
        while True:
            goes_on.set()
            await asyncio.sleep(0.005)

    async def run() -> None:
        watching = asyncio.create_task(watch())
        async with AsyncClient(str(server.base_url)) as client:
            events = client.listen(source)
            assert (await anext(events)).label == "high"
            await events.aclose()
        watching.cancel()

    asyncio.run(run())
    goes_on.set()  # or the thread waits on
    assert source.closed
    assert len(waits) > 10
    assert all(waits[:10])  # the last one may have been when the loop was over


def test_a_source_is_read_no_more_than_a_second_ahead() -> None:
    source = Waiting()

    async def run() -> None:
        read = _read_in_thread(source)
        await anext(read)
        await asyncio.sleep(0.3)
        assert source.taken <= 12
        await read.aclose()

    asyncio.run(run())


def test_an_error_of_a_source_in_a_thread_reaches_the_listener(server: httpx.Client) -> None:
    def failing() -> Iterator[Block]:
        yield Block(np.zeros(1600, np.float32))
        raise AudioError("the file is damaged")

    async def run() -> None:
        async with AsyncClient(str(server.base_url)) as client:
            [event async for event in client.listen(failing())]

    with pytest.raises(AudioError, match="damaged"):
        asyncio.run(run())


@contextlib.contextmanager
def cut_off(times: int, answer: bytes) -> Iterator[str]:
    """An address where the first connections end once something was sent on them, and later ones get an answer."""
    with socket.create_server(("127.0.0.1", 0)) as sock:

        def accept() -> None:
            for i in itertools.count():
                try:
                    client, _ = sock.accept()
                except OSError:  # it is over
                    return
                with client:
                    client.recv(65_536)
                    if i >= times:
                        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            sock.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_call_whose_connection_is_cut_off_is_made_once_more(server: httpx.Client) -> None:
    answer = server.get("/v1/models").content
    with cut_off(1, answer) as url, Client(url, patience=PATIENT) as patient:
        assert [model["name"] for model in patient.models()] == ["tiny"]
    with cut_off(2, answer) as url, Client(url, patience=PATIENT) as patient, pytest.raises(ServerError) as refused:
        patient.models()
    assert refused.value.code == "cut-off"
    assert "sending a response; expected a running kws-edge server" in str(refused.value)
    with cut_off(1, answer) as url, Client(url) as impatient, pytest.raises(ServerError, match="a running kws-edge"):
        impatient.models()

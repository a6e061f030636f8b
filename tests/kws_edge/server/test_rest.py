"""The REST routes: answers, their agreement with the package, malformed audio over HTTP, the OpenAPI description."""

import asyncio
import json
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from live_server import KEY, live_server
from made_audio import WAV, tone, wav
from problems import problem
from tiny_model import LABELS, METADATA, TONES, save

from kws_edge import KeywordModel, Spotter
from kws_edge.errors import ProviderError
from kws_edge.model.prediction import Reason
from kws_edge.server.app import create_app
from kws_edge.server.http import schemas
from kws_edge.server.service import models_of
from kws_edge.server.settings import RUNTIME, ServerSettings


def riff(fmt: bytes, data: bytes, *, data_size: int | None = None, riff_size: int | None = None) -> bytes:
    """A WAV file byte by byte, right or wrong."""
    size = len(data) if data_size is None else data_size
    body = b"WAVE" + fmt + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", len(body) if riff_size is None else riff_size) + body


def fmt(tag: int = 1, channels: int = 1, rate: int = 16_000, bits: int = 16) -> bytes:
    frame = channels * bits // 8
    return b"fmt " + struct.pack("<IHHIIHH", 16, tag, channels, rate, rate * frame % 2**32, frame % 2**16, bits)


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[httpx.Client]:
    with live_server(path, max_clips=8) as client:
        yield client


@pytest.fixture(scope="module")
def openapi(server: httpx.Client) -> dict[str, Any]:
    return server.get("/openapi.json").json()


# Answers


@pytest.mark.parametrize("label", LABELS)
def test_a_raw_body_is_answered_as_the_package_answers(server: httpx.Client, model: KeywordModel, label: str) -> None:
    body = wav(tone(TONES[label]))
    response = server.post("/v1/classify", content=body, headers=WAV)
    assert response.status_code == 200
    expected = model.classify(body).to_dict()
    answer = response.json()
    assert answer["label"] == label
    assert answer == {**expected, "alpha": pytest.approx(expected["alpha"]), "seconds": 1.0, "warnings": []}


def test_a_form_is_answered_as_the_raw_body(server: httpx.Client) -> None:
    body = wav(tone(TONES["mid"]))
    raw = server.post("/v1/classify", content=body, headers={"Content-Type": "application/octet-stream"})
    form = server.post("/v1/classify", files={"file": ("clip.wav", body, "audio/wav")})
    assert form.status_code == 200
    assert form.json() == raw.json()


@pytest.mark.parametrize("kind", ["Audio/WAV", "AUDIO/x-flac; rate=16000", "Application/Octet-Stream"])
def test_types_of_content_are_the_same_in_capitals(server: httpx.Client, kind: str) -> None:
    response = server.post("/v1/classify", content=wav(tone(TONES["mid"])), headers={"Content-Type": kind})
    assert response.json()["label"] == "mid"


def test_a_channel_is_picked_by_its_number(server: httpx.Client) -> None:
    two = wav(np.stack([tone(TONES["low"]), tone(TONES["high"])], axis=1))

    def asked(channel: str) -> httpx.Response:
        return server.post(f"/v1/classify?channel={channel}", content=two, headers=WAV)

    assert [asked(channel).json()["label"] for channel in ("1", "2")] == ["low", "high"]
    assert asked("mix").json()["guess"] in ("low", "high")
    assert "channel 3 of 2" in problem(asked("3"), 422, "invalid-audio")
    for impossible in ("0", "-1", "left", "255", "1e1"):
        problem(asked(impossible), 422, "invalid-parameter")


def test_channels_of_opposite_polarity_are_answered_with_a_warning(server: httpx.Client) -> None:
    sound = tone(TONES["low"])
    answer = server.post("/v1/classify", content=wav(np.stack([sound, -sound], axis=1)), headers=WAV).json()
    assert answer["label"] == "low"
    assert len(answer["warnings"]) == 1


def test_an_uncertain_clip_is_answered_with_an_abstention_and_its_reason(server: httpx.Client) -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 16_000)
    answer = server.post("/v1/classify", content=wav(noise), headers=WAV).json()
    assert (answer["label"], answer["abstained"], answer["reason"]) == (None, True, "uncertain")
    assert answer["guess"] in LABELS


def test_every_reason_can_be_told(tmp_path: Path) -> None:
    assert schemas.Classified.model_fields["reason"].annotation == Reason | None
    model = save(tmp_path, metadata=replace(METADATA, labels=("low", "mid", "_unknown_")))
    with live_server(model) as server:
        answer = server.post("/v1/classify", content=wav(tone(TONES["high"])), headers=WAV).json()
    assert (answer["label"], answer["guess"], answer["reason"]) == (None, "_unknown_", "unknown_word")


@pytest.mark.parametrize("target", ["0.99", "99", "99 %", "99.0%"])
def test_a_target_is_a_fraction_or_a_percentage(server: httpx.Client, target: str) -> None:
    body = wav(tone(TONES["mid"]))
    answer = server.post("/v1/classify", params={"target": target}, content=body, headers=WAV).json()
    assert (answer["target"], answer["threshold"]) == (0.99, 0.7)


def test_target_and_score_choose_the_threshold(server: httpx.Client) -> None:
    body = wav(tone(TONES["mid"]))
    parameters = {"target": 0.99, "score": "entropy", "model": "tiny"}
    answer = server.post("/v1/classify", params=parameters, content=body, headers=WAV).json()
    assert (answer["target"], answer["score"], answer["threshold"]) == (0.99, "entropy", 0.7)
    strict = server.post("/v1/classify", params={"target": 0.999}, content=body, headers=WAV).json()
    assert strict["abstained"]  # that target is not reached by this model


def test_a_long_clip_is_searched_and_the_answer_says_where(server: httpx.Client) -> None:
    clip = np.concatenate([np.zeros(16_000 * 4), tone(TONES["high"]), np.zeros(16_000 * 2)])
    answer = server.post("/v1/classify", content=wav(clip), headers=WAV).json()
    assert answer["label"] == "high"
    assert answer["seconds"] == 7.0
    assert answer["start"] == pytest.approx(4, abs=0.6)


@pytest.mark.parametrize("size", [1, 2, 8])
def test_a_batch_answers_each_file_as_if_it_were_alone(server: httpx.Client, model: KeywordModel, size: int) -> None:
    rng = np.random.default_rng(size)
    bodies = [wav(tone(TONES[LABELS[i % 3]], 0.5 + 0.25 * (i % 3)) + rng.normal(0, 0.01)) for i in range(size)]
    form = [("files", (f"{i}.wav", body, "audio/wav")) for i, body in enumerate(bodies)]
    results = server.post("/v1/classify/batch", files=form).json()["results"]
    assert [item["file"] for item in results] == [f"{i}.wav" for i in range(size)]
    for item, body in zip(results, bodies, strict=True):
        assert item["problem"] is None
        alone = model.classify(body)
        assert item["prediction"]["label"] == alone.label
        assert item["prediction"]["alpha"] == pytest.approx(alone.alpha.tolist(), rel=1e-4)


def test_a_bad_file_in_a_batch_does_not_stop_the_others(server: httpx.Client) -> None:
    good = wav(tone(TONES["low"]))
    form = [("files", ("good.wav", good)), ("files", ("bad.wav", b"text")), ("files", ("again.wav", good))]
    response = server.post("/v1/classify/batch", files=form)
    assert response.status_code == 200
    first, second, third = response.json()["results"]
    assert first["prediction"]["label"] == third["prediction"]["label"] == "low"
    assert second["prediction"] is None
    assert second["problem"]["type"] == "urn:kws-edge:problem:invalid-audio"
    assert "bad.wav" in second["problem"]["detail"]


def test_recordings_get_the_same_answer_as_from_the_package(
    server: httpx.Client, model: KeywordModel, data: Path
) -> None:
    for word in ("yes", "stop"):
        file = sorted((data / "speech_commands" / word).iterdir())[0]
        answer = server.post("/v1/classify", files={"file": file.read_bytes()}).json()
        assert answer["alpha"] == pytest.approx(model.classify(file).alpha.tolist(), rel=1e-4)


# Audio of all kinds over HTTP: what is read, and what is refused


def readable() -> dict[str, bytes]:
    mono = tone(TONES["mid"])
    stereo = np.stack([tone(TONES["mid"], rate=44_100)] * 2, axis=1)
    right = np.stack([np.zeros(16_000, np.float32), mono], axis=1)
    pcm = (mono * 32767).astype("<i2").tobytes()
    return {
        "44.1 kHz stereo": wav(stereo, 44_100),
        "48 kHz": wav(tone(TONES["mid"], rate=48_000), 48_000),
        "8 bit": wav(mono, subtype="PCM_U8"),
        "24 bit": wav(mono, subtype="PCM_24"),
        "float": wav(mono, subtype="FLOAT"),
        "extensible": wav(mono, container="WAVEX"),
        "sizes unknown": riff(fmt(), pcm, data_size=0xFFFFFFFF, riff_size=0xFFFFFFFF),
        "right channel only": wav(right),
        "0.3 s": wav(tone(TONES["mid"], 0.3)),
        "FLAC": wav(mono, container="FLAC"),
        "Ogg Vorbis": wav(mono, container="OGG", subtype="VORBIS"),
    }


@pytest.mark.parametrize("kind", readable())
def test_the_word_is_named_whatever_the_file_format(server: httpx.Client, kind: str) -> None:
    response = server.post("/v1/classify", content=readable()[kind], headers=WAV)
    assert response.status_code == 200, response.text
    assert response.json()["guess"] == "mid"


def test_a_file_that_ends_early_is_answered_with_a_warning(server: httpx.Client) -> None:
    pcm = (tone(TONES["mid"]) * 32767).astype("<i2").tobytes()
    answer = server.post("/v1/classify", content=riff(fmt(), pcm, data_size=64_000), headers=WAV).json()
    assert answer["label"] == "mid"
    assert answer["warnings"] == ["the header announces 64000 bytes, 32000 are present: the end is missing"]


def unusable() -> dict[str, bytes]:
    bad = tone(TONES["mid"])
    bad[500] = np.nan
    infinite = tone(TONES["mid"])
    infinite[500] = np.inf
    return {
        "no samples": wav(np.empty(0)),
        "no bytes": b"",
        "random bytes": np.random.default_rng(0).bytes(5000),
        "text": b"This is not audio. " * 50,
        "short fmt": b"RIFF\x10\0\0\0WAVEfmt \x04\0\0\0\1\0\1\0",
        "0 channels": riff(fmt(channels=0), bytes(100)),
        "255 channels": riff(fmt(channels=255), bytes(510)),
        "0 bits": riff(fmt(bits=0), bytes(100)),
        "rate 0": riff(fmt(rate=0), bytes(100)),
        "AAC in a WAV": riff(fmt(tag=0xFF), bytes(100)),
        "NaN": wav(bad, subtype="FLOAT"),
        "infinity": wav(infinite, subtype="FLOAT"),
        "1 sample": wav(np.full(1, 0.5)),
        "100 samples": wav(np.full(100, 0.5)),
    }


@pytest.mark.parametrize("kind", unusable())
@pytest.mark.parametrize("as_form", [False, True], ids=["raw", "form"])
def test_audio_that_cannot_be_used_is_refused_in_one_line(server: httpx.Client, kind: str, as_form: bool) -> None:
    body = unusable()[kind]
    if as_form:
        response = server.post("/v1/classify", files={"file": ("clip.wav", body, "audio/wav")})
    else:
        response = server.post("/v1/classify", content=body, headers=WAV)
    assert problem(response, 422, "invalid-audio")


def test_a_codec_that_is_not_supported_is_named(server: httpx.Client) -> None:
    response = server.post("/v1/classify", content=riff(fmt(tag=0xFF), bytes(100)), headers=WAV)
    assert "AAC" in problem(response, 422, "invalid-audio")


def test_silence_is_an_abstention_not_an_error(server: httpx.Client) -> None:
    answer = server.post("/v1/classify", content=riff(fmt(bits=8), b"\x80" * 16_000), headers=WAV).json()
    assert (answer["reason"], answer["label"], answer["guess"]) == ("silence", None, None)


# Requests that are wrong


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"model": "nope"}, "expected one of tiny"),
        ({"target": "0.3"}, "0.995"),
        ({"target": "nan"}, "target"),
        ({"target": "inf"}, "target"),
        ({"target": "2"}, "target"),
        ({"target": "high"}, "target"),
        ({"score": "p"}, "score"),
        ({"score": "vacuity", "target": "0.99"}, "vacuity at 0.995"),
        ({"taget": "0.99"}, "taget: no such parameter; expected some of model, target, score"),
        ({"target": "1"}, "target=1; expected 100 % or 1 %"),
        ({"target": "high"}, "target=high; expected an accuracy such as 99.5 %"),
        ({"score": "both"}, "score: 'both'; expected one of entropy, vacuity"),
        ({"model": "m" * 201}, "expected up to 200 characters"),
        ({"channel": "0"}, "channel: '0'; expected a number from 1 to 99, or mix"),
        ({"channel": "left"}, "channel: 'left'; expected a number from 1 to 99, or mix"),
    ],
)
@pytest.mark.parametrize("route", ["/v1/classify", "/v1/classify/batch"])
def test_a_wrong_parameter_is_refused_with_what_was_expected(
    server: httpx.Client, route: str, parameters: dict[str, str], said: str
) -> None:
    response = server.post(route, params=parameters, files={"file": b"RIFF"})
    assert said in problem(response, 422, "invalid-parameter")


def form_of(head: str, *, kind: str = "multipart/form-data; boundary=b") -> dict[str, Any]:
    content = f"--b\r\nContent-Disposition: form-data{head}\r\n\r\nRIFF\r\n--b--\r\n".encode()
    return {"content": content, "headers": {"Content-Type": kind}}


@pytest.mark.parametrize("route", ["/v1/classify", "/v1/classify/batch"])
@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (form_of('; name="file"; filename="a"', kind="multipart/form-data"), 400, "malformed"),
        (form_of('; filename="a"'), 400, "malformed"),
        (form_of('; name="other"; filename="a"'), 422, "invalid-parameter"),
        (form_of('; name="file"'), 422, "invalid-parameter"),
        ({"content": b"--b--\r\n", "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, 422, None),
        ({"content": b"", "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, 422, None),
        ({"content": b"\0" * 99, "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, 400, "malformed"),
        ({"content": b"RIFF", "headers": {"Content-Type": ""}}, 415, "unsupported-media-type"),
        ({"content": b"RIFF"}, 415, "unsupported-media-type"),
        ({"json": {"file": "RIFF"}}, 415, "unsupported-media-type"),
        ({"data": {"file": "RIFF"}}, 415, "unsupported-media-type"),
    ],
    ids=[
        "no boundary", "no name", "another field", "text for a file", "no parts", "empty form", "not multipart",
        "empty type", "no type", "JSON", "form without files",
    ],
)  # fmt: skip
def test_a_body_that_is_not_as_described_is_refused(
    server: httpx.Client, route: str, request_: dict[str, Any], status: int, code: str | None
) -> None:
    problem(server.post(route, **request_), status, code or "invalid-parameter")


def test_two_files_for_one_clip_are_refused(server: httpx.Client) -> None:
    form = [("file", ("a.wav", b"RIFF")), ("file", ("b.wav", b"RIFF"))]
    said = problem(server.post("/v1/classify", files=form), 400, "malformed")
    assert said == "more files than 1; expected one file; /v1/classify/batch takes several"


def test_a_parameter_in_the_form_is_told_where_it_belongs(server: httpx.Client) -> None:
    response = server.post("/v1/classify", files={"file": b"RIFF"}, data={"model": "tiny"})
    said = problem(response, 422, "invalid-parameter")
    assert "'model'" in said
    assert "?model=NAME" in said


def test_a_body_without_its_type_is_told_how_curl_gives_one(server: httpx.Client) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # what curl --data-binary says by itself
    said = problem(server.post("/v1/classify", content=b"RIFF", headers=form), 415, "unsupported-media-type")
    assert "curl -H 'Content-Type: audio/wav'" in said


@pytest.mark.parametrize("route", ["/v1/classify", "/v1/classify/batch"])
def test_a_parameter_that_is_given_twice_is_refused(server: httpx.Client, route: str) -> None:
    response = server.post(f"{route}?target=0.99&target=0.995", files={"file": b"RIFF"})
    assert problem(response, 422, "invalid-parameter") == "target: given more than once; expected one value"
    assert response.json()["errors"] == [{"parameter": "target", "detail": "given more than once; expected one value"}]


@pytest.mark.parametrize("route", ["/v1/classify", "/v1/classify/batch"])
@pytest.mark.parametrize("query", ["target=2", "target=abc", "model=x", "score=most", "shape=1"])
def test_errors_name_the_parameter_that_is_wrong(server: httpx.Client, route: str, query: str) -> None:
    response = server.post(f"{route}?{query}", files={"file": b"RIFF"})
    assert problem(response, 422, "invalid-parameter")
    assert [error["parameter"] for error in response.json()["errors"]] == [query.partition("=")[0]]


def test_an_empty_file_in_a_form_is_refused(server: httpx.Client) -> None:
    response = server.post("/v1/classify", files={"file": ("empty.wav", b"")})
    assert "empty.wav" in problem(response, 422, "invalid-audio")


@pytest.mark.parametrize(
    ("method", "url", "status", "code"),
    [
        ("GET", "/nothing", 404, "not-found"),
        ("POST", "/v1", 404, "not-found"),
        ("GET", "/v1/models/nothing", 404, "not-found"),
        ("GET", "/page/../../../etc/passwd", 404, "not-found"),
        ("GET", "/page/%2e%2e/app.py", 404, "not-found"),
        ("GET", "/v1/classify", 405, "method-not-allowed"),
        ("DELETE", "/v1/models", 405, "method-not-allowed"),
        ("POST", "/health/live", 405, "method-not-allowed"),
        ("POST", "/", 405, "method-not-allowed"),
    ],
)
def test_a_path_or_method_that_there_is_not_gets_a_problem_too(
    server: httpx.Client, method: str, url: str, status: int, code: str
) -> None:
    response = server.request(method, url)
    problem(response, status, code)
    if status == 405:
        assert response.headers["Allow"]


# Models, health, metrics


def test_the_models_are_listed_with_what_can_be_asked_of_them(server: httpx.Client) -> None:
    (listed,) = server.get("/v1/models").json()["models"]
    assert listed == {
        "name": "tiny",
        "default": True,
        "labels": list(LABELS),
        "variant": "softmax",
        "score": "entropy",
        "targets": {"entropy": [0.99, 0.995, 0.999], "vacuity": [0.995]},
        "provider": "cpu",
        "in_browser": False,
    }


def test_a_model_is_described_by_its_own_metadata(server: httpx.Client, model: KeywordModel) -> None:
    described = server.get("/v1/models/tiny").json()
    metadata = json.loads(model.metadata.to_json())
    for field in ("labels", "front_end", "thresholds", "calibration", "training", "accuracy", "licence", "stream"):
        assert described[field] == metadata[field]


@pytest.mark.parametrize(("padding", "window"), [("same", 0.995), ("valid", 1.295)])
def test_a_description_says_how_a_stream_is_cut_and_decided(tmp_path: Path, padding: Any, window: float) -> None:
    model = save(tmp_path, metadata=replace(METADATA, padding=padding))
    with live_server(model) as server:
        described = server.get("/v1/models/tiny").json()
    assert (described["padding"], described["window"]) == (padding, window)
    assert described["decision"] == Spotter(KeywordModel.load(model)).settings.to_dict()


def test_without_thresholds_nothing_is_decided(tmp_path: Path) -> None:
    with live_server(save(tmp_path, metadata=replace(METADATA, thresholds={}, calibration={}))) as server:
        assert server.get("/v1/models/tiny").json()["decision"] is None


def test_the_model_for_the_page_asks_for_the_key_that_all_else_asks_for(tmp_path: Path) -> None:
    model = save(tmp_path)
    (tmp_path / "tiny.audio.onnx").write_bytes(b"the model with its front end")
    for name in RUNTIME:
        (tmp_path / name).touch()
    with live_server(model, browser=tmp_path, api_keys=(KEY,)) as server:
        problem(server.get("/browser/tiny.audio.onnx"), 401, "unauthorized")
        assert (
            server.get("/browser/tiny.audio.onnx", headers={"X-API-Key": KEY}).content
            == b"the model with its front end"
        )
        problem(server.get("/browser/other.audio.onnx", headers={"X-API-Key": KEY}), 404, "not-found")
    with live_server(model) as server:
        problem(server.get("/browser/tiny.audio.onnx"), 404, "not-found")


def test_of_the_folder_of_the_runtime_nothing_else_is_served(tmp_path: Path) -> None:
    model = save(tmp_path)
    (tmp_path / "tiny.audio.onnx").write_bytes(b"the model with its front end")
    (tmp_path / "private.txt").write_text("private")
    for name in RUNTIME:
        (tmp_path / name).write_text(name)
    with live_server(model, browser=tmp_path, api_keys=(KEY,)) as server:
        for name in RUNTIME:  # modules, whose imports cannot send a key
            answer = server.get(f"/browser/{name}")
            assert answer.text == name
            assert answer.headers["Cache-Control"] == "no-cache"
            again = server.get(f"/browser/{name}", headers={"If-None-Match": answer.headers["ETag"]})
            assert again.status_code == 304
            assert server.head(f"/browser/{name}").status_code == 200
        for path in ("private.txt", "/tiny.audio.onnx", "%2e/tiny.audio.onnx", "%2ftiny.audio.onnx", "tiny.onnx", ""):
            for headers in ({}, {"X-API-Key": KEY}):
                problem(server.get(f"/browser/{path}", headers=headers), 404, "not-found")


def test_a_provider_that_there_is_not_stops_the_server_only_where_that_was_asked_for(path: Path) -> None:
    given = {"models": (str(path),), "provider": "coreml"}
    with pytest.warns(RuntimeWarning, match="coreml"):
        (model,) = models_of(ServerSettings.load(**given)).values()
    assert model.provider == "cpu"
    with pytest.raises(ProviderError, match="coreml"):
        models_of(ServerSettings.load(**given, strict=True))


def test_health_says_what_runs(server: httpx.Client) -> None:
    assert server.get("/health/live").json() == {"status": "live"}
    ready = server.get("/health/ready").json()
    assert ready["providers"] == {"tiny": "cpu"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", ready["onnxruntime"])


@pytest.mark.parametrize("url", ["/", "/health/live", "/health/ready"])
def test_a_load_balancer_may_ask_for_the_head_alone(server: httpx.Client, url: str) -> None:
    answer = server.head(url)
    assert (answer.status_code, answer.content) == (200, b"")


def test_no_answer_may_be_taken_for_another_type_than_its_own(server: httpx.Client) -> None:
    for url in ("/", "/page/app.js", "/v1/models", "/metrics", "/nothing"):
        assert server.get(url).headers["X-Content-Type-Options"] == "nosniff"


def test_metrics_count_requests_and_answers(path: Path) -> None:
    with live_server(path) as server:
        server.get("/page/app.js")
        server.post("/v1/classify", content=wav(tone(TONES["low"])), headers=WAV)
        server.post("/v1/classify", content=wav(np.zeros(16_000)), headers=WAV)
        server.get("/nothing")
        text = server.get("/metrics").text
    assert 'kws_edge_predictions_total{model="tiny",outcome="accepted"} 1.0' in text
    assert 'kws_edge_predictions_total{model="tiny",outcome="silence"} 1.0' in text
    assert 'kws_edge_requests_total{method="POST",route="/v1/classify",status="200"} 2.0' in text
    assert 'kws_edge_requests_total{method="GET",route="unmatched",status="404"} 1.0' in text
    assert 'kws_edge_requests_total{method="GET",route="/page/*",status="200"} 1.0' in text


def test_a_request_keeps_the_id_that_it_came_with(server: httpx.Client) -> None:
    assert server.get("/health/live", headers={"X-Request-ID": "abc-1"}).headers["X-Request-ID"] == "abc-1"
    made = server.get("/health/live", headers={"X-Request-ID": "no spaces or {braces}"}).headers["X-Request-ID"]
    assert re.fullmatch(r"[0-9a-f]{32}", made)


# The description


def test_every_operation_is_described_with_its_problems(openapi: dict[str, Any]) -> None:
    operations = [o for path in openapi["paths"].values() for o in path.values()]
    assert len(operations) == 7
    for operation in operations:
        assert operation["description"]
        for status, response in operation["responses"].items():
            expected = "application/problem+json" if int(status) >= 400 else None
            assert expected is None or list(response["content"]) == [expected]


def test_the_examples_in_the_description_fit_its_schemas(openapi: dict[str, Any]) -> None:
    for schema in (schemas.Classified, schemas.ProblemDetails):
        (example,) = openapi["components"]["schemas"][schema.__name__]["examples"]
        schema.model_validate(example)


def test_whatever_comes_is_answered_as_described(path: Path) -> None:
    tool = shutil.which("schemathesis", path=Path(sys.executable).parent)
    if tool is None:
        pytest.skip("needs schemathesis: pip install schemathesis")
    with live_server(path) as server:
        options = ["--seed", "1", "--max-examples", "5", "--phases", "coverage,fuzzing"]
        # Random bytes agree with the description and are no audio, so that a refusal of them is in order.
        options += ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
        command = [tool, "run", f"{server.base_url}/openapi.json", *options]
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=path.parent, timeout=300)
    assert run.returncode == 0, run.stdout


def test_the_description_says_how_a_clip_can_be_sent(openapi: dict[str, Any]) -> None:
    body = openapi["paths"]["/v1/classify"]["post"]["requestBody"]["content"]
    assert set(body) == {"multipart/form-data", "audio/*", "application/octet-stream"}


def test_a_server_that_was_told_to_stop_is_alive_but_not_ready(path: Path) -> None:
    async def ask() -> tuple[httpx.Response, httpx.Response]:
        app = create_app(ServerSettings.load(models=(str(path),)))
        app.state.service.draining = True
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get("/health/live"), await client.get("/health/ready")

    live, ready = asyncio.run(ask())
    assert live.status_code == 200
    problem(ready, 503, "not-ready")

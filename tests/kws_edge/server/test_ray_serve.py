"""The deployment on Ray Serve: two replicas on this machine, over real HTTP and a real WebSocket."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from live_server import KEY, PATIENT, free_port
from made_audio import speech, tone, wav
from paths import ROOT
from tiny_model import TONES, save
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kws_edge.audio.sources import WavFile
from kws_edge.client import Client

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own
WORKER = {"PYTHONPATH": os.pathsep.join([str(ROOT)])}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where two replicas listen, with a key and a short limit on messages."""
    try:
        import ray
        from ray import serve

        from kws_edge.server.ray_serve import Deployment, build
    except ImportError as missing:
        pytest.skip(f"needs Ray Serve: pip install 'ray[serve]' ({missing})")
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {"MODELS": str(save(folder)), "API_KEYS": KEY, "MAX_MESSAGE": "4096"}.items():
            environment.setenv(f"KWS_EDGE_{name}", value)
        application = build(Deployment(replicas=2, cpus=0))
    port = free_port()
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": WORKER},
        _system_config={"worker_niceness": 0},  # or what else this machine does comes first
    )
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(application, name="kws-edge")
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


def test_both_replicas_answer_clips_and_streams_and_have_limits_of_their_own(url: str, tmp_path: Path) -> None:
    headers = {"X-API-Key": KEY}
    instances: set[str] = set()
    with httpx.Client(base_url=url, headers=headers, timeout=PATIENT) as http:
        while len(instances) < 2:
            instances.add(http.get("/health/ready").json()["instance"])
        for label, hertz in TONES.items():
            answer = http.post("/v1/classify", content=wav(tone(hertz)), headers={"Content-Type": "audio/wav"})
            assert answer.json()["label"] == label
        assert http.get("/v1/models", headers={"X-API-Key": "another"}).status_code == 401
        assert http.post("/v1/classify", files={"file": b"no audio"}).json()["type"].endswith(":invalid-audio")
        assert "kws_edge_requests_total" in http.get("/metrics").text
        assert "<title>kws-edge" in http.get("/").text

    heard: set[str] = set()
    while heard < instances:
        with connect(f"ws://{urlsplit(url).netloc}/v1/stream", additional_headers=headers) as ws:
            heard.add(json.loads(ws.recv(timeout=PATIENT))["instance"])
    assert heard == instances


def test_a_message_over_the_limit_ends_its_stream(url: str) -> None:
    with connect(f"ws://{urlsplit(url).netloc}/v1/stream", additional_headers={"X-API-Key": KEY}) as ws:
        ws.recv(timeout=PATIENT)
        ws.send(bytes(5000))
        assert json.loads(ws.recv(timeout=PATIENT))["problem"]["type"].endswith(":too-large")
        with pytest.raises(ConnectionClosed):
            ws.recv(timeout=PATIENT)
        assert ws.close_code == 1009


def test_a_recording_gives_its_words(url: str, tmp_path: Path) -> None:
    file = tmp_path / "words.wav"
    file.write_bytes(wav(speech()))
    with Client(url, key=KEY) as client:
        assert [event.label for event in client.listen(WavFile(file))] == ["high", "low"]

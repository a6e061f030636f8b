"""Modules of the page, in Node: what is said before a connection or a model is there, refusals, mixing of channels."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_server import KEY, live_server
from tiny_model import save

import kws_edge
from kws_edge.audio.load import load

PAGE = Path(kws_edge.__file__).parent / "server" / "page"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")

ONLINE = """
const sent = [];
globalThis.document = { baseURI: "http://localhost/" };
globalThis.WebSocket = class {
  static CONNECTING = 0; static OPEN = 1;
  constructor() { this.readyState = 0; this.bufferedAmount = 0; globalThis.socket = this; }
  send(data) {
    sent.push(typeof data === "string" ? JSON.parse(data) : data.byteLength);
    this.bufferedAmount += data.byteLength ?? data.length;
  }
};
const { Stream } = await import("./page/server.js");
const stream = new Stream("m", () => {}, () => {});
for (let i = 1; i <= 103; i++) stream.send(new ArrayBuffer(2 * i));
const before = sent.length;
socket.readyState = 1;
socket.onopen();
socket.bufferedAmount = 0; // it has gone out
stream.send(new ArrayBuffer(100));
console.log(JSON.stringify({ before, sent }));
"""

OFFLINE = """
const about = JSON.parse(process.argv[2]);
let loaded;
globalThis.fetch = async (path) => ({ ok: true, json: async () => about, arrayBuffer: async () => new ArrayBuffer(8) });
globalThis.whenLoaded = new Promise((resolve) => { loaded = resolve; });
const { Stream } = await import("./page/local.js");
const messages = [];
const stream = new Stream("m", (message) => messages.push(message), (why) => { console.error(why); process.exit(1); });
for (let i = 0; i < 30; i++) stream.send(new Int16Array(1600).buffer);
await new Promise((resolve) => setTimeout(resolve, 50));
const before = messages.length;
loaded();
const hops = () => messages.filter(({ type }) => type === "hop").length;
while (hops() < 30) await new Promise((resolve) => setTimeout(resolve, 5));
console.log(JSON.stringify({ before, types: messages.map(({ type }) => type), last: messages.at(-1).time }));
"""

MIX = """
const { mixed } = await import("./page/decode.js");
const { samples, warnings } = mixed(JSON.parse(process.argv[2]).map((channel) => Float32Array.from(channel)));
console.log(JSON.stringify({ samples: [...samples], warnings }));
"""

ANSWERED = """
const [status, body] = JSON.parse(process.argv[2]);
globalThis.fetch = async () => status ? new Response(body, { status }) : Promise.reject(new TypeError("fetch failed"));
const { models } = await import("./page/server.js");
console.log(JSON.stringify(await models().catch((error) => [error.code ?? null, error.message])));
"""

KEYED = """
const keys = [];
globalThis.document = { baseURI: "http://localhost/" };
globalThis.WebSocket = class {
  constructor(_, protocols) { keys.push(protocols.at(-1)); }
};
globalThis.fetch = async (_, { headers }) => {
  keys.push(headers.Authorization);
  return new Response('{"models": []}');
};
const { Stream, models, useKey } = await import("./page/server.js");
useKey(process.argv[2]);
await models();
new Stream("m", () => {}, () => {});
console.log(JSON.stringify(keys));
"""

UNCALIBRATED = """
globalThis.fetch = async () => new Response(process.argv[2]);
const { classify } = await import("./page/local.js");
console.log(JSON.stringify(await classify(new File([], "a.wav"), "tiny").catch((error) => error.message)));
"""

RUNTIME = """
export const env = { wasm: {} };
export class Tensor {}
export const InferenceSession = { create: async () => (await globalThis.whenLoaded, { run: async () => ({}) }) };
"""


def run(folder: Path, code: str, *arguments: str) -> Any:
    shutil.copytree(PAGE, folder / "page")  # which makes the folder
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "browser").mkdir()
    (folder / "browser" / "ort.wasm.min.mjs").write_text(RUNTIME)
    (folder / "run.js").write_text(code)
    done = subprocess.run(
        ["node", "run.js", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_said_while_the_connection_opens_is_sent_when_it_is_there(tmp_path: Path) -> None:
    found = run(tmp_path, ONLINE)
    early = [2 * i for i in range(1, 101)]  # no more than 10 s are kept
    assert found == {"before": 0, "sent": [*early, {"type": "gap", "samples": 101 + 102 + 103}, 100]}


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (401, '{"type": "urn:kws-edge:problem:unauthorized", "detail": "no key"}', ["unauthorized", "no key"]),
        (
            413,
            "<html>Request Entity Too Large</html>",
            [None, "Something before the server takes no file of that size."],
        ),
        (503, "All connections are taken.", [None, "The server is busy; try again later."]),
        (502, '"bad gateway"', [None, "Status 502 from something before the server."]),
        (0, "", [None, "The server cannot be reached."]),
    ],
    ids=["the server", "a proxy's limit", "plain text", "no problem", "nothing"],
)
def test_a_refusal_is_told_in_words_whoever_refuses(tmp_path: Path, status: int, body: str, told: list[Any]) -> None:
    assert run(tmp_path / "node", ANSWERED, json.dumps([status, body])) == told


def test_a_key_that_was_pasted_with_a_space_or_line_end_is_the_key(tmp_path: Path) -> None:
    assert run(tmp_path / "node", KEYED, f" {KEY}\n") == [f"Bearer {KEY}", f"kws-edge.key.{KEY}"]


def test_a_model_without_a_threshold_for_clips_says_so(tmp_path: Path) -> None:
    about = {"name": "tiny", "labels": ["a", "b"], "score": "entropy", "thresholds": {"entropy": [{"target": 0.99}]}}
    found = run(tmp_path / "node", UNCALIBRATED, json.dumps(about))
    assert found == "model tiny: no threshold for score 'entropy' at target 0.995"


def test_what_is_said_while_the_model_loads_is_looked_at_when_it_is_there(tmp_path: Path) -> None:
    with live_server(save(tmp_path)) as server:
        about = server.get("/v1/models/tiny").text
    found = run(tmp_path / "node", OFFLINE, about)
    assert found["before"] == 0
    assert found["types"][0] == "hello"
    assert found["types"].count("hop") == 30
    assert found["last"] == pytest.approx(3.0, abs=0.02)


TONE = 0.3 * np.sin(np.arange(1600) * 0.17)
OTHER = 0.3 * np.sin(np.arange(1600) * 0.29)


@pytest.mark.parametrize(
    "channels",
    [
        [TONE],
        [TONE, -TONE],
        [-0.5 * TONE, TONE],
        [TONE, -2 * TONE, 0 * TONE],
        [TONE + 0.3, -TONE - 0.3],
        [TONE, OTHER],
        [TONE, OTHER - 0.4 * TONE],
        [TONE + 0.3, TONE - 0.3],
        [TONE, 0 * TONE],
        [0 * TONE, 0 * TONE + 0.1],
        [TONE, np.where(np.arange(1600) == 800, 6e-4, 0)],
        [-TONE, TONE + OTHER / 9, 0 * TONE, 0.9 * TONE],
    ],
    ids=[
        "one", "opposite", "opposite and softer", "opposite and a silent one", "opposite with offsets", "unrelated",
        "somewhat opposite", "opposite offsets", "a silent one", "silence", "a click", "one of four opposite",
    ],
)  # fmt: skip
def test_channels_are_mixed_as_the_server_mixes_them(tmp_path: Path, channels: list[Any]) -> None:
    found = run(tmp_path / "node", MIX, json.dumps([channel.tolist() for channel in channels]))
    expected = load(np.stack(channels, axis=1).astype(np.float32), 16_000)
    assert found["samples"] == pytest.approx(expected.samples, abs=1e-6)
    assert found["warnings"] == list(expected.warnings)

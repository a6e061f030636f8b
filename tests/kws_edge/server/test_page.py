"""The page in a real Chromium, whose microphone is a recording: it listens, answers, explains, and keeps to itself."""

import base64
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
import soxr
from chromium import Page, chromium
from live_server import KEY, live_server, wait_for
from made_audio import speech, tone, wav
from tiny_model import METADATA, TONES, save

import kws_edge
from kws_edge import KeywordModel
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.server.settings import RUNTIME
from kws_edge.stream.decision import Decision
from kws_edge.stream.framing import DEFAULT_HOP, HopStream, window_seconds
from kws_edge.stream.settings import StreamSettings

GET_USER_MEDIA = "navigator.mediaDevices.getUserMedia"
MARKS = "[...document.querySelectorAll('.limit:not([hidden])')]"
CLICK = "document.querySelector('#microphone').click()"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("chromium")
    microphone = folder / "microphone.wav"
    microphone.write_bytes(wav(soxr.resample(speech().astype(np.float32) / 32768, 16_000, 48_000), 48_000))
    with chromium(folder / "profile", microphone) as page:
        yield page


@pytest.fixture
def page(server: httpx.Client, browser: Page) -> Page:
    browser.requests.clear()
    browser.complaints.clear()
    browser.look(1200, 850, "light")
    browser.open(str(server.base_url))
    return browser


def test_it_listens_and_writes_down_each_word(page: Page) -> None:
    page.js(CLICK)
    said = "[...document.querySelectorAll('#log .word')].map((e) => e.innerText).reverse().join()"
    page.wait(f"{said}.includes('high,low')")  # the recording repeats: a busy machine may lose some of it
    page.js(CLICK)
    assert page.text("#state") == "The microphone is off."
    assert page.complaints == []


@pytest.mark.parametrize(("wake", "heard"), [("high", {"high", "low"}), ("low", {"low"})])
def test_with_a_wake_word_commands_count_only_after_it(page: Page, wake: str, heard: set[str]) -> None:
    page.js(f"document.querySelector('#wake').value = JSON.stringify({{wake: '{wake}', wake_model: 'tiny'}})")
    page.js(CLICK)
    page.wait(f"document.querySelector('#state').innerText === 'Waiting for \"{wake}\".'")
    page.wait("document.querySelector('#state').innerText === 'Awake: say a command.'")
    words = "[...document.querySelectorAll('#log .word')].map((e) => e.innerText)"
    page.wait(f"{words}.filter((word) => word === '{wake}').length > 1")  # between the two all was said once
    page.js(CLICK)
    assert set(page.js(words)) == heard


def test_with_a_wake_word_the_state_is_told_when_it_changes_not_with_every_hop(page: Page) -> None:
    page.js("document.querySelector('#wake').value = JSON.stringify({wake: 'high', wake_model: 'tiny'})")
    page.js("window.told = []")
    page.js(
        "new MutationObserver(() => told.push(document.querySelector('#state').textContent))"
        ".observe(document.querySelector('#state'), {childList: true})"
    )
    page.js(CLICK)
    page.wait("document.querySelector('#state').innerText === 'Awake: say a command.'")
    page.js(CLICK)
    told = page.js("told")
    assert all(a != b for a, b in pairwise(told))
    assert told[:2] == ["Connecting.", 'Waiting for "high".']


def test_starting_by_keyboard_leaves_the_focus_where_it_is(page: Page) -> None:
    page.js("document.querySelector('#microphone').focus()")
    page.js(CLICK)
    page.wait("document.querySelector('#microphone').getAttribute('aria-pressed') === 'true'")
    assert page.js("document.activeElement.id") == "microphone"
    page.js(CLICK)


def test_while_it_listens_it_shows_what_the_model_sees(page: Page, server: httpx.Client) -> None:
    page.js(CLICK)
    shares = "[...document.querySelectorAll('#bars .fill')].map((e) => +e.style.getPropertyValue('--share'))"
    page.wait(f"Math.max(...{shares}) > 0.9")
    assert "threshold 0.500" in page.text("#entropy .value")
    assert page.js("document.querySelector('#microphone').getAttribute('aria-pressed')") == "true"
    page.js(CLICK)
    page.wait("document.querySelector('#microphone').getAttribute('aria-pressed') === 'false'")
    wait_for(lambda: server.get("/health/ready").json()["streams"] == 0)


def test_the_mark_is_at_the_threshold_before_anything_is_heard(page: Page, model: KeywordModel) -> None:
    page.wait(f"{MARKS}.length === 1")
    ((score, threshold),) = StreamSettings.of(model.metadata).thresholds.items()
    assert page.text(f"#{score} .value") == f"–, threshold {threshold:.3f}"
    assert page.js(f"{MARKS}.map((e) => +e.style.getPropertyValue('--limit'))") == [pytest.approx(threshold)]
    assert page.js("document.querySelectorAll('.meter.over').length") == 0


def test_a_file_is_answered_as_by_the_api(page: Page, server: httpx.Client, tmp_path: Path) -> None:
    file = tmp_path / "clip.wav"
    file.write_bytes(wav(tone(TONES["mid"])))
    answer = server.post("/v1/classify", files={"file": file.read_bytes()}).json()
    page.upload("#file", file)
    page.wait("document.querySelectorAll('#answers li').length === 1")
    assert page.text("#answers .word") == answer["label"] == "mid"
    assert f"entropy {answer['entropy']:.3f}" in page.text("#answers .detail")
    shown = page.js("[...document.querySelectorAll('#bars .fill')].map((e) => +e.style.getPropertyValue('--share'))")
    assert shown == pytest.approx(np.array(answer["alpha"]) / np.sum(answer["alpha"]), abs=1e-3)


def test_what_it_is_not_sure_of_and_what_it_cannot_read_is_said(page: Page, tmp_path: Path) -> None:
    (tmp_path / "noise.wav").write_bytes(wav(np.random.default_rng(1).normal(0, 0.1, 16_000)))
    (tmp_path / "<img src=x onerror=alert(1)>.wav").write_bytes(b"no audio")
    page.upload("#file", *sorted(tmp_path.iterdir()))
    page.wait("document.querySelectorAll('#answers li').length === 2")
    assert page.text("#answers .unsure .word").startswith("not sure (uncertain), best guess")
    assert "<img src=x onerror=alert(1)>.wav: not readable as audio" in page.text("#answers .failed")
    assert page.js("document.querySelectorAll('img').length") == 0


def test_it_asks_for_a_key_where_one_is_needed(path: Path, browser: Page) -> None:
    with live_server(path, api_keys=(KEY,)) as server:
        browser.call("Page.navigate", url=str(server.base_url))
        browser.wait("document.querySelector('#key-form') && !document.querySelector('#key-form').hidden")
        assert browser.text("#problem") == "This server asks for an API key."
        assert browser.text("#state") == "Listening needs the API key."
        controls = "['#microphone', '#file'].map((id) => document.querySelector(id).disabled)"
        assert browser.js(controls) == [True, True]
        assert browser.js(f"{MARKS}.length") == 0
        browser.js(
            f"document.querySelector('#key').value = {KEY!r}; document.querySelector('#key-form button').click()"
        )
        browser.wait("document.querySelectorAll('#bars li').length === 3")
        assert browser.js(controls) == [False, False]
        assert browser.text("#state") == "The microphone is off."
        browser.js(CLICK)
        browser.wait("document.querySelectorAll('#log li').length >= 1")
        browser.js(CLICK)
        assert KEY not in " ".join(browser.requests)


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (f"{GET_USER_MEDIA} = async () => {{ throw new DOMException('', 'NotAllowedError') }}", "not allowed"),
        (f"{GET_USER_MEDIA} = async () => {{ throw new DOMException('gone', 'NotFoundError') }}", "gone"),
        ("Object.defineProperty(navigator, 'mediaDevices', { value: undefined })", "https or from localhost"),
    ],
    ids=["denied", "no device", "not a secure page"],
)  # fmt: skip
def test_a_microphone_that_cannot_be_had_is_explained(page: Page, break_it: str, said: str) -> None:
    page.js(f"{{ {break_it} }}")
    page.js(CLICK)
    page.wait("!document.querySelector('#problem').hidden")
    assert said in page.text("#problem")
    assert page.text("#microphone") == "Start listening"


@pytest.mark.parametrize(
    "break_it",
    [
        "WebSocket = class { constructor() { throw new Error('it cannot be') } }",
        "AudioWorklet.prototype.addModule = async () => { throw new Error('it cannot be') }",
    ],
    ids=["no stream", "no worklet"],
)
def test_a_microphone_that_is_of_no_use_is_turned_off_again(page: Page, break_it: str) -> None:
    page.js(
        f"""{{ {break_it}; const open = {GET_USER_MEDIA}.bind(navigator.mediaDevices);
        {GET_USER_MEDIA} = async (what) => (window.opened = await open(what)); }}"""
    )
    page.js(CLICK)
    page.wait("!document.querySelector('#problem').hidden")
    assert page.text("#problem") == "it cannot be"
    assert page.js("opened.getTracks().map((track) => track.readyState)") == ["ended"]


def test_that_the_server_is_behind_is_said_for_as_long_as_it_is(page: Page) -> None:
    page.js(
        """window.WebSocket = class {
            constructor() { window.fake = this; this.readyState = 1; this.bufferedAmount = 0; }
            send() {}
            close() {}
            say(message) { this.onmessage({ data: JSON.stringify(message) }); }
        }; WebSocket.CONNECTING = 0; WebSocket.OPEN = 1"""
    )
    page.js(CLICK)
    page.wait("!!window.fake?.onmessage")
    page.wait("document.querySelector('#state').innerText === 'Connecting.'")
    page.js("fake.say({ type: 'hello', thresholds: {} })")
    page.js("fake.say({ type: 'slow', lag: 3.2 })")
    hop = {"type": "hop", "time": 1, "state": "silence", "level": -60, "probability": [0.2, 0.3, 0.5]}
    say = f"fake.say({json.dumps({**hop, 'entropy': 1, 'vacuity': 1})})"
    page.js(say)
    assert page.text("#problem") == "The server is 3 s behind."
    page.js("{ const now = performance.now() + 5000; performance.now = () => now; }")
    page.js(say)
    assert page.js("document.querySelector('#problem').hidden")
    page.js(CLICK)


def test_a_server_that_goes_away_is_said(path: Path, browser: Page) -> None:
    with live_server(path) as server:
        browser.open(str(server.base_url))
        browser.js(CLICK)
        browser.wait("document.querySelector('#state').innerText.startsWith('Listening')")
    browser.wait("!document.querySelector('#problem').hidden")
    assert browser.text("#problem") == "the server is stopping; connect again"
    assert browser.text("#microphone") == "Start listening"


def test_nothing_is_asked_of_any_other_host(page: Page, server: httpx.Client) -> None:
    assert {urlsplit(url).netloc for url in page.requests} == {server.base_url.netloc.decode()}
    assert page.complaints == []


def test_another_page_cannot_frame_or_script_it(server: httpx.Client) -> None:
    policy = server.get("/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy
    assert server.get("/page/app.js").headers["Content-Security-Policy"] == policy


def test_on_a_phone_what_was_heard_comes_before_the_bars(page: Page) -> None:
    page.look(320, 800, "light")
    tops = [page.js(f"document.querySelector('{part}').getBoundingClientRect().top") for part in ("#log", "#bars")]
    assert tops == sorted(tops)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1200])
def test_it_fits_and_can_be_read(page: Page, width: int, scheme: str, tmp_path: Path) -> None:
    page.look(width, 800, scheme)
    (tmp_path / "a very long name without any space in it at all_____________________________.wav").write_bytes(b"-")
    (tmp_path / "noise.wav").write_bytes(wav(np.random.default_rng(1).normal(0, 0.1, 16_000)))
    page.upload("#file", *sorted(tmp_path.iterdir()))
    page.wait("document.querySelectorAll('#answers li').length === 2")
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    pairs = page.js(
        """[...document.querySelectorAll("body *")].filter((e) => e.innerText?.trim() && e.offsetParent).map((e) => {
            let behind = e;
            while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
            return [getComputedStyle(e).color, getComputedStyle(behind).backgroundColor];
        })"""
    )
    assert min(contrast(*pair) for pair in pairs) >= 4.5  # WCAG 2.2, AA


def contrast(*colours: str) -> float:
    def luminance(colour: str) -> float:
        rgb = np.array(json.loads(colour.replace("rgb(", "[").replace(")", "]"))) / 255
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted(map(luminance, colours))
    return (high + 0.05) / (low + 0.05)


def test_every_control_has_a_name_and_can_be_reached_by_keyboard(page: Page) -> None:
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    controls = [n for n in nodes if n["role"]["value"] in ("button", "combobox", "textbox", "link", "log", "list")]
    names = [node["name"]["value"].strip() for node in controls]
    assert all(names)
    assert {"Start listening", "Model", "Wake word", "Heard", "Probability of each word"} <= set(names)
    for key in ("keyDown", "keyUp") * 3:  # past the model and the wake word
        page.call("Input.dispatchKeyEvent", type=key, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert page.js("document.activeElement.id") == "microphone"


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100, 48_000, 96_000])
@pytest.mark.parametrize("chunk", [1, 128, 5000])
def test_the_browser_resamples_as_well_as_the_server(page: Page, rate: int, chunk: int) -> None:
    def resampled(hertz: float) -> np.ndarray:
        script = f"""import("/page/resampler.js").then(({{ Resampler }}) => {{
            const input = Float32Array.from({{ length: {rate} / 4 }}, (_, i) => Math.sin(2 * Math.PI * {hertz} * i / {rate}));
            const resampler = new Resampler({rate});
            const output = [];
            for (let i = 0; i < input.length; i += {chunk}) output.push(...resampler.push(input.subarray(i, i + {chunk})));
            return output;
        }})"""  # noqa: E501
        return np.array(page.js(script))

    tone_at = 1000
    output = resampled(tone_at)
    assert len(output) == pytest.approx(4000, abs=200)  # the filter holds back 6 ms, of 8 kHz 12
    time = np.arange(len(output)) / 16_000
    middle = slice(200, -200)
    assert output[middle] == pytest.approx(np.sin(2 * np.pi * tone_at * time)[middle], abs=2e-3)
    if rate > 32_000:
        assert np.abs(resampled(15_000)[middle]).max() < 10 ** (-60 / 20)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (StreamSettings({"entropy": 0.5}), None),
        (StreamSettings({"vacuity": 0.4, "entropy": 0.6}, {"mid": {"entropy": 0.3}}, 0.5, 0.5, 0.1, 0.5, 0.3), None),
        (StreamSettings({"entropy": 0.6}, smoothing=0.1, crowding=3.0), None),
        (StreamSettings({"vacuity": 0.7}, smoothing=0.0, hysteresis=0.0, rearm=0.0, refractory=0.0), None),
        (StreamSettings({"entropy": 0.3}), ["low"]),
    ],
    ids=["as calibrated on clips", "everything set", "crowded", "nothing held back", "calibrated for one word"],
)
def test_the_page_cuts_and_decides_a_stream_as_the_package_does(
    page: Page, padding: Literal["same", "valid"], settings: StreamSettings, words: list[str] | None
) -> None:
    """The network of this test says what chance says, in runs, so that words, abstentions and repeats all come."""
    labels = ("low", "mid", "_unknown_")
    metadata, rng = replace(METADATA, labels=labels, padding=padding), np.random.default_rng(7)
    levels = np.tile([1e-4, 0.1], 40) * rng.choice([1, 20], 80, p=[0.8, 0.2])
    bursts = np.repeat(levels, rng.integers(1_600, 24_000, 80))
    samples = np.clip(rng.normal(0, bursts), -1, 1).astype(np.float32)
    gap_at, gap = 200_123, 8_000
    spread = rng.choice([0.3, 0.7, 3], (200, 1), p=[0.4, 0.4, 0.2])
    alphas = np.repeat(np.exp(rng.normal(0, spread, (200, len(labels)))), 4, axis=0) / 4
    alphas = alphas.astype(np.float32)
    vacuities = len(labels) / (alphas.sum(axis=1) + len(labels))

    stream, decision = HopStream(metadata), Decision(metadata, settings, DEFAULT_HOP, words)
    hops = list(stream.push(samples[:gap_at]))
    before = len(hops)
    stream.gap(gap)
    hops += stream.push(samples[gap_at:])
    expected: list[list[Any]] = []
    nothing = np.ones((1, len(labels)), np.float32), np.ones(1, np.float32)
    for i, hop in enumerate(hops):
        output = alphas[i : i + 1], vacuities[i : i + 1]
        if i == before:
            decision.gap(gap / SAMPLE_RATE)
        events = decision.step_one(hop, *(output if hop.frames is not None else nothing))
        told = [[e.label, e.guess, e.reason, e.start, e.end, e.probability, e.vacuity, e.entropy] for e in events]
        expected.append([hop.time, hop.level, hop.noise, hop.clipped, hop.frames is not None, told])

    about = {"labels": labels, "window": window_seconds(metadata), "decision": settings.to_dict()}
    about["stream"] = {"calibration": {"words_chosen": words}}
    found = page.js(
        f"""Promise.all([import("/page/hops.js"), import("/page/decision.js")]).then(([hops, {{ Decision }}]) => {{
            const bytes = atob({base64.b64encode(samples.tobytes()).decode()!r});
            const samples = new Float32Array(Uint8Array.from(bytes, (c) => c.charCodeAt(0)).buffer);
            const about = {json.dumps(about)};
            const alphas = {json.dumps(alphas.tolist())};
            const vacuities = {json.dumps(vacuities.tolist())};
            const stream = new hops.HopStream(Math.round(about.window * 16000));
            const decision = new Decision(about);
            const found = [];
            const take = (part) => {{
                for (const hop of stream.push(part)) {{
                    const sum = alphas[found.length].reduce((a, b) => a + b);
                    const p = alphas[found.length].map((a) => a / sum);
                    const {{ events }} = decision.step(hop, hop.window && {{ p, vacuity: vacuities[found.length] }});
                    const told = events.map((e) =>
                        [e.label, e.guess, e.reason, e.start, e.end, e.probability, e.vacuity, e.entropy]);
                    found.push([hop.time, hop.level, hop.noise, hop.clipped, hop.window !== null, told]);
                }}
            }};
            for (let i = 0; i < {gap_at}; i += 1000) take(samples.subarray(i, Math.min({gap_at}, i + 1000)));
            stream.gap({gap});
            decision.gap({gap} / {SAMPLE_RATE});
            take(samples.subarray({gap_at}));
            return found;
        }})"""
    )
    said = [event for *_, told in expected for event in told]
    assert {reason for _, _, reason, *_ in said} > {None}
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[:3] == pytest.approx(theirs[:3], abs=1e-3)
        assert ours[3:5] == theirs[3:5]
        assert [event[:3] for event in ours[5]] == [event[:3] for event in theirs[5]]
        assert [event[3:] for event in ours[5]] == [pytest.approx(event[3:], abs=1e-3) for event in theirs[5]]


def test_the_model_can_be_chosen(path: Path, browser: Page, tmp_path: Path) -> None:
    other = save(tmp_path, "other")
    with live_server(path, other) as server:
        browser.open(str(server.base_url))
        assert browser.js("[...document.querySelector('#model').options].map((o) => o.value)") == ["tiny", "other"]
        browser.js("document.querySelector('#model').value = 'other'")
        browser.js("document.querySelector('#model').dispatchEvent(new Event('change'))")
        (tmp_path / "clip.wav").write_bytes(wav(tone(TONES["low"])))
        browser.upload("#file", tmp_path / "clip.wav")
        browser.wait("document.querySelectorAll('#answers li').length === 1")
        assert any("model=other" in url for url in browser.requests)
        assert browser.text("#answers .word") == "low"


# The mode that runs in the browser


@pytest.fixture(scope="module")
def in_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server of shipped models whose page has onnxruntime-web."""
    runtime = os.environ.get("KWS_EDGE_ORT_WEB")
    if not runtime:
        pytest.skip("needs onnxruntime-web, as in docs/how-to/serve.md, and KWS_EDGE_ORT_WEB set to its dist folder")
    folder = tmp_path_factory.mktemp("browser")
    for name in RUNTIME:
        shutil.copy(Path(runtime) / name, folder)
    with live_server(*map(Path, BOTH_MODES), browser=folder) as client:
        yield client


BOTH_MODES = ("stream", "softmax")
"""Models with and without padding, in windows of a second and of all that the network takes in."""

SAMPLES = Path(kws_edge.__file__).parent / "samples"


def local(script: str) -> str:
    """A script with what the two modes are made of, `local` and `server`."""
    modules = "Promise.all([import('/page/local.js'), import('/page/server.js')])"
    return f"{modules}.then(async ([local, server]) => {{ {script} }})"


def clips() -> dict[str, bytes]:
    rng = np.random.default_rng(5)
    word = load(SAMPLES / "yes.flac").samples
    cut_off = 0.001 * np.random.default_rng(5).normal(size=32_000)
    cut_off[8000:17_700] += load(SAMPLES / "happy.flac").samples[:9700]
    return {
        "a word": wav(word),
        "another": wav(load(SAMPLES / "left.flac").samples),
        "a stream": wav(load(SAMPLES / "demo.flac").samples),
        "noise": wav(rng.normal(0, 0.1, 16_000)),
        "short": wav(word[4000:9000]),
        "one frame": wav(word[4000:4400]),
        "a window of the stream": wav(rng.normal(0, 0.1, 20_720)),
        "the longest window": wav(rng.normal(0, 0.1, 20_879)),
        "the shortest that is searched": wav(np.concatenate([rng.normal(0, 0.01, 4_880), word])),
        "long": wav(np.concatenate([word, rng.normal(0, 0.01, 30_001)])),
        "withheld by the threshold of streams": wav(cut_off),
        "right channel only": wav(np.stack([np.zeros_like(word), word], axis=1)),
        "opposite channels": wav(np.stack([word, -word], axis=1)),
        "48 kHz": wav(soxr.resample(word, 16_000, 48_000), 48_000),
        "44.1 kHz, FLAC": wav(soxr.resample(word, 16_000, 44_100), 44_100, container="FLAC"),
        "8 kHz": wav(soxr.resample(word, 16_000, 8_000), 8_000),
        "clipped": wav(np.clip(rng.normal(0, 2, 16_000), -1, 1)),
        "silence": wav(np.zeros(16_000)),
    }


@pytest.mark.parametrize("name", BOTH_MODES)
def test_a_file_gets_the_same_answer_in_both_modes(in_browser: httpx.Client, browser: Page, name: str) -> None:
    browser.open(str(in_browser.base_url))
    for kind, clip in clips().items():
        parameters = {"model": name}
        response = in_browser.post(
            "/v1/classify", params=parameters, content=clip, headers={"Content-Type": "audio/wav"}
        )
        expected = response.json()
        data = base64.b64encode(clip).decode()
        found = browser.js(
            local(
                f"""const bytes = Uint8Array.from(atob({data!r}), (c) => c.charCodeAt(0));
                return local.classify(new File([bytes], "clip.wav"), {name!r});"""
            )
        )
        for field in ("label", "guess", "reason", "score", "threshold"):
            assert found[field] == expected[field], kind
        # Chromium divides what is above 0 by 32767, so that opposite channels do not cancel each other to the last bit.
        assert [re.sub(r"\d+ dB", "", line) for line in found["warnings"]] == [
            re.sub(r"\d+ dB", "", line) for line in expected["warnings"]
        ], kind
        for field in ("start", "end", "seconds", "probability", "entropy", "vacuity"):
            assert found[field] == pytest.approx(expected[field], abs=1e-3), kind
        probabilities = (np.array(answer["alpha"]) / np.sum(answer["alpha"]) for answer in (found, expected))
        assert next(probabilities) == pytest.approx(next(probabilities), abs=1e-3), kind


@pytest.mark.parametrize("name", BOTH_MODES)
def test_a_stream_gets_the_same_answers_in_both_modes(in_browser: httpx.Client, browser: Page, name: str) -> None:
    browser.open(str(in_browser.base_url))
    pcm = (load(SAMPLES / "demo.flac").samples * 32767).astype("<i2").tobytes()
    expected, found = (
        browser.js(
            local(
                f"""const bytes = Uint8Array.from(atob({base64.b64encode(pcm).decode()!r}), (c) => c.charCodeAt(0));
                const messages = [];
                let next;
                const came = (message) => {{
                    messages.push(message);
                    if (message.type !== "event") next();
                }};
                const stream = new {where}.Stream({name!r}, came, (why) => came({{ why }}));
                await new Promise((resolve) => (next = resolve));
                for (let i = 0; i + 3200 <= bytes.length; i += 3200) {{
                    stream.send(bytes.slice(i, i + 3200).buffer);
                    await new Promise((resolve) => (next = resolve)); // for its hop
                }}
                stream.close();
                return messages;"""
            )
        )
        for where in ("server", "local")
    )
    assert found[0]["thresholds"] == expected[0]["thresholds"]
    assert found[0]["window"] == expected[0]["window"]
    assert len(found) == len(expected) > 140
    assert sum(message["type"] == "event" for message in expected) >= 4
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        for field in ours:
            is_text = isinstance(theirs[field], str | None)
            assert ours[field] == (theirs[field] if is_text else pytest.approx(theirs[field], abs=1e-3)), field


def test_in_the_browser_no_audio_leaves_the_machine(in_browser: httpx.Client, browser: Page, tmp_path: Path) -> None:
    browser.complaints.clear()
    browser.open(str(in_browser.base_url))
    browser.js("document.querySelector('#local').click()")
    assert "audio stays on this machine" in browser.text("footer")
    browser.requests.clear()
    (tmp_path / "clip.wav").write_bytes(wav(tone(TONES["low"])))
    browser.upload("#file", tmp_path / "clip.wav")
    browser.wait("document.querySelectorAll('#answers li').length === 1")
    browser.js(CLICK)
    browser.wait("document.querySelector('#state').innerText.startsWith('Listening')")
    browser.js(CLICK)
    paths = {urlsplit(url).path for url in browser.requests}
    assert "/browser/stream.audio.onnx" in paths
    assert not any(path.startswith(("/v1/classify", "/v1/stream")) for path in paths)
    assert browser.complaints == []


def test_without_the_runtime_the_mode_is_not_offered(page: Page) -> None:
    assert page.js("document.querySelector('#local-label').hidden")

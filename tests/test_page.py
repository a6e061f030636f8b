"""The page in a real Chromium, whose microphone is a recording: it listens, answers, explains, and keeps to itself."""

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
import soxr
from chromium import Page, chromium
from live_server import KEY, live_server
from test_server import tone, wav
from test_server_stream import speech
from tiny_model import LABELS, METADATA, TONES, save

GET_USER_MEDIA = "navigator.mediaDevices.getUserMedia"
CLICK = "document.querySelector('#microphone').click()"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[httpx.Client]:
    with live_server(path) as client:
        yield client


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
    page.wait("document.querySelectorAll('#log li').length >= 2", 30)
    page.js(CLICK)
    said = page.js("[...document.querySelectorAll('#log .word')].map((e) => e.innerText).reverse()")
    assert said[:2] == ["high", "low"]
    assert page.text("#state") == "The microphone is off."
    assert page.complaints == []


def test_while_it_listens_it_shows_what_the_model_sees(page: Page, server: httpx.Client) -> None:
    page.js(CLICK)
    shares = "[...document.querySelectorAll('#bars .fill')].map((e) => +e.style.getPropertyValue('--share'))"
    page.wait(f"Math.max(...{shares}) > 0.9", 30)
    assert "threshold 0.500" in page.text("#entropy .value")
    assert page.js("document.querySelector('#microphone').getAttribute('aria-pressed')") == "true"
    page.js(CLICK)
    page.wait("document.querySelector('#microphone').getAttribute('aria-pressed') === 'false'")
    for _ in range(100):
        if not server.get("/health/ready").json()["streams"]:
            break
    assert server.get("/health/ready").json()["streams"] == 0


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
    assert page.text("#answers .unsure .word").startswith("not sure (uncertain), perhaps")
    assert "<img src=x onerror=alert(1)>.wav: not readable as audio" in page.text("#answers .failed")
    assert page.js("document.querySelectorAll('img').length") == 0


def test_it_asks_for_a_key_where_one_is_needed(path: Path, browser: Page) -> None:
    with live_server(path, api_keys=(KEY,)) as server:
        browser.call("Page.navigate", url=str(server.base_url))
        browser.wait("document.querySelector('#key-form') && !document.querySelector('#key-form').hidden")
        assert browser.text("#problem") == "This server asks for an API key."
        browser.js(
            f"document.querySelector('#key').value = {KEY!r}; document.querySelector('#key-form button').click()"
        )
        browser.wait("document.querySelectorAll('#bars li').length === 3")
        browser.js(CLICK)
        browser.wait("document.querySelectorAll('#log li').length >= 1", 30)
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


def test_a_server_that_goes_away_is_said(path: Path, browser: Page) -> None:
    with live_server(path) as server:
        browser.open(str(server.base_url))
        browser.js(CLICK)
        browser.wait("document.querySelector('#state').innerText.startsWith('Listening')", 30)
    browser.wait("!document.querySelector('#problem').hidden")
    assert browser.text("#problem") == "the server stops; connect again"
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
    names = [node["name"]["value"] for node in controls]
    assert all(names)
    assert {"Start listening", "Model", "Heard", "Probability of each word"} <= set(names)
    for key in ("keyDown", "keyUp", "keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=key, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert page.js("document.activeElement.id") == "microphone"


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100, 48_000, 96_000])
@pytest.mark.parametrize("chunk", [1, 128, 5000])
def test_the_browser_resamples_as_well_as_the_server(page: Page, rate: int, chunk: int) -> None:  # case 3
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
    assert len(output) == pytest.approx(4000, abs=60)  # the filter holds back up to 3 ms
    time = np.arange(len(output)) / 16_000
    middle = slice(200, -200)
    assert output[middle] == pytest.approx(np.sin(2 * np.pi * tone_at * time)[middle], abs=2e-3)
    if rate > 32_000:
        assert np.abs(resampled(15_000)[middle]).max() < 10 ** (-60 / 20)


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
    """A server whose page has onnxruntime-web, and a network with random weights, with and without its front end."""
    runtime = os.environ.get("KWS_EDGE_ORT_WEB")
    if not runtime:
        pytest.skip("needs onnxruntime-web: npm pack onnxruntime-web, and KWS_EDGE_ORT_WEB set to its dist folder")
    import torch

    from kws_export.network import MatchboxNet
    from kws_export.onnx_export import build_model, save_model

    torch.manual_seed(0)
    network, folder = MatchboxNet(len(LABELS)), tmp_path_factory.mktemp("browser")
    for name in ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"):
        shutil.copy(Path(runtime) / name, folder)
    save_model(build_model(network, METADATA, with_front_end=True), folder / "tiny.onnx")
    save_model(build_model(network, METADATA), folder / "served.onnx")
    with live_server(folder / "served.onnx", browser=folder) as client:
        yield client


def test_both_modes_give_the_same_answer(in_browser: httpx.Client, browser: Page) -> None:
    rng = np.random.default_rng(5)
    stereo = np.stack([np.zeros(16_000), tone(TONES["high"])], axis=1)
    clips = {
        "a word": wav(tone(TONES["low"])),
        "noise": wav(rng.normal(0, 0.1, 16_000)),
        "short": wav(tone(TONES["mid"], 0.3)),
        "the longest window": wav(rng.normal(0, 0.1, 20_879)),
        "long": wav(np.concatenate([tone(TONES["mid"]), rng.normal(0, 0.1, 30_001)])),
        "right channel only": wav(stereo),
        "silence": wav(np.zeros(16_000)),
    }
    browser.open(str(in_browser.base_url))
    for name, clip in clips.items():
        expected = in_browser.post("/v1/classify", content=clip, headers={"Content-Type": "audio/wav"}).json()
        found = browser.js(
            f"""import("/page/local.js").then(({{ classify }}) => {{
                const bytes = Uint8Array.from(atob({base64.b64encode(clip).decode()!r}), (c) => c.charCodeAt(0));
                return classify(new File([bytes], "clip.wav"), "tiny");
            }})"""
        )
        for field in ("label", "guess", "reason", "score", "threshold"):
            assert found[field] == expected[field], name
        for field in ("start", "end", "seconds", "probability", "entropy"):
            assert found[field] == pytest.approx(expected[field], abs=1e-3), name
        if expected["guess"]:
            assert found["alpha"] == pytest.approx(expected["alpha"], rel=1e-3), name


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
    assert "/browser/tiny.onnx" in paths
    assert not any(path.startswith(("/v1/classify", "/v1/stream")) for path in paths)
    assert browser.complaints == []


def test_without_the_runtime_the_mode_is_not_offered(page: Page) -> None:
    assert page.js("document.querySelector('#local-label').hidden")

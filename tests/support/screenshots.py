"""Screenshots of the server's page for docs/how-to/serve.md, from a real Chromium whose microphone is a recording.

    apt-get install chromium; pip install pillow
    python tests/support/screenshots.py

The recordings are those of the tests (KWS_EDGE_DATA): words are said to the page, and one that the model does not know.
"""

import base64
import io
import os
import tempfile
from pathlib import Path

import numpy as np
import soundfile
import soxr
from chromium import Page, chromium
from live_server import live_server
from paths import ROOT
from PIL import Image

from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load

DATA = Path(os.environ.get("KWS_EDGE_DATA", ROOT.parent / "shared" / "data")) / "speech_commands"
IMAGES = ROOT / "docs" / "images"
MODEL = ROOT / "models" / "stream.onnx"
SIZES = {"desktop": (1200, 890), "phone": (390, 844)}
WORDS = ("yes", "house", "left", "stop")
COLOURS = 128  # so that an image is small, and looks the same


def clip(word: str, number: int) -> np.ndarray:
    return load(sorted((DATA / word).iterdir())[number]).samples


def said() -> np.ndarray:
    """A clip of each word with pauses around them, float32 [n] at 48 kHz, as a microphone in Chromium has it."""
    pause = np.random.default_rng(0).normal(0, 1e-3, SAMPLE_RATE)
    parts = [pause, *(part for word in WORDS for part in (clip(word, 1), pause))]
    return soxr.resample(np.concatenate(parts).astype(np.float32), SAMPLE_RATE, 48_000)


def shoot(page: Page, url: str, clips: list[Path]) -> None:
    """Each size in light and dark, while the page listens, after some files and words."""
    for name, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            page.look(width, height, scheme)
            page.open(url)
            page.upload("#file", *clips)
            page.wait(f"document.querySelectorAll('#answers li').length === {len(clips)}")
            page.js("document.querySelector('#microphone').click()")
            page.wait("document.querySelectorAll('#log li').length >= 4", 90)
            shot = page.call(
                "Page.captureScreenshot", clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
            )
            image = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
            image.quantize(COLOURS, dither=Image.Dither.NONE).save(IMAGES / f"page-{name}-{scheme}.png", optimize=True)
            page.js("document.querySelector('#microphone').click()")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        soundfile.write(folder / "microphone.wav", said(), 48_000, subtype="PCM_16")
        clips = [folder / "fan.wav", folder / "right.wav"]
        soundfile.write(clips[0], np.random.default_rng(1).normal(0, 0.1, SAMPLE_RATE), SAMPLE_RATE)
        soundfile.write(clips[1], clip("right", 1), SAMPLE_RATE)
        with live_server(MODEL) as server, chromium(folder / "profile", folder / "microphone.wav") as page:
            shoot(page, str(server.base_url), clips)


if __name__ == "__main__":
    main()

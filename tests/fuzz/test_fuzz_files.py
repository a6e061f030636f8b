"""Damaged model files and recipes: they work, or they are errors of the package in one line."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from mutation import budget, mutated
from paths import ROOT
from tiny_model import METADATA, build

from kws_edge.errors import SettingError
from kws_export.training.recipe import Recipe

TRY = """
import json, sys
import numpy as np
from kws_edge import KeywordModel, Spotter
from kws_edge.errors import KwsEdgeError
noise = np.random.default_rng(0).normal(0, 0.1, 24_000).astype(np.float32)
for line in sys.stdin:
    try:
        model = KeywordModel.load(line.strip())
        model.classify(noise, 16_000)
        model.classify(np.tile(noise, 2), 16_000)
        Spotter(model).push(noise)
        said = "works"
    except KwsEdgeError as error:
        said = str(error)
    except Exception as error:
        said = f"NOT OURS: {type(error).__name__}: {error}"
    print(json.dumps(said), flush=True)
"""


SETTINGS = {
    "thresholds": {"entropy": 0.5}, "labels": {}, "probability": 0, "smoothing": 0.3, "hysteresis": 0.25, "rearm": 0.3,
    "refractory": 0.8,
}  # fmt: skip
FOUND: list[dict[str, Any]] = [
    {"stream": {"settings": SETTINGS}},
    {"stream": {"settings": SETTINGS | {"smoothing": 1e300}}},
    {"stream": {"settings": SETTINGS | {"thresholds": {"entropy": 10**300}}}},
    {"stream": {"settings": SETTINGS, "calibration": {"words_chosen": [["low"]]}}},
    {"labels": ["a\x1b[2J", "b\n", "\ud800"]},
]
"""What an attack changed in a model's metadata, and was not refused in one line."""
FOUND_RECIPES = ["seed = 0x" + "f" * 5000, "seed" + ".a" * 2000 + " = 1", "labels = " + "[" * 500 + "]" * 500]


@cache
def models() -> tuple[bytes, ...]:
    """Sixty model files, of several labels, windows, variants and texts in their metadata, and those found."""
    made = [build(json.dumps(json.loads(METADATA.to_json()) | found), labels=3) for found in FOUND]
    for i in range(15):
        labels = tuple(f"word{j}" for j in range(2 + i % 4))
        metadata = replace(METADATA, name=f"m{i}", labels=labels, licence="x" * (i + 1))
        whole = build(metadata, labels=len(labels))
        text = metadata.to_json()
        made += [whole, build(text.replace(":", ": "), labels=len(labels))]
        made += [build(text.replace('"entropy"', '"vacuity"', 1), labels=len(labels))]
        made += [build(json.dumps(json.loads(text), indent=1), labels=len(labels), bias=float(i))]
    return tuple(made)


class Trial:
    """Model files are tried in a process of their own: a file that ends it is found, and the tests go on."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "model.onnx"
        self.process: subprocess.Popen[str] | None = None

    def __call__(self, data: bytes) -> str:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", TRY],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self.process.stdin
        assert self.process.stdout
        self.path.write_bytes(data)
        self.process.stdin.write(f"{self.path}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the process ended with {self.process.wait()}"
        return str(json.loads(line))

    def close(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    made = Trial()
    yield made
    made.close()


@given(mutated(models()))
@budget(60)
def test_a_damaged_model_works_or_is_refused(trial: Trial, data: bytes) -> None:
    said = trial(data)
    assert not said.startswith("NOT OURS")
    assert "\n" not in said


@cache
def recipes() -> tuple[bytes, ...]:
    """Every recipe of the repository, in several forms: sixty at least."""
    texts = [file.read_text() for file in sorted((ROOT / "export" / "recipes").glob("*.toml"))]
    made = [f"variant = 'softmax'\n{found}\n" for found in FOUND_RECIPES]
    while len(made) < 60:
        made += [text + f"\n# {len(made)}\n" for text in texts]
    return tuple(text.encode() for text in made)


@given(mutated(recipes()))
@budget(100)
def test_a_damaged_recipe_is_read_or_refused(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(SettingError):
            Recipe.load(Path(file.name))

"""Print what kws-edge answers here, as JSON: run on two kinds of processor, to be compared.

    python answers.py SAMPLES STEP_GRAPH

Every model on every recording of the folder (on the long one, the default model alone); and the graph that takes a
stream's samples and carries the rest as states, on the long one.
"""

import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from kws_edge import KeywordModel
from kws_edge.audio.load import load
from kws_edge.model.runtime import CPU, OUTPUTS, open_session, zero_states
from kws_edge.model.shipped import DEFAULT_MODEL, shipped_models

LONG = "demo"
"""The recording that is many clips long."""

STEP = 1600
"""Samples that the graph takes at a time, 0.1 s."""


def clips(samples: Path) -> dict[str, Any]:
    """The answers on recordings, by model and file."""
    answers: dict[str, Any] = {}
    for name in shipped_models():
        model = KeywordModel.load(name)
        for path in sorted(samples.glob("*.flac")):
            if path.stem == LONG and name != DEFAULT_MODEL:
                continue  # a minute of emulation each
            answers[f"{name} {path.stem}"] = model.classify(path).to_dict()
    return answers


def step_graph(model: Path, sound: Path) -> dict[str, Any]:
    """Class and alpha of every step of a stream through the graph."""
    session = open_session(model.read_bytes(), CPU, 1)
    states = zero_states(session)
    names = [*OUTPUTS, *(name.replace("state_", "next_") for name in states)]
    samples = load(sound).samples
    classes, alphas = [], []
    for start in range(0, len(samples) - STEP + 1, STEP):
        feed = {"audio": samples[np.newaxis, start : start + STEP], **states}
        found = dict(zip(names, session.run(names, feed), strict=True))
        states = {name: found[name.replace("state_", "next_")] for name in states}
        classes.append(int(found["class"][0]))
        alphas.append(found["alpha"][0].tolist())
    return {"class": classes, "alpha": alphas}


def main() -> None:
    samples, model = map(Path, sys.argv[1:])
    answers = {
        "machine": platform.machine(),
        "clips": clips(samples),
        "step graph": step_graph(model, samples / f"{LONG}.flac"),
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main()

"""Put what voices say of a model's words beside people's clips, as a data folder for `kws-export train`.

    kws-export speak yes no stop … --takes 60 --varied 0.3 --seed 7 --out said
    python bench/spoken_words.py speech_commands said --model softmax --out words

WORDS is SPEECH_COMMANDS, by links; WORDS/WORD also holds the takes of SAID/WORD, cut to their loudest second. One is
left out where the model gives its word less than `LEAST`: voices mispronounce a few, with an accent more.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
from rich.progress import track

from kws_edge import KeywordModel
from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.model.metadata import is_word

LEAST = 0.05
"""Probability of the word."""
LOUD, BEFORE = 12_000, 2_000
"""Samples: the span that is loudest, and what is kept before it."""


def loudest_second(samples: F32) -> F32:
    """A second of a take, float32 [n] → [16000]: where it is loudest, or the whole take in the middle of silence."""
    missing = SAMPLE_RATE - len(samples)
    if missing >= 0:
        return np.pad(samples, (missing // 2, missing - missing // 2))
    at = int(np.argmax(np.convolve(samples**2, np.ones(LOUD), "valid"))) - BEFORE
    at = min(max(at, 0), -missing)
    return samples[at : at + SAMPLE_RATE]


def takes(model: KeywordModel, word: str, folder: Path) -> Iterator[tuple[str, F32]]:
    """Name and samples of each take in which the model does not rule the word out."""
    i = model.labels.index(word)
    for path in sorted(folder.glob("*.wav")):
        samples = loudest_second(load(path).samples)
        alpha = model.classify_batch(samples[np.newaxis])[0].alpha
        if alpha[i] >= LEAST * alpha.sum():
            yield path.stem, samples


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("people", type=Path, help="Speech Commands")
    parser.add_argument("said", type=Path, help="what kws-export speak wrote")
    parser.add_argument("--model", help="default: the default model")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    model = KeywordModel.load(given.model)
    given.out.mkdir(parents=True)
    words = [label for label in model.labels if is_word(label)]
    for other in sorted(given.people.iterdir()):
        if other.name not in words:  # the lists, background noise and other words
            (given.out / other.name).symlink_to(other.resolve())
    for word in track(words, "words"):
        (given.out / word).mkdir()
        for path in (given.people / word).iterdir():
            (given.out / word / path.name).symlink_to(path.resolve())
        for name, samples in takes(model, word, given.said / word):
            soundfile.write(given.out / word / f"{name}.flac", samples, SAMPLE_RATE)


if __name__ == "__main__":
    main()

"""How often a shipped model names half a word: python bench/half_words.py speech_commands [MODEL ...]

Of clips of the test split, drawn by a seed, the first or the second half of the word is replaced by silence.
"""

import argparse
from pathlib import Path

import numpy as np

from kws_edge import KeywordModel
from kws_edge.audio.lists import read_list
from kws_edge.audio.load import is_audio, load
from kws_edge.tuning.soundscape import speech_bounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="*", default=["softmax", "stream"])
    parser.add_argument("--clips", type=int, default=300)
    given = parser.parse_args()
    listed = read_list(given.data / "testing_list.txt")
    for name in given.models:
        model = KeywordModel.load(name)
        files = [
            path
            for path in sorted(given.data.glob("*/*"))
            if path.parent.name in model.labels and f"{path.parent.name}/{path.stem}" in listed and is_audio(path)
        ]
        named = np.zeros(2, int)
        chosen = np.random.default_rng(0).permutation(len(files))[: given.clips]
        for i in chosen:
            samples = load(files[i]).samples
            start, end = speech_bounds(samples)
            middle = (start + end) // 2
            for half, (a, b) in enumerate([(middle, len(samples)), (0, middle)]):
                cut = samples.copy()
                cut[a:b] = 0
                named[half] += model.classify(cut, 16_000).label is not None
        first, second = (f"{count / len(chosen):.0%}" for count in named)
        print(f"{name}: of {len(chosen)} words it names {first} of the first halves and {second} of the second")


if __name__ == "__main__":
    main()

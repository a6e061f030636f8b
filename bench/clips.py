"""How far `classify` can be trusted on recordings as they come: in rooms, in longer files, and of other words.

    python bench/clips.py --model stream --clips speech_commands --list speech_commands/testing_list.txt
    python bench/clips.py --clips rooms/0.6 --within 3
    python bench/clips.py --clips speech_commands --list speech_commands/testing_list.txt --unknown wake_words/jarvis

Prints accepted accuracy and coverage of clips of the model's words (--clips), each alone or (--within SECONDS)
somewhere in so long a file of faint noise, and how many recordings of no such word are named (--unknown), with 95 %
intervals. Clips of other words in --clips are unknown too: the area under the ROC curve says how well the score tells
them apart.
"""

import argparse
from pathlib import Path

import numpy as np

from kws_edge import KeywordModel
from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.model.prediction import Prediction
from kws_edge.tuning.evaluation import rate_of
from kws_edge.tuning.recordings import draw, recordings, spoken
from kws_edge.tuning.soundscape import ROOM_LEVEL


def within(samples: F32, seconds: float, rng: np.random.Generator) -> F32:
    """The clip at some place in so long a recording of a quiet room."""
    n = max(len(samples), round(seconds * SAMPLE_RATE))
    room = (ROOM_LEVEL * rng.standard_normal(n)).astype(np.float32)
    at = int(rng.integers(0, n - len(samples) + 1))
    room[at : at + len(samples)] += samples
    return room


def share(count: int, total: int) -> str:
    """A percentage with its interval; of nothing there is none."""
    if not total:
        return "none of 0"
    value, low, high = (100 * part for part in rate_of(count, total))
    return f"{value:.1f} ({low:.1f} to {high:.1f}) % of {total}"


def area(known: list[float], unknown: list[float]) -> float:
    """That under the ROC curve: how often an unknown word has the higher score, ties counting half."""
    u, k = np.array(unknown), np.sort(known)
    below, up_to = np.searchsorted(k, u, "left"), np.searchsorted(k, u, "right")
    return float((below + up_to).mean() / (2 * len(k)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="A name or a file.")
    parser.add_argument("--clips", type=Path, help="Clips, as WORD/clip.")
    parser.add_argument("--list", type=Path, help="Only these of them, such as a testing_list.txt.")
    parser.add_argument("--count", type=int, default=600, help="How many of each kind.")
    parser.add_argument("--within", type=float, default=0.0, help="Seconds of the file that each clip lies in.")
    parser.add_argument("--unknown", action="append", default=[], help="Recordings that say none of the words.")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    model, rng = KeywordModel.load(given.model), np.random.default_rng(given.seed)

    def ask(samples: F32) -> Prediction:
        return model.classify(within(samples, given.within, rng), SAMPLE_RATE)

    if given.clips:
        clips = spoken(given.clips, given.list)
        known = draw([clip for clip in clips if clip[0] in model.labels], given.count, given.seed)
        other = draw([clip for clip in clips if clip[0] not in model.labels], given.count, given.seed)
        said = [(word, ask(load(path).samples)) for word, path in known]
        accepted = [(word, p) for word, p in said if p.label is not None]
        print(f"accepted {share(len(accepted), len(said))} clips of {given.clips.name}")
        print(f"right {share(sum(p.label == word for word, p in accepted), len(accepted))} accepted")
        if said and other:
            unknown = [ask(load(path).samples) for _, path in other]
            print(f"named {share(sum(p.label is not None for p in unknown), len(unknown))} clips of other words")
            print(f"AUROC {area([p.uncertainty for _, p in said], [p.uncertainty for p in unknown]):.3f}")
    for pattern in given.unknown:
        files = recordings([pattern])
        named = sum(ask(samples).label is not None for samples in files)
        print(f"named {share(named, len(files))} recordings of {Path(pattern).name}")


if __name__ == "__main__":
    main()

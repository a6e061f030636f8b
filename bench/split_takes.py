"""Split recordings that do not say who speaks into speakers to train a wake word with, and others to measure it on.

    pip install resemblyzer scikit-learn 'setuptools<80'
    python bench/split_takes.py ../shared/data/wake_words/jarvis ../shared/data/wake_words/computer --out takes

makes TAKES/train/WORD and TAKES/test/WORD, links to the recordings of each folder WORD, named for their speaker as
`kws-export wake --recordings` and bench/wake_words.py read them. Speakers are told apart by the voice alone:
embeddings of Resemblyzer, clustered by average linkage. Of 384 recordings of "jarvis" and 411 of "computer" it makes 50
speakers, most of them with ten recordings of a word, and sets 17 aside.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

from kws_edge.audio.load import is_audio

APART = 0.25
"""Cosine distance at which two voices are two speakers."""
TEST = 1 / 3
"""Of the speakers."""
SEED = 7


def speakers(files: list[Path]) -> list[int]:
    """A number for each recording: the speaker."""
    import soundfile
    from resemblyzer import VoiceEncoder, preprocess_wav
    from sklearn.cluster import AgglomerativeClustering

    encoder = VoiceEncoder("cpu", verbose=False)
    voices = []
    for file in files:
        samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
        voices.append(encoder.embed_utterance(preprocess_wav(samples.mean(axis=1), source_sr=rate)))
    clusters = AgglomerativeClustering(
        n_clusters=None, distance_threshold=APART, metric="cosine", linkage="average"
    ).fit_predict(np.array(voices))
    return [int(cluster) for cluster in clusters]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="recordings of one word each")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    files = [path.resolve() for folder in args.folders for path in sorted(folder.iterdir()) if is_audio(path)]
    found = speakers(files)
    mixed = np.random.default_rng(SEED).permutation(max(found) + 1)
    test = set(mixed[: round(TEST * len(mixed))].tolist())
    counts = Counter[tuple[str, str]]()
    for file, speaker in zip(files, found, strict=True):
        part = "test" if speaker in test else "train"
        folder = args.out / part / file.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"spk{speaker:02d}_nohash_{file.name}").symlink_to(file)
        counts[part, file.parent.name] += 1
    for (part, word), count in sorted(counts.items()):
        print(f"{part} {word}: {count} recordings")


if __name__ == "__main__":
    main()

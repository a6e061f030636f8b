"""The other speech that `kws-edge enroll` sets its thresholds by, and how well enrolled words are found.

    python bench/enrolment.py background DATA --out models/enrol.npz
    python bench/enrolment.py measure DATA [--list validation]

DATA is the folder of recordings (CONTRIBUTING.md). The background is made of speech/ljspeech_en, kathleen_en, the
readers of speechocean_en whose number is divisible by three, and libri_speech/train-clean-100; words are measured on
others: false accepts on librispeech_26_en, test-other and coffee_commands, takes in wake_words and speech_commands.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kws_edge.audio.load import is_audio, load
from kws_edge.tuning.embedding import Background, Embedding, tail
from kws_edge.tuning.enrolment import enrol
from kws_edge.tuning.soundscape import ROOM_LEVEL

BACKGROUND = {
    "speech/ljspeech_en": 40, "libri_speech/train-clean-100": 50, "speech/kathleen_en": 100,
    "speech/speechocean_en": 200,
}  # fmt: skip
EVALUATION = {"speech/librispeech_26_en": 40, "libri_speech/test-other": 60, "speech/coffee_commands": 200}
VECTORS = 2_500
REACH = 8.0
"""Set by `measure --list validation`: at most one false accept an hour over its words."""


def recordings(data: Path, chosen: dict[str, int]) -> Iterator[tuple[str, Any]]:
    """Every nth of each folder, n as large as leaves at least so many; of speechocean_en, readers that three divides.

    These are up to nearly twice as many, and never fewer where there are so many.
    """
    for folder, most in chosen.items():
        files = sorted(p for p in (data / folder).rglob("*") if is_audio(p))
        if folder.endswith("speechocean_en"):
            files = [p for p in files if int(p.name.partition("-")[0]) % 3 == 0]
        for path in files[:: max(1, len(files) // most)]:
            yield f"{folder}/{path.name}", load(path).samples


def padded(samples: Any, seed: int = 0) -> Any:
    """With the quiet of a room on both sides, in which a window finds room."""
    room = np.float32(ROOM_LEVEL) * np.random.default_rng(seed).standard_normal(len(samples) + 20_000, np.float32)
    room[10_000 : 10_000 + len(samples)] += samples
    return room


def background(data: Path, out: Path) -> None:
    """Measure the mean and the spread of other speech, and keep some of it."""
    embedding = Embedding()
    vectors = np.concatenate([embedding.of_stream(samples, 20) for _, samples in recordings(data, BACKGROUND)])
    mean = vectors.mean(axis=0, dtype=np.float64)
    values, directions = np.linalg.eigh(np.cov((vectors - mean).T.astype(np.float64)))
    whitening = directions / np.sqrt(values + 1e-3 * values.max())
    made = Background(
        mean.astype(np.float32), whitening.astype(np.float16).astype(np.float32), vectors[:0], REACH,
        embedding.fingerprint,
    )  # fmt: skip
    chosen = np.random.default_rng(0).permutation(len(vectors))[:VECTORS]
    np.savez_compressed(
        out, mean=made.mean, whitening=whitening.astype(np.float16), reach=np.float32(REACH), trunk=made.trunk,
        vectors=np.rint(127 * made.whitened(vectors[chosen])).astype(np.int8),
    )  # fmt: skip
    print(f"{len(vectors)} windows, {len(chosen)} kept, {out.stat().st_size / 1000:.0f} kB in {out}")


def takes_by_voice(data: Path, split: str) -> Iterator[tuple[str, list[Path], list[Path]]]:
    """(word, takes to enrol, others of that word).

    Five takes of a wake word; four of a word in a split of Speech Commands, of one voice that said it five times or
    more; 200 such voices where there are so many.
    """
    for word in ("heychatterbox", "heycomputer", "computer_precise"):  # few voices, which their files do not name
        files = sorted(p for p in (data / "wake_words" / word).rglob("*") if is_audio(p))
        for seed in range(4):
            order = np.random.default_rng(seed).permutation(len(files))
            yield word, [files[i] for i in order[:5]], [files[i] for i in order[5:25]]
    listed = set((data / "speech_commands" / f"{split}_list.txt").read_text().split())
    groups: defaultdict[tuple[str, str], list[Path]] = defaultdict(list)
    for line in sorted(listed):
        word, _, file = line.partition("/")
        groups[word, file.partition("_nohash_")[0]].append(data / "speech_commands" / line)
    several = sorted(key for key, files in groups.items() if len(files) >= 5)
    for key in [several[i] for i in np.random.default_rng(0).permutation(len(several))[:200]]:
        files = [p if p.exists() else p.with_suffix(".opus") for p in groups[key]]
        yield f"speech_commands/{key[0]}", files[:4], files[4:]


def measure(data: Path, split: str) -> None:
    """Enrol, then count missed takes, and false accepts on the speech of others, for several thresholds."""
    embedding, shipped = Embedding(), Background.load()
    streams = [embedding.of_stream(padded(samples)) for _, samples in recordings(data, EVALUATION)]
    hours = sum(len(vectors) for vectors in streams) / 36_000
    speech = [shipped.whitened(vectors) for vectors in streams]
    rows: defaultdict[str, list[tuple[Sequence[float], Any]]] = defaultdict(list)
    for word, takes, others in takes_by_voice(data, split):
        enrolled = enrol([load(path).samples for path in takes], embedding, shipped)
        quantile, excess = tail(shipped.vectors @ enrolled.template)

        def beyond(vectors: Any, template: Any = enrolled.template, at: Any = (quantile, excess)) -> Any:
            return (vectors @ template - at[0]) / at[1]

        best = [float(beyond(shipped.whitened(embedding.of_stream(padded(load(p).samples)))).max()) for p in others]
        rows[word.partition("/")[0]].append((best, [beyond(vectors) for vectors in speech]))
    for name, enrolments in rows.items():
        for limit in (6.0, 6.5, 7.0, 7.5, 8.0, 8.5):
            missed = np.mean([value <= limit for best, _ in enrolments for value in best])
            false = [sum(events(s, limit) for s in scores) / hours for _, scores in enrolments]
            print(json.dumps({
                "words": name, "enrolments": len(enrolments), "takes": sum(len(b) for b, _ in enrolments),
                "reach": limit, "missed": round(float(missed), 3), "hours": round(hours, 2),
                "false_accepts_per_hour": round(float(np.mean(false)), 2), "worst": round(max(false), 1),
            }))  # fmt: skip


def events(scores: Any, limit: float, apart: int = 8) -> int:
    """How often the scores of a stream, a tenth of a second apart, rise above a limit."""
    above = np.flatnonzero(scores > limit)
    return 0 if not len(above) else 1 + int((np.diff(above) > apart).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["background", "measure"])
    parser.add_argument("data", type=Path)
    parser.add_argument("--list", choices=["testing", "validation"], default="testing", help="voices to measure")
    parser.add_argument("--out", type=Path, default=Path("models/enrol.npz"))
    given = parser.parse_args()
    background(given.data, given.out) if given.what == "background" else measure(given.data, given.list)


if __name__ == "__main__":
    sys.exit(main())

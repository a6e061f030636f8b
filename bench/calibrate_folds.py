"""Calibrate a mean of networks on streams by these networks, each on the speech that it was not trained on (folds.py).

    python bench/calibrate_folds.py --model mean.onnx --out models/stream.onnx --force \\
      --fold a.onnx='sets/evaluation/*' --fold b.onnx='sets/calibration/*' \\
      --sounds 'esc10/*/3-1[0-4]*' --negatives 'wake_words/jarvis/[0-7]*'

Run it in the folder of the recordings. It chooses as `kws-edge calibrate` does, with and without --after-wake, and
writes all forms of the model. --negatives and, without speech, --sounds are recordings that no network was trained on,
which the mean hears. At the end it says what the mean itself finds at these settings: where that is as much as its
networks find, they stand for it.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from folds import Fold, trace_folds, trace_speech

from kws_edge import KeywordModel, StreamSettings
from kws_edge.model.score import SCORES, Score
from kws_edge.tuning import Point, assess, candidates, choose, sweep, trace_negatives, trace_words
from kws_edge.tuning.record import stream_record, write_forms
from kws_edge.tuning.recordings import draw, short_names, spoken
from kws_edge.tuning.traced import Traced

CLIPS, LIST = Path("speech_commands"), Path("speech_commands/validation_list.txt")
SMOOTHING, CROWDING = 0.3, 8.0
SNR = 10.0
SEED = 1


def chosen(
    model: KeywordModel, said: Sequence[Traced], without: Sequence[Traced], limit: float, score: Score, crowding: float
) -> Point:
    """The settings that find most within the limit."""
    base = StreamSettings({score: 1.0}, smoothing=SMOOTHING, crowding=crowding)
    tried = candidates(model.metadata, said, without, base, [score])
    return choose(list(sweep(model.metadata, said, without, [(tried, base)], until=20 * max(limit, 1))), limit)


def main() -> None:
    """Calibrate, write, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="The mean, an .onnx file.")
    parser.add_argument("--fold", type=Fold.of, action="append", metavar="MODEL=PATTERN", required=True)
    parser.add_argument("--negatives", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--sounds", action="append", default=[], metavar="PATTERN", help="The same without speech.")
    parser.add_argument("--count", type=int, default=600, help="How many words, all networks together.")
    parser.add_argument("--limit", type=float, default=1.0, help="False accepts per hour on each of the recordings.")
    parser.add_argument("--awake-limit", type=float, default=60.0, help="The same, while a wake word counts.")
    parser.add_argument("--score", choices=SCORES, default="entropy")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--force", action="store_true")
    given = parser.parse_args()
    model, folds = KeywordModel.load(given.model), given.fold
    clips = draw([clip for clip in spoken(CLIPS, LIST) if clip[0] in model.labels], given.count, SEED)
    said = trace_folds(folds, clips, "words")
    said += trace_folds(folds, clips, "words over speech", over_speech=True, snr=SNR)
    names = short_names([*given.negatives, *given.sounds])
    said += [s for pattern in names for s in trace_folds(folds, clips, "words", behind=pattern, snr=SNR)]
    speech = trace_speech(folds)
    other = [trace_negatives(model, pattern, name=name) for pattern, name in names.items()]

    def record(point: Point, limit: float) -> dict[str, object]:
        return stream_record(
            point,
            limit,
            method="most hits under the limit on each of the negatives, by networks not trained on their speakers",
            words=None,
            positives={"clips": len(clips), "from": LIST.name, "snr": [None, SNR]},
            tried={
                "smoothing": [SMOOTHING], "score": [given.score], "crowding": [point.settings.crowding],
                "per_label": False,
            },
            seed=SEED,
            sounds=[names[pattern] for pattern in given.sounds],
        )  # fmt: skip

    always = chosen(model, said, [*speech, *other], given.limit, given.score, CROWDING)
    awake = chosen(model, said, speech, given.awake_limit, given.score, 0.0)
    stream = {**record(always, given.limit), "after_wake": record(awake, given.awake_limit)}
    write_forms(model.path, given.out, replace(model.metadata, stream=stream), overwrite=given.force)
    mean = trace_words(model, clips)
    for name, point in (("always", always), ("after a wake word", awake)):
        alone = assess(model.metadata, said[: len(folds)], point.settings)
        ours = assess(model.metadata, [mean], point.settings)
        print(
            f"{name}: {point.settings.to_dict()['thresholds']}, "
            f"{', '.join(f'{n} {r.false_accepts} in {r.seconds / 60:.1f} min' for n, r in point.negatives.items())}; "
            f"of {ours.words} words in silence the networks find {alone.hits}, their mean {ours.hits}"
        )


if __name__ == "__main__":
    main()

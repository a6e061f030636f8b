"""What is found at some rates of false accepts, in every condition: the table of docs/measurements/listening.md.

    pip install pyroomacoustics pocketsphinx==5.1.1
    python bench/split_speech.py . --out sets  # beside speech/ and libri_speech/
    for rt60 in 0.3 0.6 0.9; do python bench/rooms.py speech_commands --list speech_commands/testing_list.txt \\
      --count 300 --decay $rt60 --out rooms/$rt60; done
    python bench/rooms.py speech_commands --list speech_commands/testing_list.txt --count 300 --rate 8000 --out rooms/8k
    python bench/listening.py --model stream --json listening.json --plot listening.svg

A model that is the mean of several networks is measured by these (folds.py), with its settings:

    python bench/listening.py --model stream \
      --fold runs/a.onnx='sets/evaluation/*' --fold runs/b.onnx='sets/calibration/*'

Run it in the folder of the recordings. The thresholds of a rate are those at which the speech without the words has so
many false accepts an hour; the words of a subset are listened for alone, and the rate is then of these. `kws-edge
evaluate-stream --rates` measures the same, a condition at a time.
"""

import argparse
import json
from collections.abc import Collection
from pathlib import Path

from folds import Fold, trace_folds, trace_speech

from kws_edge import KeywordModel, StreamSettings
from kws_edge.model.score import SCORES
from kws_edge.tuning import assess, candidates
from kws_edge.tuning.calibration import trade_off
from kws_edge.tuning.choice import at_rates
from kws_edge.tuning.evaluation import rate_of
from kws_edge.tuning.plot import curves_plot
from kws_edge.tuning.recordings import draw, spoken

RATES = (0.5, 1.0, 2.0, 5.0, 10.0)
SPEECH = "sets/evaluation/*"
BEHIND = {"sounds": "esc10/*/3-[16][5-9]*", "music": "sounds/librosa_Kevin_MacLeod_-_Vibe*"}
HEARD = {
    "room, RT60 0.3 s": "rooms/0.3",
    "room, RT60 0.6 s": "rooms/0.6",
    "room, RT60 0.9 s": "rooms/0.9",
    "8 kHz": "rooms/8k",
}
SUBSETS = {
    "yes, no": ("yes", "no"),
    "stop, go": ("stop", "go"),
    "ten commands": ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go"),
}
SEED = 1


def percent(hits: int, words: int) -> str:
    """With its interval."""
    value, low, high = (100 * part for part in rate_of(hits, words))
    return f"{value:.0f} ({low:.0f} to {high:.0f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="A name or a file.")
    parser.add_argument("--fold", type=Fold.of, action="append", metavar="MODEL=PATTERN", help="What hears for it.")
    parser.add_argument("--count", type=int, default=300, help="How many words in each condition.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    model = KeywordModel.load(given.model)
    metadata, folds = model.metadata, given.fold or [Fold(model, SPEECH)]
    settings = StreamSettings.of(metadata)
    scores = [score for score in SCORES if score in settings.thresholds]
    clips = spoken(Path("speech_commands"), Path("speech_commands/testing_list.txt"))

    def some(of: list[tuple[str, Path]], words: Collection[str] = metadata.labels) -> list[tuple[str, Path]]:
        return draw([clip for clip in of if clip[0] in words], given.count, SEED)

    streams = {"in silence": trace_folds(folds, some(clips), "in silence")}
    streams["10 dB over speech"] = trace_folds(folds, some(clips), "over speech", over_speech=True)
    streams |= {
        f"10 dB over {name}": trace_folds(folds, some(clips), name, behind=path) for name, path in BEHIND.items()
    }
    streams |= {
        name: trace_folds(folds, some(spoken(Path(folder), None)), name)
        for name, folder in HEARD.items()
        if Path(folder).is_dir()
    }
    speech = trace_speech(folds)
    hours = sum(part.seconds for part in speech) / 3600
    print(f"{hours:.2f} h of {', '.join(fold.speech for fold in folds)}; {given.count} words a condition")
    print("| words, condition | " + " | ".join(f"{rate:g} an hour" for rate in RATES) + " |")
    print("| --- |" + " --- |" * len(RATES))
    rows = []
    for name, words in {"all": metadata.labels, **SUBSETS}.items():
        known = streams if name == "all" else {"in silence": trace_folds(folds, some(clips, words), "in silence")}
        said = [stream for parts in known.values() for stream in parts]
        tried = candidates(metadata, said, speech, settings, scores, words)
        points = trade_off(metadata, said, speech, settings, tried, words, until=10 * RATES[-1])
        found = at_rates(points, RATES)
        for condition, parts in known.items():
            at = [p and assess(metadata, parts, p.settings, words) for p in found]
            cells = [percent(r.hits, r.words) if r else "no threshold" for r in at]
            print(f"| {name}, {condition} | " + " | ".join(cells) + " |", flush=True)
            rows += [
                {"words": name, "condition": condition, "rate": rate, "settings": p.settings.to_dict(), **r.to_dict()}
                for rate, p, r in zip(RATES, found, at, strict=True)
                if p and r
            ]
        if name == "all" and given.plot:
            rates = [p.joined.false_accepts_per_hour.value for p in points]
            reports = {
                name: [assess(metadata, parts, p.settings, words) for p in points] for name, parts in known.items()
            }
            curves_plot({name: list(zip(rates, of, strict=True)) for name, of in reports.items()}, given.plot)
    if given.json:
        given.json.write_text("\n".join(json.dumps(row, allow_nan=False) for row in rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

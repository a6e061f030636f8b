"""What a wake word's model finds, and how often it fires, on recordings that it was neither trained nor calibrated on.

    python bench/wake_words.py computer.onnx --takes takes/test --data ../shared/data --json bench/results/wake.json

TAKES has a folder for each word, as `kws-export wake --recordings` takes them. The words are put one after the other,
in silence, 10 dB over sounds and 10 dB over speech; the speech without the word is what the pack of negatives leaves
out (export/packs/negatives.toml), but for recordings whose text holds the word. Printed are the misses at the model's
own threshold, with what it then fires, and the fewest misses that any threshold has at 0.5, 1, 2 and 5 false accepts
an hour.
"""

import argparse
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kws_edge import KeywordModel
from kws_edge.arrays import F32
from kws_edge.audio.pcm import as_float
from kws_edge.model.metadata import is_word
from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning import calibration, choice
from kws_edge.tuning.evaluation import rate_of
from kws_edge.tuning.points import assess, weigh
from kws_edge.tuning.soundscape import Word, compose, joined
from kws_edge.tuning.traced import Traced, trace_stream
from kws_export.data.pack import Pack, Piece, collect
from kws_export.data.sources import Source, load_sources
from kws_export.wake.material import load_recordings

EVALUATION = (
    Source("libri_speech/test-other"), Source("speech/kerstin_de"), Source("speech/librispeech_26_en"),
    Source("speech/ljspeech_en"), Source("speech/nathalie_nl"),
)  # fmt: skip
"""Besides these, the speakers whom a source of the pack leaves out."""
SOUNDS = Source("esc10", pattern="*/3-*"), Source("sounds", pattern="p*")
RATES = (0.5, 1.0, 2.0, 5.0)
SNR = 10.0


def evaluation_speech(data: Path, sources: Iterable[Source], words: Iterable[str]) -> list[Piece]:
    """Speech that the pack does not hold, and that does not say the words."""
    pieces = [piece for source in EVALUATION for piece in collect(data, source)]
    for source in sources:
        if source.left_out:
            everyone = Source(source.folder, speaker=source.speaker, pattern=source.pattern)
            pieces += [piece for piece in collect(data, everyone) if not source.holds(piece.speaker)]
    return list(Pack(tuple(pieces)).without(words).pieces)


def blocks(pieces: Iterable[Piece]) -> Iterator[tuple[F32, list[Word]]]:
    """Recordings one after the other, without words."""
    return ((block, []) for block in joined(as_float(piece.samples) for piece in pieces))


def measure(model: KeywordModel, takes: Path, speech: list[Piece], sounds: list[Piece]) -> dict[str, Any]:
    """All figures of one model."""
    words = [label for label in model.labels if is_word(label)]
    clips = [(s.label, as_float(s.samples)) for s in load_recordings(takes, words)]
    behind = {"in silence": None, "over sounds": sounds, "over speech": speech}
    streams: list[Traced] = []
    for name, pieces in behind.items():
        background = None if pieces is None else [as_float(p.samples) for p in pieces]
        stream = compose(clips, seed=1, background=background, snr=SNR)
        streams.append(trace_stream(model, ((x, [w] if w else []) for x, w in stream), name))
    without = [trace_stream(model, blocks(speech), "speech")]
    quiet = trace_stream(model, blocks(sounds), "sounds")
    m, own = model.metadata, StreamSettings.of(model.metadata)
    score = next(iter(own.thresholds))
    at_own = weigh(m, streams, without, own, words)
    thresholds = calibration.candidates(m, streams, without, own, (score,), words)  # type: ignore[arg-type]
    rows: dict[str, Any] = {}
    for trace in streams:
        curve = calibration.trade_off(m, [trace], without, own, thresholds, words, until=50)
        found = assess(m, [trace], own, words)
        rows[trace.name] = {
            "words": found.words,
            "missed": 1 - found.hits / found.words,
            "interval": [1 - r for r in rate_of(found.hits, found.words)[:0:-1]],
            "missed_at": {str(rate): point.miss_rate if (point := choice.best(curve, rate)) else 1.0 for rate in RATES},
            "delay": found.delay(0.5),
        }
    fired = at_own.negatives["speech"]
    return {
        "model": model.name,
        "words": rows,
        "false_accepts": fired.false_accepts,
        "hours": fired.seconds / 3600,
        "false_accepts_per_hour": fired.false_accepts_per_hour._asdict(),
        "false_accepts_on_sounds": assess(m, [quiet], own, words).false_accepts,
        "hours_of_sounds": quiet.seconds / 3600,
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="files or names")
    parser.add_argument("--takes", type=Path, required=True, help="by people who trained nothing: TAKES/WORD/*")
    parser.add_argument("--data", type=Path, required=True, help="the folder that the pack was made from")
    parser.add_argument("--sources", type=Path, default=Path("export/packs/negatives.toml"))
    parser.add_argument("--json", type=Path, help="add the figures to this file")
    args = parser.parse_args()
    results = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    sounds = [piece for source in SOUNDS for piece in collect(args.data, source)]
    for name in args.models:
        model = KeywordModel.load(name)
        words = [re.sub("_", " ", label) for label in model.labels if is_word(label)]
        result = measure(model, args.takes, evaluation_speech(args.data, load_sources(args.sources), words), sounds)
        results[model.name] = result
        rate = result["false_accepts_per_hour"]
        print(f"{model.name}: {result['false_accepts']} false accepts in {result['hours']:.2f} h of speech", end="")
        print(f" ({rate['low']:.2f} to {rate['high']:.2f} an hour), {result['false_accepts_on_sounds']} on sounds")
        for condition, row in result["words"].items():
            at = ", ".join(f"{missed:.1%} at {r}" for r, missed in row["missed_at"].items())
            print(f"  {condition:12} missed {row['missed']:.1%} of {row['words']}; at best {at} an hour")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

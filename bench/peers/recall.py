"""How many takes of "hey jarvis" kws-edge and its peers miss, and how often they fire on speech without it.

    kws-export pack --sources export/packs/negatives.toml --data ../shared/data --out negatives.npz
    kws-export wake "hey jarvis" --voices kokoro --negatives negatives.npz --out hey-jarvis.onnx
    kws-export speak "hey jarvis" --voices flite,festival --takes 80 --out takes
    python bench/peers/pico.py "hey jarvis" --takes 48 --out takes
    PYTHONPATH=bench python bench/peers/recall.py takes/hey_jarvis --model hey-jarvis.onnx --environments FOLDER

Everyone hears the same 16-bit streams, of bench/wake_words.py: the takes one after the other in silence, 10 dB over
sounds and 10 dB over speech, then the speech alone. A detection within the phrase, or up to a second after its end,
finds it. Detections less than a second apart are one. Each has its own threshold, and then the loosest one at which
it fires at most once an hour on that speech: nobody knows that beforehand, but it compares the models and not the
choice of a threshold.

Results are added to bench/peers/recall.json, so that --only can measure one after the other; the table goes to
standard output.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import environments
import numpy as np
from rows import PEERS, PeerRow
from run import PeerProcess, say
from wake_words import SNR, SOUNDS, evaluation_speech

from kws_edge import KeywordModel, StreamSettings
from kws_edge.arrays import F32, F64
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.pcm import as_float, as_int16
from kws_edge.model.metadata import is_word
from kws_edge.stream.decision import decide
from kws_edge.tuning import calibration
from kws_edge.tuning.evaluation import per_hour, rate_of
from kws_edge.tuning.soundscape import Word, compose, joined
from kws_edge.tuning.traced import Traced, trace_stream
from kws_export.data.pack import collect
from kws_export.data.sources import load_sources
from kws_export.wake.material import load_recordings

RESULTS = Path(__file__).resolve().parent / "recall.json"
PHRASE = "hey jarvis"
"""What the adapters listen for first."""
COMPARED = "pymicro-wakeword, 1 word", "openwakeword (ONNX), 1 word"
KWS_EDGE: Final = "kws-edge"
CONDITIONS: Final = ("in silence", "over sounds", "over speech")
SPEECH: Final = "speech"
LATE = 1.0
"""Seconds after its end in which a phrase may still be found. The pauses between phrases are no shorter."""
APART = 1.0
"""Seconds without a detection, after which the next is another one."""
LIMIT = 1.0
"""False accepts an hour."""
STRETCH = 80
"""Seconds that a peer is given at once, of which the chunks of all are a part."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A raw file, how long it is, and the phrases in it, each labelled with its voice."""

    name: str
    file: Path
    seconds: float
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Contestant:
    """How one that listened answers at any threshold.

    Attributes
    ----------
    own : its threshold.
    thresholds : others, the strictest first.
    times : (name of a stream, threshold) → when it would have fired, s.
    """

    own: float
    thresholds: Iterable[float]
    times: Callable[[str, float], list[float]]


def write(name: str, parts: Iterable[tuple[F32, Word | None]], folder: Path) -> Stream:
    """Put a stream on disk."""
    path, samples, words = folder / f"{name}.raw", 0, []
    with path.open("wb") as file:
        for part, word in parts:
            file.write(as_int16(part).astype("<i2").tobytes())
            samples += len(part)
            words += [word] if word else []
    return Stream(name, path, samples / SAMPLE_RATE, tuple(words))


def streams_of(takes: Path, data: Path, sources: Path, folder: Path) -> list[Stream]:
    """The takes in three conditions, and the speech, which is the last."""
    clips = [(saying.speaker, as_float(saying.samples)) for saying in load_recordings(takes, [PHRASE])]
    speech = [as_float(p.samples) for p in evaluation_speech(data, load_sources(sources), [PHRASE])]
    sounds = [as_float(p.samples) for source in SOUNDS for p in collect(data, source)]
    said = [
        write(name, compose(clips, seed=1, background=background, snr=SNR), folder)
        for name, background in zip(CONDITIONS, (None, sounds, speech), strict=True)
    ]
    return [*said, write(SPEECH, ((block, None) for block in joined(speech)), folder)]


def kws_edge(name: str, streams: Sequence[Stream]) -> Contestant:
    """A wake word's model, whose threshold was calibrated when it was made."""
    model = KeywordModel.load(name)
    metadata, own = model.metadata, StreamSettings.of(model.metadata)
    labels = [label for label in model.labels if is_word(label)]
    (score,) = own.thresholds
    traced = {s.name: trace_stream(model, blocks(s), s.name) for s in streams}
    said: list[Traced] = [traced[s.name] for s in streams if s.words]
    tries = calibration.candidates(metadata, said, [traced[SPEECH]], own, [score], labels)  # type: ignore[list-item]

    def times(name: str, threshold: float) -> list[float]:
        settings = replace(own, thresholds={score: threshold}, labels={})
        return [event.time for event in decide(metadata, traced[name].hops, settings, labels) if event.label]

    return Contestant(own.thresholds[score], [candidate[score] for candidate in tries], times)


def blocks(stream: Stream) -> Iterator[tuple[F32, Iterable[Word]]]:
    """A stream from its file; all its words come with the first block."""
    samples = np.memmap(stream.file, "<i2", "r")
    for start in range(0, len(samples), 60 * SAMPLE_RATE):
        block = np.array(samples[start : start + 60 * SAMPLE_RATE], np.int16)
        yield as_float(block), () if start else stream.words


def peer(row: PeerRow, interpreter: Path, core: int, streams: Sequence[Stream]) -> Contestant:
    """One of the peers; a new process for every stream."""
    scores: dict[str, F64] = {}
    for stream in streams:
        with PeerProcess(row, interpreter, core) as process:
            heard: list[float] = []
            for first in range(0, int(stream.seconds), STRETCH):
                heard += process.play(stream.file, first, min(STRETCH, stream.seconds - first), scores=True)["scores"]
            scores[stream.name] = np.array(heard)
            chunk, own = process.chunk / SAMPLE_RATE, process.threshold
    assert own is not None
    tries = np.unique(scores[SPEECH])[::-1].tolist()
    return Contestant(own, tries, lambda stream, threshold: detections(scores[stream], chunk, threshold))


def detections(scores: F64, chunk: float, threshold: float) -> list[float]:
    """When a score first exceeds the threshold, after at least `APART` seconds in which it did not.

    Parameters
    ----------
    scores : of each chunk, [n].
    chunk : its length, s; a detection is at its end.
    """
    times = (np.flatnonzero(scores > threshold) + 1) * chunk
    new = np.diff(times, prepend=-np.inf) >= APART
    return [float(time) for time in times[new]]


def found(times: Sequence[float], words: Sequence[Word]) -> list[float | None]:
    """For each phrase, how long after its end it was first detected, s, or None."""
    return [next((t - w.end for t in times if w.start <= t <= w.end + LATE), None) for w in words]


def loosest(contestant: Contestant, seconds: float) -> float | None:
    """The last threshold, from the strictest on, before the first that fires on the speech more than `LIMIT` allows."""
    held = None
    for threshold in contestant.thresholds:
        if 3600 * len(contestant.times(SPEECH, threshold)) / seconds > LIMIT:
            break
        held = threshold
    return held


def figures(contestant: Contestant, threshold: float, streams: Sequence[Stream]) -> dict[str, Any]:
    """Misses and false accepts at a threshold."""
    missed: dict[str, Any] = {}
    for stream in streams:
        if stream.words:
            delays = found(contestant.times(stream.name, threshold), stream.words)
            heard = [delay for delay in delays if delay is not None]
            voices = sorted({word.label for word in stream.words})
            by = {v: [d is None for d, w in zip(delays, stream.words, strict=True) if w.label == v] for v in voices}
            missed[stream.name] = {
                **rate_of(delays.count(None), len(delays))._asdict(),
                "phrases": len(delays),
                "missed": delays.count(None),
                "voices": {voice: [sum(lost), len(lost)] for voice, lost in by.items()},
                "delay": round(statistics.median(heard), 3) if heard else None,
            }
    speech = next(stream for stream in streams if stream.name == SPEECH)
    count = len(contestant.times(SPEECH, threshold))
    return {
        "threshold": threshold,
        "missed": missed,
        "false_accepts": count,
        "false_accepts_per_hour": per_hour(count, speech.seconds)._asdict(),
    }


def compare(contestant: Contestant, streams: Sequence[Stream]) -> dict[str, Any]:
    """What results.json has of a contestant: at its own threshold, and at the loosest within the limit."""
    best = loosest(contestant, streams[-1].seconds)
    return {
        "own": figures(contestant, contestant.own, streams),
        "best": None if best is None else figures(contestant, best, streams),
    }


def markdown(results: dict[str, Any]) -> str:
    """Two tables: misses and false accepts with their 95 % intervals, and misses by the synthesiser that spoke."""
    first, second, third = CONDITIONS
    engines = results["engines"]
    whole = [
        f"| | threshold | missed {first} | 10 dB {second} | 10 dB {third} "
        f"| false accepts in {results['hours']:.2f} h |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    parts = [f"| | threshold | {' | '.join(engines)} |", f"| --- | --- |{' --- |' * len(engines)}"]
    for kind, title in (("own", "its own"), ("best", f"for {LIMIT:g} an hour")):
        for name, result in results["contestants"].items():
            if row := result[kind]:
                head = f"| {name} | {title}, {row['threshold']:.2g} |"
                misses = [row["missed"][condition] for condition in CONDITIONS]
                shares = [f"{m['value']:.1%} ({m['low']:.1%} to {m['high']:.1%})".replace("%", " %") for m in misses]
                rate = row["false_accepts_per_hour"]
                fired = f"{row['false_accepts']} ({rate['low']:.1f} to {rate['high']:.1f} an hour)"
                whole.append(f"{head} {' | '.join([*shares, fired])} |")
                parts.append(f"{head} {' | '.join(said_by(engine, misses) for engine in engines)} |")
    return "\n".join([*whole, "", *parts])


def said_by(engine: str, misses: Sequence[dict[str, Any]]) -> str:
    """What was missed of one synthesiser's takes, in each condition."""
    of = [[n for voice, n in m["voices"].items() if voice.partition("-")[0] == engine] for m in misses]
    return f"{', '.join(str(sum(lost for lost, _ in found)) for found in of)} of {sum(n for _, n in of[0])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("takes", type=Path, help="folder of recordings of the phrase")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME", help="of kws-edge: a file, or one that ships"
    )
    parser.add_argument("--data", type=Path, default=environments.ROOT.parent / "shared" / "data")
    parser.add_argument("--sources", type=Path, default=environments.ROOT / "export" / "packs" / "negatives.toml")
    parser.add_argument("--environments", type=Path, required=True, help="folder of the virtual environments")
    parser.add_argument("--only", action="append", metavar="PART", help="only who has this in the name")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    own = {f"{KWS_EDGE} {KeywordModel.load(model).name}": model for model in options.model}
    wanted = [n for n in (*own, *COMPARED) if not options.only or any(part in n for part in options.only)]
    results = json.loads(options.output.read_text()) if options.output.exists() else {"contestants": {}}
    with tempfile.TemporaryDirectory() as folder:
        say("streams")
        streams = streams_of(options.takes, options.data, options.sources, Path(folder))
        engines = dict.fromkeys(word.label.partition("-")[0] for word in streams[0].words)
        results |= {"phrase": PHRASE, "hours": streams[-1].seconds / 3600, "engines": sorted(engines)}
        for name in wanted:
            say(name)
            if name in own:
                contestant = kws_edge(own[name], streams)
            else:
                row = next(row for row in PEERS if row.name == name)
                interpreter = environments.make(options.environments.resolve(), row.environment)
                contestant = peer(row, interpreter, options.core, streams)
            results["contestants"][name] = compare(contestant, streams)
            options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(markdown(results))


if __name__ == "__main__":
    main()

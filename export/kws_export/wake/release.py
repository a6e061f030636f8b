"""From the best epoch to the files: calibrated on held-out streams by the device's own runtime, with card and plot."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kws_edge.arrays import F32, I16
from kws_edge.audio.pcm import as_float
from kws_edge.errors import SettingError
from kws_edge.files import replace_file
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import WAKE_WORD, Metadata
from kws_edge.model.onnx_file import model_name
from kws_edge.model.score import Score
from kws_edge.stream.framing import DEFAULT_HOP
from kws_edge.stream.incremental import SUFFIX as STEP_SUFFIX
from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning import calibration, choice
from kws_edge.tuning.evaluation import StreamReport
from kws_edge.tuning.false_accepts import SOUNDS, SPEECH
from kws_edge.tuning.plot import det_plot
from kws_edge.tuning.points import Point, assess
from kws_edge.tuning.record import remove_forms, stream_record
from kws_edge.tuning.soundscape import Word, compose, joined
from kws_edge.tuning.traced import trace_stream
from kws_export.data.augment import at_speed
from kws_export.data.features import window_features
from kws_export.evaluation.scoring import METHOD, calibrate, score_clips
from kws_export.graph.build import build_model, build_step_model, run_model, save_model
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.release.runtimes import check_runtimes
from kws_export.training.checkpoint import Checkpoint
from kws_export.training.description import uncalibrated_metadata
from kws_export.training.recipe import Recipe
from kws_export.wake.card import wake_card
from kws_export.wake.held_out import PEOPLE, SNR, chosen, crowdings
from kws_export.wake.material import Material
from kws_export.wake.provenance import Provenance
from kws_export.wake.settings import WakeSettings
from kws_export.wake.training import UNKNOWN, VARIANT
from kws_export.wake.whole_stream import SMOOTHING
from kws_export.wake.windows import AUGMENTATION, Windows

SCORE: Score = "entropy"
PACES = {"": 1.0, ", faster and higher": 1.15, ", slower and lower": 0.88}
"""What must hold the limit together, and at which speed it is played: to other windows, as of other people. An hour
or two of speech have one event or none at a threshold for one an hour: more luck than measure."""
WORDS = 200
"""Of each wake word, in each condition."""
FEWEST = 0.5
"""Of the words, in silence: a model that finds less is of no use, and fails the command."""
WINDOWS = 600
"""With a word and without, each, for the thresholds of single clips."""
CURVE_UNTIL = 20.0
"""The curve ends at so many times the limit."""

Steps = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What was chosen, its curve on speech, what it gives in each condition, and where no limit holds."""

    point: Point
    curve: list[Point]
    conditions: dict[str, StreamReport]
    apart: dict[str, StreamReport]


def release(
    network: MatchboxNet,
    best: dict[str, Any],
    settings: WakeSettings,
    held_out: Material,
    windows: Windows,
    provenance: Provenance,
    out: Path,
    say: Steps,
) -> Calibrated:
    """Calibrate, and write NAME.onnx, NAME.step.onnx, NAME.md and NAME.svg.

    Raises
    ------
    SettingError : no threshold finds a word within the limit, or few are found; the curve is said before.
    ModelError : torch, ONNX Runtime and numpy disagree.
    """
    labels = (*settings.labels, UNKNOWN)
    recipe = Recipe(
        name=model_name(out), variant=VARIANT, start=provenance.start, labels=labels, padding="valid",
        epochs=settings.epochs, batch=settings.batch, seed=settings.seed, peak_lr=settings.peak_lr,
        final_lr=settings.final_lr, hold=0.25, average=settings.average, channels=network.channels,
        augmentation=AUGMENTATION,
    )  # fmt: skip
    checkpoint = Checkpoint(network, recipe, labels, windows.front_end, best["epoch"])
    features, truth = _clips(held_out, windows)
    training = {
        "purpose": WAKE_WORD, "clips": {"training": provenance.takes}, "negatives": provenance.negatives,
    }  # fmt: skip
    draft = uncalibrated_metadata(checkpoint, SCORE, training, provenance.about)
    named = {**recipe.to_dict(), "start": provenance.start_name}  # without the folders of this machine
    draft = replace(draft, training={**draft.training, "recipe": named})
    model = run_model(build_model(network, draft))
    import torch

    check_runtimes(checkpoint, model, torch.from_numpy(features[:: max(1, len(features) // 200)]))
    scored = score_clips(model, features, truth)
    metadata = replace(
        draft,
        thresholds=calibrate(scored),
        calibration={"split": "held-out windows", "clips": len(truth), "method": METHOD},
        accuracy={"validation": scored.accuracy()},
    )
    found = on_streams(model, metadata, settings, held_out, say)
    metadata = replace(metadata, stream=_stream(found, settings, crowdings(held_out.words)))
    out.parent.mkdir(parents=True, exist_ok=True)
    finished = build_model(network, metadata)
    size = finished.ByteSize()
    on_speech = replace(found.point, negatives={SPEECH: found.point.negatives[SPEECH]})  # as the curve is
    det_plot(found.curve, on_speech, settings.limit, out.with_suffix(".svg"))
    card = wake_card(metadata, size, settings, provenance, found.point, found.conditions, found.apart)
    replace_file(out.with_suffix(".md"), card)
    remove_forms(out)  # of another model of that name
    save_model(build_step_model(network, metadata), out.with_suffix(STEP_SUFFIX))
    save_model(finished, out)  # last, as it says that the others are there
    return found


def on_streams(
    model: KeywordModel, metadata: Metadata, settings: WakeSettings, held_out: Material, say: Steps
) -> Calibrated:
    """Choose the stream's settings: most words found, in silence and over sounds and speech, within the limit."""
    sayings = chosen(held_out.words, settings.labels, settings.seed, WORDS, enough=PEOPLE)
    clips = [(s.label, as_float(s.samples)) for s in sayings]
    backgrounds: dict[str, Sequence[I16] | None] = {
        "in silence": None,
        f"{SNR:g} dB over sounds": held_out.sounds,
        f"{SNR:g} dB over speech": held_out.speech,
    }
    with_words = []
    for name, background in backgrounds.items():
        if background is None or background:
            say(f"words {name}")
            behind = None if background is None else [as_float(b) for b in background[:400]]
            stream = compose(clips, seed=settings.seed, gap=(1.0, 2.0), background=behind, snr=SNR)
            with_words.append(trace_stream(model, ((x, [w] if w else []) for x, w in stream), name))
    say("speech and sounds without the word")
    without = []
    for pace, speed in PACES.items():
        for kind, recordings in ((SPEECH, held_out.speech), (SOUNDS, held_out.sounds)):
            if recordings:
                played = (at_speed(as_float(x), speed, 2 * len(x)) for x in recordings)
                without.append(trace_stream(model, ((block, []) for block in joined(played)), kind + pace))
    unlimited = {"near-misses": held_out.near, "single other words": held_out.single}
    traced_apart = [trace_stream(model, _quiet(x), name) for name, x in unlimited.items() if x]

    told = list(settings.labels)
    smoothing = round(SMOOTHING * DEFAULT_HOP, 3)  # by which the epochs were judged
    bases = [StreamSettings({SCORE: 1.0}, smoothing=smoothing, crowding=surer) for surer in crowdings(held_out.words)]
    tries = [(calibration.candidates(metadata, with_words, without, base, (SCORE,), told), base) for base in bases]
    until = CURVE_UNTIL * max(1.0, settings.limit)
    lengths = [t.seconds for t in without]
    longer = sum(lengths) / min(lengths)  # the shortest passes a rate long before all together do
    curves = list(calibration.sweep(metadata, with_words, without, tries, told, until=until * longer))
    held = [[_all_speeds(p) for p in points] for points in curves]
    try:
        chosen_settings = choice.choose(held, settings.limit).settings
    except SettingError:
        say(curve_text([p for curve in curves for p in curve]))
        raise
    # What follows tells of the recordings as they are, each hour of them once, and of speech and sounds apart.
    chosen_from = next(points for points in curves if any(p.settings == chosen_settings for p in points))
    own = [kind for kind in (SPEECH, SOUNDS) if kind in chosen_from[0].negatives]
    at_own_speed = [replace(p, negatives={kind: p.negatives[kind] for kind in own}) for p in chosen_from]
    point = next(p for p in at_own_speed if p.settings == chosen_settings)
    on_speech = [replace(p, negatives={SPEECH: p.negatives[SPEECH]}) for p in at_own_speed]
    until = max(until, next(p for p in on_speech if p.settings == chosen_settings).false_accepts_per_hour)
    curve = choice.frontier(p for p in on_speech if p.false_accepts_per_hour <= until)
    conditions = {t.name: assess(metadata, [t], point.settings, told) for t in with_words}
    apart = {t.name: assess(metadata, [t], point.settings, told) for t in traced_apart}
    quiet = conditions[with_words[0].name]
    if quiet.hits < FEWEST * quiet.words:
        say(curve_text(curve))
        raise SettingError(
            f"{quiet.hits} of {quiet.words} words are found in silence at {settings.limit:g} false accepts an hour; "
            "expected half of them at least: give more takes, by more people, listen whether they say the word, or "
            "allow more --false-accepts-per-hour"
        )
    return Calibrated(point, curve, conditions, apart)


def _all_speeds(point: Point) -> Point:
    """The point with all speeds of speech together, and those of sounds apart: these would dilute the rate."""
    kinds = {
        kind: {name: report for name, report in point.negatives.items() if name.startswith(kind)}
        for kind in (SPEECH, SOUNDS)
    }
    return replace(point, negatives={k: replace(point, negatives=some).joined for k, some in kinds.items() if some})


def curve_text(points: Sequence[Point]) -> str:
    """A trade-off curve in lines: false accepts an hour, words missed."""
    rows = [f"{p.false_accepts_per_hour:8.1f} an hour: {p.miss_rate:6.1%} missed" for p in choice.frontier(points)]
    return "\n".join(rows[:20]) or "no word is found at any threshold"


def _stream(found: Calibrated, settings: WakeSettings, tried: Sequence[float]) -> dict[str, Any]:
    """What the model's file says of its calibration on streams."""
    return stream_record(
        found.point,
        settings.limit,
        method="most hits under the limit, on speakers, voices and recordings held out of training",
        words=settings.labels,
        positives={"clips": found.point.words.words, "from": "held out", "snr": [None, SNR]},
        tried={
            "smoothing": [round(SMOOTHING * DEFAULT_HOP, 3)], "score": [SCORE], "crowding": list(tried),
            "per_label": False,
            "speed_of_negatives": list(PACES.values()),
            "limit_holds": "over all speeds together, of speech and of sounds",
        },
        seed=settings.seed,
        sounds=[SOUNDS],
    )  # fmt: skip


def _quiet(recordings: Sequence[I16]) -> Iterator[tuple[F32, list[Word]]]:
    return ((block, []) for block in joined(as_float(r) for r in recordings))


def _clips(held_out: Material, windows: Windows) -> tuple[F32, "np.ndarray[Any, np.dtype[np.int64]]"]:
    """Held-out windows as they are, without augmentation: features float32 [n, coefficients, frames], classes [n]."""
    rng = np.random.default_rng(windows.seed)
    found: list[tuple[F32, int]] = []
    for saying in chosen(held_out.words, windows.labels, windows.seed, WINDOWS // len(windows.labels)):
        clip = as_float(saying.samples)[-windows.n :]
        before = (windows.n - len(clip)) // 2
        found.append((np.pad(clip, (before, windows.n - len(clip) - before)), windows.labels.index(saying.label)))
    for recordings, label, count in (
        (held_out.speech, windows.unknown, WINDOWS),
        (held_out.sounds, windows.unknown, 100),
    ):
        some = [r for r in recordings if len(r) >= windows.n] or [np.pad(r, (0, windows.n)) for r in recordings]
        for _ in range(count if some else 0):
            recording = some[int(rng.integers(len(some)))]
            at = int(rng.integers(len(recording) - windows.n + 1))
            found.append((as_float(recording[at : at + windows.n]), label))
    features = np.stack([window_features(x, windows.front_end) for x, _ in found])
    return features, np.array([label for _, label in found])

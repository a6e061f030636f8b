"""The model card: what a user of a model file needs to know, as markdown."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kws_edge.model.metadata import Metadata, is_word
from kws_edge.model.selection import OperatingPoint
from kws_edge.tuning.false_accepts import FalseAccepts, duration, interval
from kws_export.data.splits import UNKNOWN
from kws_export.evaluation.scoring import Scored
from kws_export.evaluation.thresholds import fewest_to_promise
from kws_export.release.parity import Parity
from kws_export.texts import UNSTATED, cell
from kws_export.training.recipe import Recipe

OTHER_WORDS = (
    " Other words are words of the data set that the model does not know. Every label for one of them is wrong, so the "
    "more are withheld the better."
)
WHOLE_WORDS = (
    " It was trained on whole words only, and names many halves of words (`python bench/half_words.py` counts them): "
    "give it clips of one whole word, and for streams use a model whose training had windows without a word."
)
OPEN = (
    "Words outside the list are not a class: the model may take them for one of its own with confidence, which the "
    "thresholds make rarer but do not exclude."
)
CLOSED = (
    "`_unknown_` was learned from the few other words of the data set: words of another kind, or running speech, may "
    "still get a label."
)


SHOWN = (
    "A target is **shown** if the validation clips prove, with 95 % confidence, that clips like them meet it. With too "
    "few clips for that it is *not shown*: the threshold is then the loosest that met the target on these very clips, "
    "but no looser than that of a lower target, and promises nothing. Other speakers and rooms may differ: compare the "
    "two columns of accepted accuracy."
)


NOT_REACHED = (
    " *Not reached*: there is no threshold at which the validation clips met the target, and at this target the model "
    "withholds every label."
)


def model_card(
    metadata: Metadata,
    size: int,
    test: Scored,
    observed: Mapping[str, tuple[OperatingPoint, ...]],
    other_words: Mapping[str, tuple[float, ...]],
    command: str,
    parity: Parity | None = None,
    *,
    splits: str,
) -> str:
    """Write the card.

    Parameters
    ----------
    metadata : of the shipped file.
    size : of the file, in bytes.
    test : the file's answers on the test split.
    observed : what the file's thresholds give on the test split.
    other_words : score → which share of clips of words outside the list each threshold withholds; empty where there
        are no such clips.
    command : what rebuilds the file and this card.
    parity : of a quantised file, against the one that it was made from.
    splits : how the clips were parted, as `speech_commands.split_rule` says it.
    """
    m, t = metadata, metadata.training
    accuracy = m.accuracy["test"]
    words = [label for label in m.labels if is_word(label)]
    others = ", ".join(f"`{label}`" for label in m.labels if not is_word(label))
    recipe = Recipe.from_dict(t["recipe"])  # with its defaults, where a file is older than a setting
    return "\n".join(
        [
            f"# {m.name}",
            "",
            f"MatchboxNet-3x{recipe.repeat}x{recipe.channels} with the `{m.variant}` evidential head; "
            f"{t['parameters']:,} parameters, {size / 1000:.0f} kB. "
            "It names one word of a closed set in a clip of about a second, or abstains.",
            "",
            f"**Words ({len(words)}):** {', '.join(words)}" + (f"; classes besides: {others}" if others else ""),
            "",
            f"**Test accuracy:** {_percent(accuracy['accuracy'])} "
            f"(95 % interval {_percent(accuracy['low'])} to {_percent(accuracy['high'])}, "
            f"{accuracy['clips']:,} clips); validation {_percent(m.accuracy['validation']['accuracy'])}.",
            "",
            "Every figure on this page comes from:",
            "",
            f"    {command}",
            "",
            "## Data and training",
            "",
            _table(["", ""], _training_rows(t, recipe, splits)),
            "",
            "## Operating points",
            "",
            "Thresholds are chosen on the validation split; what they give on the test split stands beside it, with "
            f"95 % intervals. The default score is **{m.score}**.",
            "",
            _operating_points(m, observed, other_words),
            "",
            SHOWN + (NOT_REACHED if _unreached(m) else "") + _fewest(m) + (OTHER_WORDS if other_words else ""),
            "",
            *(_on_streams(m) if m.stream else []),
            *(_against_source(parity) if parity else []),
            "## Confusions on the test split",
            "",
            "Rows are what was said, columns what the model said, before any abstention.",
            "",
            _confusions(test, m.labels),
            "",
            "## Limits",
            "",
            "The figures are for recordings like those above; with other voices, rooms and microphones the model may "
            "do worse. "
            + (CLOSED if UNKNOWN in m.labels else OPEN)
            + ("" if t["negatives"] or recipe.negatives.share > 0 else WHOLE_WORDS)
            + " Not for safety-critical use.",
            "",
            "## Licence and attribution",
            "",
            f"Weights: {m.licence}. {_named_once(m.attribution, t['negatives'])}",
            "",
        ]
    )


def _named_once(attribution: str, negatives: str) -> str:
    """Whom to name, without the list of recordings that the card's table has already, where it ends in that."""
    head = attribution.removesuffix(".").removesuffix(f": {negatives}")
    listed = bool(negatives) and len(head) < len(attribution.removesuffix("."))
    return f'{head}: the "recordings without words" of the table above.' if listed else attribution


def _training_rows(t: Mapping[str, Any], recipe: Recipe, splits: str) -> list[list[str]]:
    clips = ", ".join(f"{split} {n:,}" for split, n in t["clips"].items())
    teachers = ", ".join(f"`{name}`" for name in recipe.distillation.teachers)
    mixed_in = recipe.negatives.share > 0 and recipe.negatives.other + recipe.negatives.hard > 0
    return [
        ["data", str(t["data"])],
        ["clips", f"{clips} (`{recipe.test_list}`)" if recipe.test_list else clips],
        ["splits", splits],
        ["epochs", f"{t['epochs']} (the original trains for 200), best by validation: {t['best_epoch']}"],
        *([["started from", f"`{recipe.start}`"]] if recipe.start else []),
        *([["distilled from", teachers]] if teachers else []),
        ["seed", str(t["seed"])],
        *([["recordings without words", t["negatives"] or UNSTATED]] if t["negatives"] or mixed_in else []),
        *([f"quantised, {key}", str(text)] for key, text in t.get("quantisation", {}).items()),
    ]


def _operating_points(
    m: Metadata,
    observed: Mapping[str, tuple[OperatingPoint, ...]],
    other_words: Mapping[str, tuple[float, ...]],
) -> str:
    head = ["score", "target", "on validation", "threshold", "accepted accuracy, validation", "coverage"]
    head += ["accepted accuracy, test", "coverage", "total"]
    head += ["other words withheld"] if other_words else []
    rows = []
    for score, points in m.thresholds.items():
        for i, (chosen, seen) in enumerate(zip(points, observed[score], strict=True)):
            found = "shown" if chosen.is_shown else "not shown" if chosen.accepted else "not reached"
            threshold = f"{chosen.threshold:.5g}" if chosen.accepted else "–"
            cells = [score, _percent(chosen.target, 1), found, threshold]
            cells += [_accepted(chosen), _percent(chosen.coverage)]
            cells += [_accepted(seen), _percent(seen.coverage), _percent(seen.total_accuracy)]
            rows.append([*cells, *([_percent(other_words[score][i])] if other_words else [])])
    return _table(head, rows)


def _accepted(point: OperatingPoint) -> str:
    """The accepted accuracy with its interval."""
    if point.low is None or point.high is None:
        return _percent(point.accepted_accuracy)
    return f"{_percent(point.accepted_accuracy)} ({100 * point.low:.2f} to {100 * point.high:.2f})"


def _unreached(m: Metadata) -> bool:
    """Whether there is a target that no threshold met."""
    return any(not p.accepted for points in m.thresholds.values() for p in points)


def _fewest(m: Metadata) -> str:
    """What it would take to show the targets that are not shown."""
    missing = sorted({p.target for points in m.thresholds.values() for p in points if not p.is_shown})
    takes = ", ".join(f"{fewest_to_promise(t):,} for {_percent(t, 1)}" for t in missing)
    clips = m.calibration["clips"]
    return f" Accepted clips needed, without a single error: {takes}; validation has {clips:,} in all." if takes else ""


def _on_streams(m: Metadata) -> list[str]:
    """The thresholds for streams, the limit that they were chosen for, and what shows it."""
    about = (m.stream or {}).get("calibration") or {}
    negatives = FalseAccepts.of(about)
    limit = about.get("limit")
    verdict = "" if limit is None else negatives.verdict(limit)
    chosen_for = "" if limit is None else f", calibrated for at most {limit:g} false accepts an hour"
    rows = [
        [kind, name, duration(r.seconds), str(r.false_accepts), interval(r)]
        for kind, reports in negatives.by_kind().items()
        for name, r in reports.items()
    ]
    return [
        "## On streams",
        "",
        f"The file has separate thresholds for streams{chosen_for}{f' ({verdict})' if verdict else ''}: "
        f"`kws-edge models {m.name}` shows them and what they were calibrated on.",
        "",
        *([_table(["without the words", "", "length", "false accepts", "rate"], rows), ""] if rows else []),
    ]


def _against_source(parity: Parity) -> list[str]:
    figures, agreement = parity_rows(parity)
    return [
        f"## Against {parity.before}",
        "",
        "Each file has the thresholds that its own answers on validation give; operating points are those on the test "
        "split. The second table compares clip by clip, on the test split.",
        "",
        _table(figures[0], figures[1:]),
        "",
        _table(agreement[0], agreement[1:]),
        "",
        f"Speed: one window on one thread, interleaved with the other file, on {parity.speed.machine}; the median of "
        f"the ratios of pairs, with quartiles {parity.speed.low:.2f} and {parity.speed.high:.2f}. It differs between "
        "processors: measure on yours.",
        "",
    ]


def parity_rows(parity: Parity) -> tuple[list[list[str]], list[list[str]]]:
    """A comparison as two tables of text, each with its head: figures of both files, and how alike they answer."""
    before, after = parity.sizes
    figures = [["", parity.before, parity.after, "difference, points"]]
    for name, a, b in parity.figures:
        change = "–" if a is None or b is None else f"{100 * (b - a):+.2f}"
        figures.append([name, _percent(a), _percent(b), change])
    figures.append(["size, kB", f"{before / 1000:.0f}", f"{after / 1000:.0f}", f"x {after / before:.2f}"])
    low, high = (f"{100 * end:+.2f}" for end in parity.interval)
    agreement = [
        ["agreement", ""],
        ["change of accuracy, points (95 % interval)", f"{100 * parity.accuracy_change:+.2f} ({low} to {high})"],
        ["same word", _percent(parity.same_answer)],
        ["same word, or withheld by both, at the default threshold", _percent(parity.same_decision)],
        *(
            [f"rank correlation of {name}", "–" if value is None else f"{value:.4f}"]
            for name, value in parity.ranks.items()
        ),
        ["mean difference of entropy", f"{parity.entropy_shift:.4f}"],
        ["speed", f"x {parity.speed.ratio:.2f}"],
    ]
    return figures, agreement


def _confusions(test: Scored, labels: tuple[str, ...]) -> str:
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (test.truth, test.predicted), 1)
    rows = [
        [f"**{word}**", *(str(n) if n else "" for n in row), _percent(row[i] / row.sum() if row.any() else None)]
        for i, (word, row) in enumerate(zip(labels, counts, strict=True))
    ]
    return _table(["", *labels, "recall"], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, cells))} |" for cells in lines)


def _percent(fraction: float | None, digits: int = 2) -> str:
    return "–" if fraction is None else f"{100 * fraction:.{digits}f} %"

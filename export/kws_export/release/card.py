"""The model card: what a user of a model file needs to know, as markdown."""

from collections.abc import Mapping

import numpy as np

from kws_edge.model.metadata import Metadata, is_word
from kws_edge.model.selection import OperatingPoint
from kws_export.data.splits import UNKNOWN
from kws_export.evaluation.scoring import Scored
from kws_export.release.parity import Parity
from kws_export.training.recipe import Recipe

OTHER_WORDS = (
    " Other words are those of the data set that the model does not know; every answer to one of them is wrong, so the "
    "more is withheld the better."
)
OPEN = (
    "Words outside the list are not a class: the model may name them with confidence, which the thresholds reduce but "
    "do not exclude."
)
CLOSED = (
    "`_unknown_` was learnt from the data set's other words, few as they are: a word of another kind, or running "
    "speech, may still be named."
)


def model_card(
    metadata: Metadata,
    size: int,
    test: Scored,
    observed: Mapping[str, tuple[OperatingPoint, ...]],
    other_words: Mapping[str, tuple[float, ...]],
    command: str,
    parity: Parity | None = None,
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
    """
    m, t = metadata, metadata.training
    accuracy = m.accuracy["test"]
    words = [label for label in m.labels if is_word(label)]
    others = ", ".join(f"`{label}`" for label in m.labels if not is_word(label))
    clips = ", ".join(f"{split} {n:,}" for split, n in t["clips"].items())
    recipe = Recipe.from_dict(t["recipe"])  # with its defaults, where a file is older than a setting
    test_list, teacher = recipe.test_list, recipe.distillation.teacher
    return "\n".join(
        [
            f"# {m.name}",
            "",
            f"MatchboxNet-3x{recipe.repeat}x{recipe.channels} with the `{m.variant}` evidential head; "
            f"{t['parameters']:,} parameters, {size / 1000:.0f} kB. "
            "One word of a closed set in a clip of about a second, or an abstention.",
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
            _table(
                ["", ""],
                [
                    ["data", str(t["data"])],
                    ["clips", f"{clips} (`{test_list}`)" if test_list else clips],
                    ["splits", "the data set's own lists; no speaker is in two of them"],
                    ["epochs", f"{t['epochs']} (the original trains for 200), best by validation: {t['best_epoch']}"],
                    *([["started from", f"`{recipe.start}`"]] if recipe.start else []),
                    *([["learnt from", f"`{teacher}`"]] if teacher else []),
                    ["seed", str(t["seed"])],
                    *([["without words", str(t["negatives"])]] if t["negatives"] else []),
                    *([f"quantised, {key}", str(text)] for key, text in t.get("quantisation", {}).items()),
                ],
            ),
            "",
            "## Operating points",
            "",
            "Thresholds are chosen on the validation split: the largest coverage whose accepted accuracy reaches the "
            f"target. What they give on the test split is beside it. The score used by default is **{m.score}**.",
            "",
            _operating_points(m, observed, other_words),
            "",
            "A target is what validation showed, not a guarantee: compare the two columns of accepted accuracy."
            + (OTHER_WORDS if other_words else ""),
            "",
            *(_against_source(parity) if parity else []),
            "## Confusions on the test split",
            "",
            "Rows are what was said, columns what the model said, before any abstention.",
            "",
            _confusions(test, m.labels),
            "",
            "## Limits",
            "",
            "Read English words of one second, mostly close to the microphone. "
            + (CLOSED if UNKNOWN in m.labels else OPEN)
            + " Not for safety.",
            "",
            "## Licence and attribution",
            "",
            f"Weights: {m.licence}. {m.attribution}",
            "",
        ]
    )


def _operating_points(
    m: Metadata,
    observed: Mapping[str, tuple[OperatingPoint, ...]],
    other_words: Mapping[str, tuple[float, ...]],
) -> str:
    head = ["score", "target", "threshold", "validation: accepted", "coverage", "test: accepted", "coverage", "total"]
    head += ["other words withheld"] if other_words else []
    rows = []
    for score, points in m.thresholds.items():
        for i, (chosen, seen) in enumerate(zip(points, observed[score], strict=True)):
            shares = [chosen.accepted_accuracy, chosen.coverage]
            shares += [seen.accepted_accuracy, seen.coverage, seen.total_accuracy]
            shares += [other_words[score][i]] if other_words else []
            rows.append([score, _percent(chosen.target, 1), f"{chosen.threshold:.5g}", *map(_percent, shares)])
    return _table(head, rows)


def _against_source(parity: Parity) -> list[str]:
    figures, agreement = parity_rows(parity)
    return [
        f"## Against {parity.before}",
        "",
        "Both files at thresholds that their own answers on validation give; operating points are those on the test "
        "split. The second table is clip by clip, on the test split.",
        "",
        _table(figures[0], figures[1:]),
        "",
        _table(agreement[0], agreement[1:]),
        "",
        f"Speed: one window on one thread, in turn with the other file, on {parity.speed.machine}; the median of "
        f"pairs, half of which lie from {parity.speed.low:.2f} to {parity.speed.high:.2f}. Another processor gives "
        "another figure: measure on yours.",
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
        ["how alike", ""],
        ["change of accuracy, points (95 % interval)", f"{100 * parity.accuracy_change:+.2f} ({low} to {high})"],
        ["same word", _percent(parity.same_answer)],
        ["same word, or withheld by both, at the default threshold", _percent(parity.same_decision)],
        *([f"rank correlation of {name}", f"{value:.4f}"] for name, value in parity.ranks.items()),
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
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _percent(fraction: float | None, digits: int = 2) -> str:
    return "–" if fraction is None else f"{100 * fraction:.{digits}f} %"

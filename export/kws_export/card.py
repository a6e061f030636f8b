"""The model card: what a user of a model file needs to know, as markdown."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kws_edge.abstention import OperatingPoint
from kws_edge.metadata import Metadata
from kws_export.scoring import Scored

I64 = npt.NDArray[np.int64]


def model_card(
    metadata: Metadata,
    size: int,
    test: Scored,
    observed: Mapping[str, tuple[OperatingPoint, ...]],
    other_words: Mapping[str, tuple[float, ...]],
    command: str,
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
    """
    m, t = metadata, metadata.training
    accuracy = m.accuracy["test"]
    return "\n".join(
        [
            f"# {m.name}",
            "",
            f"MatchboxNet-3x{t['repeat']}x64 with the `{m.variant}` evidential head; {t['parameters']:,} parameters, "
            f"{size / 1000:.0f} kB. One word of a closed set in a clip of about a second, or an abstention.",
            "",
            f"**Words ({len(m.labels)}):** {', '.join(m.labels)}",
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
                    ["clips", ", ".join(f"{split} {n:,}" for split, n in t["clips"].items())],
                    ["splits", "the data set's own lists; no speaker is in two of them"],
                    ["epochs", f"{t['epochs']} (the original trains for 200), best by validation: {t['best_epoch']}"],
                    *([["started from", f"`{t['recipe']['start']}`"]] if t["recipe"]["start"] else []),
                    ["seed", str(t["seed"])],
                    *([["without words", str(t["negatives"])]] if t["negatives"] else []),
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
            "A target is what validation showed, not a guarantee: compare the two columns of accepted accuracy. Other "
            "words are those of the data set that the model does not know; every answer to one of them is wrong, so "
            "the more is withheld the better.",
            "",
            "## Confusions on the test split",
            "",
            "Rows are what was said, columns what the model said, before any abstention.",
            "",
            _confusions(test, m.labels),
            "",
            "## Limits",
            "",
            "Read English words of one second, mostly close to the microphone. Words outside the list are not a class: "
            "the model may name them with confidence, which the thresholds reduce but do not exclude. Not for safety.",
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
    head.append("other words withheld")
    rows = []
    for score, points in m.thresholds.items():
        withheld = other_words.get(score, [None] * len(points))
        for chosen, seen, others in zip(points, observed[score], withheld, strict=True):
            shares = (
                chosen.accepted_accuracy, chosen.coverage,
                seen.accepted_accuracy, seen.coverage, seen.total_accuracy, others,
            )  # fmt: skip
            rows.append([score, _percent(chosen.target, 1), f"{chosen.threshold:.5g}", *map(_percent, shares)])
    return _table(head, rows)


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

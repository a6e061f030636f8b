"""Made-up score files, for tests of comparisons and reports: their figures are known, or quick to compute."""

from typing import Any

import numpy as np
import numpy.typing as npt

from kws_edge.model.score import SCORES
from kws_export.evaluation.score_file import KeptAnswers, RunScores, shortened
from kws_export.evaluation.scoring import TARGETS
from kws_export.evaluation.studies import Difference
from kws_export.report.comparison import Comparison, PairGain
from kws_export.report.figures import Key
from kws_export.report.published import ACCURACY, paper_key

LABELS = ("yes", "no", "up")
INSIDE = ("validation", "test", "test_20dB", "test_10dB", "test_5dB", "test_0dB")
OUTSIDE = ("other_words", "silence", "speech")


def answers(
    n: int, errors: float, seed: int, *, with_probabilities: bool = False, outside: bool = False
) -> KeptAnswers:
    """n clips, about so many of them wrong; both scores rank most of the errors last."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(len(LABELS), size=n)
    wrong = rng.random(n) < errors
    predicted = np.where(wrong, (truth + 1) % len(LABELS), truth)
    doubt = np.clip(rng.beta(1, 12, n) + (wrong | outside) * rng.beta(3, 2, n), 0.001, 0.999)
    vacuity = np.clip(doubt * rng.uniform(0.7, 1.3, n), 0.001, 1)
    entropy, i16 = shortened(doubt), np.int16
    kept = (np.full(n, -1, i16) if outside else truth.astype(i16), predicted.astype(i16), entropy, shortened(vacuity))
    if not with_probabilities:
        return KeptAnswers(*kept)
    p = probabilities(predicted, doubt)
    row = np.arange(n)
    return KeptAnswers(*kept, *map(shortened, (p[row, truth], p[row, predicted], np.square(p).sum(1))))


def probabilities(predicted: npt.NDArray[Any], doubt: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """p̂ [n, 3], which gives the predicted class 1 - doubt/2 and parts the rest."""
    p = np.repeat(doubt[:, None] / 4, len(LABELS), axis=1)
    p[np.arange(len(predicted)), predicted] = 1 - doubt / 2
    return p


def run(
    variant: str, seed: int = 1, *, n: int = 600, errors: float = 0.05, sets: bool = True, **changes: Any
) -> RunScores:
    """A run's file; `sets` adds noise and what is outside the vocabulary."""
    inside = {
        name: answers(n, errors * (1 + i), 100 * seed + i, with_probabilities=name == "test")
        for i, name in enumerate(INSIDE if sets else INSIDE[:2])
    }
    outside = {name: answers(40, 1, 50 + i, outside=True) for i, name in enumerate(OUTSIDE if sets else ())}
    scored = {**inside, **outside}
    values: dict[str, Any] = {
        "run": f"{variant}-{seed}",
        "variant": variant,
        "seed": seed,
        "epochs": 14,
        "best_epoch": 13,
        "recipe": {"name": variant, "variant": variant, "seed": seed, "epochs": 14},
        "labels": LABELS,
        "checkpoint": "0" * 64,
        "keys": {name: f"key of {name}" for name in scored},
        "patterns": {"noise": ["esc10/*/2-*"], "speech": ["libri_speech/test-other"]} if sets else {},
        "sets": scored,
    }
    return RunScores(**{**values, **changes})


def known(accuracy: dict[str, list[float]]) -> Comparison:
    """A comparison whose accuracies are given, one a seed, and whose other figures are all alike."""
    rules = ("validation", "conservative")
    keys = {
        **{paper_key(s, t): 0.9 for s in SCORES for t in TARGETS},
        **{Key("auroc_errors", "test", s): 0.95 for s in SCORES},
        Key("rank_correlation", "test"): 0.8,
        **{Key(q, "test", s, t, r): 0.5 for q in ("coverage", "accepted_accuracy", "total_accuracy", "halves_kept",
           "halves_promised", "halves_coverage") for s in (*SCORES, "both") for t in TARGETS
           for r in rules},
        **{Key("accepted", "test", s, t, r): 300 for s in SCORES for t in TARGETS for r in rules},
    }  # fmt: skip
    runs = {v: [run(v, i + 1, sets=False) for i in range(len(a))] for v, a in accuracy.items()}
    keys[Key("accuracy", "validation")] = 0.95
    computed = {f"{v}-{i + 1}": {**keys, ACCURACY: x} for v, a in accuracy.items() for i, x in enumerate(a)}
    none = PairGain(Difference(0, 0, 0), None)
    return Comparison(runs, computed, {(v, t, s): none for v in accuracy for t in TARGETS for s in SCORES})

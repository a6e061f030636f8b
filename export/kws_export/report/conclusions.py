"""What the paper concludes, held to its own figures and to ours: one row a conclusion.

A conclusion is a difference of two figures: one is larger, or both are the same. Ours is taken over the seeds that both
variants have, paired by seed, and tested by a paired t-test; with one seed nothing can be told.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot
from typing import Literal

import numpy as np
from scipy import stats

from kws_export.report.comparison import Comparison
from kws_export.report.figures import Key
from kws_export.report.published import ACCURACY, PUBLISHED, paper_key
from kws_export.report.tables import NONE, SINGLE, Table

LEVEL = 0.05
"""Of the test, without a correction for there being many."""
MARGIN = 0.01
"""So far apart two figures may be and count as the same: more than 2σ of a difference in the paper's accuracies."""

Cell = tuple[str, Key]
"""A variant and one of its figures."""


@dataclass(frozen=True, slots=True)
class Claim:
    """`first` is larger than `second`, or they are the same.

    `from_paper` is false for the comparisons that the paper does not make, such as pairs that differ in the loss alone.
    """

    text: str
    first: Cell
    second: Cell
    kind: Literal["larger", "same"] = "larger"
    from_paper: bool = True


def _claims() -> Iterator[Claim]:
    entropy, vacuity = (paper_key(score, 0.995) for score in ("entropy", "vacuity"))
    for loss in ("ce", "mse"):
        edl, plugin, name = f"edl_{loss}", f"plugin_{loss}", loss.upper()
        yield Claim(f"plug-in {name} is as accurate as EDL {name}", (plugin, ACCURACY), (edl, ACCURACY), "same")
        yield Claim(f"and abstains as well, by entropy ({name})", (plugin, entropy), (edl, entropy), "same")
        yield Claim(f"and by vacuity ({name})", (plugin, vacuity), (edl, vacuity), "same")
        for what, key in (("accuracy", ACCURACY), ("entropy", entropy), ("vacuity", vacuity)):
            text = f"with KL in both: plug-in {name} = EDL {name}, {what}"
            yield Claim(text, (f"{plugin}_kl", key), (edl, key), "same", from_paper=False)
    for what, key in (("accuracy", ACCURACY), ("entropy", entropy), ("vacuity", vacuity)):
        text = f"without KL in either: plug-in CE = EDL CE, {what}"
        yield Claim(text, ("plugin_ce", key), ("edl_ce_no_kl", key), "same", from_paper=False)
    same = "plug-in CE's vacuity abstains like its entropy"
    yield Claim(same, ("plugin_ce", vacuity), ("plugin_ce", entropy), "same")
    with_kl = ("plugin_ce_kl", vacuity), ("plugin_ce_kl", entropy)
    yield Claim("the same with KL, which the paper's figures suggest", *with_kl, "same", from_paper=False)
    yield Claim("EDL CE's vacuity abstains like its entropy", ("edl_ce", vacuity), ("edl_ce", entropy), "same")
    yield Claim("EDL MSE's vacuity abstains like its entropy", ("edl_mse", vacuity), ("edl_mse", entropy), "same")
    yield Claim("KL makes EDL CE's vacuity useful", ("edl_ce", vacuity), ("edl_ce_no_kl", vacuity))
    yield Claim("KL makes softmax's vacuity useful", ("softmax_kl", vacuity), ("softmax", vacuity))
    yield Claim("KL costs softmax accuracy", ("softmax", ACCURACY), ("softmax_kl", ACCURACY))
    yield Claim("without KL, softmax abstains better by entropy", ("softmax", entropy), ("softmax", vacuity))
    yield Claim("so does softplus", ("softplus", entropy), ("softplus", vacuity))
    yield Claim("so does softmax with the EDL loss", ("softmax_edl_ce", entropy), ("softmax_edl_ce", vacuity))
    yield Claim("softmax is more accurate than EDL CE", ("softmax", ACCURACY), ("edl_ce", ACCURACY))
    yield Claim("and abstains better, by entropy", ("softmax", entropy), ("edl_ce", entropy))
    yield Claim("CE is more accurate than MSE, EDL", ("edl_ce", ACCURACY), ("edl_mse", ACCURACY))
    yield Claim("CE is more accurate than MSE, plug-in", ("plugin_ce", ACCURACY), ("plugin_mse", ACCURACY))


CLAIMS = tuple(_claims())


def conclusions_table(c: Comparison) -> Table:
    """Every conclusion with the paper's difference, ours, and what can be said."""
    rows = [[claim.text, _paper(claim), *_ours(c, claim)] for claim in CLAIMS]
    return Table(
        "conclusions",
        "What the paper concludes, held to its figures and to ours; differences in points",
        "Accuracy, or Acc_total at 99.5 % by the paper's protocol. Ours ± 2σ of the difference over the seeds that "
        f"both have, with p of a paired t-test; {SINGLE} one seed. *reproduces*: larger at p < {LEVEL}, or the same to "
        f"within {100 * MARGIN:.0f} point (both one-sided tests at p < {LEVEL}). *does not*: the contrary, or a "
        f"difference, at the same level. {NONE}: the paper does not compare them, the variant is not trained here, "
        "or no seed is common or differs.",
        ["conclusion", "paper", "ours", "p", "verdict"],
        rows,
    )


def _paper(claim: Claim) -> str:
    if not claim.from_paper or not {claim.first[0], claim.second[0]} <= PUBLISHED.keys():
        return NONE
    a, b = (PUBLISHED[v][key] for v, key in (claim.first, claim.second))
    return f"{100 * (a.mean - b.mean):+.2f} ± {100 * hypot(a.two_sigma or 0, b.two_sigma or 0):.2f}"


def _ours(c: Comparison, claim: Claim) -> tuple[str, str, str]:
    differences = paired(c, claim)
    if not differences.size:
        trained = {claim.first[0], claim.second[0]} <= c.runs.keys()
        return NONE, NONE, "cannot be told: no seed in common" if trained else "not trained"
    mean = float(differences.mean())
    if differences.size == 1:
        return f"{100 * mean:+.2f} {SINGLE}", NONE, "cannot be told: one seed"
    two_sigma = 2 * float(differences.std(ddof=1))
    p = _p(differences, 0)
    told = NONE if np.isnan(p) else f"{p:.3f}"  # seeds without any difference
    return f"{100 * mean:+.2f} ± {100 * two_sigma:.2f}", told, verdict(claim.kind, differences)


def paired(c: Comparison, claim: Claim) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """First less second, for each seed that both variants have; float64 [n], empty where a variant is not there."""
    (v, key), (w, other) = claim.first, claim.second
    if not {v, w} <= c.runs.keys():
        return np.empty(0)
    a, b = ({run.seed: c.figures[run.run][k] for run in c.runs[of]} for of, k in ((v, key), (w, other)))
    return np.array([a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())])


def verdict(kind: Literal["larger", "same"], differences: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """What two or more paired differences say of a conclusion."""
    if kind == "larger":
        if not _p(differences, 0) < LEVEL:
            return "cannot be told"
        return "reproduces" if differences.mean() > 0 else "does not"
    above = _p(differences, -MARGIN, "greater")
    below = _p(differences, MARGIN, "less")
    if max(above, below) < LEVEL:
        return "reproduces"
    beyond = min(
        _p(differences, MARGIN, "greater"),
        _p(differences, -MARGIN, "less"),
    )
    return "does not" if beyond < LEVEL else "cannot be told"


def _p(
    differences: np.ndarray[tuple[int], np.dtype[np.float64]],
    mean: float,
    alternative: Literal["two-sided", "greater", "less"] = "two-sided",
) -> float:
    """That of a t-test; NaN where all differences are the mean."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of differences that are all alike, as few clips give
        return float(stats.ttest_1samp(differences, mean, alternative=alternative).pvalue)

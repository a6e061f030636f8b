"""State what the figures say, in sentences computed from them."""

import math
from collections.abc import Iterator, Sequence
from itertools import product

from kws_edge.model.score import SCORES
from kws_edge.model.variants import COMPARED
from kws_export.evaluation.metrics import accuracy_interval
from kws_export.evaluation.scoring import TARGETS
from kws_export.report.comparison import Comparison, Estimate
from kws_export.report.conclusions import conclusions_table
from kws_export.report.figures import Key
from kws_export.report.matched import RANKS
from kws_export.report.published import ACCURACY, paper_key
from kws_export.report.report_tables import (
    SET_TITLES,
    noisy_sets,
    outside_sets,
)
from kws_export.report.tables import MAIN_TARGET, percent

SATURATED = 0.01
"""Share of clips from which on a crowd at 1 is told of."""


ALIKE = 0.99
"""Rank correlation from which on two scores are said to order clips alike."""


def findings(c: Comparison) -> list[str]:
    """One paragraph of markdown each."""
    return [
        *_missing(c),
        *_partial(c),
        *_conclusions(c),
        *_accuracy(c),
        *_ties(c),
        *_selective(c),
        *_orders(c),
        *_saturated(c),
        *_promises(c),
        *_halves(c),
        *_pairs(c),
        *_outside(c),
        *_noise(c),
    ]


def difference(a: Estimate | None, b: Estimate | None) -> Estimate | None:
    """Of two independent estimates; the spread of a sum of squares, None where one has no spread."""
    if a is None or b is None:
        return None
    spread = None if a.two_sigma is None or b.two_sigma is None else math.hypot(a.two_sigma, b.two_sigma)
    return Estimate(a.mean - b.mean, spread, min(a.seeds, b.seeds))


def _missing(c: Comparison) -> Iterator[str]:
    if absent := [v for v in COMPARED if v not in c.runs]:
        yield f"Not here, since no finished run of it was scored: {', '.join(f'`{v}`' for v in absent)}."


def _partial(c: Comparison) -> Iterator[str]:
    """Sets on which some runs were scored and others were not."""
    runs = [run for some in c.runs.values() for run in some]
    parts = []
    for name in dict.fromkeys(name for run in runs for name in run.sets if not c.has(name)):
        without = [f"`{run.run}`" for run in runs if name not in run.sets]
        parts.append(f"{SET_TITLES.get(name, name)} (not in {', '.join(without)})")
    if parts:
        yield f"**Left out**, since not every run was scored on it: {'; '.join(parts)}."


def _conclusions(c: Comparison) -> Iterator[str]:
    verdicts = [row[-1].partition(":")[0] for row in conclusions_table(c).rows]
    counts = ", ".join(f"{verdicts.count(verdict)} {text}" for verdict, text in _VERDICTS.items())
    yield f"**The paper's conclusions.** Of {len(verdicts)} comparisons, {counts}; the table has each."


_VERDICTS = {
    "reproduces": "reproduce",
    "does not": "do not",
    "cannot be told": "cannot be told",
    "not trained": "are of a variant that was not trained here",
}


def _ties(c: Comparison) -> Iterator[str]:
    """Runs whose class was once taken from α, and whose weights are no longer there to take it from the logits."""
    found = []
    for some in c.runs.values():
        for run in some:
            test = run.sets["test"]
            tied = int(((test.vacuity == 1) & (test.predicted == 0)).sum())
            if tied and test.logits is None:
                found.append(f"`{run.run}` {tied}")
    if found:
        yield (
            "**Ties.** Without logits in the score file, the class of clips whose every α is 1 in float32 is the first "
            f"word, not the likeliest: {', '.join(found)} of {c.clips('test'):,} test clips. The accuracy is lower "
            "by as much at most; these clips are withheld before any other."
        )


def _accuracy(c: Comparison) -> Iterator[str]:
    found = {v: e for v in c.runs if (e := c.estimate(v, ACCURACY))}
    best, worst = max(found, key=lambda v: found[v].mean), min(found, key=lambda v: found[v].mean)
    n = c.clips("test")
    low, high = accuracy_interval(round(found[best].mean * n), n)
    text = f"{percent(found[best].mean)} % (`{best}`) on {n:,} test clips; the 95 % interval of the "
    text = text if best == worst else f"From {percent(found[worst].mean)} % (`{worst}`) to {text}latter as a "
    text = f"**Accuracy.** {text}proportion is {percent(low)} to {percent(high)} %"
    inside = [v for v in found if v != best and found[v].mean >= low]
    yield text + (f", and {len(inside)} of the other {len(found) - 1} variants lie in it." if len(found) > 1 else ".")


def _selective(c: Comparison) -> Iterator[str]:
    parts = []
    for target in TARGETS:
        found = {(v, s): e for v in c.runs for s in SCORES if (e := c.estimate(v, paper_key(s, target)))}
        (v, s), best = max(found.items(), key=lambda item: item[1].mean)
        parts.append(f"at {100 * target:.1f} % `{v}` by {s} ({percent(best.mean)})")
    ahead = [
        (v, t)
        for v, t in product(c.runs, TARGETS)
        if (d := difference(c.estimate(v, paper_key("entropy", t)), c.estimate(v, paper_key("vacuity", t))))
        and d.mean > 0
    ]
    yield (
        f"**Acc_total.** Largest {', '.join(parts)}. Entropy is ahead of vacuity in {len(ahead)} of "
        f"{len(c.runs) * len(TARGETS)} pairs of variant and target."
    )


def _orders(c: Comparison) -> Iterator[str]:
    found = {v: e.mean for v in c.runs if (e := c.estimate(v, RANKS))}
    alike = [f"`{v}`" for v, rho in found.items() if rho >= ALIKE]
    others = {v: rho for v, rho in found.items() if rho < ALIKE}
    text = f"in {', '.join(alike)}" if alike else "in no variant"
    if others:
        low, high = min(others, key=lambda v: others[v]), max(others, key=lambda v: others[v])
        text += f"; elsewhere it is {others[low]:.3f} (`{low}`) to {others[high]:.3f} (`{high}`)"
    if found:
        yield f"**Do vacuity and entropy order the clips alike?** Their rank correlation is {ALIKE} or more {text}."


def _saturated(c: Comparison) -> Iterator[str]:
    shares = {(v, s): e.mean for v in c.runs for s in SCORES if (e := c.estimate(v, Key("saturated", "test", s)))}
    if crowds := [f"`{v}` by {s} ({percent(x, 1)} %)" for (v, s), x in shares.items() if x >= SATURATED]:
        yield (
            f"**Scores that are 1 to the last bit** for {100 * SATURATED:.0f} % of the test clips or more, and so tell "
            f"nothing among them: {', '.join(crowds)}."
        )


def _promises(c: Comparison) -> Iterator[str]:
    gaps = [
        test.mean - validation.mean
        for v in c.runs
        if (test := c.estimate(v, ACCURACY)) and (validation := c.estimate(v, Key("accuracy", "validation")))
    ]
    low, high = (f"{100 * gap:+.2f}" for gap in (min(gaps), max(gaps)))
    span = f"{low} to {high} points, depending on the variant" if len(gaps) > 1 else f"{low} points"
    yield f"**The two splits.** Accuracy on test less that on validation is {span}."
    for rule, name in (("validation", "the paper's rule"), ("conservative", "the conservative rule")):
        runs = kept = refuted = without = 0
        for v, score, target in product(c.runs, SCORES, TARGETS):
            o, n = c.observed(v, score, target, rule), len(c.runs[v])
            if o is None:
                without += n
            else:
                runs, kept, refuted = runs + n, kept + o.kept, refuted + o.refuted
        text = (
            f"**Promised on validation, seen on test, {name}.** Of {runs} thresholds (run, score and target) {kept} "
            f"reached their target on test; {refuted} fell short by more than their 95 % interval allows."
        )
        left_out = f" {without} more are of a variant, score and target for which some run has no threshold."
        yield text + (left_out if without else "")


def _halves(c: Comparison) -> Iterator[str]:
    shares = []
    for rule in ("validation", "conservative"):
        keys = [Key("halves_kept", "test", s, t, rule) for s, t in product(SCORES, TARGETS)]
        values = [value for v in c.runs for key in keys for value in c.values(v, key)]
        shares.append(f"{percent(sum(values) / len(values), 0)} % (least, for one run, score and target: "
                      f"{percent(min(values), 0)} %)")  # fmt: skip
    yield (
        "**The same within one population** (halves of the test split): the paper's rule reaches its target in "
        f"{shares[0]} of the splits, the conservative rule, or its refusal, in {shares[1]}."
    )


def _pairs(c: Comparison) -> Iterator[str]:
    parts = []
    for score in SCORES:
        gains = [c.pairs[v, t, score] for v, t in product(c.runs, TARGETS)]
        more, less = (sum(sign * g.coverage.value > 0 and _is_clear(g.coverage) for g in gains) for sign in (1, -1))
        better, worse = (
            sum(g.accuracy is not None and sign * g.accuracy.value > 0 and _is_clear(g.accuracy) for g in gains)
            for sign in (1, -1)
        )
        parts.append(
            f"against {score} alone, coverage is larger in {more} of {len(gains)} pairs of variant and target and "
            f"smaller in {less}; accepted accuracy is higher in {better} and lower in {worse}"
        )
    yield f"**Two thresholds**, counting differences whose 95 % interval excludes 0: {'; '.join(parts)}."


def _is_clear(difference: tuple[float, float, float]) -> bool:
    _, low, high = difference
    return low > 0 or high < 0


def _outside(c: Comparison) -> Iterator[str]:
    parts = []
    for name in outside_sets(c):
        found = {(v, s): e.mean for v in c.runs for s in SCORES if (e := c.estimate(v, Key("auroc", name, s)))}
        best, worst = max(found, key=lambda k: found[k]), min(found, key=lambda k: found[k])
        parts.append(
            f"{SET_TITLES[name]} {percent(found[worst], 1)} (`{worst[0]}`, {worst[1]}) to {percent(found[best], 1)} "
            f"(`{best[0]}`, {best[1]})"
        )
    if parts:
        yield f"**Outside the vocabulary**, AUROC in %: {'; '.join(parts)}."


def _noise(c: Comparison) -> Iterator[str]:
    parts = []
    for name in noisy_sets(c):
        plain = [e.mean for v in c.runs if (e := c.estimate(v, Key("accuracy", name)))]
        keys = [Key("accepted_accuracy", name, s, MAIN_TARGET, "validation") for s in SCORES]
        kept = [e.mean for v in c.runs for key in keys if (e := c.estimate(v, key))]
        if kept:
            parts.append(
                f"at {SET_TITLES[name]} accuracy is {_span(plain)} %, that of what is accepted {_span(kept)} %"
            )
    if parts:
        yield f"**Noise**, thresholds for {100 * MAIN_TARGET} % from validation: {'; '.join(parts)}."


def _span(values: Sequence[float]) -> str:
    low, high = percent(min(values), 1), percent(max(values), 1)
    return low if low == high else f"{low} to {high}"

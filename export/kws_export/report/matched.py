"""The paper's headline claim, plug-in loss ≈ classical EDL, on pairs that differ in one thing; the KL term's weight.

The paper sets EDL with a KL term beside plug-in losses without one, so its rows differ in two things at once.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from types import MappingProxyType

import numpy as np

from kws_edge.model.variants import VARIANTS
from kws_export.evaluation.score_file import RunScores
from kws_export.report.comparison import Comparison, Estimate, kl_end
from kws_export.report.figures import Key
from kws_export.report.published import ACCURACY, paper_key
from kws_export.report.tables import MAIN_TARGET, NONE, SINGLE, Table, percent, spread
from kws_export.training.losses import kl_weight

RANKS = Key("rank_correlation", "test")
PAIRS = (
    ("CE, KL in both", "plugin_ce_kl", "edl_ce"),
    ("CE, KL in neither", "plugin_ce", "edl_ce_no_kl"),
    ("CE, as the paper has it", "plugin_ce", "edl_ce"),
    ("MSE, KL in both", "plugin_mse_kl", "edl_mse"),
    ("MSE, as the paper has it", "plugin_mse", "edl_mse"),
)
"""What the pair has in common, its plug-in loss and its EDL loss."""
WITHOUT_KL: Mapping[str, str] = MappingProxyType(
    {"edl_ce": "edl_ce_no_kl", "plugin_ce_kl": "plugin_ce", "plugin_mse_kl": "plugin_mse", "softmax_kl": "softmax"}
)
"""Variant with a KL term → the one that lacks it, and has weight decay instead."""

_COLUMNS = (
    ("accuracy", ACCURACY, 100, 2),
    ("Acc_total entropy", paper_key("entropy", MAIN_TARGET), 100, 2),
    ("Acc_total vacuity", paper_key("vacuity", MAIN_TARGET), 100, 2),
    ("AUROC entropy", Key("auroc_errors", "test", "entropy"), 100, 2),
    ("AUROC vacuity", Key("auroc_errors", "test", "vacuity"), 100, 2),
    ("rank correlation", RANKS, 1, 4),
)
_NOTE = (
    f"Accuracy and Acc_total at {100 * MAIN_TARGET} % by the paper's protocol and AUROC of errors, in %; Spearman's "
    "rank correlation of entropy and vacuity over the test clips."
)


def trained_pairs(c: Comparison) -> list[tuple[str, str, str]]:
    """Those of PAIRS of which both are here, by a seed that they share."""
    return [(text, a, b) for text, a, b in PAIRS if {a, b} <= c.runs.keys() and _shared(c, a, b)]


def pairs_table(c: Comparison) -> Table:
    """Plug-in loss and EDL side by side, over the seeds that both have."""
    rows = []
    for text, a, b in trained_pairs(c):
        seeds = _shared(c, a, b)
        first, second = ([run for run in c.runs[v] if run.seed in seeds] for v in (a, b))
        cells = []
        for _, key, scale, digits in _COLUMNS:
            both = (float(np.mean([c.figures[run.run][key] for run in runs])) for runs in (first, second))
            cells.append(" / ".join(NONE if np.isnan(value) else f"{scale * value:.{digits}f}" for value in both))
        alike = _same_word(list(zip(first, second, strict=True)))
        own = _same_word([pair for v in (a, b) for pair in combinations(c.runs[v], 2)])
        count = f"{len(seeds)} {SINGLE}" if len(seeds) == 1 else str(len(seeds))
        rows.append([text, f"`{a}` / `{b}`", count, *cells, percent(alike), percent(own)])
    return Table(
        "pairs",
        "Plug-in loss / EDL, in pairs: does the data loss matter?",
        f"{_NOTE} Means over the seeds that both have; {SINGLE} one seed. Same word: test clips to which both networks "
        "give the same word; beside it, those to which two seeds of one variant do.",
        ["pair", "variants", "seeds", *(name for name, *_ in _COLUMNS), "same word", "two seeds"],
        rows,
    )


def kl_weight_table(c: Comparison) -> Table:
    """What the KL term's weight does: the runs with a weight of their own, beside the recipe's own and none."""
    rows = []
    for v in dict.fromkeys(run.variant for run in c.weighted):
        mine = [run for run in c.weighted if run.variant == v]
        seeds = {run.seed for run in mine}
        own, without = ([r for r in c.runs.get(w, []) if r.seed in seeds] for w in (v, WITHOUT_KL.get(v, "")))
        groups = [(kl_end(run) or 0.0, "", [r for r in mine if kl_end(r) == kl_end(run)]) for run in mine]
        if own:
            groups.append((kl_weight(VARIANTS[v], own[0].epochs, own[0].epochs), ", its own", own))
        for end, text, runs in sorted({g[:2]: g for g in groups}.values(), key=lambda g: g[:2]):
            rows.append([f"`{v}`", f"{end:g}{text}", str(len(runs)), *_figures(c, runs)])
        if without:
            rows.append([f"`{v}`", f"no term: `{WITHOUT_KL[v]}`", str(len(without)), *_figures(c, without)])
    return Table(
        "kl-weight",
        "The KL term's weight: what it climbs to by the end of the run",
        f"{_NOTE} The ramp starts at 0 and is linear. The variant without a term also has weight decay, which those "
        f"with one have not. Mean ± 2σ over seeds; {SINGLE} one seed.",
        ["variant", "weight", "seeds", *(name for name, *_ in _COLUMNS), "median α₀"],
        rows,
    )


def _figures(c: Comparison, runs: Sequence[RunScores]) -> list[str]:
    columns = [*_COLUMNS, ("", Key("alpha0_median", "test"), 1, 2)]
    found = (
        (Estimate.of([c.figures[run.run][key] for run in runs if key in c.figures[run.run]]), scale, digits)
        for _, key, scale, digits in columns
    )
    return [spread(*each) for each in found]


def _shared(c: Comparison, a: str, b: str) -> set[int]:
    return {run.seed for run in c.runs[a]} & {run.seed for run in c.runs[b]}


def _same_word(pairs: Sequence[tuple[RunScores, RunScores]]) -> float | None:
    """In what share of the test clips the networks of a pair name the same word, on average; None without a pair."""
    alike = [(a.sets["test"].predicted == b.sets["test"].predicted).mean() for a, b in pairs]
    return float(np.mean(alike)) if alike else None

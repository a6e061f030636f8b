"""The tables of a report, each a function of the comparison."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from kws_edge.model.score import SCORES
from kws_export.evaluation.scoring import TARGETS
from kws_export.evaluation.studies import Difference
from kws_export.evaluation.thresholds import fewest_to_promise
from kws_export.report.comparison import Comparison
from kws_export.report.conclusions import conclusions_table
from kws_export.report.figures import NOISY, OUTSIDE, Key
from kws_export.report.loss_times import loss_times_table
from kws_export.report.matched import RANKS, kl_weight_table, pairs_table, trained_pairs
from kws_export.report.published import ACCURACY, PUBLISHED, paper_key
from kws_export.report.published import SEEDS as PUBLISHED_SEEDS
from kws_export.report.tables import MAIN_TARGET, NONE, SINGLE, Table, mean, percent, spread

SEEDS = f"Mean ± 2σ over seeds; {SINGLE} one seed."
SET_TITLES: Mapping[str, str] = MappingProxyType(
    {
        "test": "no noise",
        **{name: name.removeprefix("test_").replace("dB", " dB") for name in NOISY},
        "other_words": "other words",
        "unknown": "lost labels",
        "silence": "silence clips",
        "background": "background",
        "sounds": "sounds",
        "speech": "running speech",
    }
)
"""Set → what tables and figures call it."""


def all_tables(c: Comparison) -> list[Table]:
    """The tables that the runs' sets allow, in the order of the report."""
    makers: list[tuple[bool, Callable[[Comparison], Table]]] = [
        (True, accuracy_table),
        (True, conclusions_table),
        (bool(trained_pairs(c)), pairs_table),
        (bool(c.weighted), kl_weight_table),
        (any(c.values(v, Key("alpha0_median", "test")) for v in c.runs), theory_table),
        (True, quality_table),
        (True, promise_table),
        (True, conservative_table),
        (True, halves_table),
        (True, pair_table),
        (bool(outside_sets(c)), outside_auroc_table),
        (bool(outside_sets(c)), outside_withheld_table),
        (bool(noisy_sets(c)), noise_accuracy_table),
        (bool(noisy_sets(c)), noise_table),
    ]
    tables = [make(c) for possible, make in makers if possible]
    return [*tables, loss_times_table(c.loss_times)] if c.loss_times else tables


def outside_sets(c: Comparison) -> list[str]:
    """The sets from outside the vocabulary that every run was scored on."""
    return [name for name in OUTSIDE if c.has(name)]


def noisy_sets(c: Comparison) -> list[str]:
    """The noisy test sets that every run was scored on."""
    return [name for name in NOISY if c.has(name)]


def accuracy_table(c: Comparison) -> Table:
    """The paper's table."""
    keys = [ACCURACY, *(paper_key(score, target) for score in SCORES for target in TARGETS)]
    rows = []
    for v in c.runs:
        rows.append([f"`{v}`", str(len(c.runs[v])), *(spread(c.estimate(v, key)) for key in keys)])
        if v in PUBLISHED:
            rows.append([f"{v}, paper", str(PUBLISHED_SEEDS), *(spread(PUBLISHED[v][key]) for key in keys)])
    head = ["variant", "seeds", "accuracy", *(f"{score} {100 * t:.1f}" for score in SCORES for t in TARGETS)]
    return Table(
        "accuracy",
        "Test accuracy, and Acc_total at three accepted accuracies by each score, in %",
        "Acc_total is the share of all test clips that is accepted and right. Threshold by the paper's protocol: the "
        f"largest coverage that reaches the target, chosen on the test split itself. {SEEDS}",
        head,
        rows,
    )


def theory_table(c: Comparison) -> Table:
    """How far apart the two losses are on trained α, and where the theory has something to say."""
    shown = [v for v in c.runs if c.values(v, Key("alpha0_median", "test"))]
    quantities = [("alpha0_median", 1, 2), ("alpha0_ten", 100, 1), ("ce_gap", 1, 4), ("ce_gap_share", 100, 1)]
    quantities += [("ce_half", 100, 1), ("ce_remainder", 100, 1), ("mse_gap", 1, 4), ("mse_gap_tight", 1, 4)]
    values = {(v, q): c.values(v, Key(q, "test")) for v in shown for q, _, _ in quantities}
    rows = [[f"`{v}`", *(f"{scale * np.mean(values[v, q]):.{n}f}" for q, scale, n in quantities)] for v in shown]
    return Table(
        "theory",
        "The gap between Dirichlet-expected and plug-in loss on trained α, test split",
        "α₀: median, and share of clips with at least 10, in %. CE gap: mean of the exact correction in nats, and its "
        "share of the expected loss, in %. Second order explains: share of clips in which the expansion's second-order "
        "term is within half of the gap, in %. Remainder bound holds: share of clips in which |R| ≤ G/(3(α₀+1)) with "
        "G = 2/p̂_y³, the third derivative at the mean, in % (cross-entropy has no G that holds on the whole simplex). "
        "MSE gap: mean of the exact correction, and of the tight Lipschitz bound 2√2·√((1−‖p̂‖²)/(α₀+1)) on it. Means "
        "over the seeds whose logits were kept.",
        [
            "variant", "median α₀", "α₀ ≥ 10", "CE gap", "of the loss", "second order explains",
            "remainder bound holds", "MSE gap", "its bound",
        ],
        rows,
    )  # fmt: skip


def quality_table(c: Comparison) -> Table:
    """Ranking and probabilities."""
    rows = []
    for v in c.runs:
        cells = [spread(c.estimate(v, Key("aurc", "test", s)), 1000) for s in SCORES]
        cells += [spread(c.estimate(v, Key("auroc_errors", "test", s))) for s in SCORES]
        cells.append(spread(c.estimate(v, RANKS), 1, 4))
        cells.append(spread(c.estimate(v, Key("ece", "test"))))
        cells += [spread(c.estimate(v, Key(q, "test")), 1, 4) for q in ("brier", "nll")]
        rows.append([f"`{v}`", *cells])
    return Table(
        "quality",
        "How well the scores rank errors, and how well the probabilities are calibrated, on the test split",
        "AURC × 10³ (area under risk-coverage), ECE (15 bins, in %), Brier and NLL: lower is better. AUROC of errors, "
        "in %: higher is better. Rank correlation: Spearman's, of entropy and vacuity; at 1 both order clips alike. "
        f"{SEEDS}",
        [
            "variant", *(f"AURC {s}" for s in SCORES), *(f"AUROC {s}" for s in SCORES), "rank correlation", "ECE",
            "Brier", "NLL",
        ],
        rows,
    )  # fmt: skip


def promise_table(c: Comparison) -> Table:
    """Thresholds from validation, on test."""
    return _observed_table(
        c,
        "validation",
        "promise",
        "Accepted accuracy on test at thresholds chosen on validation, in %",
        "Each cell: accepted accuracy (its 95 % interval) at the coverage after it; then in how many runs the target "
        "was reached. The intervals are Clopper-Pearson at the seeds' mean counts.",
    )


def conservative_table(c: Comparison) -> Table:
    """Conservative thresholds from validation, on test."""
    needed = ", ".join(f"{100 * t:.1f} takes {fewest_to_promise(t):,} accepted clips" for t in TARGETS)
    return _observed_table(
        c,
        "conservative",
        "conservative",
        "Accepted accuracy on test at conservative thresholds, in %",
        "As above, with thresholds that promise the target with 95 % confidence for clips like those of validation "
        f"(Clopper-Pearson bounds at fixed ranks). {NONE}: some run cannot promise it. Without a single error among "
        f"them, {needed}; validation has {c.clips('validation'):,} in all.",
    )


def _observed_table(c: Comparison, rule: str, name: str, caption: str, note: str) -> Table:
    rows = []
    for v in c.runs:
        for score in SCORES:
            cells = []
            for target in TARGETS:
                o = c.observed(v, score, target, rule)
                if o is None or o.interval is None:
                    cells.append(NONE)
                    continue
                span = f"{percent(o.interval.low)} to {percent(o.interval.high)}"
                cells.append(
                    f"{mean(o.accuracy, digits=2)} ({span}) at {mean(o.coverage)}; {o.kept} of {len(c.runs[v])}"
                )
            rows.append([f"`{v}`", score, *cells])
    return Table(name, caption, note, ["variant", "score", *(f"promised {100 * t:.1f}" for t in TARGETS)], rows)


def halves_table(c: Comparison) -> Table:
    """Both rules where calibration and test come from one population."""

    def cell(v: str, score: str, target: float, rule: str) -> str:
        keys = [Key(f"halves_{q}", "test", score, target, rule) for q in ("kept", "promised", "coverage")]
        kept, promised, coverage = (c.estimate(v, key) for key in keys)
        return f"{mean(kept, digits=0)} / {mean(promised, digits=0)} / {mean(coverage)}"

    head = [f"{rule} {100 * t:.1f}" for rule in ("paper's rule", "conservative") for t in TARGETS]
    rows = [
        [f"`{v}`", score, *(cell(v, score, t, rule) for rule in ("validation", "conservative") for t in TARGETS)]
        for v in c.runs
        for score in SCORES
    ]
    return Table(
        "halves",
        "The same promises where both sets are halves of the test split, drawn at random 100 times, in %",
        "Each cell: splits in which the second half reached the target (or accepted nothing) / splits in which the "
        "first half could promise at all / mean coverage. What fails between validation and test but not here fails "
        "because the two splits differ.",
        ["variant", "score", *head],
        rows,
    )


def pair_table(c: Comparison) -> Table:
    """Two thresholds against one."""
    rows = []
    for v in c.runs:
        for target in TARGETS:
            cells = []
            for score in (*SCORES, "both"):
                keys = [Key(q, "test", score, target, "validation") for q in ("coverage", "accepted_accuracy")]
                coverage, accuracy = (c.estimate(v, key) for key in keys)
                cells.append(f"{mean(coverage)}: {mean(accuracy, digits=2)}")
            for score in SCORES:
                cells += map(_gain, c.pairs[v, target, score])
            rows.append([f"`{v}`", f"{100 * target:.1f}", *cells])
    gains = [f"{what} over {s}" for s in SCORES for what in ("coverage", "accuracy")]
    return Table(
        "two-thresholds",
        "Accept where entropy ≤ t₁ and vacuity ≤ t₂, against either score alone, on test, in %",
        "Thresholds are chosen on validation for the largest coverage at the target. First three columns, coverage: "
        "accepted accuracy. The others: what two thresholds have more than one, in points, with the 95 % interval of a "
        "paired bootstrap over test clips (thresholds as they are, so their own scatter is not in it).",
        ["variant", "target", *SCORES, "both", *gains],
        rows,
    )


def _gain(difference: Difference | None) -> str:
    if difference is None:
        return NONE
    value, low, high = (100 * x + 0.0 for x in difference)
    return f"{value:+.2f} ({low:+.2f} to {high:+.2f})"


def outside_auroc_table(c: Comparison) -> Table:
    """Words against everything else."""
    sets = outside_sets(c)
    rows = [
        [f"`{v}`", score, *(spread(c.estimate(v, Key("auroc", name, score)), digits=1) for name in sets)]
        for v in c.runs
        for score in SCORES
    ]
    return Table(
        "outside-auroc",
        "AUROC of each score for sounds from outside the vocabulary against the test clips, in %",
        SEEDS,
        ["variant", "score", *(f"{SET_TITLES[name]} ({c.clips(name):,})" for name in sets)],
        rows,
    )


def outside_withheld_table(c: Comparison) -> Table:
    """What thresholds withhold of everything else."""

    def cell(v: str, score: str, name: str) -> str:
        keys = [Key("withheld", name, score, target, "validation") for target in TARGETS]
        return " / ".join(mean(c.estimate(v, key), digits=0) for key in keys)

    sets = outside_sets(c)
    rows = [[f"`{v}`", score, *(cell(v, score, name) for name in sets)] for v in c.runs for score in (*SCORES, "both")]
    return Table(
        "outside-withheld",
        "Share withheld of sounds from outside the vocabulary, in %, higher is better",
        "Each cell at the thresholds chosen on validation for 99.0 / 99.5 / 99.9 % accepted accuracy; `both` is the "
        "rule of two thresholds.",
        ["variant", "score", *(SET_TITLES[name] for name in sets)],
        rows,
    )


def noise_accuracy_table(c: Comparison) -> Table:
    """Plain accuracy in noise."""
    sets = ["test", *noisy_sets(c)]
    rows = [[f"`{v}`", *(spread(c.estimate(v, Key("accuracy", name))) for name in sets)] for v in c.runs]
    return Table(
        "noise-accuracy",
        "Accuracy on the test split in noise, without abstention, in %",
        SEEDS,
        ["variant", *(SET_TITLES[name] for name in sets)],
        rows,
    )


def noise_table(c: Comparison) -> Table:
    """Selective figures in noise."""

    def cell(v: str, score: str, name: str) -> str:
        keys = [Key(q, name, score, MAIN_TARGET, "validation") for q in ("coverage", "accepted_accuracy")]
        coverage, accuracy = (c.estimate(v, key) for key in keys)
        return f"{mean(coverage)}: {mean(accuracy)}"

    sets = ["test", *noisy_sets(c)]
    rows = [[f"`{v}`", score, *(cell(v, score, name) for name in sets)] for v in c.runs for score in (*SCORES, "both")]
    return Table(
        "noise",
        f"Coverage: accepted accuracy in noise, at the thresholds chosen on validation for {100 * MAIN_TARGET} %, in %",
        "Means over seeds. The thresholds were chosen without noise.",
        ["variant", "score", *(SET_TITLES[name] for name in sets)],
        rows,
    )

"""Pairs of variants that differ in one thing, and what the KL term's weight does: which runs stand side by side."""

from dataclasses import replace
from itertools import combinations

import numpy as np
from score_files import known, run

from kws_export.report.comparison import Comparison
from kws_export.report.figures import Key
from kws_export.report.matched import kl_weight_table, pairs_table
from kws_export.report.published import ACCURACY
from kws_export.report.report import page
from kws_export.report.report_tables import all_tables


def with_weights(c: Comparison, ends: dict[float, float]) -> Comparison:
    """With runs of edl_ce, seed 1, whose KL term climbs to the key; the value is their accuracy."""
    runs = [run("edl_ce", run=f"edl_ce-kl{end:g}-1", sets=False) for end in ends]
    runs = [replace(r, recipe={**r.recipe, "kl_end": end}) for r, end in zip(runs, ends, strict=True)]
    alike = next(iter(c.figures.values()))
    figures = {r.run: {**alike, ACCURACY: accuracy} for r, accuracy in zip(runs, ends.values(), strict=True)}
    return replace(c, weighted=runs, figures={**c.figures, **figures})


def test_a_pair_stands_side_by_side_over_the_seeds_that_both_have() -> None:
    c = known({"edl_ce": [0.95, 0.96], "plugin_ce": [0.94, 0.95, 0.99], "softmax": [0.97]})
    (row,) = pairs_table(c).rows
    assert row[:4] == ["CE, as the paper has it", "`plugin_ce` / `edl_ce`", "2", "94.50 / 95.50"]
    assert row[4:9] == [*["90.00 / 90.00"] * 2, *["95.00 / 95.00"] * 2, "0.8000 / 0.8000"]


def test_words_that_both_networks_give_are_counted_beside_those_of_two_seeds_of_one() -> None:
    c = known({"edl_ce": [0.95, 0.96], "plugin_ce": [0.94, 0.95, 0.99]})
    words = {v: [r.sets["test"].predicted for r in runs] for v, runs in c.runs.items()}
    alike = [(a == b).mean() for a, b in zip(words["plugin_ce"], words["edl_ce"], strict=False)]
    own = [(x == y).mean() for v in ("plugin_ce", "edl_ce") for x, y in combinations(words[v], 2)]
    assert pairs_table(c).rows[0][9:] == [f"{100 * np.mean(alike):.2f}", f"{100 * np.mean(own):.2f}"]


def test_one_shared_seed_is_marked_and_without_one_there_is_no_pair() -> None:
    c = known({"edl_ce": [0.95], "plugin_ce": [0.94, 0.95]})
    (row,) = pairs_table(c).rows
    assert row[2] == "1 †"
    assert row[-1] != "–"
    del c.runs["plugin_ce"][0]
    assert pairs_table(c).rows == []
    assert "pairs" not in {table.name for table in all_tables(c)}


def test_weights_rise_with_the_variants_own_among_them_and_the_variant_without_a_term_last() -> None:
    c = known({"edl_ce": [0.95, 0.99], "edl_ce_no_kl": [0.91]})
    table = kl_weight_table(with_weights(c, {1.0: 0.93, 0.1: 0.96, 0.0: 0.92}))
    assert [row[:4] for row in table.rows] == [
        ["`edl_ce`", "0", "1", "92.00 †"],
        ["`edl_ce`", "0.1", "1", "96.00 †"],
        ["`edl_ce`", "0.5, its own", "1", "95.00 †"],
        ["`edl_ce`", "1", "1", "93.00 †"],
        ["`edl_ce`", "no term: `edl_ce_no_kl`", "1", "91.00 †"],
    ]


def test_a_weight_that_is_the_variants_own_is_a_row_of_its_own_runs() -> None:
    c = known({"edl_ce": [0.95]})
    rows = kl_weight_table(with_weights(c, {0.5: 0.93})).rows
    assert [row[:4] for row in rows] == [
        ["`edl_ce`", "0.5", "1", "93.00 †"],
        ["`edl_ce`", "0.5, its own", "1", "95.00 †"],
    ]


def test_what_a_run_without_errors_lacks_is_no_number() -> None:
    c = known({"edl_ce": [1.0], "plugin_ce": [0.94]})
    key = Key("auroc_errors", "test", "entropy")
    (row,) = pairs_table(replace(c, figures={run: {**f, key: f[key] if "plugin" in run else np.nan} for run, f in
                                             c.figures.items()})).rows  # fmt: skip
    assert row[6:8] == ["95.00 / –", "95.00 / 95.00"]


def test_the_page_says_how_to_train_and_show_the_weights() -> None:
    c = with_weights(known({"edl_ce": [0.95]}), {0.1: 0.96, 1.0: 0.93})
    text = page(c, all_tables(c), [], "nine")
    assert "--data speech_commands --variants edl_ce --seeds 1 --kl-ends 0.1,1\n" in text
    assert kl_weight_table(c).to_markdown() in text

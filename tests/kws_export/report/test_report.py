"""`kws-export report`: tables in three formats, plots with shared axes, and prose that follows from the numbers."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import score_files
from click.testing import CliRunner

from kws_edge.model.score import SCORES
from kws_export.cli import main
from kws_export.evaluation.score_file import RunScores
from kws_export.evaluation.scoring import TARGETS
from kws_export.evaluation.studies import Difference
from kws_export.report import loss_plots, report_tables, shift_plots
from kws_export.report.comparison import Comparison, Estimate, PairGain
from kws_export.report.conclusions import CLAIMS, Claim, conclusions_table, verdict
from kws_export.report.figures import Key
from kws_export.report.findings import difference, findings
from kws_export.report.matched import RANKS
from kws_export.report.plots import all_plots
from kws_export.report.published import ACCURACY, PUBLISHED, paper_key
from kws_export.report.report import page, write_report
from kws_export.report.report_tables import all_tables
from kws_export.report.tables import MAIN_TARGET, Table, mean, percent, spread

RUNS = [score_files.run("edl_ce"), *(score_files.run("softmax", seed) for seed in (1, 2))]


def with_logits(run: RunScores, mean: float) -> RunScores:
    """A run whose logits on the test split were kept."""
    test = run.sets["test"]
    logits = np.random.default_rng(0).normal(mean, 1, (len(test.truth), 3)).astype(np.float32)
    return replace(run, sets={**run.sets, "test": replace(test, logits=logits)})


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return Comparison.of(RUNS)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of RUNS, by the command."""
    folder = tmp_path_factory.mktemp("research") / "nine"
    for run in RUNS:
        run.save(folder / "scores" / f"{run.run}.npz")
    result = CliRunner().invoke(main, ["report", str(folder / "scores"), "--out", str(folder)])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote {folder / 'report.md'}: 2 variants, 3 runs\n"
    return folder


def test_nothing_of_an_earlier_report_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kws_export.report.report.all_plots", lambda c: [])
    earlier = ("tables/noise.csv", "tables/noise.tex", "plots/noise.png", "plots/noise.svg")
    for name in (*earlier, "tables/mine.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    write_report(score_files.known({"softmax": [0.9]}), tmp_path)
    assert not [name for name in earlier if (tmp_path / name).exists()]
    assert (tmp_path / "tables" / "mine.csv").exists()
    assert (tmp_path / "tables" / "accuracy.csv").exists()


# ---- tables

TABLE = Table("t", "a caption", "a note", ["variant", "x %"], [["`edl_ce`", "1.0 ± 0.5"], ["`softmax`", "–"]])


def test_a_table_as_markdown() -> None:
    assert TABLE.to_markdown().splitlines() == [
        "| variant | x % |",
        "| --- | ---: |",
        "| `edl_ce` | 1.0 ± 0.5 |",
        "| `softmax` | – |",
    ]


def test_a_table_as_csv() -> None:
    assert list(csv.reader(io.StringIO(TABLE.to_csv()))) == [
        ["variant", "x %"],
        ["edl_ce", "1.0 ± 0.5"],
        ["softmax", "–"],
    ]


def test_a_table_as_latex() -> None:
    latex = TABLE.to_latex()
    assert latex.startswith("% a caption\n\\begin{tabular}{lr}\n  \\toprule\n  variant & x \\% \\\\\n")
    assert "  edl\\_ce & 1.0 $\\pm$ 0.5 \\\\\n  softmax & -- \\\\\n" in latex
    assert latex.endswith("\\end{tabular}\n")


def test_marks_of_code_inside_a_cell_stay_in_markdown_alone() -> None:
    table = Table("t", "", "", ["pair"], [["`plugin_ce` / `edl_ce`"], ["no term: `softmax`"]])
    assert table.to_csv() == "pair\nplugin_ce / edl_ce\nno term: softmax\n"
    assert r"  plugin\_ce / edl\_ce \\" in table.to_latex()
    assert "`" not in table.to_latex()


def test_every_cell_is_what_pdflatex_takes() -> None:
    kept = [with_logits(score_files.run(variant), 1.0) for variant in ("edl_ce", "plugin_ce")]
    tables = all_tables(Comparison.of(kept))
    assert {"theory", "pairs"} <= {table.name for table in tables}
    for table in tables:
        body = table.to_latex().partition("\n")[2]  # the first line is a comment
        assert body.isascii(), table.name
        assert r"$\alpha$$_0$ $\geq$ 10" in body or table.name != "theory"


def test_a_single_seed_is_marked_and_has_no_spread() -> None:
    assert spread(Estimate(0.9631, None, 1)) == "96.31 †"
    assert spread(Estimate(0.9631, 0.0025, 3)) == "96.31 ± 0.25"
    assert spread(None) == mean(None) == percent(None) == "–"
    assert mean(Estimate(0.9631, 0.0025, 3)) == "96.3"


def test_the_papers_table_has_ours_and_the_published_figures_below() -> None:
    table = report_tables.accuracy_table(score_files.known({"softmax": [0.96, 0.97], "edl_ce": [0.955]}))
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["`softmax`"][:2] == ["2", "96.50 ± 1.41"]
    assert rows["softmax, paper"][:4] == ["5", "97.21 ± 0.18", "96.47 ± 0.59", "94.50 ± 1.23"]
    assert rows["softmax, paper"][4:] == ["88.41 ± 2.39", "95.54 ± 1.38", "86.57 ± 2.93", "62.00 ± 17.09"]
    assert rows["`edl_ce`"] == ["1", "95.50 †", *["90.00 †"] * 6]
    assert len(rows) == 4


def test_the_published_figures_are_the_papers() -> None:
    assert len(PUBLISHED) == 9
    assert all(len(row) == 7 for row in PUBLISHED.values())
    assert PUBLISHED["softmax"][ACCURACY] == pytest.approx((0.9721, 0.0018, 5))
    softmax_kl = [PUBLISHED["softmax_kl"][paper_key("vacuity", t)].mean for t in TARGETS]
    assert softmax_kl == pytest.approx([0.9571, 0.9413, 0.8036])
    assert PUBLISHED["plugin_mse"][paper_key("vacuity", 0.99)].mean == pytest.approx(0.9486)


def test_every_row_fits_its_head(comparison: Comparison) -> None:
    for table in all_tables(comparison):
        assert {len(row) for row in table.rows} == {len(table.head)}, table.name


def test_a_promises_cell_has_accuracy_interval_coverage_and_count(comparison: Comparison) -> None:
    table = report_tables.promise_table(comparison)
    row = next(row for row in table.rows if row[:2] == ["`softmax`", "entropy"])
    o = comparison.observed("softmax", "entropy", 0.99, "validation")
    assert o is not None
    assert o.interval is not None
    low, high = (f"{100 * end:.2f}" for end in o.interval)
    shown = f"{100 * o.accuracy.mean:.2f} ({low} to {high}) at {100 * o.coverage.mean:.1f}; {o.kept} of 2"
    assert row[2] == shown


def test_the_conservative_table_says_how_many_clips_a_promise_takes(comparison: Comparison) -> None:
    note = report_tables.conservative_table(comparison).note
    assert "99.0 takes 528 accepted clips, 99.5 takes 1,058 accepted clips, 99.9 takes 5,296 accepted clips" in note
    assert "validation has 600 in all" in note


def test_gains_have_their_sign_and_no_negative_zero() -> None:
    c = score_files.known({"softmax": [0.96]})
    gains = {key: PairGain(Difference(-0.0, -0.01, 0.02), None) for key in c.pairs}
    table = report_tables.pair_table(replace(c, pairs=gains))
    assert table.rows[0][5:7] == ["+0.00 (-1.00 to +2.00)", "–"]


def test_sets_that_were_not_scored_have_no_tables_and_no_plots() -> None:
    c = score_files.known({"softmax": [0.96]})
    names = {t.name for t in all_tables(c)} | {p.name for p in all_plots(c)}
    assert not names & {"outside", "outside-auroc", "outside-withheld", "noise", "noise-accuracy"}
    shown = page(c, [], [], "nine")
    assert "## Noise" not in shown
    assert "--noise" not in shown


# ---- prose


def said(c: Comparison, start: str) -> str:
    (paragraph,) = (p for p in findings(c) if p.startswith(start))
    return paragraph


def test_the_best_is_the_one_with_the_best_numbers() -> None:
    text = said(score_files.known({"softmax": [0.96, 0.97], "edl_ce": [0.90]}), "**Accuracy.**")
    assert "From 90.00 % (`edl_ce`) to 96.50 % (`softmax`) on 600 test clips" in text
    assert "0 of the other 1 variants lie in it" in text
    assert "From 90.00 % (`softmax`) to 96.00 % (`edl_ce`)" in said(
        score_files.known({"softmax": [0.90], "edl_ce": [0.96]}), "**Accuracy.**"
    )


def test_crowds_at_one_are_told_of_from_one_percent_on() -> None:
    c = score_files.known({"softmax": [0.96], "edl_ce": [0.9]})
    assert not [p for p in findings(c) if p.startswith("**Scores that are 1")]
    c.figures["edl_ce-1"][Key("saturated", "test", "entropy")] = 0.123
    c.figures["softmax-1"][Key("saturated", "test", "entropy")] = 0.009
    assert said(c, "**Scores that are 1").endswith("among them: `edl_ce` by entropy (12.3 %).")


def test_variants_whose_scores_order_clips_alike_are_named() -> None:
    c = score_files.known({"softmax": [0.96], "edl_ce": [0.9], "plugin_ce": [0.9]})
    start = "**Do vacuity and entropy order the clips alike?**"
    end = "0.99 or more in no variant; elsewhere it is 0.800 (`softmax`) to 0.800 (`softmax`)."
    assert said(c, start).endswith(end)
    c.figures["edl_ce-1"][RANKS], c.figures["softmax-1"][RANKS] = 0.9999, 0.9
    end = "0.99 or more in `edl_ce`; elsewhere it is 0.800 (`plugin_ce`) to 0.900 (`softmax`)."
    assert said(c, start).endswith(end)


def test_the_gap_between_the_splits_is_told() -> None:
    text = said(score_files.known({"softmax": [0.96], "edl_ce": [0.9]}), "**The two splits.**")
    assert "-5.00 to +1.00 points" in text


def test_one_variant_is_not_compared_with_itself() -> None:
    c = score_files.known({"softmax": [0.96]})
    assert "**Accuracy.** 96.00 % (`softmax`) on 600 test clips" in said(c, "**Accuracy.**")
    assert said(c, "**The two splits.**").endswith("is +1.00 points.")


def test_a_set_that_some_runs_were_not_scored_on_is_named_with_them() -> None:
    first, second = RUNS[1:]
    assert not [p for p in findings(Comparison.of([first, second])) if p.startswith("**Left out**")]
    fewer = replace(second, sets={name: s for name, s in second.sets.items() if name != "test_10dB"})
    assert said(Comparison.of([first, fewer]), "**Left out**").endswith(f"10 dB (not in `{second.run}`).")


def test_missing_variants_are_named() -> None:
    text = said(score_files.known({"softmax": [0.96]}), "Not here")
    assert "`edl_ce`" in text
    assert "`softmax`," not in text


def test_promises_are_counted_over_runs_scores_and_targets(comparison: Comparison) -> None:
    text = said(comparison, "**Promised on validation, seen on test, the paper's rule.**")
    kept = [comparison.observed(v, s, t, "validation") for v in comparison.runs for s in SCORES for t in TARGETS]
    total = sum(o.accuracy.seeds for o in kept if o)
    assert f"Of {total} thresholds" in text
    assert f"{sum(o.kept for o in kept if o)} reached their target" in text


def test_only_clear_differences_of_two_thresholds_are_counted() -> None:
    c = score_files.known({"softmax": [0.96]})
    gain = {True: Difference(0.02, 0.01, 0.03), False: Difference(0.02, -0.01, 0.05)}
    pairs = {key: PairGain(gain[key[1] == 0.99], None) for key in c.pairs}
    text = said(replace(c, pairs=pairs), "**Two thresholds**")
    assert text.count("coverage is larger in 1 of 3 pairs of variant and target and smaller in 0") == 2


@pytest.mark.parametrize(
    ("kind", "points", "expected"),
    [
        ("larger", [1.0, 1.2, 0.9], "reproduces"),
        ("larger", [-1.0, -1.2, -0.9], "does not"),
        ("larger", [1.0, -1.2, 0.9], "cannot be told"),
        ("larger", [0.0, 0.0], "cannot be told"),
        ("larger", [1.1, 1.1, 1.1], "reproduces"),
        ("same", [0.0, 0.0], "reproduces"),
        ("same", [0.1, -0.1, 0.0], "reproduces"),
        ("same", [5.1, 5.0, 4.9], "does not"),
        ("same", [-5.1, -5.0, -4.9], "does not"),
        ("same", [0.1, -4.0, 4.0], "cannot be told"),
    ],
)
def test_a_conclusion_is_judged_by_paired_tests_over_seeds(kind: Any, points: list[float], expected: str) -> None:
    assert verdict(kind, np.array(points) / 100) == expected


def row_of(c: Comparison, claim: Claim) -> list[str]:
    return list(conclusions_table(c).rows[CLAIMS.index(claim)])


SOFTMAX_KL = next(claim for claim in CLAIMS if claim.text == "KL costs softmax accuracy")


def test_a_conclusions_row_has_the_papers_difference_and_ours_paired_by_seed() -> None:
    row = row_of(score_files.known({"softmax": [0.96, 0.95, 0.97], "softmax_kl": [0.95, 0.94, 0.959]}), SOFTMAX_KL)
    assert row[:3] == ["KL costs softmax accuracy", "+0.37 ± 0.25", "+1.03 ± 0.12"]
    assert row[3:] == ["0.001", "reproduces"]


def test_variants_without_a_seed_in_common_are_not_said_to_be_untrained() -> None:
    c = score_files.known({"softmax": [0.96, 0.95], "softmax_kl": [0.95]})
    del c.runs["softmax"][0]
    assert row_of(c, SOFTMAX_KL)[2:] == ["–", "–", "cannot be told: no seed in common"]
    told = [row[-1].partition(":")[0] for row in conclusions_table(c).rows].count("cannot be told")
    assert any(f"{told} cannot be told" in text for text in findings(c))


def test_seeds_without_any_difference_have_no_p() -> None:
    row = row_of(score_files.known({"softmax": [0.96, 0.95], "softmax_kl": [0.96, 0.95]}), SOFTMAX_KL)
    assert row[2:] == ["+0.00 ± 0.00", "–", "cannot be told"]


def test_one_seed_tells_nothing_and_an_untrained_variant_is_said_to_be_untrained() -> None:
    one = row_of(score_files.known({"softmax": [0.96], "softmax_kl": [0.95, 0.94]}), SOFTMAX_KL)
    assert one[2:] == ["+1.00 †", "–", "cannot be told: one seed"]
    assert row_of(score_files.known({"softmax": [0.96, 0.97]}), SOFTMAX_KL)[2:] == ["–", "–", "not trained"]


def test_pairs_that_differ_in_the_loss_alone_are_compared_though_the_paper_does_not() -> None:
    pairs = {(claim.first[0], claim.second[0]) for claim in CLAIMS if not claim.from_paper}
    assert {("plugin_ce_kl", "edl_ce"), ("plugin_mse_kl", "edl_mse"), ("plugin_ce", "edl_ce_no_kl")} <= pairs
    rows = conclusions_table(score_files.known({"softmax": [0.9]})).rows
    assert all(row[1] == "–" for claim, row in zip(CLAIMS, rows, strict=True) if not claim.from_paper)


def test_a_differences_spread_is_the_root_of_the_sum_of_squares() -> None:
    assert difference(Estimate(0.5, 0.03, 3), Estimate(0.2, 0.04, 2)) == (pytest.approx(0.3), pytest.approx(0.05), 2)
    assert difference(Estimate(0.5, 0.03, 3), Estimate(0.2, None, 1)) == (pytest.approx(0.3), None, 1)
    assert difference(None, Estimate(0.2, None, 1)) is None


# ---- the page


def test_the_page_links_to_files_that_are_there_and_shows_every_table_and_plot(
    written: Path, comparison: Comparison
) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    links = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert {Path(link).stem for link in links} == {p.name for p in all_plots(comparison)}
    assert all((written / link).is_file() for link in links)
    for table in all_tables(comparison):
        assert table.to_markdown() in text
        for kind in ("csv", "tex"):
            assert (written / "tables" / f"{table.name}.{kind}").stat().st_size > 0


def test_the_page_says_how_to_rebuild_it(written: Path) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    assert "    kws-export report research/nine/scores --out research/nine\n" in text
    assert "--recipe export/recipes/nine.toml --data speech_commands --variants softmax --seeds 1,2\n" in text
    score = "    kws-export score runs/nine/*/ --data speech_commands --noise 'esc10/*/2-*' --speech "
    assert f"{score}'libri_speech/test-other' --out research/nine/scores\n" in text
    assert str(written.parent) not in text


def test_the_figures_are_beside_the_page(written: Path, comparison: Comparison) -> None:
    assert (written / "figures.csv").read_text(encoding="utf-8") == comparison.to_csv()


@pytest.mark.parametrize("content", [None, "no archive"])
def test_without_score_files_there_is_no_report(tmp_path: Path, content: str | None) -> None:
    if content:
        (tmp_path / "x.npz").write_text(content)
    result = CliRunner().invoke(main, ["report", str(tmp_path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert re.search(r"^Error: .*(no score files in|holds no scores)", result.stderr)
    assert not (tmp_path / "out").exists()


# ---- plots


def test_every_plot_is_a_png_and_an_svg_without_a_date(written: Path, comparison: Comparison) -> None:
    for plot in all_plots(comparison):
        png, svg = (written / "plots" / f"{plot.name}.{kind}" for kind in ("png", "svg"))
        assert png.read_bytes().startswith(b"\x89PNG")
        assert ElementTree.parse(svg).getroot().tag.endswith("svg")
        assert "<dc:date>" not in svg.read_text(encoding="utf-8")


def test_a_plot_is_the_same_to_the_byte_the_second_time(written: Path, comparison: Comparison, tmp_path: Path) -> None:
    plot = next(p for p in all_plots(comparison) if p.name == "promise")
    plot.save(comparison, tmp_path)
    for kind in ("png", "svg"):
        name = f"promise.{kind}"
        assert (tmp_path / name).read_bytes() == (written / "plots" / name).read_bytes()


def test_gaps_are_drawn_of_the_runs_whose_logits_were_kept_each_variant_on_axes_of_its_own() -> None:
    from matplotlib.figure import Figure

    c = score_files.known({"edl_ce": [0.95, 0.96], "softmax": [0.9], "plugin_ce": [0.9]})
    assert list(loss_plots.gap_plots(c)) == []
    for variant, logit in (("edl_ce", 3.0), ("softmax", 9.0)):
        c.runs[variant][0] = with_logits(c.runs[variant][0], logit)
    plot, _ = loss_plots.gap_plots(c)
    figure = Figure()
    plot.draw(figure, c)
    panels = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title() for ax in panels] == ["edl_ce (1 seed)", "softmax (1 seed)"]
    assert len({ax.get_xlim() for ax in panels}) == 2
    assert [len(ax.lines) for ax in panels] == [5, 4]  # gap, bounds, remainder; the line at 10 where it lies within


def test_gaps_of_fewer_clips_than_bins_are_drawn_one_by_one() -> None:
    from matplotlib.figure import Figure

    few = score_files.known({"edl_ce": [0.95]})
    few.runs["edl_ce"] = [with_logits(score_files.run("edl_ce", n=7, sets=False), 3.0)]
    plot, _ = loss_plots.gap_plots(few)
    figure = Figure()
    plot.draw(figure, few)
    line = figure.axes[0].lines[0]
    assert len(line.get_xdata()) == 7
    assert np.isfinite(line.get_ydata()).all()


def test_training_is_drawn_of_the_runs_whose_history_was_kept() -> None:
    from matplotlib.figure import Figure

    c = score_files.known({"edl_ce": [0.95, 0.96], "softmax": [0.9]})
    assert list(loss_plots.training_plot(c)) == []
    history = [{"validation_accuracy": 0.6 + i / 10, "train_accuracy": 0.5 + i / 10} for i in range(3)]
    c.runs["edl_ce"][1] = replace(c.runs["edl_ce"][1], history=history)
    (plot,) = loss_plots.training_plot(c)
    assert "Of the 1 runs whose history was kept." in plot.caption
    figure = Figure()
    plot.draw(figure, c)
    (panel,) = figure.axes
    assert panel.get_title() == "edl_ce (1 seed)"
    assert panel.lines[0].get_ydata() == pytest.approx([60, 70, 80])


@pytest.mark.parametrize("name", ["thresholds-entropy", "density-vacuity", "reliability", "risk-coverage", "noise"])
def test_panels_share_their_axes_and_name_their_variant(comparison: Comparison, name: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    next(p for p in all_plots(comparison) if p.name == name).draw(figure, comparison)
    panels = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title() for ax in panels] == ["edl_ce (1 seed)", "softmax (2 seeds)"]
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in panels}) == 1
    (legend,) = figure.legends
    assert len(legend.get_texts()) == len(panels[0].get_legend_handles_labels()[1]) > 1


def test_a_band_is_two_sigma_over_the_seeds(comparison: Comparison) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    shift_plots.noise(figure, comparison)
    one, two = figure.axes
    assert len(one.collections) == 0
    key = Key("coverage", "test", "entropy", MAIN_TARGET, "validation")
    values = 100 * np.array(comparison.values("softmax", key))
    band = two.collections[-1].get_paths()[0].vertices
    at_test = band[band[:, 0] == 0][:, 1]
    assert at_test.max() - at_test.min() == pytest.approx(4 * values.std(ddof=1), abs=1e-6)


def test_help_teaches_with_an_example() -> None:
    result = CliRunner().invoke(main, ["report", "--help"])
    assert result.exit_code == 0
    assert "kws-export report research/nine/scores --out research/nine" in result.output


def test_a_run_of_another_recipe_is_one_line(tmp_path: Path) -> None:
    other: RunScores = replace(RUNS[1], recipe={**RUNS[1].recipe, "epochs": 99})
    for run in (RUNS[0], other):
        run.save(tmp_path / f"{run.run}.npz")
    result = CliRunner().invoke(main, ["report", str(tmp_path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "recipes that differ in epochs" in result.stderr
    assert "Traceback" not in result.output

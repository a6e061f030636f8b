"""What the losses cost, as the benchmark measured it: read, tabled, drawn."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from score_files import known, run

from kws_edge.errors import SettingError
from kws_edge.model.variants import VARIANTS
from kws_export.cli import main
from kws_export.report.loss_plots import loss_times_plot
from kws_export.report.loss_times import LossTimes, loss_times_table
from kws_export.report.report import page
from kws_export.report.report_tables import all_tables

LOSSES = {name: 400.0 + 100 * i for i, name in enumerate(VARIANTS)}
MEASURED = {"batch": 256, "network_us": 9e5, "loss_us": LOSSES}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """As `python bench/losses.py --json` writes it."""
    (tmp_path / "losses.json").write_text(json.dumps(MEASURED))
    return tmp_path / "losses.json"


def test_the_table_has_the_time_and_the_share_of_a_step_and_rises(file: Path) -> None:
    table = loss_times_table(LossTimes.load(file))
    assert list(table.rows[0]) == ["`edl_ce`", "dirichlet_ce", "yes", "0.40", "0.04"]
    assert list(table.rows[1]) == ["`edl_ce_no_kl`", "dirichlet_ce", "no", "0.50", "0.06"]
    assert "`belief_ce`" not in {row[0] for row in table.rows}


def test_the_page_shows_them_and_how_to_show_them_again(file: Path) -> None:
    c = known({"softmax": [0.9]})
    assert "loss-times" not in page(c, all_tables(c), list(loss_times_plot(c)), "nine")
    c = replace(c, loss_times=LossTimes.load(file))
    text = page(c, all_tables(c), list(loss_times_plot(c)), "nine")
    assert "plots/loss-times.png" in text
    assert "--out research/nine --loss-times research/nine/losses.json\n" in text


def test_the_figure_has_a_bar_for_each_variant(file: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    c = replace(known({"softmax": [0.9]}), loss_times=LossTimes.load(file))
    figure = Figure()
    (plot,) = loss_times_plot(c)
    plot.draw(figure, c)
    (ax,) = figure.axes
    widths = sorted(bar.get_width() for bar in ax.patches if isinstance(bar, Rectangle))
    assert widths == pytest.approx([value / 1000 for name, value in LOSSES.items() if name != "belief_ce"])


@pytest.mark.parametrize("content", ["no JSON", "[]", "{}", '{"batch": 256, "network_us": 1, "loss_us": {}}'])
def test_a_file_without_times_is_refused_in_one_line_and_nothing_is_written(tmp_path: Path, content: str) -> None:
    run("softmax").save(tmp_path / "scores" / "softmax-1.npz")
    (tmp_path / "times.json").write_text(content)
    with pytest.raises(SettingError, match=r"times\.json holds no times of the losses"):
        LossTimes.load(tmp_path / "times.json")
    out = tmp_path / "out"
    given = [tmp_path / "scores", "--out", out, "--loss-times", tmp_path / "times.json"]
    result = CliRunner().invoke(main, ["report", *map(str, given)])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert not out.exists()

"""Two wheels against each other: what a row says."""

from versions import Run, line


def test_a_row_has_medians_and_the_ratio_of_pairs() -> None:
    old = [Run(1.0, 60.0), Run(2.0, 61.0), Run(4.0, 62.0)]
    new = [Run(0.5, 50.0), Run(1.0, 51.0), Run(2.0, 52.0)]
    assert line("start", old, new) == "| start | 2.00 s | 1.00 s | 0.50 (0.50 to 0.50) | 61.0 MB | 51.0 MB |"


def test_a_row_of_one_run_has_its_ratio() -> None:
    assert line("start", [Run(2.0, 60.0)], [Run(1.0, 50.0)]) == (
        "| start | 2.00 s | 1.00 s | 0.50 (0.50 to 0.50) | 60.0 MB | 50.0 MB |"
    )

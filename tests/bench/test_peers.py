"""The arithmetic and the measuring side of bench/peers."""

from pathlib import Path

import harness
import numpy as np
import pytest
import report
from scipy.stats import binom


@pytest.mark.parametrize("n", [2, 5, 7, 20])
def test_the_interval_of_a_median_covers_what_the_binomial_says(n: int) -> None:
    interval = report.median_interval(list(range(n, 0, -1)))
    k = round(interval.low)
    assert (interval.low, interval.high) == (k, n + 1 - k)
    assert interval.coverage == pytest.approx(1 - 2 * binom.cdf(k - 1, n, 0.5))
    assert interval.coverage >= 0.95 or k == 1
    assert 1 - 2 * binom.cdf(k, n, 0.5) < 0.95  # a narrower one would not do
    assert interval.median == (n + 1) / 2


def test_a_percentile_is_one_of_the_values() -> None:
    assert report.percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert report.percentile(list(range(1, 101)), 0.99) == 99
    assert report.percentile([5.0], 0.99) == 5.0


def test_ratios_are_taken_within_a_round() -> None:
    rows = {
        "a": [{"cpu": [1.0, 1.0]}, {"cpu": [20.0]}, {"cpu": [2.0]}],
        "b": [{"cpu": [6.0]}, {"cpu": [60.0]}, {"cpu": [8.0]}],
    }
    ratio = report.ratios(rows, "a")
    assert ratio["a"].median == ratio["a"].low == 1.0
    assert (ratio["b"].median, ratio["b"].low, ratio["b"].high) == (3.0, 3.0, 4.0)


def test_a_row_is_the_median_over_its_rounds() -> None:
    rounds = [
        {
            "load_s": x,
            "load_cpu_s": x / 2,
            "peak_mb": 10 * x,
            "wall": [0.002 * x] * 5,
            "cpu": [0.001 * x] * 5,
            "quiet_cpu": x,
        }
        for x in (3.0, 1.0, 2.0)
    ]
    row = report.summarise(rounds, seconds=10, quiet_seconds=4)
    assert row["cpu_per_second"] == pytest.approx(5 * 0.002 / 10)
    assert row["quiet_cpu_per_second"] == 0.5
    assert row["hop_cpu_ms"] == pytest.approx({"p50": 2.0, "p99": 2.0})
    assert row["hop_wall_ms"]["p99"] == pytest.approx(4.0)
    assert (row["load_s"], row["load_cpu_s"], row["peak_mb"]) == (2.0, 1.0, 20.0)


def test_a_peer_that_cannot_be_installed_has_a_row_that_says_why() -> None:
    results = {
        "environments": {"other": {"error": "ERROR: no matching distribution"}},
        "rows": [{"name": "other, 1 word", "words": 1, "environment": "other"}],
    }
    header, _, row = report.markdown(results).splitlines()
    assert "no matching distribution" in row
    assert row.count("|") == header.count("|")


def test_a_peer_gets_whole_chunks_of_the_stretch_and_its_findings_are_counted(tmp_path: Path) -> None:
    samples = np.arange(100, dtype="<i2")
    (tmp_path / "a.raw").write_bytes(samples.tobytes())

    class Peer:
        chunk = 8
        rested = 0
        heard: list[int] = []  # noqa: RUF012

        def step(self, pcm: bytes) -> bool:
            self.heard += np.frombuffer(pcm, "<i2").tolist()
            self.rested += len(self.heard) == 16
            return len(self.heard) == 8

    peer = Peer()
    answer = harness.process(peer, str(tmp_path / "a.raw"), first=10, samples=30)
    assert peer.heard == list(range(10, 34))
    assert (answer["fired"], answer["rested"]) == (1, 1)
    assert len(answer["wall"]) == len(answer["cpu"]) == 3
    assert all(wall > 0 for wall in answer["wall"])

"""The table of what each loss costs, as bench/losses.py makes it."""

import losses
import pytest

from kws_edge.model.variants import VARIANTS


def test_every_variant_is_timed() -> None:
    times = losses.loss_times(batch=8, classes=5, rounds=1)
    assert set(times) == set(VARIANTS)
    assert min(times.values()) > 0


def test_a_step_of_the_network_is_a_median_as_a_loss_is(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([5.0, 1.0, 3.0, 2.0, 9.0])
    monkeypatch.setattr(losses, "_seconds", lambda *_: next(seconds))
    assert losses.network_time(batch=1, classes=5) == 3e6


def test_json_is_for_scripts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["losses.py", "--batch", "8", "--classes", "5", "--rounds", "1", "--json"])
    losses.main()
    assert capsys.readouterr().out.startswith('{"batch": 8, "classes": 5, "network_us": ')

"""The table of what each loss costs, as bench/losses.py makes it."""

import losses
import pytest

from kws_edge.model.variants import VARIANTS


def test_every_variant_is_timed() -> None:
    times = losses.loss_times(batch=8, classes=5, rounds=1)
    assert set(times) == set(VARIANTS)
    assert min(times.values()) > 0


def test_json_is_for_scripts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["losses.py", "--batch", "8", "--classes", "5", "--rounds", "1", "--json"])
    losses.main()
    assert capsys.readouterr().out.startswith('{"batch": 8, "classes": 5, "network_us": ')

"""What of a training is released: weights between the trained ones and those that it began with, of the best epoch."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kws_export.network.matchboxnet import MatchboxNet
from kws_export.wake.held_out import Judgement
from kws_export.wake.settings import WakeSettings, WakeWord
from kws_export.wake.training import CollapseError, WakeRun, between


@pytest.fixture
def networks() -> tuple[MatchboxNet, MatchboxNet]:
    torch.manual_seed(1)
    return MatchboxNet(2, 1, 64, "valid", 8), MatchboxNet(20, 1, 64, "valid", 8)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_weights_and_statistics_lie_between_and_the_outputs_are_the_trained_ones(
    networks: tuple[MatchboxNet, MatchboxNet], share: float
) -> None:
    trained, first = networks
    first.train()(torch.randn(4, 64, 128))  # other statistics
    found, ours, theirs = between(trained, first, share).state_dict(), trained.state_dict(), first.state_dict()
    for name, value in found.items():
        expected = ours[name]
        if not name.startswith("classifier.") and value.is_floating_point():
            expected = (1 - share) * ours[name] + share * theirs[name]
        assert torch.allclose(value, expected, atol=1e-6), name


def test_the_trained_network_stays_as_it_is(networks: tuple[MatchboxNet, MatchboxNet]) -> None:
    trained, first = networks
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    between(trained, first, 0.5)
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())


@pytest.mark.parametrize(("of_words", "learnt"), [([(1.0, 0.0), (0.5, 0.5)], True), ([(0.5, 0.5), (1.0, 0.0)], False)])
def test_of_epochs_that_are_as_good_the_one_that_is_kept_is_the_one_that_is_looked_at(
    networks: tuple[MatchboxNet, MatchboxNet], tmp_path: Path, of_words: list[tuple[float, float]], learnt: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    run = WakeRun.__new__(WakeRun)
    run.settings = WakeSettings((WakeWord("lamp"), WakeWord("door")), epochs=2)
    run.folder, run.epoch, run.history = tmp_path, 0, []
    judged = [Judgement({}, {"lamp": a, "door": b}, 0.5, 8.0, (0.0, 0.0)) for a, b in of_words]
    for name, value in {
        "windows": SimpleNamespace(hard=np.empty(0, np.int64)),
        "held_out": SimpleNamespace(judge=lambda network: judged[run.epoch - 1]),
        "judged": networks[0],
        "memory": SimpleNamespace(source=networks[1]),
        "_train_epoch": lambda progress: 0.1,
        "_mine": lambda: np.empty(0, np.int64),
        "_save": run.history.append,
    }.items():
        setattr(run, name, value)
    if learnt:
        best = torch.load(run.run(lambda step, steps: None, lambda line: None))
        assert best["epoch"] == 2
        assert best["of_word"] == {"lamp": 0.5, "door": 0.5}
    else:
        with pytest.raises(CollapseError, match="lamp was not learnt"):
            run.run(lambda step, steps: None, lambda line: None)

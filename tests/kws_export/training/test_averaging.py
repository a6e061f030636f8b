"""Averages of weights, within a run and over runs."""

from pathlib import Path

import pytest
import torch
from torch import nn

from kws_edge.errors import SettingError
from kws_export.training.averaging import follow, mean_of_runs, momentum
from kws_export.training.checkpoint import Checkpoint, load_checkpoint
from kws_export.training.run_folder import write_checkpoint


def test_it_forgets_the_start_within_a_short_run() -> None:
    trained, judged = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        trained.weight.fill_(1.0)
        judged.weight.fill_(0.0)  # as it was at the start
    for step in range(40):
        follow(judged, trained, 0.998, step)
    assert judged.weight.item() > 0.95  # without a warm-up: 0.08


def test_it_is_as_long_as_asked_once_the_run_is_long() -> None:
    assert momentum(0.998, 100_000) == 0.998
    assert momentum(0.998, 0) == 0.1


def test_the_mean_of_two_checkpoints_is_a_checkpoint(tone_run: Path, tmp_path: Path) -> None:
    saved = load_checkpoint(tone_run / "best.pt")
    twice = {name: 3 * tensor for name, tensor in saved["model"].items()}
    write_checkpoint(tmp_path / "other.pt", {**saved, "model": twice})
    write_checkpoint(tmp_path / "mean.pt", mean_of_runs([tone_run / "best.pt", tmp_path / "other.pt"]))
    network = Checkpoint.load(tmp_path / "mean.pt").network
    torch.testing.assert_close(network.classifier.bias.detach(), 2 * saved["model"]["classifier.bias"])


def test_checkpoints_of_other_words_are_not_averaged(tone_run: Path, tmp_path: Path) -> None:
    saved = load_checkpoint(tone_run / "best.pt")
    write_checkpoint(tmp_path / "other.pt", {**saved, "labels": tuple(reversed(saved["labels"]))})
    with pytest.raises(SettingError, match="have different labels; expected runs of one kind"):
        mean_of_runs([tone_run / "best.pt", tmp_path / "other.pt"])


def test_checkpoints_of_other_shapes_are_not_averaged(tone_run: Path, tmp_path: Path) -> None:
    saved = load_checkpoint(tone_run / "best.pt")
    wider = {name: torch.cat([tensor, tensor]) for name, tensor in saved["model"].items()}
    write_checkpoint(tmp_path / "other.pt", {**saved, "model": wider})
    with pytest.raises(SettingError, match="are of different shapes"):
        mean_of_runs([tone_run / "best.pt", tmp_path / "other.pt"])


@pytest.mark.parametrize(("what", "other"), [("variant", "plugin_ce"), ("padding", "valid")])
def test_checkpoints_of_another_kind_of_network_are_not_averaged(
    tone_run: Path, tmp_path: Path, what: str, other: str
) -> None:
    saved = load_checkpoint(tone_run / "best.pt")
    write_checkpoint(tmp_path / "other.pt", {**saved, "recipe": {**saved["recipe"], what: other}})
    with pytest.raises(SettingError, match=f"has the {what} .* expected runs of one kind"):
        mean_of_runs([tone_run / "best.pt", tmp_path / "other.pt"])


def test_one_checkpoint_has_no_mean(tone_run: Path) -> None:
    with pytest.raises(SettingError, match="expected two or more"):
        mean_of_runs([tone_run / "best.pt"])


def test_weights_that_do_not_fit_their_recipe_are_refused(tone_run: Path, tmp_path: Path) -> None:
    saved = load_checkpoint(tone_run / "best.pt")
    write_checkpoint(tmp_path / "other.pt", {**saved, "recipe": {**saved["recipe"], "channels": 32}})
    with pytest.raises(SettingError, match=r"other\.pt holds weights of another network than its recipe describes"):
        Checkpoint.load(tmp_path / "other.pt")

"""Training: it learns, it goes on exactly where it was stopped, and it fails in one clear line."""

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
import tone_words
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from kws_edge.audio.load import load
from kws_edge.errors import SettingError
from kws_edge.model.features import mfcc, pad
from kws_edge.model.variants import get_variant
from kws_export.data.batches import EpochBatches
from kws_export.data.speech_commands import index
from kws_export.network.head import evidential_head
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.training.checkpoint import Checkpoint, load_checkpoint
from kws_export.training.distillation import Teachers
from kws_export.training.distribution import pick_device
from kws_export.training.losses import evidential_loss, kl_weight
from kws_export.training.mixup import blended
from kws_export.training.novograd import NovoGrad
from kws_export.training.prepared import prepare
from kws_export.training.recipe import Distillation
from kws_export.training.run_folder import EpochResult
from kws_export.training.schedule import warmup_hold_decay
from kws_export.training.trainer import (
    BETAS,
    GRADIENT_LIMIT,
    MAX_SKIPPED,
    Trainer,
    bound_gradients,
    predict,
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with tone_words.one_thread():
        yield


def start(tones: Path, folder: Path, **changes: Any) -> Trainer:
    return tone_words.trainer(tones, folder, tone_words.recipe(**changes))


def history(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def assert_same_run(folder: Path, expected: Path) -> None:
    """Weights and optimiser of two finished runs are equal to the bit, and so is their history, but for the speed."""
    for name in ("last.pt", "best.pt"):
        a, b = load_checkpoint(folder / name), load_checkpoint(expected / name)
        assert a["epoch"] == b["epoch"]
        assert a["model"].keys() == b["model"].keys()
        for key, weight in b["model"].items():
            assert torch.equal(a["model"][key], weight), key
    a, b = (load_checkpoint(run / "last.pt")["optimiser"]["state"] for run in (folder, expected))
    for i, moments in b.items():
        assert all(torch.equal(a[i][key], moments[key]) for key in moments)
    lines = [[{**line, "samples_per_second": 0} for line in history(run)] for run in (folder, expected)]
    assert lines[0] == lines[1]


def interrupt(result: EpochResult) -> None:
    raise KeyboardInterrupt


def train_command(tones: Path, folder: Path, *options: str) -> list[str]:
    recipe = folder.parent / "tones.toml"
    recipe.write_text(tone_words.RECIPE)
    return [
        *("train", "--recipe", str(recipe), "--data", str(tones), "--out", str(folder), "--threads", "1"),
        *("--device", "cpu", "--cache", str(tones.parent / "cache"), *options),
    ]


# --- it learns


def assert_learned(results: list[dict[str, float]], chance: float) -> None:
    assert all(np.isfinite(value) for result in results for value in result.values())
    assert results[-1]["train_loss"] < 0.8 * results[0]["train_loss"]
    assert results[-1]["train_accuracy"] > 2.5 * chance
    assert results[-1]["validation_accuracy"] > 2.5 * chance


def test_a_plain_variant_learns(tone_run: Path) -> None:
    assert_learned(history(tone_run), chance=0.25)


@pytest.mark.parametrize("variant", ["edl_mse", "softmax_kl"])
def test_a_variant_with_the_default_kl_schedule_learns(tones: Path, tmp_path: Path, variant: str) -> None:
    tone_words.run(start(tones, tmp_path, variant=variant))
    results = history(tmp_path)
    assert_learned(results, chance=0.25)
    weights = [result["kl_weight"] for result in results]
    assert weights == [kl_weight(get_variant(variant), epoch, epochs=4) for epoch in range(4)]
    assert weights[0] == 0 < weights[1]


def test_real_words_are_learned_with_the_default_kl_schedule(data: Path, tmp_path: Path) -> None:
    words, room = ("happy", "stop", "two", "zero"), {"train": 40, "validation": 12}
    chosen: dict[tuple[str, str], list[str]] = {}
    for clip in index(data / "speech_commands"):
        if clip.word in words and clip.split in room:
            names = chosen.setdefault((clip.word, clip.split), [])
            if len(names) < room[clip.split]:
                names.append(clip.name)
                wav = (tmp_path / "data" / clip.name).with_suffix(".wav")
                wav.parent.mkdir(parents=True, exist_ok=True)
                sf.write(wav, load(clip.path).samples, 16_000)
    held_out = "\n".join(name for word in words for name in chosen[word, "validation"])
    (tmp_path / "data" / "validation_list.txt").write_text(held_out)
    (tmp_path / "data" / "testing_list.txt").write_text("")
    plain = {"background_probability": 0, "time_masks": 0, "band_masks": 0, "cutouts": 0}
    recipe = tone_words.recipe(variant="softmax_kl", batch=4, augmentation=plain)
    tone_words.run(tone_words.trainer(tmp_path / "data", tmp_path / "run", recipe))

    assert_learned(history(tmp_path / "run"), chance=0.25)


def test_negatives_teach_that_noise_is_no_evidence(tones: Path, tmp_path: Path) -> None:
    mix = {"share": 0.25, "partial": 0, "reversed": 0, "noise": 1, "other": 1}
    recipe = tone_words.recipe(variant="plugin_ce", negatives=mix)
    trainer = tone_words.trainer(tones, tmp_path, recipe, negatives=[str(tones / "_background_noise_")])
    tone_words.run(trainer)
    assert_learned(history(tmp_path), chance=0.25)
    rng = np.random.default_rng(0)
    noise = np.stack([pad(mfcc(0.01 * rng.standard_normal(16_000))) for _ in range(20)])
    vacuity = [
        evidential_head(predict(trainer.model, features), trainer.variant).vacuity.median()
        for features in (torch.from_numpy(noise), trainer.data.validation[0])
    ]
    assert vacuity[0] > 2 * vacuity[1]


def test_a_run_on_windows_in_succession_learns_and_goes_on_as_if_never_stopped(tones: Path, tmp_path: Path) -> None:
    mix = {"share": 0.25, "partial": 0, "reversed": 0, "noise": 1, "other": 0}
    recipe = tone_words.recipe(variant="belief_ce", padding="valid", windows=3, epochs=6, negatives=mix)

    def trainer(folder: str) -> Trainer:
        return tone_words.trainer(tones, tmp_path / folder, recipe, negatives=[str(tones / "_background_noise_")])

    tone_words.run(trainer("whole"))
    assert_learned(history(tmp_path / "whole"), chance=0.25)
    with pytest.raises(KeyboardInterrupt):
        trainer("halted").run(lambda step, steps, loss: None, interrupt)
    tone_words.run(trainer("halted"))
    assert_same_run(tmp_path / "halted", tmp_path / "whole")


def test_hard_negatives_are_found_anew_before_every_epoch_and_by_a_run_that_goes_on(
    tones: Path, tmp_path: Path
) -> None:
    mix = {"share": 0.25, "partial": 0, "reversed": 0, "noise": 0, "other": 0, "hard": 1, "hard_count": 4}
    recipe = tone_words.recipe(variant="belief_ce", padding="valid", average=0.9, epochs=3, negatives=mix)

    def trainer(folder: str) -> Trainer:
        return tone_words.trainer(tones, tmp_path / folder, recipe, negatives=[str(tones / "_background_noise_")])

    whole, found = trainer("whole"), []

    def note(result: EpochResult) -> None:
        assert whole.data.negatives
        found.append(tuple(whole.data.negatives.hard))

    whole.run(lambda step, steps, loss: None, note)
    assert all(found)
    with pytest.raises(KeyboardInterrupt):
        trainer("halted").run(lambda step, steps, loss: None, interrupt)
    tone_words.run(trainer("halted"))
    assert_same_run(tmp_path / "halted", tmp_path / "whole")


def test_the_best_epoch_by_validation_is_kept(tones: Path, tone_run: Path) -> None:
    best = load_checkpoint(tone_run / "best.pt")
    accuracies = [result["validation_accuracy"] for result in history(tone_run)]
    assert best["validation_accuracy"] == max(accuracies)
    assert best["epoch"] == 1 + int(np.argmax(accuracies))
    trainer = start(tones, tone_run)
    features, labels = trainer.data.validation
    trainer.model.load_state_dict(best["model"])
    right = predict(trainer.model, features).argmax(1) == labels
    assert right.double().mean() == pytest.approx(max(accuracies))


def test_the_learning_rate_follows_the_schedule(tone_run: Path) -> None:
    rates = [result["learning_rate"] for result in history(tone_run)]
    assert rates == [warmup_hold_decay(10 * epoch + 9, 40, peak=0.01) for epoch in range(4)]


# --- it reproduces and goes on


def test_a_killed_run_has_logged_its_epochs_and_goes_on_to_the_same_weights(
    tones: Path, tone_run: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "kws_export", *train_command(tones, tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        lines = []
        for line in process.stdout:  # a pipe, as a log file, would keep what was not flushed
            lines.append(line)
            if line.startswith("epoch   1/4"):
                process.kill()
    assert process.returncode != 0
    assert load_checkpoint(tmp_path / "run" / "last.pt")["epoch"] < 4
    tone_words.run(start(tones, tmp_path / "run"))
    assert_same_run(tmp_path / "run", tone_run)


def test_a_run_with_averaged_weights_goes_on_to_the_same_weights(tones: Path, tmp_path: Path) -> None:
    tone_words.run(start(tones, tmp_path / "whole", average=0.9, epochs=3))
    halted = start(tones, tmp_path / "halted", average=0.9, epochs=3)
    with pytest.raises(KeyboardInterrupt):
        halted.run(lambda step, steps, loss: None, interrupt)
    tone_words.run(start(tones, tmp_path / "halted", average=0.9, epochs=3))
    assert_same_run(tmp_path / "halted", tmp_path / "whole")
    trained = (load_checkpoint(tmp_path / run / "last.pt")["trained"] for run in ("halted", "whole"))
    assert all(torch.equal(a, b) for a, b in zip(*(weights.values() for weights in trained), strict=True))


def test_a_run_with_mixup_learns_and_goes_on_as_if_never_stopped(tones: Path, tmp_path: Path) -> None:
    tone_words.run(start(tones, tmp_path / "whole", mixup=0.2))
    assert_learned(history(tmp_path / "whole"), chance=0.25)
    with pytest.raises(KeyboardInterrupt):
        start(tones, tmp_path / "halted", mixup=0.2).run(lambda step, steps, loss: None, interrupt)
    tone_words.run(start(tones, tmp_path / "halted", mixup=0.2))
    assert_same_run(tmp_path / "halted", tmp_path / "whole")


def test_with_mixup_the_loss_is_that_of_both_labels_by_their_shares(tones: Path, tmp_path: Path) -> None:
    trainer = start(tones, tmp_path, mixup=0.2, seed=3)
    features, labels = (part[:16] for part in trainer.data.validation)
    blend = blended(features, labels, 0.2, (3, 0, 0))
    assert 0.5 < blend.weight < 1
    logits = copy.deepcopy(trainer.model).train()(blend.features)
    own, other = (cross_entropy(logits.double(), y).item() for y in (labels, blend.others))
    loss, _ = trainer._step(features, labels, 0.0, 0.01, 0)
    assert loss == pytest.approx(blend.weight * own + (1 - blend.weight) * other, rel=1e-5)


def test_averaged_weights_are_the_mean_of_the_steps_with_fading_memory(tones: Path, tmp_path: Path) -> None:
    trainer = start(tones, tmp_path, average=0.25, epochs=1)
    expected = trainer.model.classifier.bias.detach().clone()

    followed: list[int] = []

    def follow(step: int, steps: int, loss: float) -> None:
        kept = min(0.25, (1 + len(followed)) / (10 + len(followed)))  # less at first, so that the start is forgotten
        expected.mul_(kept).add_(trainer.model.classifier.bias.detach(), alpha=1 - kept)
        followed.append(step)

    trainer.run(follow, lambda result: None)
    torch.testing.assert_close(trainer.judged.classifier.bias.detach(), expected)
    assert not torch.equal(trainer.model.classifier.bias, trainer.judged.classifier.bias)
    saved = load_checkpoint(tmp_path / "best.pt")["model"]["classifier.bias"]
    torch.testing.assert_close(saved, expected)


def test_two_processes_do_not_train_in_one_folder(tones: Path, tmp_path: Path) -> None:
    first, second = start(tones, tmp_path, epochs=1), start(tones, tmp_path, epochs=1)

    def meanwhile(step: int, steps: int, loss: float) -> None:
        with pytest.raises(SettingError, match="another process trains in"):
            tone_words.run(second)

    first.run(meanwhile, lambda result: None)
    assert tone_words.run(second) == []  # the first has done it meanwhile


def test_a_finished_run_stays_as_it_is(tones: Path, tone_run: Path) -> None:
    before = (tone_run / "last.pt").read_bytes()
    assert tone_words.run(start(tones, tone_run)) == []
    assert (tone_run / "last.pt").read_bytes() == before


def test_the_seed_decides_the_weights(tones: Path, tmp_path: Path) -> None:
    a, b, c = (start(tones, tmp_path, seed=seed).model.state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert not torch.equal(a["classifier.weight"], c["classifier.weight"])


def test_a_write_that_fails_leaves_the_files_of_the_epoch_before(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        if trainer.epoch == 2:
            raise OSError(28, "No space left on device")

    trainer = start(tones, tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        tone_words.run(trainer)
    assert start(tones, tmp_path).epoch == 1
    assert len(history(tmp_path)) == 1


# --- two processes


def test_two_processes_train_as_one(tones: Path, tmp_path: Path) -> None:
    batch, epochs = 17, 2  # an odd batch, so that the shares differ
    recipe = tone_words.recipe(batch=batch, epochs=epochs)
    command = train_command(tones, tmp_path / "two", "--epochs", str(epochs))
    (tmp_path / "tones.toml").write_text(tone_words.RECIPE.replace("batch = 8", f"batch = {batch}"))
    launcher = ["torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", "localhost:0", "--no-python", sys.executable, "-m", "kws_export"]
    done = subprocess.run(
        [sys.executable, "-m", *launcher, *command], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch ") == epochs  # one of the two talks

    one = tone_words.run(tone_words.trainer(tones, tmp_path / "one", recipe))
    two = history(tmp_path / "two")
    losses = [result["train_loss"] for result in two]

    np.testing.assert_allclose(losses, [result.train_loss for result in one], atol=0.1)
    assert two[-1]["train_accuracy"] == pytest.approx(one[-1].train_accuracy, abs=0.1)

    # The loss curves differ because each process normalises by its own share; the same arithmetic in one process
    # gives the same weights.
    weights = load_checkpoint(tmp_path / "two" / "last.pt")["model"]
    for key, expected in averaged_over_shares(start(tones, tmp_path / "none", batch=batch, epochs=epochs)).items():
        torch.testing.assert_close(weights[key], expected, atol=2e-4, rtol=2e-4, msg=key)


def averaged_over_shares(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The parameters after training on gradients that are means over two shares' gradients, weighted by their clips."""
    recipe, model = trainer.recipe, trainer.model
    optimiser = NovoGrad(model.parameters(), betas=BETAS, weight_decay=recipe.decay)
    for epoch in range(recipe.epochs):
        shares = [
            EpochBatches(
                trainer.data.train, trainer.data.noises, trainer.data.front_end, recipe.augmentation,
                batch=recipe.batch, balance=1, seed=recipe.seed, epoch=epoch, rank=rank, world_size=2,
            )
            for rank in (0, 1)
        ]  # fmt: skip
        model.train()
        for step in range(len(shares[0])):
            optimiser.zero_grad()
            total = len(shares[0]) * epoch + step, len(shares[0]) * recipe.epochs
            optimiser.param_groups[0]["lr"] = warmup_hold_decay(*total, peak=recipe.peak_lr)
            for share in shares:
                features, labels = share[step]
                loss = evidential_loss(model(features), labels, trainer.variant)
                (loss * (len(labels) / recipe.batch)).backward()
            optimiser.step()
    return dict(model.named_parameters())


# --- steep gradients


def linear(*gradient: float) -> nn.Linear:
    layer = nn.Linear(len(gradient), 1)
    layer.weight.grad = torch.tensor([gradient])
    layer.bias.grad = torch.zeros(1)
    return layer


def test_a_long_gradient_is_scaled_to_the_limit_also_where_its_square_overflows() -> None:
    layer = linear(3e30, -4e30)
    assert torch.isinf(layer.weight.grad.square().sum())  # type: ignore[union-attr]
    assert bound_gradients(layer, 100)
    torch.testing.assert_close(layer.weight.grad, torch.tensor([[60.0, -80.0]]))


def test_a_gradient_within_the_limit_is_not_touched() -> None:
    layer = linear(0.1, 99.9)
    assert bound_gradients(layer, 100)
    assert layer.weight.grad.tolist() == torch.tensor([[0.1, 99.9]]).tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_is_reported(bad: float) -> None:
    assert not bound_gradients(linear(1.0, bad), 100)


def test_one_hopeless_class_does_not_freeze_the_network(tones: Path, tmp_path: Path) -> None:
    """With this loss and α = exp(z), the gradient at z = -60 is about e^60, and its square is beyond float32."""
    trainer = start(tones, tmp_path, variant="softmax_edl_ce", epochs=1)
    with torch.no_grad():
        trainer.model.classifier.bias[0] = -60
    before = {key: weight.clone() for key, weight in trainer.model.named_parameters()}
    tone_words.run(trainer)
    for state in trainer.optimiser.state.values():
        assert 0 < state["exp_avg_sq"] <= 1.01 * GRADIENT_LIMIT**2
    for key, weight in trainer.model.named_parameters():
        assert not torch.equal(weight, before[key]), key


def overflow_in(trainer: Trainer, steps: set[int]) -> None:
    """Make the gradient infinite in some steps, counted from 0."""
    counter = iter(range(1000))
    trainer.model.classifier.bias.register_hook(lambda g: g * float("inf") if next(counter) in steps else g)


def test_a_step_whose_gradient_overflows_is_skipped(
    tones: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = start(tones, tmp_path, epochs=1)
    weights = [trainer.model.classifier.weight.detach().clone()]
    overflow_in(trainer, {0, 4})
    trainer.run(
        lambda step, steps, loss: weights.append(trainer.model.classifier.weight.detach().clone()), lambda r: None
    )
    unchanged = [torch.equal(a, b) for a, b in pairwise(weights)]
    assert [step for step, same in enumerate(unchanged) if same] == [0, 4]
    assert caplog.messages == ["epoch 1: a step was skipped, as its gradient is not finite"] * 2


def test_many_skipped_steps_in_a_row_are_an_error(tones: Path, tmp_path: Path) -> None:
    trainer = start(tones, tmp_path, epochs=1)
    overflow_in(trainer, set(range(MAX_SKIPPED)))
    with pytest.raises(SettingError, match="overflowed in 10 steps in a row, up to epoch 1; lower peak_lr"):
        tone_words.run(trainer)


def test_skipped_steps_are_counted_over_epochs_that_have_fewer(tones: Path, tmp_path: Path) -> None:
    trainer = start(tones, tmp_path, batch=40)  # two steps an epoch
    overflow_in(trainer, set(range(100)))
    trainer._skipped = MAX_SKIPPED - 3
    with pytest.raises(SettingError, match="overflowed in 10 steps in a row, up to epoch 2; lower peak_lr"):
        tone_words.run(trainer)


def test_a_loss_that_is_not_a_number_is_an_error(tones: Path, tmp_path: Path) -> None:
    trainer = start(tones, tmp_path)
    with torch.no_grad():
        trainer.model.classifier.bias[0] = float("nan")
    with pytest.raises(SettingError, match="the loss became nan in epoch 1; lower peak_lr in the recipe"):
        tone_words.run(trainer)
    assert not (tmp_path / "last.pt").exists()


# --- what is refused


def assert_refused(tones: Path, folder: Path, message: str, **changes: Any) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        start(tones, folder, **changes)
    assert "\n" not in str(caught.value)


def test_another_recipe_in_the_same_folder_names_what_differs(tones: Path, tone_run: Path) -> None:
    assert_refused(tones, tone_run, "run of another recipe, which differs in epochs, seed; give", seed=2, epochs=5)


def test_a_run_on_other_words_is_refused(tones: Path, tone_run: Path, tmp_path: Path) -> None:
    last = load_checkpoint(tone_run / "last.pt")
    torch.save({**last, "labels": ("a", "b", "c", "d")}, tmp_path / "last.pt")
    assert_refused(tones, tmp_path, r"run on other words or features \(a, b, c, d\), so the data have changed")


@pytest.mark.parametrize("damage", ["empty", "text", "half", "foreign"])
def test_a_damaged_checkpoint_is_one_clear_error(tones: Path, tone_run: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "last.pt"
    whole = (tone_run / "last.pt").read_bytes()
    if damage == "foreign":
        torch.save([1, 2], path)
    else:
        path.write_bytes({"empty": b"", "text": b"not a checkpoint", "half": whole[: len(whole) // 2]}[damage])
    assert_refused(tones, tmp_path, r"last\.pt is not a (readable )?checkpoint")


def test_weights_alone_cannot_be_resumed(tones: Path, tone_run: Path, tmp_path: Path) -> None:
    shutil.copy(tone_run / "best.pt", tmp_path / "last.pt")
    assert_refused(tones, tmp_path, r"last\.pt cannot be resumed, as it holds only weights")


def test_an_absent_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no checkpoint .*best\.pt; `kws-export train` writes"):
        load_checkpoint(tmp_path / "best.pt")


def test_too_few_words_with_enough_clips_name_the_setting(tones: Path, tmp_path: Path) -> None:
    assert_refused(tones, tmp_path, "0 words in .* have more than min_clips=1000 training clips", min_clips=1000)


def test_recordings_without_a_word_need_a_recipe_that_draws_from_them(tones: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"recipe tones has no \[negatives\] share"):
        tone_words.trainer(tones, tmp_path, tone_words.recipe(), negatives=["x"])


def test_negatives_find_the_background_noise_where_augmentation_leaves_it_out(tones: Path, tmp_path: Path) -> None:
    recipe = tone_words.recipe(
        variant="plugin_ce", augmentation={"background_probability": 0}, negatives={"share": 0.25, "other": 0}
    )
    assert len(tone_words.trainer(tones, tmp_path, recipe).data.noises) == 1


def test_a_background_noise_shorter_than_a_clip_is_named(tones: Path, tmp_path: Path) -> None:
    shutil.copytree(tones, tmp_path / "data")
    sf.write(tmp_path / "data" / "_background_noise_" / "click.wav", np.zeros(800), 16_000)
    recipe = tone_words.recipe()
    with pytest.raises(SettingError, match=r"background noise click in .* has 800 samples; expected 1.3 s or more"):
        tone_words.trainer(tmp_path / "data", tmp_path / "run", recipe)
    quiet = replace(recipe, augmentation=replace(recipe.augmentation, background_probability=0))
    tone_words.trainer(tmp_path / "data", tmp_path / "run", quiet)


def test_windows_in_succession_need_background_noises_as_long(tones: Path, tmp_path: Path) -> None:
    shutil.copytree(tones, tmp_path / "data")
    sf.write(tmp_path / "data" / "_background_noise_" / "short.wav", np.zeros(22_000), 16_000)
    recipe = tone_words.recipe(variant="belief_ce", padding="valid")
    tone_words.trainer(tmp_path / "data", tmp_path / "run", recipe)
    with pytest.raises(SettingError, match=r"noise short in .* has 22000 samples; expected 1.5 s or more"):
        tone_words.trainer(tmp_path / "data", tmp_path / "other", replace(recipe, windows=3))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_cuda_device_is_refused_and_auto_falls_back() -> None:
    with pytest.raises(SettingError, match=r"device cuda asked for, but .* use --device cpu or auto"):
        pick_device("cuda")
    assert pick_device("auto") == torch.device("cpu")


def test_predict_does_not_depend_on_the_size_of_its_parts() -> None:
    torch.manual_seed(0)
    model, features = MatchboxNet(3), torch.randn(10, 64, 128)
    torch.testing.assert_close(predict(model, features, batch=3), predict(model, features, batch=10))


def test_a_second_stage_starts_from_the_weights_of_the_first(tones: Path, tmp_path: Path) -> None:
    first = tone_words.trainer(tones, tmp_path / "first", tone_words.recipe(epochs=1))
    tone_words.run(first)
    start = str(tmp_path / "first" / "last.pt")
    second = tone_words.trainer(tones, tmp_path / "second", tone_words.recipe(start=start))
    saved = load_checkpoint(Path(start))["model"]
    assert all(torch.equal(value, saved[name]) for name, value in second.model.state_dict().items())
    assert second.epoch == 0


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("repeat", 2, "1; expected 2, as the recipe: write repeat = 1 in the recipe"),
        ("channels", 48, "64; expected at most 48, as the recipe: write channels = 64 in the recipe"),
    ],
)
def test_a_second_stage_on_another_network_is_told_what_to_write_before_anything_is_decoded(
    tone_run: Path, tones: Path, tmp_path: Path, setting: str, value: int, message: str
) -> None:
    recipe = tone_words.recipe(start=str(tone_run / "last.pt"), **{setting: value})
    with pytest.raises(SettingError, match=f"{setting}={message}"):
        tone_words.trainer(tones, tmp_path / "second", recipe, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_second_stage_without_its_first_is_refused_before_anything_is_decoded(tones: Path, tmp_path: Path) -> None:
    recipe = tone_words.recipe(start=str(tmp_path / "none.pt"))
    with pytest.raises(SettingError, match=r"no file .*none\.pt; expected a checkpoint, .*; is it still to be trained"):
        tone_words.trainer(tones, tmp_path / "run", recipe, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("changed", ["nothing", "clips", "noise"])
def test_a_run_that_goes_on_with_other_recordings_says_so(
    tones: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, changed: str
) -> None:
    data = shutil.copytree(tones, tmp_path / "data")
    recipe = tone_words.recipe(epochs=2)
    with pytest.raises(KeyboardInterrupt):
        tone_words.trainer(data, tmp_path / "run", recipe).run(lambda step, steps, loss: None, interrupt)
    if changed == "clips":
        next((data / "low").glob("0000000*")).unlink()
    if changed == "noise":
        (noise,) = (data / "_background_noise_").iterdir()
        sf.write(noise, np.zeros(3 * 16_000), 16_000)
    assert tone_words.trainer(data, tmp_path / "run", recipe).epoch == 1
    assert ("was trained on other recordings until epoch 1" in caplog.text) is (changed != "nothing")


def test_a_second_stage_goes_on_without_its_first(tones: Path, tmp_path: Path) -> None:
    start, recipe = tmp_path / "first" / "last.pt", tone_words.recipe(epochs=2, start=str(tmp_path / "first/last.pt"))
    tone_words.run(tone_words.trainer(tones, tmp_path / "first", tone_words.recipe(epochs=1)))
    halted = tone_words.trainer(tones, tmp_path / "second", recipe)
    with pytest.raises(KeyboardInterrupt):
        halted.run(lambda step, steps, loss: None, interrupt)
    start.unlink()
    resumed = tone_words.trainer(tones, tmp_path / "second", recipe)
    assert [result.epoch for result in tone_words.run(resumed)] == [2]
    with pytest.raises(SettingError, match="no file"):
        tone_words.trainer(tones, tmp_path / "third", recipe)
    with pytest.raises(SettingError, match="another recipe, which differs in start"):
        tone_words.trainer(tones, tmp_path / "second", replace(recipe, start="another.pt"))


def test_a_run_that_is_gone_when_it_would_go_on_begins_from_its_start(
    tones: Path, tone_run: Path, tmp_path: Path
) -> None:
    recipe = tone_words.recipe(start=str(tone_run / "last.pt"))
    data = prepare(recipe, tones, tones.parent / "cache", folder=tone_run)
    trainer = Trainer(recipe, data, tmp_path / "second")
    saved = load_checkpoint(tone_run / "last.pt")["model"]
    assert all(torch.equal(value, saved[name]) for name, value in trainer.model.state_dict().items())


def test_a_start_is_read_once(tone_run: Path, tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    load = Checkpoint.load
    monkeypatch.setattr(Checkpoint, "load", lambda path: read.append(path) or load(path))
    tone_words.trainer(tones, tmp_path / "second", tone_words.recipe(start=str(tone_run)))
    assert read == [tone_run / "best.pt"]


def test_a_list_of_test_clips_that_is_not_there_is_told_before_anything_is_decoded(tones: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no list .*official\.txt"):
        tone_words.trainer(tones, tmp_path / "run", tone_words.recipe(test_list="official.txt"), cache=tmp_path / "c")
    assert not (tmp_path / "c").exists()


# --- it learns from another network


def test_a_network_learns_from_a_larger_one_without_the_labels(tone_run: Path, tones: Path, tmp_path: Path) -> None:
    distillation = {"teacher": str(tone_run), "share": 1.0}
    small = tone_words.trainer(tones, tmp_path, tone_words.recipe(channels=32, distillation=distillation))
    unlabelled = replace(small.data.train, labels=np.zeros_like(small.data.train.labels))
    small.data = replace(small.data, train=unlabelled)
    assert tone_words.run(small)[-1].validation_accuracy > 0.6


def test_a_teacher_answers_in_evaluation_mode_whatever_the_run_does_to_its_own_network(
    tone_run: Path, tones: Path, tmp_path: Path
) -> None:
    teacher = tone_run / "best.pt"
    before = load_checkpoint(teacher)["model"]
    trainer = tone_words.trainer(tones, tmp_path, tone_words.recipe(epochs=1, distillation={"teacher": str(teacher)}))
    tone_words.run(trainer)
    assert trainer.teachers
    ((network, _),) = trainer.teachers.networks
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_several_teachers_answer_with_the_mean_of_their_means(tone_run: Path, tones: Path, tmp_path: Path) -> None:
    untrained = tone_words.trainer(tones, tmp_path / "other", tone_words.recipe(epochs=1, seed=5))
    tone_words.run(untrained)
    names = [str(tone_run), str(tmp_path / "other" / "last.pt")]
    data, windows = untrained.data, torch.randn(3, 64, 98, generator=torch.Generator().manual_seed(1))
    lessons = [
        Teachers(Distillation(teacher), data.labels, data.front_end, torch.device("cpu")).lesson(windows)
        for teacher in (names[0], names[1], tuple(names))
    ]
    torch.testing.assert_close(lessons[2].means, (lessons[0].means + lessons[1].means) / 2)
    torch.testing.assert_close(lessons[2].means.sum(-1), torch.ones(3, dtype=torch.float64))


def test_a_teacher_of_other_words_is_refused(tone_run: Path, tones: Path, tmp_path: Path) -> None:
    recipe = tone_words.recipe(labels=["low", "high"], distillation={"teacher": str(tone_run / "best.pt")})
    with pytest.raises(SettingError, match="knows fall, high, low, rise; expected this run's classes in their order"):
        tone_words.trainer(tones, tmp_path, recipe)


def test_an_absent_teacher_is_named_before_anything_is_decoded(tones: Path, tmp_path: Path) -> None:
    recipe = tone_words.recipe(distillation={"teacher": str(tmp_path / "none.pt")})
    with pytest.raises(SettingError, match=r"no file .*none\.pt; expected a checkpoint, .*; is it still to be trained"):
        tone_words.trainer(tones, tmp_path / "run", recipe, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()

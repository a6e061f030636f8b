"""Hard negatives: a whole recording gets the answers that its windows get, and the surest of them are found."""

import numpy as np
import pytest
import torch

from kws_edge.arrays import I16
from kws_edge.audio.pcm import as_float
from kws_edge.errors import SettingError
from kws_edge.model.features import FrontEnd
from kws_edge.model.variants import get_variant
from kws_export.data.features import window_features
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.training.losses import evidence, no_word_loss
from kws_export.training.mining import HOP, SPACING, hard_windows, recording_features, window_logits
from kws_export.training.recipe import Recipe

FE = FrontEnd()
WINDOW = (FE.frames - 1) * FE.hop + FE.window
VARIANT = get_variant("belief_ce")


def network() -> MatchboxNet:
    torch.manual_seed(0)
    return MatchboxNet(3, padding="valid").eval()


def sound(seconds: float, seed: int = 0) -> I16:
    return np.random.default_rng(seed).integers(-8000, 8000, round(seconds * 16_000)).astype(np.int16)


def loss_at(net: MatchboxNet, samples: I16, start: int) -> float:
    features = window_features(as_float(samples[start : start + WINDOW]), FE)
    with torch.inference_mode():
        return float(no_word_loss(evidence(net(torch.from_numpy(features)[None]), VARIANT)))


@pytest.mark.parametrize("seconds", [1.3, 2.0, 4.37])
def test_a_recordings_frames_are_those_of_its_windows(seconds: float) -> None:
    samples = sound(seconds)
    features = recording_features(samples, FE)
    assert features.shape == (FE.n_mfcc, FE.frame_count(len(samples)))
    for start in range(0, features.shape[1] - FE.frames + 1, 37):
        window = as_float(samples[start * FE.hop : start * FE.hop + WINDOW])
        np.testing.assert_allclose(features[:, start : start + FE.frames], window_features(window, FE), atol=1e-4)


def test_a_whole_recording_gets_the_answers_of_its_windows() -> None:
    net, features = network(), recording_features(sound(3.1), FE)
    found = window_logits(net, features, FE.frames, 10)
    windows = np.stack([features[:, s : s + FE.frames] for s in range(0, features.shape[1] - FE.frames + 1, 10)])
    with torch.inference_mode():
        expected = net(torch.from_numpy(windows))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_the_hardest_windows_come_first_with_their_losses_and_apart_from_each_other() -> None:
    net, recordings = network(), [sound(4, 1), sound(3, 2)]
    found, losses = hard_windows(net, VARIANT, recordings, FE, count=5)
    assert len(found) == len(losses) == 5
    assert (np.diff(losses) <= 0).all()
    for (recording, start), loss in zip(found, losses, strict=True):
        assert loss == pytest.approx(loss_at(net, recordings[recording], start), rel=1e-3)
    spaced = SPACING * HOP * FE.hop
    assert len({(recording, start // spaced) for recording, start in found}) == 5
    everywhere = max(
        loss_at(net, r, s) for r in recordings for s in range(0, len(r) - WINDOW + 1, HOP * FE.hop)
    )  # fmt: skip
    assert losses[0] == pytest.approx(everywhere, rel=1e-3)


def test_many_short_recordings_are_each_given_their_own_loss() -> None:
    net, many = network(), [sound(0.3 + 0.01 * i, i) for i in range(70)]
    found, losses = hard_windows(net, VARIANT, many, FE, count=70)
    assert sorted(recording for recording, _ in found) == list(range(70))
    for (recording, start), loss in list(zip(found, losses, strict=True))[::9]:
        padded = np.pad(many[recording], (-start, WINDOW + start - len(many[recording])))
        assert loss == pytest.approx(loss_at(net, padded, 0), rel=1e-3)


def test_a_recording_shorter_than_a_window_is_looked_at_in_the_midst_of_silence() -> None:
    net, short = network(), sound(0.6)
    (found,), (loss,) = hard_windows(net, VARIANT, [short], FE, count=3)
    before = (WINDOW - len(short)) // 2
    assert found == (0, -before)
    padded = np.pad(short, (before, WINDOW - before - len(short)))
    assert loss == pytest.approx(loss_at(net, padded, 0), rel=1e-3)


def test_a_network_that_trains_goes_on_training() -> None:
    net = network().train()
    hard_windows(net, VARIANT, [sound(2)], FE, count=1)
    assert net.training


def test_hard_negatives_need_a_network_that_is_computed_over_whole_recordings() -> None:
    settings = {"name": "x", "variant": "belief_ce", "negatives": {"share": 0.5, "hard": 0.3}}
    assert Recipe.from_dict({**settings, "padding": "valid"}).negatives.hard == 0.3
    with pytest.raises(SettingError, match='padding "same"; expected padding "valid"'):
        Recipe.from_dict(settings)

"""What the network is shown: words whole, everything else as no word, the same for the same seed."""

from collections import Counter

import numpy as np
import pytest
import torch

from kws_edge import KeywordModel
from kws_edge.model.features import FrontEnd
from kws_export.graph.read import load_network
from kws_export.wake.material import Material, Saying
from kws_export.wake.training import Memory
from kws_export.wake.windows import SHARES, Windows


def samples(seconds: float, seed: int = 0) -> "np.ndarray[tuple[int], np.dtype[np.int16]]":
    return (3000 * np.random.default_rng(seed).standard_normal(round(16_000 * seconds))).astype(np.int16)


@pytest.fixture(scope="module")
def windows() -> Windows:
    words = [Saying(label, str(i), bool(i % 2), samples(0.6, i)) for label in ("lamp", "door") for i in range(6)]
    material = Material(words, [samples(0.5)], [samples(12, i) for i in range(8)], [samples(9)])
    return Windows(material, ["lamp", "door"], FrontEnd(), seed=1)


def test_an_epoch_is_the_same_for_the_same_seed(windows: Windows) -> None:
    first, second = (list(windows.batches(2, 3, 32)) for _ in range(2))
    for (x, y), (x2, y2) in zip(first, second, strict=True):
        torch.testing.assert_close(x, x2, rtol=0, atol=0)
        assert y.tolist() == y2.tolist()


def test_a_batch_holds_all_kinds_by_their_shares(windows: Windows) -> None:
    labels = Counter(label for _, label in windows.draw(0, 0, 200))
    assert labels[0] + labels[1] == pytest.approx(200 * SHARES["word"], abs=2)
    assert min(labels[0], labels[1]) > 10
    assert labels[windows.unknown] == pytest.approx(200 * (1 - SHARES["word"]), abs=2)


def test_half_of_a_step_comes_again_changed(windows: Windows) -> None:
    (first, labels), (second, labels2) = windows.batches(0, 2, 32)
    assert labels2[16:].tolist() == labels[::2].tolist()
    assert not torch.allclose(first[::2], second[16:])


def test_a_word_longer_than_a_window_shows_its_end(windows: Windows) -> None:
    clip = np.concatenate([np.zeros(12_000), np.full(16_000, 0.5)]).astype(np.float32)
    placed = windows._placed(clip, np.random.default_rng(3))
    assert placed.shape == (windows.n,)
    assert np.abs(placed[-2000:]).max() > 0


@pytest.mark.parametrize("seconds", [2.0, 2.3, 4.0])
def test_a_part_of_a_phrase_longer_than_a_window_is_less_than_what_a_window_with_it_shows(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Saying("lamp", "v", False, np.full(round(16_000 * seconds), 9000, np.int16))
    windows = Windows(Material([said], speech=[np.zeros(160_000, np.int16)]), ["lamp"], FrontEnd(), seed=1)
    for i in range(200):
        x, label = windows._partial(np.random.default_rng(i))
        assert (x.shape, label) == ((windows.n,), windows.unknown)
        assert 0.1 < np.count_nonzero(x) / windows.n <= 0.6
    assert len(windows.draw(0, 0, 64)) == 64


def test_a_hard_window_is_the_training_speech_around_where_the_network_fired(windows: Windows) -> None:
    windows.hard = np.array([700])
    try:
        x = windows._hard(np.random.default_rng(0))
    finally:
        windows.hard = np.empty(0, np.int64)
    ends = [end for end in range(692, 709) if np.array_equal(x, windows.speech[end - 128 : end].T.astype(np.float32))]
    assert len(ends) == 1


def test_what_is_forgotten_counts_from_nought() -> None:
    network, _ = load_network(KeywordModel.load("stream").path)
    features = torch.randn(40, 64, 128, generator=torch.Generator().manual_seed(0))
    memory = Memory(network)
    network.eval()
    with torch.no_grad():
        assert float(memory.loss(network.pooled(features), features)) < 1e-6
        network.prologue.pointwise.mul_(1.5)
        assert float(memory.loss(network.pooled(features), features)) > 1e-3

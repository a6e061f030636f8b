"""Judging a network: by misses at a rate of false accepts, on held-out streams."""

from pathlib import Path

import numpy as np
import pytest
import torch

from kws_edge import KeywordModel
from kws_export.graph.read import load_network
from kws_export.wake.held_out import HeldOut, crowdings
from kws_export.wake.material import Material, Saying
from kws_export.wake.whole_stream import peak_places, smoothed


@pytest.fixture(scope="module")
def start() -> Path:
    return KeywordModel.load("stream").path


def test_words_fire_at_the_limit_at_the_same_odds_whatever_their_share_of_the_training_was(start: Path) -> None:
    rng = np.random.default_rng(2)
    syllables = np.repeat(10 ** rng.uniform(1, 4, 480), 4000)  # steady noise is not heard
    talk = np.array_split((syllables * rng.uniform(-1, 1, len(syllables))).astype(np.int16), 4)
    words = [Saying("lamp", str(i), True, rng.integers(-9000, 9000, 9000).astype(np.int16)) for i in range(6)]
    _, metadata = load_network(start)
    held_out = HeldOut(Material(words, [], talk, []), ["lamp"], metadata, 62.0, 1)  # two events are allowed
    logits = torch.from_numpy(rng.normal(0, 2, (len(held_out.without.heard), 2)).astype(np.float32))
    for rarer in (0.0, 7.0):
        shown = logits - torch.tensor([rarer, 0.0])
        p = smoothed(shown + held_out.bias(shown), held_out.without.heard)
        odds = p[:, 0] / (1 - p[:, 0])
        assert odds[peak_places(odds)][2] == pytest.approx(9, rel=0.05)


def test_a_network_that_says_the_same_of_everything_finds_nothing(start: Path) -> None:
    rng = np.random.default_rng(1)
    noise = [rng.integers(-3000, 3000, 16_000 * 20).astype(np.int16) for _ in range(4)]
    words = [Saying("lamp", str(i), True, rng.integers(-9000, 9000, 9000).astype(np.int16)) for i in range(6)]
    network, metadata = load_network(start)
    with torch.no_grad():
        network.classifier.weight.zero_()
        network.classifier.bias.zero_()
    held_out = HeldOut(Material(words, [], noise, noise[:1]), ["lamp"], metadata, 1.0, 1)
    judgement = held_out.judge(network)
    assert judgement.of_word == {"lamp": 1.0}  # a tie is no hit
    assert judgement.mean == 1.0


def test_voices_do_not_choose_the_rule_for_running_speech() -> None:
    said = [Saying("lamp", "kokoro-af_heart", False, np.ones(9000, np.int16))]
    assert crowdings(said) == (8.0,)
    assert crowdings([*said, Saying("lamp", "anna", True, np.ones(9000, np.int16))]) == (0.0, 8.0)

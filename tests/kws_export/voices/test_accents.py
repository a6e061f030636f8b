"""Foreign accents: other sounds in place of a word's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kws_export.phonemes import distances, symbols
from kws_export.voices.accents import REPLACEMENTS, accented

JARVIS = "dʒˈɑːɹvɪs"


def heard(ipa: str, share: float = 0.3) -> set[str]:
    return {symbols(accented(ipa, np.random.default_rng(seed), share)) for seed in range(400)}


@pytest.mark.parametrize(
    ("ipa", "said"),
    [("wˈɪndoʊ", "vɪndoʊ"), ("θɹˈiː", "sɹi"), ("hˈaʊs", "xaʊs"), ("lˈæmp", "lɛmp"), ("dˈɔːɡ", "dɔk")],
    ids=["German w", "French th", "Spanish h", "Dutch a", "Russian final g"],
)
def test_a_word_is_said_as_learners_say_it(ipa: str, said: str) -> None:
    assert said in heard(ipa)


def test_an_r_that_no_vowel_follows_may_be_silent_and_one_before_a_vowel_is_not() -> None:
    assert "dʒɑvɪs" in heard(JARVIS)
    assert "dɪm" not in heard("dɹˈɪm")


@given(st.integers(0, 10_000))
def test_a_word_stays_the_word(seed: int) -> None:
    said = accented(JARVIS, np.random.default_rng(seed))
    near, far = distances(JARVIS, [said, "jˈɛlloʊ"])
    assert near < far
    assert len(symbols(said)) >= 4


@given(st.integers(0, 10_000), st.sampled_from(["a", JARVIS, "kəmpjˈuːɾɚ"]))
def test_every_pronunciation_takes_as_many_draws(seed: int, ipa: str) -> None:
    used, other = np.random.default_rng(seed), np.random.default_rng(seed)
    accented(ipa, used)
    accented(JARVIS, other)
    assert used.random() == other.random()


def test_without_a_share_no_sound_is_replaced() -> None:
    assert heard(JARVIS, share=0.0) == {symbols(JARVIS)}


@pytest.mark.parametrize(("sound", "other"), REPLACEMENTS)
def test_every_replacement_is_made_where_its_sound_occurs(sound: str, other: str) -> None:
    alone = sound.partition("(")[0].removesuffix("$")
    assert f"m{other}" in {accented(f"m{alone}", np.random.default_rng(seed)) for seed in range(400)}

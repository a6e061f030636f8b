"""What the voices say."""

import shutil

import pytest

from kws_export.voices.espeak import PROGRAM
from kws_export.wake.sayings import similar_phrases
from kws_export.wake.settings import WakeSettings, WakeWord


@pytest.mark.skipif(not shutil.which(PROGRAM), reason=f"needs {PROGRAM}")
def test_another_spelling_of_a_word_is_no_near_miss_of_it() -> None:
    alone = similar_phrases(WakeSettings((WakeWord("lamp"),), near_misses=30))
    other = alone[0]
    phrases = similar_phrases(WakeSettings((WakeWord("lamp", spoken=("lamp", other)),), near_misses=30))
    assert len(phrases) == len(alone) == 30
    assert not {"lamp", other} & set(phrases)


def test_the_given_pronunciation_is_that_of_the_text_alone() -> None:
    word = WakeWord("Siobhan", spoken=("Siobhan", "shiv awn"), phonemes="SIv'O:n")
    said = [(utterance.text, utterance.phonemes, utterance.language) for utterance in word.utterances("en-gb")]
    assert said == [("Siobhan", "SIv'O:n", "en-gb"), ("shiv awn", "", "en-gb")]


@pytest.mark.skipif(not shutil.which(PROGRAM), reason=f"needs {PROGRAM}")
def test_no_near_miss_holds_another_wake_word() -> None:
    phrases = similar_phrases(WakeSettings((WakeWord("computer"), WakeWord("hey computer")), near_misses=40))
    assert phrases
    assert not [phrase for phrase in phrases if "computer" in phrase.split()]

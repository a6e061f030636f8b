"""Words that sound alike: the distance between pronunciations, and near-misses by it."""

import shutil

import numpy as np
import pytest

from kws_edge.errors import SettingError
from kws_export.phonemes import Dictionary, distances, near_misses, symbols

FIVE, FOUR = "fˈaɪv", "fˈoːɹ"


def distance(first: str, second: str) -> float:
    return float(distances(first, [second])[0])


def dictionary(**said: str) -> Dictionary:
    return Dictionary("en-us", tuple(said), tuple(said.values()))


def test_stress_length_and_ties_do_not_count() -> None:
    assert symbols("t͡ʃˈæːptɚ") == symbols("ʧæptəɹ") == "tʃæptəɹ"


def test_a_c_with_a_cedilla_is_one_sound_of_its_own() -> None:
    assert symbols("kˈyçə") == "kyçə"


def test_homophones_are_at_distance_nought() -> None:
    assert distance("nˈoʊ", "nˌoʊ") == 0
    assert distance("fˈɔːɹ", FOUR) == 0  # before r, accents differ by more than the two vowels do


@pytest.mark.parametrize(("near", "far"), [("bˈæd", "sˈɛd"), ("bˈɛt", "bˈɛs"), ("pˈɛd", "kˈæt"), ("dˈɛd", "hˈɛd")])
def test_what_sounds_alike_is_nearer(near: str, far: str) -> None:
    assert 0 < distance("bˈɛd", near) < distance("bˈɛd", far)


def test_the_distance_is_the_same_both_ways() -> None:
    assert distance(FIVE, FOUR) == pytest.approx(distance(FOUR, FIVE))


def test_many_at_once_are_as_one_by_one() -> None:
    others = ["tˈaɪm", "fˈaɪn", "a", "kəmpjˈuːɾɚ"]
    np.testing.assert_allclose(distances(FIVE, others), [distance(FIVE, other) for other in others])


def test_within_finds_the_target_in_a_longer_word() -> None:
    assert distances(FOUR, ["bɪfˈoːɹ", "fˈoːɹɾi", "flˈoːɹ"], within=True).tolist() == pytest.approx([0, 0, 0.7])


def test_near_misses_are_nearest_first_and_hold_neither_homophones_nor_the_word() -> None:
    words = dictionary(fine="fˈaɪn", hive="hˈaɪv", phive="fˈaɪv", fives="fˈaɪvz", banana="bənˈænə", fight="fˈaɪt")
    found = [miss.text for miss in near_misses(FIVE, words, 10)]
    assert set(found) == {"fine", "hive", "fight"}
    far = [miss.distance for miss in near_misses(FIVE, words, 10)]
    assert far == sorted(far)


def test_what_is_spotted_too_is_no_near_miss() -> None:
    words = dictionary(fine="fˈaɪn", hive="hˈaɪv")
    assert [m.text for m in near_misses(FIVE, words, 10, avoid=("fˈaɪn",))] == ["hive"]


def test_of_homophones_the_most_frequent_stands_for_all() -> None:
    words = dictionary(fine="fˈaɪn", fyne="fˈaɪn")
    assert [m.text for m in near_misses(FIVE, words, 10)] == ["fine"]


@pytest.mark.parametrize("ipa", ["", "ˈ", "123"])
def test_a_pronunciation_without_phonemes_has_no_near_misses(ipa: str) -> None:
    assert near_misses(ipa, dictionary(fine="fˈaɪn"), 10) == []


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="needs espeak-ng")
def test_a_dictionary_is_of_any_language_and_made_once(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KWS_EXPORT_CACHE", str(tmp_path))
    made = Dictionary.load("de", 60)
    assert made.pronunciations[made.words.index("und")] == "ˈʊnt"
    monkeypatch.setattr("kws_export.phonemes.dictionary.transcribe", None)  # it is not asked again
    assert Dictionary.load("de", 60) == made


def test_a_language_without_a_word_list_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="no list of words in xx"):
        Dictionary.load("xx")

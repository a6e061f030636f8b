"""The sources of a wake word's model, as on its card: each once, and nobody left out."""

from dataclasses import replace

import pytest

from kws_edge import KeywordModel
from kws_export.data.sources import Source, load_sources
from kws_export.voices import ENGINES
from kws_export.wake.provenance import Provenance, first_sources

STREAM = "models/stream.onnx"


def made_from(sources: tuple[Source, ...] = (), recordings: str = "") -> Provenance:
    first = first_sources(STREAM, KeywordModel.load("stream").metadata)
    voices = tuple(engine().credit for engine in ENGINES.values())
    return Provenance(STREAM, "", "", 0, voices, "", sources, first, recordings)


def test_a_source_that_the_first_network_learnt_from_too_is_named_once(pytestconfig: pytest.Config) -> None:
    sources = load_sources(pytestconfig.rootpath / "export" / "packs" / "negatives.toml")
    credits = made_from(tuple(sources)).credits
    names = [credit.name for credit in credits]
    assert len(set(names)) == len(names)
    used = {credit.name: use for credit, use in credits.items()}
    assert used["speechocean762"] == "speech without the word, the first network"
    assert used["Flite and its voices slt, rms, awb, kal"] == "the word, near-misses, the first network"
    assert used["LJ Speech, a part"] == "the first network"
    assert all("the first network" in use for use in used.values())


def test_sources_of_one_name_by_different_people_are_both_named() -> None:
    credits = made_from((Source("x", "Speech Commands", "CC BY 4.0", "Somebody else"),)).credits
    assert [c.by for c in credits if c.name == "Speech Commands"] == [
        "Somebody else",
        "P. Warden, Speech Commands, arXiv:1804.03209",
    ]


def test_a_first_network_whose_sources_are_not_listed_is_named_in_its_own_words() -> None:
    metadata = replace(KeywordModel.load("stream").metadata, attribution="Tones by nobody.")
    (first,) = first_sources("models/tones.onnx", metadata)
    assert (first.name, first.by) == ("what `models/tones.onnx` learnt from", "Tones by nobody.")


def test_recordings_of_which_nothing_is_said_are_marked_so() -> None:
    given = next(iter(made_from(recordings="recordings that were given with --recordings").credits))
    assert (given.licence, given.by) == ("not stated", "not stated")


@pytest.mark.parametrize("name", ["jarvis", "hey_computer"])
def test_a_shipped_card_has_the_rows_that_the_command_writes(name: str, pytestconfig: pytest.Config) -> None:
    card = (pytestconfig.rootpath / "models" / f"{name}.md").read_text(encoding="utf-8")
    sources = load_sources(pytestconfig.rootpath / "export" / "packs" / "negatives.toml")
    for credit, use in made_from(tuple(sources)).credits.items():
        assert card.count(f"| {credit.name} | {credit.licence} | {credit.by} | {use} |") == 1


def test_what_starts_from_the_shipped_network_names_each_of_its_sources() -> None:
    assert len(first_sources(STREAM, KeywordModel.load("stream").metadata)) > 1  # its list is that of today's file

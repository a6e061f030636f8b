"""Where a pack's recordings come from: which speakers stay out, and which descriptions are refused."""

from pathlib import Path
from typing import Any

import pytest

from kws_edge.errors import SettingError
from kws_export.data.sources import Source, load_sources


def test_a_share_of_the_speakers_stays_out_the_same_ones_every_time() -> None:
    source = Source("talk", left_out=1 / 3)
    kept = [speaker for speaker in map(str, range(600)) if source.holds(speaker)]
    assert 350 < len(kept) < 450
    assert kept == [speaker for speaker in map(str, range(600)) if Source("talk", left_out=1 / 3).holds(speaker)]


@pytest.mark.parametrize("folder", ["speech/talk/", "./speech/talk", "speech//talk"])
def test_the_same_speakers_stay_out_however_a_folder_is_written(folder: str) -> None:
    speakers, sources = [str(i) for i in range(50)], [Source(f, left_out=0.5) for f in ("speech/talk", folder)]
    assert sources[0] == sources[1]
    assert [sources[1].holds(speaker) for speaker in speakers] == [sources[0].holds(speaker) for speaker in speakers]


def test_sources_are_read_from_toml(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[[source]]\nfolder = "a/b"\nlicence = "CC0-1.0"\n')
    assert load_sources(tmp_path / "s.toml") == [Source("a/b", "b", "CC0-1.0")]


@pytest.mark.parametrize(
    "text",
    [
        "x = ", '[[source]]\nfolder = "a"\nlicense = "b"', "y = 1", "[[source]]\nname = 'a'", "source = 5",
        'source = ["a"]', "x = " + "[" * 9999 + "]" * 9999,
    ],
)  # fmt: skip
def test_a_file_of_sources_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(SettingError, match=r"s\.toml"):
        load_sources(tmp_path / "s.toml")


def test_the_shipped_list_of_sources_is_good(pytestconfig: pytest.Config) -> None:
    sources = load_sources(pytestconfig.rootpath / "export" / "packs" / "negatives.toml")
    assert all(source.licence != "not stated" and source.attribution != "not stated" for source in sources)


@pytest.mark.parametrize(
    "values",
    [
        {"speaker": "("}, {"speaker": "abc"}, {"speaker": 5}, {"pattern": "/etc/*"}, {"pattern": "../*"},
        {"pattern": ""},
        {"minutes": "1"}, {"minutes": -1}, {"minutes": float("nan")}, {"licence": []}, {"left_out": True}, {"name": 1},
    ],
)  # fmt: skip
def test_a_source_that_cannot_be_meant_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="expected"):
        Source("talk", **values)


@pytest.mark.parametrize("field", ["name", "licence", "attribution"])
def test_what_a_card_says_of_a_source_is_one_line(field: str) -> None:
    with pytest.raises(SettingError, match="expected a text of one line"):
        Source("a", **{field: "b\nc"})
    assert "\n" not in Source("a\nError: forged").name

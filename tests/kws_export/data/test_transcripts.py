from pathlib import Path

import numpy as np
import pytest
import soundfile

from kws_edge.errors import SettingError
from kws_export.data.pack import collect, open_packs
from kws_export.data.sources import Source
from kws_export.data.transcripts import transcripts


def recorded(folder: Path, *names: str) -> Path:
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / name, np.full(16_000, i + 1, np.int16), 16_000)
    return folder


def table(folder: Path, *lines: str) -> None:
    (folder / "transcripts.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def texts(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): text for path, text in transcripts(folder).items()}


def test_recordings_of_one_name_in_two_folders_each_have_their_text(tmp_path: Path) -> None:
    table(recorded(tmp_path, "ann/1.wav", "bob/1.wav"), "ann/1.wav\tone", "./bob/1.wav\ttwo")
    assert texts(tmp_path) == {"ann/1.wav": "one", "bob/1.wav": "two"}
    pieces = collect(tmp_path.parent, Source(tmp_path.name))
    assert [(piece.speaker, piece.text) for piece in pieces] == [("ann/1.wav", "one"), ("bob/1.wav", "two")]


def test_a_bare_name_is_enough_where_one_recording_has_it(tmp_path: Path) -> None:
    table(recorded(tmp_path, "ann/1.wav", "bob/2.wav"), "1.wav\tone", "2.wav\ttwo")
    assert texts(tmp_path) == {"ann/1.wav": "one", "bob/2.wav": "two"}


def test_a_bare_name_that_two_recordings_have_is_refused(tmp_path: Path) -> None:
    table(recorded(tmp_path, "ann/1.wav", "bob/1.wav"), "1.wav\tone")
    with pytest.raises(SettingError, match=r"'1\.wav' may be .*ann/1\.wav or .*bob/1\.wav; expected paths"):
        transcripts(tmp_path)


def test_a_recording_in_the_folder_itself_is_meant_by_its_name(tmp_path: Path) -> None:
    table(recorded(tmp_path, "1.wav", "bob/1.wav"), "1.wav\tone")
    assert texts(tmp_path) == {"1.wav": "one"}


def test_the_other_recording_of_a_name_is_meant_where_one_is_named_by_its_path(tmp_path: Path) -> None:
    table(recorded(tmp_path, "ann/1.wav", "bob/1.wav"), "ann/1.wav\tone", "1.wav\ttwo")
    assert texts(tmp_path) == {"ann/1.wav": "one", "bob/1.wav": "two"}


def test_a_folder_in_the_folder_may_have_a_table_of_its_own(tmp_path: Path) -> None:
    recorded(tmp_path, "ann/1.wav", "bob/1.wav", "bob/2.wav")
    table(tmp_path / "ann", "1.wav\tone")
    table(tmp_path / "bob", "1.wav\ttwo")
    table(tmp_path, "bob/1.wav\tother", "2.wav\tthree")
    assert texts(tmp_path) == {"ann/1.wav": "one", "bob/1.wav": "two", "bob/2.wav": "three"}


def test_two_texts_for_one_recording_are_refused(tmp_path: Path) -> None:
    table(recorded(tmp_path, "1.wav"), "1.wav\tone", "1.wav\ttwo")
    with pytest.raises(SettingError, match=r"two texts for '1\.wav'"):
        transcripts(tmp_path)


def test_a_single_recording_has_its_text_too(tmp_path: Path) -> None:
    table(recorded(tmp_path, "1.wav", "2.wav"), "1.wav\tone", "3.wav\tthree")
    pieces = open_packs([str(tmp_path / "1.wav"), str(tmp_path / "2.wav")]).pieces
    assert [piece.text for piece in pieces] == ["one", ""]


def test_the_folder_that_a_command_runs_in_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recorded(tmp_path / "talk", "1.wav"))
    (piece,) = open_packs(["."]).pieces
    assert piece.source.name == "talk"

"""Packs: hours of recordings in one file, with their texts and licences."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

from kws_edge.errors import SettingError
from kws_edge.files import read_arrays
from kws_export.cli import main
from kws_export.data.pack import Codec, Pack, Piece, collect, manifest_lines, open_packs
from kws_export.data.sources import Source

SPEECH = Source("talk", "Talk", "CC0-1.0", "A. Talker")
SOUNDS = Source("hum", "Hum", "CC BY 4.0", "B. Hummer", kind="sounds")


def samples(n: int, seed: int = 0) -> "np.ndarray[tuple[int], np.dtype[np.int16]]":
    rng = np.random.default_rng(seed)
    return (8000 * np.sin(np.cumsum(rng.uniform(0.05, 0.1, n)))).astype(np.int16)


@pytest.fixture
def pack() -> Pack:
    return Pack(
        (
            Piece(SPEECH, "ann", "Ask the computer's clock.", samples(20_000, 1)),
            Piece(SPEECH, "bob", "Ask, my dear.", samples(31_111, 2)),
            Piece(SOUNDS, "x", "", samples(48_000, 3)),
        )
    )


@pytest.mark.parametrize("codec", ["int16", "opus"])
def test_a_pack_is_read_as_it_was_written(pack: Pack, tmp_path: Path, codec: Codec) -> None:
    pack.save(tmp_path / "p.npz", codec)
    read = Pack.load(tmp_path / "p.npz")
    assert [(p.source, p.speaker, p.text, len(p.samples)) for p in read.pieces] == [
        (p.source, p.speaker, p.text, len(p.samples)) for p in pack.pieces
    ]
    for ours, theirs in zip(read.pieces, pack.pieces, strict=True):
        if codec == "int16":
            np.testing.assert_array_equal(ours.samples, theirs.samples)
        else:
            assert np.corrcoef(ours.samples[1000:-1000], theirs.samples[1000:-1000])[0, 1] > 0.98


def test_opus_is_a_fifth_of_int16_or_less(pack: Pack, tmp_path: Path) -> None:
    long = Pack(tuple(Piece(SPEECH, "a", "", np.tile(samples(32_000, i), 10)) for i in range(3)))
    long.save(tmp_path / "a.npz")
    long.save(tmp_path / "b.npz", "opus")
    assert (tmp_path / "b.npz").stat().st_size < (tmp_path / "a.npz").stat().st_size / 5


@pytest.mark.parametrize(
    ("phrase", "left"),
    [
        ("computer", ["bob", "x"]),
        ("my DEAR", ["ann", "x"]),
        ("My, dear!", ["ann", "x"]),
        ("put", ["ann", "bob", "x"]),
        ("ask", ["x"]),
    ],
)  # fmt: skip
def test_recordings_that_say_a_phrase_can_be_left_out(pack: Pack, phrase: str, left: list[str]) -> None:
    assert [p.speaker for p in pack.without([phrase]).pieces] == left


def test_texts_speakers_and_cut_out_words_come_with_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "talk"
    folder.mkdir()
    for name in ("ann-1.wav", "bob-1.wav"):
        soundfile.write(folder / name, samples(80_000), 16_000)
    (folder / "transcripts.tsv").write_text("file\ttext\nann-1.wav\tHello there\n")
    (folder / "bob-1.labels.txt").write_text("2.0\t2.5\tyes\n")
    pieces = collect(tmp_path, Source("talk", speaker=r"^(\w+)-"))
    assert [(p.speaker, p.text, len(p.samples)) for p in pieces] == [
        ("ann", "Hello there", 80_000), ("bob", "", 30_400), ("bob", "", 38_400),
    ]  # fmt: skip


def test_single_words_say_what_their_folders_are_called(tmp_path: Path) -> None:
    for word in ("stop", "go"):
        (tmp_path / "words" / word).mkdir(parents=True)
        soundfile.write(tmp_path / "words" / word / "a.wav", samples(16_000), 16_000)
    pack = Pack(tuple(collect(tmp_path, Source("words", kind="words", pattern="*/*"))))
    assert [piece.text for piece in pack.pieces] == ["go", "stop"]
    assert [piece.text for piece in pack.without(["stop"]).pieces] == ["go"]


def test_clips_in_the_layout_of_speech_commands_say_what_their_folders_are_called(tmp_path: Path) -> None:
    for i, name in enumerate(("stop/ann_nohash_0.wav", "_noise_/ann_nohash_0.wav", "stop/radio.wav")):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(tmp_path / "data" / name, samples(16_000 + i), 16_000)
    pack = open_packs([str(tmp_path / "data")])
    assert [(piece.speaker, piece.text) for piece in pack.pieces] == [
        ("_noise_/ann_nohash_0.wav", ""), ("stop/ann_nohash_0.wav", "stop"), ("stop/radio.wav", ""),
    ]  # fmt: skip


def test_so_many_minutes_are_taken(tmp_path: Path) -> None:
    (tmp_path / "talk").mkdir()
    for i in range(6):
        soundfile.write(tmp_path / "talk" / f"{i}.wav", samples(160_000), 16_000)
    pieces = collect(tmp_path, Source("talk", minutes=0.5))
    assert sum(len(p.samples) for p in pieces) == 3 * 160_000


def test_the_manifest_names_licence_and_author(pack: Pack) -> None:
    assert "licence: CC BY 4.0; attribution: B. Hummer" in manifest_lines(pack)[1]


def test_what_is_no_pack_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.npz").write_bytes(b"nonsense")
    np.savez(tmp_path / "q.npz", a=np.zeros(3))
    for name in ("p.npz", "q.npz", "missing.npz"):
        with pytest.raises(SettingError, match="pack"):
            Pack.load(tmp_path / name)


def test_packs_folders_and_files_are_taken_together(pack: Pack, tmp_path: Path) -> None:
    pack.save(tmp_path / "p.npz")
    (tmp_path / "room").mkdir()
    soundfile.write(tmp_path / "room" / "a.wav", samples(16_000), 16_000)
    soundfile.write(tmp_path / "b.wav", samples(17_000), 16_000)
    opened = open_packs([str(tmp_path / name) for name in ("p.npz", "room", "b.wav")])
    assert [len(p.samples) for p in opened.pieces] == [20_000, 31_111, 48_000, 16_000, 17_000]


def test_an_empty_pack_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="without recordings"):
        Pack(()).save(tmp_path / "p.npz")


@pytest.mark.parametrize(
    "changed",
    [
        {"pieces": 5}, {"pieces": [[0, "a", "", -1]]}, {"pieces": [[9, "a", "", 1]]}, {"pieces": [[0, "a", "", 10**9]]},
        {"pieces": [[0, "a", ""]]}, {"pieces": [[0, 5, "", 1]]}, {"pieces": [["0", "a", "", 1]]}, {"sources": [{}]},
        {"sources": [{"folder": "a", "speaker": "("}]}, {"sources": 5}, {"format": [1]}, {"codec": "opus"},
    ],
)  # fmt: skip
def test_a_pack_whose_manifest_lies_is_refused(pack: Pack, tmp_path: Path, changed: dict[str, Any]) -> None:
    pack.save(tmp_path / "p.npz")
    file = read_arrays(tmp_path / "p.npz")
    manifest = json.loads(file["manifest"].tobytes()) | changed
    np.savez(tmp_path / "p.npz", **{**file, "manifest": np.frombuffer(json.dumps(manifest).encode(), np.uint8)})
    with pytest.raises(SettingError, match="expected") as refused:
        Pack.load(tmp_path / "p.npz")
    assert "\n" not in str(refused.value)


def test_a_pack_of_other_arrays_is_refused(pack: Pack, tmp_path: Path) -> None:
    pack.save(tmp_path / "p.npz")
    file = read_arrays(tmp_path / "p.npz")
    for other in (file["audio0"].astype(np.float32), file["audio0"].reshape(-1, 1), np.array("text")):
        np.savez(tmp_path / "q.npz", **{**file, "audio0": other})
        with pytest.raises(SettingError, match="is not a pack"):
            Pack.load(tmp_path / "q.npz")


def test_where_the_disk_takes_no_more_no_part_of_a_pack_stays(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Any, **arrays: Any) -> None:
        file.write(bytes(1000))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        pack.save(tmp_path / "p.npz")
    assert list(tmp_path.iterdir()) == []


def transcribed(tmp_path: Path, table: bytes) -> list[Piece]:
    (tmp_path / "talk").mkdir()
    soundfile.write(tmp_path / "talk" / "a.wav", samples(16_000), 16_000)
    (tmp_path / "talk" / "transcripts.tsv").write_bytes(table)
    return collect(tmp_path, Source("talk"))


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_what_is_said_is_known_however_an_editor_saved_it(tmp_path: Path, start: bytes) -> None:
    assert [piece.text for piece in transcribed(tmp_path, start + b"a.wav\thello\r\n")] == ["hello"]


@pytest.mark.parametrize(
    "table", ["a.wav\thello\n".encode("utf-16"), b"\xff\xfe", b"talk/a.wav\thello\n", b"nothing\n"]
)
def test_transcripts_of_nothing_that_is_there_are_refused(tmp_path: Path, table: bytes) -> None:
    with pytest.raises(SettingError, match=r"transcripts\.tsv: .*expected"):
        transcribed(tmp_path, table)


def test_a_recording_whose_name_is_no_text_is_packed(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    soundfile.write(tmp_path / "x.wav", samples(16_000), 16_000)
    (tmp_path / "x.wav").rename(folder / os.fsdecode(b"x\xff.wav"))
    packed = Pack(tuple(collect(tmp_path, Source(folder.name, left_out=0.0))))
    packed.save(tmp_path / "p.npz")
    assert [piece.speaker for piece in Pack.load(tmp_path / "p.npz").pieces] == [os.fsdecode(b"x\xff.wav")]
    (line,) = manifest_lines(packed)
    assert line.startswith(r"caf\udce9: ")


def test_a_recording_that_is_given_twice_counts_once(
    pack: Pack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack.save(tmp_path / "p.npz")
    pack.save(tmp_path / "q.npz")
    assert open_packs([str(tmp_path / "p.npz"), str(tmp_path / "q.npz")]).hours == pack.hours
    assert caplog.messages == ["3 recordings given more than once, such as Talk/ann; each counts once"]


def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", samples(16_000), 16_000)
    with pytest.raises(SettingError, match=r"no recording below .* that matches \*\.opus"):
        collect(tmp_path.parent, Source(tmp_path.name, pattern="*.opus"))


@pytest.mark.parametrize("out", ["p.zip", "file/p.npz"])
def test_where_a_pack_cannot_go_is_told_before_anything_is_decoded(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "a.wav").write_bytes(b"no sound, which decoding would tell")
    result = CliRunner().invoke(main, ["pack", str(tmp_path / "room"), "--out", str(tmp_path / out)])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: cannot write {tmp_path / out}")


def test_a_file_that_exists_is_written_over_by_force_alone(pack: Pack, tmp_path: Path) -> None:
    pack.save(tmp_path / "p.npz")
    before = (tmp_path / "p.npz").read_bytes()
    (tmp_path / "room").mkdir()
    soundfile.write(tmp_path / "room" / "a.wav", samples(16_000), 16_000)
    command = ["pack", str(tmp_path / "room"), "--out", str(tmp_path / "p.npz")]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert "p.npz exists; expected a new name, or --force" in result.stderr
    assert (tmp_path / "p.npz").read_bytes() == before
    assert CliRunner().invoke(main, [*command, "--force"]).exit_code == 0
    assert len(Pack.load(tmp_path / "p.npz").pieces) == 1


def test_a_link_to_a_pack_stays(pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "link.npz").symlink_to(tmp_path / "p.npz")
    pack.save(tmp_path / "link.npz")
    assert (tmp_path / "link.npz").is_symlink()
    assert len(Pack.load(tmp_path / "p.npz").pieces) == len(pack.pieces)


def test_a_text_may_hold_other_ends_of_lines(tmp_path: Path) -> None:
    (piece,) = transcribed(tmp_path, "a.wav\tone\u2028two\n".encode())
    assert piece.text == "one\u2028two"

"""`kws-edge enroll`: a model from a few takes, which keeps the contract of every model file."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from made_audio import wav
from paths import ROOT

from kws_edge import KeywordModel, Spotter, WavFile
from kws_edge.arrays import F32
from kws_edge.audio.load import load
from kws_edge.cli import main
from kws_edge.errors import ModelError
from kws_edge.model.evidence import alpha as alpha_of
from kws_edge.model.prediction import Reason
from kws_edge.model.variants import get_variant
from kws_edge.tuning.embedding import BACKGROUND, Background, Embedding
from kws_edge.tuning.enrolment import enrol
from kws_edge.tuning.record import FORMS


def enroll(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["enroll", *arguments])


@pytest.fixture(scope="module")
def takes(data: Path) -> list[str]:
    """Five takes of one voice, as alike as those of somebody who records a word for a device."""
    return [str(path) for path in sorted((data / "speech_commands" / "happy").glob("d312f481_nohash_*"))[:5]]


@pytest.fixture(scope="module")
def enrolled(takes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("enrolled") / "mine.onnx"
    result = enroll("open sesame", *takes[:4], "--out", str(out))
    assert result.exit_code == 0, result.output
    return out


def test_the_file_is_one_that_onnx_accepts_and_says_what_it_is(enrolled: Path) -> None:
    onnx.checker.check_model(onnx.load(enrolled), full_check=True)
    model = KeywordModel.load(enrolled)
    assert model.labels == ("open sesame", "_unknown_")
    assert model.metadata.training["takes"] == 4
    assert model.name == "mine"
    assert re.fullmatch(
        r"8 times the mean excess above the 97% quantile of the cosines of \d,\d{3} windows of other speech",
        model.metadata.calibration["method"],
    )


def test_other_speech_is_not_the_word(enrolled: Path, data: Path) -> None:
    model = KeywordModel.load(enrolled)
    others = [next((data / "speech_commands" / word).iterdir()) for word in ("stop", "three", "zero", "left", "bed")]
    answers = [model.classify(path) for path in others]
    assert [answer.label for answer in answers] == [None] * 5
    assert min(answer.vacuity for answer in answers) > 0.8


def test_a_clip_of_a_second_is_searched_wherever_the_word_lies_in_it(enrolled: Path, takes: list[str]) -> None:
    model = KeywordModel.load(enrolled)
    for take in takes:  # the fifth was not enrolled
        clip = load(take).samples
        for moved in (clip, clip[2_000:], np.pad(clip, (4_000, 0))):
            answer = model.classify(moved, 16_000)
            assert answer.label == "open sesame", take
            (together,) = model.classify_batch(moved[np.newaxis])
            assert (together.label, together.vacuity, together.start) == (answer.label, answer.vacuity, answer.start)


def test_a_clip_that_is_no_audio_does_not_stop_the_others(enrolled: Path, takes: list[str]) -> None:
    clip = load(takes[0]).samples
    answers = KeywordModel.load(enrolled).classify_batch(np.stack([np.full_like(clip, np.nan), clip]))
    assert [answer.label for answer in answers] == [None, "open sesame"]
    assert answers[0].reason is Reason.INVALID_AUDIO


def test_what_is_far_from_the_takes_is_vacuity(enrolled: Path) -> None:
    noise = 0.1 * np.random.default_rng(0).standard_normal(16_000)
    answer = KeywordModel.load(enrolled).classify(noise, 16_000)
    assert answer.vacuity > 0.95
    assert answer.alpha == pytest.approx([1, 1], abs=0.1)


def test_the_head_in_the_graph_is_that_of_the_variant(enrolled: Path) -> None:
    model = KeywordModel.load(enrolled)
    outputs = model.run(np.random.default_rng(0).standard_normal((3, 64, 128)).astype(np.float32))
    nothing = alpha_of(np.full((3, 2), -40.0, np.float32), get_variant(model.metadata.variant))
    assert outputs.alpha[:, 1] == pytest.approx(nothing[:, 1], abs=1e-6)
    assert outputs.vacuity == pytest.approx(2 / outputs.alpha.sum(axis=1), abs=1e-6)


def test_a_stream_tells_the_word_once(enrolled: Path, takes: list[str], tmp_path: Path) -> None:
    import soundfile

    room = 0.0005 * np.random.default_rng(1).standard_normal(48_000)
    soundfile.write(tmp_path / "s.wav", np.concatenate([room, load(takes[4]).samples, room]), 16_000)
    events = list(Spotter(KeywordModel.load(enrolled)).listen(WavFile(tmp_path / "s.wav")))
    assert [event.label for event in events if event.label] == ["open sesame"]


@pytest.mark.parametrize(
    ("count", "word", "out", "problem"),
    [
        (1, "yes", "x.onnx", "1 take; expected 3 to 10"),
        (2, "yes", "x.onnx", "2 takes; expected 3 to 10"),
        (3, "_yes", "x.onnx", "not beginning with an underscore"),
        (3, "hey, lamp", "x.onnx", "without commas"),
        (3, "\x1b[31mred", "x.onnx", "shown on a line"),
        (3, "lam\u202ep", "x.onnx", "shown on a line"),
        (3, "\udcff", "x.onnx", "shown on a line"),
        (3, "a" * 201, "x.onnx", "up to 200 characters"),
        (3, "yes", "x.bin", "ends in .onnx"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    takes: list[str], tmp_path: Path, count: int, word: str, out: str, problem: str
) -> None:
    result = enroll(word, *takes[:count], "--out", str(tmp_path / out))
    assert (result.exit_code, problem in result.stderr) == (2, True), result.output
    assert not list(tmp_path.iterdir())


def test_a_phrase_is_written_with_single_spaces_so_that_options_can_name_it(takes: list[str], tmp_path: Path) -> None:
    out = str(tmp_path / "x.onnx")
    assert enroll(" open \u00a0 sesame", *takes[:3], "--out", out).exit_code == 0
    assert Spotter(KeywordModel.load(out), words=["Open Sesame"]).words == ("open sesame",)


def test_no_form_of_the_model_that_was_there_stays(takes: list[str], tmp_path: Path) -> None:
    out = tmp_path / "x.onnx"
    for suffix in (".onnx", *FORMS):
        out.with_suffix(suffix).write_bytes(b"of another network")
    result = enroll("yes", *takes[:3], "--out", str(out))
    assert (result.exit_code, "x.onnx exists" in result.stderr) == (2, True)
    assert enroll("yes", *takes[:3], "--out", str(out), "--force").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.onnx"]


def test_a_take_that_is_silent_is_named(takes: list[str], tmp_path: Path) -> None:
    silent = tmp_path / "silent.wav"
    silent.write_bytes(wav(np.zeros(16_000)))
    result = enroll("yes", *takes[:3], str(silent), "--out", str(tmp_path / "x.onnx"))
    assert (result.exit_code, f"Error: {silent}: silence;" in result.stderr) == (2, True), result.output


def test_what_is_wrong_with_a_take_that_can_be_used_is_said(takes: list[str], tmp_path: Path) -> None:
    cut = tmp_path / "cut.wav"
    cut.write_bytes(wav(load(takes[3]).samples)[:-1000])
    result = enroll("yes", *takes[:3], str(cut), "--out", str(tmp_path / "x.onnx"))
    assert f"Warning: {cut}: the header announces" in result.stderr


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda take: np.clip(40 * take, -1, 1), "clipped ("),
        (lambda take: take / 1_000, "nothing as loud as speech"),
        (lambda take: np.tile(np.pad(take, (0, 8_000)), 2), "2 sounds with pauses between them"),
        (lambda take: take[np.abs(take).argmax() :][:1_600], "too short for a word"),
        (lambda take: np.tile(take[4_000:12_000], 8), "without a pause"),
    ],
    ids=["clipped", "quiet", "twice in one", "a piece", "many in one"],
)
def test_a_take_that_record_would_not_keep_is_warned_of(
    spoil: Callable[[F32], F32], said: str, takes: list[str], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_bytes(wav(spoil(load(takes[3]).samples)))
    result = enroll("yes", *takes[:3], str(bad), "--out", str(tmp_path / "x.onnx"))
    warnings = [line for line in result.stderr.splitlines() if line.startswith("Warning: ")]
    assert [line.startswith(f"Warning: {bad}: ") for line in warnings] == [True], result.output
    assert said in warnings[0]


def test_one_take_under_two_names_is_refused(takes: list[str], tmp_path: Path) -> None:
    (tmp_path / "again.wav").symlink_to(takes[0])
    result = enroll("yes", *takes[:2], str(tmp_path / "again.wav"), "--out", str(tmp_path / "x.onnx"))
    assert (result.exit_code, "given twice" in result.stderr) == (2, True)


def test_the_same_sound_in_two_files_is_refused(takes: list[str], tmp_path: Path) -> None:
    again = tmp_path / "again.opus"
    again.write_bytes(Path(takes[1]).read_bytes())
    result = enroll("yes", *takes[:2], str(again), "--out", str(tmp_path / "x.onnx"))
    assert (result.exit_code, f"{takes[1]} and {again} hold the same sound" in result.stderr) == (2, True)


def test_the_command_at_the_end_can_be_pasted(takes: list[str], tmp_path: Path) -> None:
    out = tmp_path / "my word.onnx"
    result = enroll("yes", *takes[:3], "--out", str(out))
    assert result.stdout.endswith(f"kws-edge listen --model '{out}'\n"), result.output


@pytest.mark.parametrize(
    ("words", "which"),
    [(("stop", "three", "zero"), (0, 0, 0)), (("on",) * 5, (1, 2, 5, 9, 13))],
    ids=["three words of three voices", "one word of five voices, for whom no similarity would be enough"],
)
def test_takes_unlike_each_other_are_named_and_no_model_is_written(
    data: Path, tmp_path: Path, words: tuple[str, ...], which: tuple[int, ...]
) -> None:
    folders = (sorted((data / "speech_commands" / word).iterdir()) for word in words)
    takes = [str(files[i]) for files, i in zip(folders, which, strict=True)]
    result = enroll("mess", *takes, "--out", str(tmp_path / "mess.onnx"))
    assert result.exit_code == 1, result.output
    assert "unlike the others; it would be missed: leave it out, or record it again" in result.stdout
    assert "hears" not in result.stdout
    assert all(float(needed) < 1 for needed in re.findall(r"([\d.]+) needed", result.stdout))
    assert "expected one voice in all takes, and in each the word alone" in result.stderr
    assert not list(tmp_path.iterdir())


def test_the_model_that_was_there_stays_where_the_takes_make_none(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.onnx"
    out.write_bytes(b"the one before")
    words = [str(next((data / "speech_commands" / word).iterdir())) for word in ("stop", "three", "zero")]
    assert enroll("mess", *words, "--out", str(out), "--force").exit_code == 1
    assert out.read_bytes() == b"the one before"


def test_a_background_of_another_trunk_is_refused(takes: list[str]) -> None:
    embedding = Embedding()
    other = replace(Background.load(), trunk="0" * 16)
    with pytest.raises(ModelError, match=r"enrol.npz is of other weights than stream"):
        enrol([load(take).samples for take in takes[:3]], embedding, other)


@pytest.mark.parametrize(
    "damage",
    [
        {"mean": np.zeros(50, np.float32)},
        {"whitening": np.zeros((400, 96), np.float16)},
        {"whitening": np.zeros(400, np.float16)},
        {"whitening": np.full((400, 400), np.nan, np.float16)},
        {"vectors": np.ones((2500, 100), np.int8)},
        {"vectors": np.ones((0, 400), np.int8)},
        {"vectors": np.zeros((2500, 400), np.int8)},
        {"reach": np.float32("nan")},
    ],
    ids=lambda damage: f"{next(iter(damage))} {next(iter(damage.values())).shape}",
)
def test_a_background_that_is_no_background_is_refused(damage: dict[str, Any], tmp_path: Path) -> None:
    with np.load(BACKGROUND) as file:
        arrays = dict(file) | damage
    path = tmp_path / "enrol.npz"
    np.savez(path, **arrays)
    with pytest.raises(ModelError, match=r"enrol.npz: .*; expected the file that comes with kws-edge: reinstall it"):
        Background.load(path)


def test_it_needs_neither_torch_nor_onnx() -> None:
    code = "import sys, kws_edge.tuning.enrolled_model; print({'torch', 'onnx', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"

"""A wake word from recordings to a model, on a word that is a rising tone, told from other tones."""

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import tone_words

from kws_edge import KeywordModel, Spotter
from kws_edge.errors import ModelError, SettingError
from kws_export.data.pack import Pack, Piece
from kws_export.data.sources import Source
from kws_export.evaluation.scoring import METHOD
from kws_export.training.lock import held
from kws_export.wake.project import WakeProject
from kws_export.wake.settings import WakeSettings, WakeWord
from kws_export.wake.windows import AUGMENTATION

SETTINGS = WakeSettings(
    (WakeWord("Rießen"),), voices=("none",), near_misses=0, epochs=3, steps=12, batch=48, limit=60.0
)

FAILED = "could not be learnt|none of the words is the most probable|no word is found|no threshold|are found in silence"
"""What a run says that learnt nothing: after its epochs, or where its thresholds are looked for."""


class Quiet:
    """Progress that nobody watches."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def start(self, title: str, total: int | None) -> None:
        self.lines.append(title)

    def step(self) -> None:
        pass

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import soundfile

    folder = tmp_path_factory.mktemp("takes")
    for i in range(25):  # one speaker alone: nothing says who speaks
        soundfile.write(folder / f"me_nohash_{i}.wav", tone_words.say("rise", i), 16_000)
    return folder


@pytest.fixture(scope="module")
def negatives() -> Pack:
    pieces = []
    for i in range(24):
        said = [tone_words.say(word, 100 * i + j) for j, word in enumerate(["fall", "high", "low"] * 3)]
        samples = (np.concatenate(said) * 32767).astype(np.int16)
        pieces.append(Piece(Source("talk", "Talk", "CC0-1.0", "A. Talker"), f"s{i}", "", samples))
    noise = (300 * np.random.default_rng(0).standard_normal(16_000 * 30)).astype(np.int16)
    hums = [Piece(Source("hum", kind="sounds"), f"n{i}", "", noise) for i in range(6)]
    listed = Source("list", kind="words")
    alone = [(tone_words.say("fall", 7000 + i) * 32767).astype(np.int16) for i in range(20)]
    return Pack((*pieces, *hums, *(Piece(listed, f"w{i}", "", samples) for i, samples in enumerate(alone))))


def make(settings: WakeSettings, recordings: Path, negatives: Pack, folder: Path, out: Path) -> Quiet:
    progress = Quiet()
    start = KeywordModel.load("stream").path
    WakeProject(settings, folder, start=start, negatives=negatives, recordings=recordings).make(out, progress)
    return progress


@pytest.fixture(scope="module")
def made(recordings: Path, negatives: Pack, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Quiet]:
    work = tmp_path_factory.mktemp("work")
    with tone_words.one_thread():
        progress = make(SETTINGS, recordings, negatives, work, work / "rise.onnx")
    return work, work / "rise.onnx", progress


def test_one_word_of_one_speaker_becomes_a_model_that_hears_it(made: tuple[Path, Path, Quiet]) -> None:
    model = KeywordModel.load(made[1])
    assert model.labels == ("Rießen", "_unknown_")
    spotter = Spotter(model)
    rng = np.random.default_rng(5)
    found = []
    for i, word in enumerate(["rise", "fall", "rise", "low", "rise", "high"]):
        quiet = (1e-3 * rng.standard_normal(24_000)).astype(np.float32)
        found += [(i, e.label) for e in spotter.push(np.concatenate([tone_words.say(word, 900 + i), quiet])) if e.label]
    assert {label for _, label in found} == {"Rießen"}
    assert len(found) >= 2


def test_the_file_says_how_it_was_trained_and_its_thresholds_were_chosen(made: tuple[Path, Path, Quiet]) -> None:
    metadata = KeywordModel.load(made[1]).metadata
    assert metadata.training["recipe"]["augmentation"] == json.loads(json.dumps(asdict(AUGMENTATION)))
    assert metadata.calibration["method"] == METHOD


def test_the_card_states_its_own_data_and_licences(made: tuple[Path, Path, Quiet]) -> None:
    card = made[1].with_suffix(".md").read_text(encoding="utf-8")
    assert "20 takes by 1 person to train with" in card
    assert "Measured on other takes of people that it was trained on; and other recordings." in card
    assert "| Talk | CC0-1.0 | A. Talker | speech without the word |" in card
    assert card.count("A. Talker") == 1
    assert "Rießen" in card


def test_sounds_count_for_themselves_and_not_as_speech(made: tuple[Path, Path, Quiet]) -> None:
    stream = KeywordModel.load(made[1]).metadata.stream
    assert stream is not None
    negatives = stream["calibration"]["negatives"]
    assert {name: said["kind"] for name, said in negatives.items()} == {"speech": "speech", "sounds": "sounds"}
    assert negatives["sounds"]["seconds"] == pytest.approx(30, abs=1)  # of six recordings, one is held out
    card = made[1].with_suffix(".md").read_text(encoding="utf-8")
    assert re.search(r"false accepts, speech \|.*\n\| false accepts, sounds \|", card), card
    assert re.search(r"an hour on false accepts \| .* of speech", card), card


def test_the_card_says_what_fires_on_single_words_which_no_limit_holds_for(made: tuple[Path, Path, Quiet]) -> None:
    card = made[1].with_suffix(".md").read_text(encoding="utf-8")
    assert re.search(r"\| events on single other words, .* \| \d+ \| in [\d.]+ (s|minutes) \|", card), card
    assert "near-misses, said" not in card  # none were made


def test_beside_the_model_are_its_step_graph_and_its_curve(made: tuple[Path, Path, Quiet]) -> None:
    assert made[1].with_suffix(".step.onnx").is_file()
    assert "<svg" in made[1].with_suffix(".svg").read_text()


def test_the_same_command_again_trains_nothing_and_gives_the_same_model(
    made: tuple[Path, Path, Quiet], recordings: Path, negatives: Pack
) -> None:
    work, out, _ = made
    with tone_words.one_thread():
        progress = make(SETTINGS, recordings, negatives, work, work / "again.onnx")
    assert not [line for line in progress.lines if line.startswith("epoch")]
    first, second = (KeywordModel.load(path).metadata for path in (out, work / "again.onnx"))
    assert first.stream == second.stream
    assert first.thresholds == second.thresholds


@pytest.mark.parametrize("changed", ["nothing", "takes", "speakers", "negatives", "kinds"])
def test_a_run_is_not_gone_on_with_where_its_takes_or_negatives_have_changed(tmp_path: Path, changed: str) -> None:
    import soundfile

    def pack(level: int, kind: Literal["speech", "words"] = "speech") -> Pack:
        return Pack((Piece(Source("talk", kind=kind), "s", "", np.full(16_000, level, np.int16)),))

    def take(name: str, tone: int) -> None:
        (tmp_path / "takes").mkdir(exist_ok=True)
        soundfile.write(tmp_path / "takes" / name, 0.5 * np.sin(np.arange(16_000) / tone), 16_000)

    def project(negatives: Pack) -> None:
        start = KeywordModel.load("stream").path
        WakeProject(SETTINGS, tmp_path / "work", start=start, negatives=negatives, recordings=tmp_path / "takes")

    take("me_nohash_0.wav", 5)
    project(pack(1))
    (tmp_path / "work" / "run-1").mkdir()
    if changed == "takes":
        take("me_nohash_0.wav", 6)
    if changed == "speakers":
        (tmp_path / "takes" / "me_nohash_0.wav").rename(tmp_path / "takes" / "you_nohash_0.wav")
    project({"negatives": pack(2), "kinds": pack(1, "words")}.get(changed, pack(1)))
    assert (tmp_path / "work" / "run-1").exists() is (changed == "nothing")


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_is_not_gone_on_with_where_other_voices_have_spoken(
    recordings: Path, negatives: Pack, tmp_path: Path, changed: bool
) -> None:
    start = KeywordModel.load("stream").path
    project = WakeProject(SETTINGS, tmp_path, start=start, negatives=negatives, recordings=recordings)
    training, held_out = project._material(progress := Quiet())
    project._keep_to(training, held_out, progress)
    (tmp_path / "run-1").mkdir()
    if changed:
        training.words.append(replace(training.words[0], real=False, speaker="kokoro-af_heart"))
    project._keep_to(training, held_out, progress)
    assert (tmp_path / "run-1").exists() is not changed
    assert any("training anew" in line for line in progress.lines) is changed


def test_a_folder_of_another_word_is_refused(made: tuple[Path, Path, Quiet], recordings: Path, negatives: Pack) -> None:
    other = replace(SETTINGS, words=(WakeWord("fall"),))
    with pytest.raises(SettingError, match=r"other settings \(words\)"):
        make(other, recordings, negatives, made[0], made[0] / "x.onnx")


def test_speech_without_texts_is_warned_of_once(
    recordings: Path, negatives: Pack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = KeywordModel.load("stream").path
    told = Pack(tuple(replace(piece, text=piece.text or "so they say") for piece in negatives.pieces[:-1]))
    untold = Pack((*told.pieces, *negatives.pieces[-3:]))
    warned = "no text is known of 3 recordings of the negatives (0.0 h of list), so none"
    for pack, said in ((told, []), (untold, [warned])):
        caplog.clear()
        WakeProject(SETTINGS, tmp_path, start=start, negatives=pack, recordings=recordings)
        assert [line.partition(" is left out")[0] for line in caplog.messages] == said


def test_a_word_that_is_said_in_what_is_without_it_fails_the_run(negatives: Pack, tmp_path: Path) -> None:
    import soundfile

    takes = tmp_path / "takes"
    takes.mkdir()
    for i in range(10):
        soundfile.write(takes / f"{i}.wav", tone_words.say("fall", i), 16_000)
    with tone_words.one_thread(), pytest.raises(SettingError, match=FAILED):
        make(replace(SETTINGS, epochs=1, steps=2, limit=1.0), takes, negatives, tmp_path / "work", tmp_path / "x.onnx")


def test_takes_of_noise_alone_fail_the_run(recordings: Path, tmp_path: Path) -> None:
    import soundfile

    noise = (3000 * np.random.default_rng(0).standard_normal(16_000 * 30)).astype(np.int16)
    pack = Pack(tuple(Piece(Source("hiss"), f"s{i}", "", noise) for i in range(12)))
    takes = tmp_path / "takes"
    takes.mkdir()
    for i in range(10):
        soundfile.write(takes / f"{i}.wav", noise[1000 * i : 1000 * i + 16_000], 16_000)
    with tone_words.one_thread(), pytest.raises(SettingError, match=FAILED):
        make(replace(SETTINGS, epochs=1, steps=2, limit=1.0), takes, pack, tmp_path / "work", tmp_path / "x.onnx")


def test_without_voices_and_recordings_nothing_says_the_word(negatives: Pack, tmp_path: Path) -> None:
    start = KeywordModel.load("stream").path
    with pytest.raises(SettingError, match="no recording of Rießen"):
        WakeProject(SETTINGS, tmp_path, start=start, negatives=negatives)


@pytest.mark.parametrize("name", ["a\u202eb.onnx", "x" * 230 + ".onnx", "no.npz/x.onnx"])
def test_a_file_that_cannot_be_written_is_told_before_any_work(
    recordings: Path, negatives: Pack, tmp_path: Path, name: str
) -> None:
    (tmp_path / "no.npz").touch()
    progress, start = Quiet(), KeywordModel.load("stream").path
    project = WakeProject(SETTINGS, tmp_path / "work", start=start, negatives=negatives, recordings=recordings)
    with pytest.raises(SettingError, match="cannot write"):
        project.make(tmp_path / name, progress)
    assert progress.lines == []


@pytest.mark.parametrize(
    ("name", "said"), [("softmax", "is not a model for streams"), ("softmax-int8", "lacks float weights")]
)
def test_a_start_that_cannot_be_used_is_told_before_any_work(
    recordings: Path, negatives: Pack, tmp_path: Path, name: str, said: str
) -> None:
    start = KeywordModel.load(name).path
    with pytest.raises((SettingError, ModelError), match=said):
        WakeProject(SETTINGS, tmp_path, start=start, negatives=negatives, recordings=recordings)


@pytest.mark.parametrize("note", ["a\nb", "\x1b[2J", "x" * 10_000])
def test_whom_to_name_is_checked_before_any_work(recordings: Path, negatives: Pack, tmp_path: Path, note: str) -> None:
    start = KeywordModel.load("stream").path
    with pytest.raises(SettingError, match="--recordings-note"):
        WakeProject(SETTINGS, tmp_path, start=start, negatives=negatives, recordings=recordings, recordings_note=note)


@pytest.mark.parametrize("text", ["_silence_", " lamp", "a,b", ""])
def test_what_can_be_no_label_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="wake word"):
        WakeWord(text)


def test_no_word_or_the_same_twice_is_refused() -> None:
    for words in ((), (WakeWord("a"), WakeWord("A"))):
        with pytest.raises(SettingError, match="at least one, all different"):
            WakeSettings(words)


@pytest.mark.parametrize("content", [b"", b'{"words": [', b"[]", b"\xff", b"[" * 9999])
def test_settings_that_were_cut_off_are_named(
    recordings: Path, negatives: Pack, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "wake.json").write_bytes(content)
    with pytest.raises(SettingError, match=r"wake\.json.*remove it"):
        make(SETTINGS, recordings, negatives, tmp_path, tmp_path / "x.onnx")


@pytest.mark.parametrize("name", ["last.pt", "best.pt"])
@pytest.mark.parametrize("damaged", [b"", b"nonsense", b"PK\x03\x04"])
def test_a_run_that_is_damaged_is_named(
    made: tuple[Path, Path, Quiet], recordings: Path, negatives: Pack, tmp_path: Path, name: str, damaged: bytes
) -> None:
    shutil.copytree(made[0], tmp_path / "work")
    (tmp_path / "work" / "run-1" / name).write_bytes(damaged)
    with tone_words.one_thread(), pytest.raises(SettingError, match=rf"{name} is missing or damaged; remove"):
        make(SETTINGS, recordings, negatives, tmp_path / "work", tmp_path / "x.onnx")


def test_two_do_not_work_in_one_folder(recordings: Path, negatives: Pack, tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(SettingError, match="another process"):
        make(SETTINGS, recordings, negatives, tmp_path, tmp_path / "x.onnx")


def test_the_model_is_written_last(
    made: tuple[Path, Path, Quiet], recordings: Path, negatives: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that after a kill in the middle the same command is not refused because of it."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kws_export.wake.release.wake_card", killed)
    with tone_words.one_thread(), pytest.raises(KeyboardInterrupt):
        make(SETTINGS, recordings, negatives, made[0], tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()

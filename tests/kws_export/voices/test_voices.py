"""Speech engines behind one interface. Those that are not installed are skipped."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

from kws_edge.arrays import F32
from kws_edge.errors import DependencyError, SettingError
from kws_export.cli import main
from kws_export.voices import ENGINES, SAMPLE_RATE, Engine, Rendition, Utterance, get_engines, kokoro, speak, speak_all
from kws_export.voices.casting import cast, perform
from kws_export.voices.engine import PEAK, VoiceError, trim
from kws_export.voices.files import write_renditions


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = ENGINES[request.param]()
    if missing := found.missing():
        pytest.skip(missing)
    return found


class Beeps:
    """An engine whose voices are tones: what is said decides how long, the voice how high."""

    name, licence, takes_phonemes = "flite", "nobody's", False

    def missing(self) -> str | None:
        return None

    def voices(self, language: str) -> tuple[str, ...]:
        return ("100", "200", "400") if language == "en-us" else ()

    def render(self, renditions: Sequence[Rendition]) -> Iterator[tuple[F32, int]]:
        for rendition in renditions:
            if rendition.utterance.text == "mute":
                raise VoiceError("cannot say it")
            n = round(0.1 * len(rendition.utterance.text) / rendition.speed * 24_000)
            quiet = np.zeros(2400, np.float32)
            tone = np.sin(2 * np.pi * float(rendition.voice) * np.arange(n) / 24_000).astype(np.float32)
            yield np.concatenate([quiet, tone, quiet]), 24_000


def test_every_engine_says_a_word_at_16_khz(engine: Engine) -> None:
    said = speak(engine, Utterance("computer"), engine.voices("en-us")[0])
    assert said.dtype == np.float32
    assert 0.3 < len(said) / SAMPLE_RATE < 1.5
    assert np.abs(said).max() == pytest.approx(PEAK)


def test_two_voices_differ(engine: Engine) -> None:
    first, second, *_ = engine.voices("en-us")
    a, b = (speak(engine, Utterance("seven"), voice) for voice in (first, second))
    assert len(a) != len(b) or not np.allclose(a, b)


def test_every_engine_speaks_faster_when_asked(engine: Engine) -> None:
    voice = engine.voices("en-us")[0]
    slow, fast = (speak(engine, Utterance("hey computer"), voice, speed=speed) for speed in (0.8, 1.4))
    assert len(fast) < 0.8 * len(slow)


def test_phonemes_are_said_by_those_that_take_them(engine: Engine) -> None:
    given = Utterance("xyz", phonemes="h'eI l'amp")
    voice = engine.voices("en-us")[0]
    if engine.takes_phonemes:
        assert len(speak(engine, given, voice)) > 0.3 * SAMPLE_RATE
    else:
        with pytest.raises(SettingError, match="phonemes"):
            speak(engine, given, voice)


def test_pitch_moves_the_voice_and_not_the_length() -> None:
    low, high = (speak(Beeps(), Utterance("aaaaaa"), "200", pitch=pitch) for pitch in (1.0, 1.25))
    assert abs(len(low) - len(high)) < 0.02 * len(low)
    peaks = [int(np.abs(np.fft.rfft(x)).argmax()) * SAMPLE_RATE / len(x) for x in (low, high)]
    assert peaks == pytest.approx([200, 250], abs=4)


def test_silence_at_the_ends_is_cut_off() -> None:
    x = np.zeros(16_000, np.float32)
    x[6000:8000] = 0.5
    assert len(trim(x)) == pytest.approx(2000 + 2 * 480, abs=320)


def test_a_voice_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingError, match="no voice nobody"):
        speak(Beeps(), Utterance("a"), "nobody")


def test_a_voice_that_is_not_there_is_refused_beside_one_that_is() -> None:
    for unknown in ("nobody", "100+nobody"):
        with pytest.raises(SettingError, match="no voice nobody"):
            next(speak_all(Beeps(), [Rendition(Utterance("a"), voice) for voice in ("100", unknown)]))


@pytest.mark.parametrize(("speed", "pitch"), [(0.1, 1), (1, 3)])
def test_what_would_be_no_speech_is_refused(speed: float, pitch: float) -> None:
    with pytest.raises(SettingError, match=r"expected 0\.4 to 2\.5"):
        Rendition(Utterance("a"), "v", speed, pitch)


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(SettingError, match="nothing to say"):
        Utterance("  ")


def test_none_is_no_engine_and_an_unknown_name_is_refused() -> None:
    assert get_engines(["none"]) == []
    with pytest.raises(SettingError, match="no engine 'piper'"):
        get_engines(["piper"])


def test_an_engine_asked_for_by_name_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DependencyError, match="apt install flite"):
        get_engines(["flite"])


@pytest.mark.parametrize(("language", "text"), [("de", "Straße"), ("nl", "goedemorgen"), ("pl", "dzień dobry")])
def test_every_engine_of_a_second_language_says_its_words(language: str, text: str) -> None:
    engines = [e for name in ("kokoro", "espeak") if not (e := ENGINES[name]()).missing()]
    for engine in engines or [pytest.skip("neither kokoro nor espeak-ng")]:
        voices = engine.voices(language)
        assert len(voices) >= 20
        assert 0.3 < len(speak(engine, Utterance(text, language=language), voices[-1])) / SAMPLE_RATE < 2


def test_no_engine_speaks_a_language_that_is_none(engine: Engine) -> None:
    assert engine.voices("qq") == ()


def test_engines_that_lack_the_language_are_left_out_of_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    if ENGINES["espeak"]().missing():
        pytest.skip("needs espeak-ng")
    assert "flite" not in [e.name for e in get_engines(["auto"], language="de")]


def test_no_engine_is_imported_as_a_library() -> None:
    libraries = "{'espeakng', 'phonemizer', 'piper'}"
    code = f"import kws_export.voices, sys; print({libraries} & {{m.split('.')[0] for m in sys.modules}})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_cast_is_the_same_for_the_same_seed_and_uses_every_voice() -> None:
    utterances = [Utterance("one"), Utterance("two")]
    renditions = cast(Beeps(), utterances, 6, [1])
    assert renditions == cast(Beeps(), utterances, 6, [1])
    assert renditions != cast(Beeps(), utterances, 6, [2])
    assert {rendition.voice for rendition in renditions} == {"100", "200", "400"}
    assert len({rendition.speed for rendition in renditions}) == len(renditions) == 12


def test_a_share_of_a_cast_has_manners_of_its_own() -> None:
    manners = [rendition.manner for rendition in cast(Beeps(), [Utterance("one")], 400, [1], varied=0.6)]
    assert 0.5 < sum(manner > 0 for manner in manners) / 400 < 0.7
    assert len(set(manners)) > 200
    assert {rendition.manner for rendition in cast(Beeps(), [Utterance("one")], 20, [1])} == {0}


def test_a_voice_says_a_word_in_many_manners_and_each_again_alike() -> None:
    engine = ENGINES["kokoro"]()
    if missing := engine.missing():
        pytest.skip(missing)
    said = [Rendition(Utterance("jarvis"), "af_heart", manner=manner) for manner in (0, 1, 2, 2)]
    plain, first, second, again = speak_all(engine, said)
    assert len({len(plain), len(first), len(second)}) > 1
    assert np.array_equal(second, again)


def test_an_accents_sounds_reach_the_voice(monkeypatch: pytest.MonkeyPatch) -> None:
    if missing := ENGINES["kokoro"]().missing():
        pytest.skip(missing)
    monkeypatch.setattr(kokoro, "perhaps_accented", lambda ipa, rng: ipa.replace("h", "x").replace("ɹ", "r"))
    tokens, _ = kokoro._delivery(Rendition(Utterance("hello rock"), "af_heart", manner=1), "hɹx")
    symbols = kokoro._vocabulary()
    assert tokens[:3] == [symbols["x"], symbols["r"], symbols["k"]]


def test_a_take_that_cannot_be_said_is_left_out() -> None:
    renditions = [Rendition(Utterance(text), "100") for text in ("one", "mute", "three", "four")]
    assert [rendition.utterance.text for rendition, _ in perform(Beeps(), renditions)] == ["one", "three", "four"]


def test_an_engine_that_fails_on_most_is_an_error() -> None:
    renditions = [Rendition(Utterance("mute"), "100")] * 10
    with pytest.raises(VoiceError, match="failed on"):
        list(perform(Beeps(), renditions))


@pytest.mark.parametrize("takes", [1, 2, 3])
def test_an_engine_that_can_say_none_of_a_few_is_an_error(takes: int) -> None:
    with pytest.raises(VoiceError, match="failed on"):
        list(perform(Beeps(), [Rendition(Utterance("mute"), "100")] * takes))


def test_takes_are_written_once(tmp_path: Path) -> None:
    renditions = cast(Beeps(), [Utterance("Küche")], 3, [1])
    first = sorted(write_renditions(Beeps(), renditions, tmp_path))
    assert [soundfile.info(path).samplerate for path in first] == [16_000] * 3
    assert all("_nohash_" in path.name and "Küche" in path.name for path in first)
    first[0].unlink()
    before = first[1].stat().st_mtime_ns
    assert sorted(write_renditions(Beeps(), renditions, tmp_path)) == first
    assert first[1].stat().st_mtime_ns == before


def test_takes_that_could_not_be_said_are_no_error_when_the_command_runs_again(tmp_path: Path) -> None:
    texts = ["one", "mute", *("three" for _ in range(20)), "mute", "mute", "mute"]
    renditions = [Rendition(Utterance(text), "100") for text in texts]
    first = sorted(write_renditions(Beeps(), renditions, tmp_path))
    assert len(first) == 21
    assert sorted(write_renditions(Beeps(), renditions, tmp_path)) == first


def test_a_text_in_another_language_is_said_anew(tmp_path: Path) -> None:
    class Polyglot(Beeps):
        def voices(self, language: str) -> tuple[str, ...]:
            return ("100",)

    said = [
        [
            path.name
            for path in write_renditions(Polyglot(), [Rendition(Utterance("die", language=of), "100")], tmp_path)
        ]
        for of in ("en-us", "de", "nl")
    ]
    assert said[0] == ["flite-100_nohash_0-die.wav"]
    assert len({name for (name,) in said}) == 3


def test_speak_all_gives_one_clip_for_each_take() -> None:
    assert len(list(speak_all(Beeps(), cast(Beeps(), [Utterance("a")], 5, [1])))) == 5


@pytest.mark.parametrize(("share", "expected"), [("0", {False}), ("1", {True}), ("0.5", {False, True})])
def test_the_command_varies_the_manner_of_so_many_takes(
    share: str, expected: set[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Rendition] = []

    class Listening(Beeps):
        def render(self, renditions: Sequence[Rendition]) -> Iterator[tuple[F32, int]]:
            asked.extend(renditions)
            return super().render(renditions)

    monkeypatch.setattr("kws_export.voices.get_engines", lambda *_, **__: [Listening()])
    result = CliRunner().invoke(main, ["speak", "hello", "--takes", "30", "--varied", share, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert {take.manner > 0 for take in asked} == expected


def test_an_engine_that_is_named_twice_speaks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in ENGINES.values():
        monkeypatch.setattr(engine, "missing", lambda self: None)
        monkeypatch.setattr(engine, "voices", lambda self, language: ("a",))
    assert [engine.name for engine in get_engines(["flite", " espeak", "flite"])] == ["flite", "espeak"]


def test_the_command_needs_somebody_to_speak(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["speak", "lamp", "--voices", "none", "--out", str(tmp_path / "said")])
    assert result.exit_code == 1
    assert "--voices none leaves nobody to speak" in result.stderr
    assert not (tmp_path / "said").exists()

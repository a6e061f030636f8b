"""Texts to be said, and their folders."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kws_edge.arrays import F32
from kws_edge.errors import SettingError
from kws_edge.text import folder_name
from kws_export.cli import main
from kws_export.cli.speak import speak
from kws_export.data.pack import Pack
from kws_export.texts import check_texts
from kws_export.voices import Rendition, Utterance
from kws_export.voices.files import write_renditions
from kws_export.wake.settings import WakeSettings, WakeWord


class Tone:
    """An engine that takes phonemes, and says everything alike."""

    name, licence, takes_phonemes = "espeak", "nobody's", True

    def missing(self) -> None:
        return None

    def voices(self, language: str) -> tuple[str, ...]:
        return ("m1", "en-gb-scotland+Mr_serious")

    def render(self, renditions: Sequence[Rendition]) -> Iterator[tuple[F32, int]]:
        for _ in renditions:
            yield np.sin(np.arange(4000, dtype=np.float32)), 16_000


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hey lamp", "hey_lamp"), ("Hallo, Küche!", "Hallo_Küche"), ("Ku\u0308che", "Küche"), ("../x", "x"),
        ("नमस्ते", "नमस्ते"), ("電気", "電気"), ("a\0b\nc", "a_b_c"),
    ],
)  # fmt: skip
def test_a_text_as_a_folder_is_safe(text: str, name: str) -> None:
    assert folder_name(text) == name


ASKED: dict[str, Callable[[str], object]] = {
    "speak": lambda text: check_texts([text]),
    "wake": lambda text: WakeSettings((WakeWord(text),)),
    "wake --also": lambda text: WakeWord("lamp", ("lamp", text)),
    "pack --without": lambda text: Pack(()).without([text]),
}


@pytest.mark.parametrize("text", ["", " ", "..", "/", "!?", "😀", "\u0301", "_", "hey\nlamp", "hey\x1b[2J", "a" * 300])
@pytest.mark.parametrize("asked", ASKED)
def test_what_cannot_be_said_or_kept_is_refused(text: str, asked: str) -> None:
    with pytest.raises(SettingError, match="expected") as refused:
        ASKED[asked](text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("others", [("a b", "a/b"), ("Hey, Lamp!", "Hey Lamp"), ("Yes", "yes"), ("ü", "u\u0308")])
def test_two_texts_of_one_folder_are_refused(others: tuple[str, str]) -> None:
    for ask in (check_texts, lambda texts: WakeSettings(tuple(map(WakeWord, texts)))):
        with pytest.raises(SettingError, match=r"have one folder|all different|without commas"):
            ask(others)


def test_the_longest_text_can_be_written(tmp_path: Path) -> None:
    text = "あ" * 50
    check_texts([text])
    assert len(list(write_renditions(Tone(), [Rendition(Utterance(text), "en-gb-scotland+Mr_serious")], tmp_path))) == 1


def test_a_text_is_refused_before_any_voice_is_looked_for(tmp_path: Path) -> None:
    done = CliRunner().invoke(speak, ["😀", "--out", str(tmp_path), "--voices", "no such engine"])
    assert isinstance(done.exception, SettingError)
    assert "letter or digit" in str(done.exception)


@pytest.mark.parametrize("other", [Utterance("hey, lamp"), Utterance("hey/lamp"), Utterance("hey lamp", "h'eI l'amp")])
def test_what_is_pronounced_otherwise_is_said_again(tmp_path: Path, other: Utterance) -> None:
    said = [Rendition(utterance, "m1") for utterance in (Utterance("hey lamp"), other)]
    assert len({path for one in said for path in write_renditions(Tone(), [one], tmp_path)}) == 2


@pytest.mark.parametrize("phonemes", [" ", "a\nb", "a\udcff", "\x1b[2J"])
def test_phonemes_that_are_no_line_are_refused(phonemes: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="phonemes"):
        WakeWord("lamp", phonemes=phonemes)
    done = CliRunner().invoke(main, ["speak", "lamp", "--phonemes", phonemes, "--out", str(tmp_path)])
    assert (done.exit_code, "phonemes" in done.stderr) == (1, True)

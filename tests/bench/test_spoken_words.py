"""Takes by voices lie beside people's clips: a second of each, and none of another word."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from paths import ROOT
from spoken_words import loudest_second

from kws_edge.audio.level import SAMPLE_RATE


@pytest.mark.parametrize("seconds", [0.3, 1.0, 1.4, 3.0])
@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
def test_the_word_is_in_the_second_whole(seconds: float, at: float) -> None:
    samples = np.zeros(round(seconds * SAMPLE_RATE), np.float32)
    length = round(0.25 * SAMPLE_RATE)
    start = round(at * (len(samples) - length))
    samples[start : start + length] = 0.5
    second = loudest_second(samples)
    assert len(second) == SAMPLE_RATE
    assert np.count_nonzero(second) == length


def test_takes_of_the_word_are_put_beside_the_clips_and_those_of_another_word_left_out(tmp_path: Path) -> None:
    people, said, words = tmp_path / "people", tmp_path / "said", tmp_path / "words"
    for word in ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go", "zero", "one", "two", "three",
                 "four", "five", "eight", "bed", "cat", "happy"):  # fmt: skip
        (people / word).mkdir(parents=True)
    samples, rate = soundfile.read(ROOT / "kws_edge" / "samples" / "yes.flac")
    for folder in (people / "yes", said / "yes", said / "no"):
        folder.mkdir(exist_ok=True, parents=True)
        soundfile.write(folder / "voice_nohash_1.wav", np.concatenate([samples, np.zeros(8_000)]), rate)
    for name in ("validation_list.txt", "testing_list.txt"):
        (people / name).write_text("")
    (people / "_background_noise_").mkdir()
    command = [sys.executable, "bench/spoken_words.py", str(people), str(said), "--out", str(words)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert sorted(p.name for p in (words / "yes").iterdir()) == ["voice_nohash_1.flac", "voice_nohash_1.wav"]
    assert soundfile.info(words / "yes" / "voice_nohash_1.flac").frames == SAMPLE_RATE
    assert list((words / "no").iterdir()) == []

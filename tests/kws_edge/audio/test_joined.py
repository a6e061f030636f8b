"""Files one after the other in one file."""

import io
from itertools import pairwise

import numpy as np
import pytest
import soundfile

from kws_edge.audio import mp3
from kws_edge.audio.load import load

RATE = 16_000


def said(container: str, subtype: str | None = None, hertz: int = 400, rate: int = RATE, channels: int = 1) -> bytes:
    """A second of a tone."""
    samples = 0.3 * np.sin(2 * np.pi * hertz * np.arange(rate) / rate)
    file = io.BytesIO()
    soundfile.write(file, np.stack([samples] * channels, axis=1), rate, format=container, subtype=subtype)
    return file.getvalue()


def seconds_of(data: bytes, hertz: int) -> float:
    """For how long a tone is heard, to within a tenth of a second."""
    samples, window = load(data).samples, np.hanning(1600)
    parts = [window * samples[i : i + 1600] for i in range(0, len(samples) - 1600, 1600)]
    return sum(bool(np.abs(np.fft.rfft(x)).argmax() == hertz // 10 and np.abs(x).max() > 0.1) for x in parts) / 10


@pytest.mark.parametrize(
    ("container", "subtype"),
    [
        ("WAV", "PCM_16"), ("WAV", "FLOAT"), ("RF64", "PCM_16"), ("W64", "PCM_16"), ("FLAC", "PCM_16"),
        ("AIFF", "PCM_16"), ("AU", "PCM_16"), ("CAF", "PCM_16"), ("OGG", "VORBIS"),
    ],
)  # fmt: skip
def test_it_is_said_that_the_first_alone_is_read(container: str, subtype: str) -> None:
    one, other = said(container, subtype), said(container, subtype, 1000)
    clip = load(one + other + other)
    np.testing.assert_array_equal(clip.samples, load(one).samples)
    (warning,) = clip.warnings
    assert "one after the other, of which the first is read" in warning
    assert load(one).warnings == ()


def test_it_is_said_of_flac_that_does_not_say_how_long_it_is() -> None:
    one = bytearray(said("FLAC", "PCM_16"))
    one[21] &= 0xF0
    one[22:26] = bytes(4)
    clip = load(bytes(one) + said("FLAC", "PCM_16", 1000))
    np.testing.assert_array_equal(clip.samples, load(said("FLAC", "PCM_16")).samples)
    assert clip.warnings == ("several FLAC files one after the other, of which the first is read",)


@pytest.mark.parametrize("container", ["WAV", "AIFF", "AU", "CAF"])
def test_what_looks_like_a_header_within_the_sound_is_sound(container: str) -> None:
    inner = np.frombuffer(said(container, "PCM_16"), "<i2" if container == "WAV" else ">i2")
    file = io.BytesIO()
    soundfile.write(file, inner.astype(np.int16), RATE, format=container, subtype="PCM_16")
    clip = load(file.getvalue())
    assert (len(clip.samples), clip.warnings) == (len(inner), ())


TAG = b"TAG" + bytes(125)
ID3 = b"ID3\x03\0\0\0\0\x01\0" + bytes(128)


@pytest.mark.parametrize("between", [b"", TAG, ID3, TAG + ID3, bytes(100)])
def test_mp3_files_one_after_the_other_are_read_to_the_end(between: bytes) -> None:
    files = [said("MP3", None, hertz) for hertz in (400, 1000, 2000)]
    joined = between.join(files)
    for hertz in (400, 1000, 2000):
        assert seconds_of(joined, hertz) >= 0.8
    assert load(joined).warnings == ()


def test_mp3_files_of_which_the_first_does_not_count_its_frames_are_read_to_the_end() -> None:
    one, other = said("MP3"), said("MP3", None, 1000)
    headless = one[first_length(one) :]
    assert load(headless).warnings == ()
    assert seconds_of(headless + other, 400) >= 0.8
    assert seconds_of(headless + other, 1000) >= 0.8


def first_length(coded: bytes) -> int:
    frames = mp3._frames(lambda at, n: coded[at : at + n])
    (first, second), *_ = pairwise(frames)
    return second.at - first.at


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("change", [{"rate": 22_050}, {"rate": 44_100}, {"channels": 2}])
def test_of_mp3_files_that_differ_it_is_said_up_to_where_they_are_read(change: dict[str, int], counted: bool) -> None:
    one = said("MP3")
    clip = load((one if counted else one[first_length(one) :]) + said("MP3", None, 1000, **change))
    assert 1.0 <= len(clip.samples) / RATE < 1.2
    (warning,) = clip.warnings
    assert "another sample rate or number of channels from 1.1 s on, up to which it is read" in warning


def test_a_single_mp3_file_is_as_long_as_it_says() -> None:
    for data in (said("MP3"), ID3 + said("MP3"), said("MP3") + TAG, said("MP3", None, 400, 44_100, 2)):
        clip = load(data)
        assert (len(clip.samples), clip.warnings) == (RATE, ())


def test_what_is_nearly_frames_is_no_change() -> None:
    assert load(said("MP3") + b"\xff\xfb" * 50_000).warnings == ()

"""What a file that is damaged, or made to do harm, may not do: pass for another format, print, decode without end."""

import contextlib
import io
import struct
import warnings

import numpy as np
import pytest
import soundfile
from made_audio import tone, wav

from kws_edge.audio.decode import open_file
from kws_edge.audio.load import load, read_blocks
from kws_edge.errors import AudioError

PROMISED = {
    "WAV": "PCM_16", "WAVEX": "PCM_16", "RF64": "PCM_16", "W64": "PCM_16", "FLAC": "PCM_16", "OGG": "VORBIS",
    "MP3": "MPEG_LAYER_III", "AIFF": "PCM_16", "AU": "PCM_16", "CAF": "PCM_16",
}  # fmt: skip
OTHERS = ["AVR", "HTK", "SVX", "MAT4", "MAT5", "MPC2K", "PAF", "PVF", "IRCAM", "VOC", "NIST", "WVE", "XI", "SDS"]


def written(container: str) -> bytes:
    """A file of that format."""
    subtypes = ["PCM_16", "DPCM_16", "ALAW", "PCM_S8"]
    subtype = PROMISED.get(container) or next(s for s in subtypes if soundfile.check_format(container, s))
    rate = 8000 if container == "WVE" else 16_000
    return wav(tone(440, 1.0, rate), rate, subtype, container)


@pytest.mark.parametrize(
    ("container", "endian"),
    [(c, e) for c in PROMISED for e in ("LITTLE", "BIG") if soundfile.check_format(c, PROMISED[c], e)],
)
def test_what_is_promised_is_read(container: str, endian: str) -> None:
    file = io.BytesIO()
    soundfile.write(file, tone(440), 16_000, format=container, subtype=PROMISED[container], endian=endian)
    assert len(load(file.getvalue()).samples) == pytest.approx(16_000, abs=200)


@pytest.mark.parametrize("container", OTHERS)
def test_what_else_libsndfile_would_take_is_refused(container: str) -> None:
    with pytest.raises(AudioError, match="not readable as audio"):
        load(written(container))


def test_a_file_that_libsndfile_would_print_about_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    whole = bytearray(written("SDS"))
    whole[40::7] = bytes(len(whole[40::7]))
    with pytest.raises(AudioError):
        load(bytes(whole))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_mp3_prints_nothing(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(seed)
    damaged = bytearray(written("MP3") * 3)
    for at in rng.integers(200, len(damaged), 40):
        damaged[at] = rng.integers(256)
    with contextlib.suppress(AudioError):
        load(bytes(damaged))
    assert capfd.readouterr() == ("", "")


def flac_that_announces(frames: int) -> bytes:
    """A second of FLAC whose header says another length, in the last 36 bits of its stream information."""
    file = bytearray(wav(tone(440), container="FLAC"))
    at = file.index(b"fLaC") + 8 + 13
    file[at] = (file[at] & 0xF0) | (frames >> 32)
    file[at + 1 : at + 5] = struct.pack(">I", frames & 0xFFFFFFFF)
    return bytes(file)


def test_what_announces_too_much_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    file = flac_that_announces(16_000 * 100)
    monkeypatch.setattr(soundfile.SoundFile, "read", decoded)
    with pytest.raises(AudioError, match=r"100\.0 s or more of audio; expected at most 60 s"):
        load(file, max_seconds=60)


def test_rate_times_channels_times_length_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    file = wav(np.zeros((192_000 * 2, 8), np.float32), rate=192_000, container="FLAC")
    monkeypatch.setattr(soundfile.SoundFile, "read", decoded)
    with pytest.raises(AudioError, match=r"2\.0 s or more at 192000 Hz in 8 channels; expected at most 1e\+06 samples"):
        load(file, max_samples=1e6)


def test_what_does_not_announce_its_length_is_decoded_no_further_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = soundfile.SoundFile.read
    pieces = 0

    def counted(*given: object, **options: object) -> object:
        nonlocal pieces
        pieces += 1
        return read(*given, **options)

    file = flac_that_announces(0)
    hour = wav(np.zeros(16_000 * 60), container="FLAC")
    file = file[: file.index(b"fLaC") + 42] + hour[hour.index(b"fLaC") + 42 :]
    monkeypatch.setattr(soundfile.SoundFile, "read", counted)
    with pytest.raises(AudioError, match="at most 2 s"):
        load(file, max_seconds=2)
    assert pieces <= 3


def test_a_caller_of_read_blocks_keeps_its_own_warnings_of_numpy() -> None:
    for _ in read_blocks(np.ones(16_000 * 3), 1.0, 16_000):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert np.float32(3e38) * np.float32(10) == np.inf
        assert len(caught) == 1


def test_a_header_tells_its_length_and_a_missing_one_is_none() -> None:
    assert open_file(io.BytesIO(wav(tone(440))), "x").frames == 16_000
    assert open_file(io.BytesIO(flac_that_announces(0)), "x").frames == 0

"""Sound in: what each kind of file, good or bad, becomes. Malformed files are built byte by byte."""

import io
import os
import re
import signal
import struct
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kws_edge.audio.files import audio_below, audio_in
from kws_edge.audio.level import SAMPLE_RATE, measure
from kws_edge.audio.load import Audio, load, read_blocks
from kws_edge.errors import AudioError, SettingError, TooMuchAudioError
from kws_edge.model.features import mfcc

PCM, FLOAT, MULAW, EXTENSIBLE = 1, 3, 7, 0xFFFE


def tone(frequency: float = 440.0, seconds: float = 1.0, rate: int = SAMPLE_RATE, amplitude: float = 0.3) -> Any:
    return amplitude * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


def as_int16(samples: Any) -> Any:
    return np.round(np.asarray(samples) * 32767).astype("<i2")


def chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def fmt(tag: int = PCM, channels: int = 1, rate: int = SAMPLE_RATE, bits: int = 16) -> bytes:
    frame = channels * bits // 8
    return struct.pack("<HHIIHH", tag, channels, rate, rate * frame % 2**32, frame % 2**16, bits)


def wav(
    data: bytes,
    header: bytes | None = None,
    *,
    data_size: int | None = None,
    riff_size: int | None = None,
    before: bytes = b"",
    after: bytes = b"",
) -> bytes:
    """A WAV file whose sizes may lie."""
    size = len(data) if data_size is None else data_size
    body = b"WAVE" + chunk(b"fmt ", fmt() if header is None else header) + before
    body += b"data" + struct.pack("<I", size) + data + b"\0" * (len(data) % 2) + after
    return b"RIFF" + struct.pack("<I", len(body) if riff_size is None else riff_size) + body


def encode(
    samples: Any, rate: int = SAMPLE_RATE, format: str = "WAV", subtype: str = "PCM_16", **options: Any
) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=format, subtype=subtype, **options)
    return buffer.getvalue()


def snr(reference: Any, other: Any) -> float:
    """dB, over the common length."""
    n = min(len(reference), len(other))
    return float(10 * np.log10(np.sum(reference[:n] ** 2) / np.sum((other[:n] - reference[:n]) ** 2)))


SECOND = as_int16(tone()).tobytes()  # 32,000 bytes


@pytest.fixture(scope="module")
def word(data: Path) -> Any:
    """A recording of "yes", 1 s, peak at -3 dBFS."""
    samples = load(sorted((data / "speech_commands" / "yes").iterdir())[0]).samples
    return samples / np.abs(samples).max() * 0.7


@pytest.fixture(scope="module")
def other_word(data: Path) -> Any:
    return load(sorted((data / "speech_commands" / "left").iterdir())[0]).samples


def feature_distance(a: Any, b: Any) -> float:
    """Root mean square difference of the MFCC over the common frames."""
    x, y = mfcc(a), mfcc(b)
    n = min(len(x), len(y))
    return float(np.sqrt(np.mean((x[:n] - y[:n]) ** 2)))


# --- Formats, rates, channels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [22_050, 32_000, 44_100, 48_000, 96_000, 192_000])
def test_a_word_at_another_rate_keeps_its_features(word: Any, other_word: Any, rate: int, channels: int) -> None:
    there = soxr.resample(word, SAMPLE_RATE, rate)
    clip = load(encode(np.stack([there] * channels, axis=1), rate))
    assert (clip.source_rate, clip.source_channels, len(clip.samples)) == (rate, channels, len(word))
    assert feature_distance(word, clip.samples) < 0.15 * feature_distance(word, other_word)


def test_telephone_rate_keeps_what_it_can_hold(word: Any) -> None:
    narrow = soxr.resample(soxr.resample(word, SAMPLE_RATE, 8_000), 8_000, SAMPLE_RATE)
    clip = load(encode(soxr.resample(word, SAMPLE_RATE, 8_000), 8_000))
    assert snr(narrow, clip.samples) > 60


@pytest.mark.parametrize("rate", [44_100, 48_000, 96_000])
@pytest.mark.parametrize("frequency", [8_200, 9_000, 12_000, 15_000])
def test_what_is_above_8_khz_does_not_alias(frequency: int, rate: int) -> None:
    samples = load(encode(tone(frequency, rate=rate, amplitude=0.9), rate, subtype="PCM_24")).samples
    middle = samples[400:-400].astype(np.float64)  # the tone's own start and end are steps, with all frequencies
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle)))) * 4 / len(middle)
    assert 20 * np.log10(spectrum.max() / 0.9) < -100
    assert 20 * np.log10(np.abs(middle).max() / 0.9) < -100


@pytest.mark.parametrize("frequency", [100, 1_000, 4_000, 7_000])
def test_what_is_below_7_khz_keeps_its_level_and_place(frequency: int) -> None:
    samples = load(encode(tone(frequency, rate=48_000), 48_000, subtype="FLOAT")).samples
    assert samples[400:-400] == pytest.approx(tone(frequency)[400:-400], abs=1e-4)


@given(st.integers(4_000, 192_000), st.integers(100, 3_000))
@settings(max_examples=50, deadline=None)
def test_the_length_after_resampling_is_the_duration(rate: int, n: int) -> None:
    assert abs(len(load(np.ones(n, np.float32), rate).samples) - n * SAMPLE_RATE / rate) <= 0.5 + 1e-6


def test_8_bit_silence_is_digital_silence() -> None:
    clip = load(wav(b"\x80" * 16_000, fmt(bits=8)))
    assert not clip.samples.any()
    assert measure(clip.samples).is_silent


def test_an_8_bit_word_is_the_word_within_its_quantisation(word: Any) -> None:
    assert snr(word, load(encode(word, subtype="PCM_U8")).samples) > 18


@pytest.mark.parametrize("subtype", ["PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_more_bits_decode_to_the_samples_of_16_bits(subtype: str) -> None:
    assert load(encode(tone(), subtype=subtype)).samples == pytest.approx(load(wav(SECOND)).samples, abs=2 / 32768)


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_the_positive_and_negative_full_scale_of_pcm(bits: int) -> None:
    low, high = {8: (b"\x00", b"\xff")}.get(
        bits, (b"\0" * (bits // 8 - 1) + b"\x80", b"\xff" * (bits // 8 - 1) + b"\x7f")
    )
    samples = load(wav(low + high, fmt(bits=bits))).samples
    assert samples == pytest.approx([-1, 1 - 2 ** (1 - bits)], abs=1e-7)


def test_wave_format_extensible() -> None:
    guid = struct.pack("<H", PCM) + b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
    clip = load(wav(SECOND, fmt(EXTENSIBLE) + struct.pack("<HHI", 22, 16, 4) + guid))
    assert np.array_equal(clip.samples, load(wav(SECOND)).samples)
    assert clip.warnings == ()


@pytest.mark.parametrize("format", ["WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "CAF", "FLAC"])
def test_lossless_containers_hold_the_same_samples(format: str) -> None:
    assert np.array_equal(load(encode(as_int16(tone()), format=format)).samples, load(wav(SECOND)).samples)


def test_big_endian_wav() -> None:
    assert np.array_equal(load(encode(as_int16(tone()), endian="BIG")).samples, load(wav(SECOND)).samples)


@pytest.mark.parametrize(
    ("format", "subtype", "rate"),
    [
        ("WAV", "ULAW", 16_000),
        ("WAV", "ALAW", 8_000),
        ("WAV", "IMA_ADPCM", 16_000),
        ("WAV", "MS_ADPCM", 16_000),
        ("WAV", "GSM610", 8_000),
        ("OGG", "VORBIS", 44_100),
        ("OGG", "OPUS", 16_000),
        ("OGG", "OPUS", 48_000),
        ("MP3", "MPEG_LAYER_III", 44_100),
    ],
)
def test_lossy_codecs_keep_a_tone_at_its_place_and_level(format: str, subtype: str, rate: int) -> None:
    clip = load(encode(tone(rate=rate), rate, format, subtype))
    assert len(clip.samples) == pytest.approx(SAMPLE_RATE, rel=0.05)  # ADPCM and GSM pad their last block
    assert snr(tone()[1_000:15_000], clip.samples[1_000:15_000]) > 15
    assert clip.warnings == ()


def test_an_mp3_of_variable_bit_rate_without_a_frame_count_is_not_cropped() -> None:
    rng = np.random.default_rng(0)
    loud_to_quiet = rng.standard_normal(44_100 * 10) * np.geomspace(0.3, 1e-4, 44_100 * 10)
    coded = encode(loud_to_quiet, 44_100, "MP3", "MPEG_LAYER_III", bitrate_mode="VARIABLE", compression_level=0.5)
    kbit = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)[coded[2] >> 4]
    headless = coded[144 * kbit * 1000 // 44_100 + (coded[2] >> 1 & 1) :]  # the first frame is the Xing header
    assert b"Xing" in coded[:100]
    assert b"Xing" not in headless[:100]
    tag = b"ID3\4\0\0" + bytes([0, 0, 40, 0]) + bytes(40 * 128)
    for mp3 in (headless, tag + headless, headless + b"TAG" + bytes(125)):
        clip = load(mp3)
        assert len(clip.samples) == pytest.approx(160_000, rel=0.01)
        assert clip.warnings == ()


def test_chunks_around_the_data_are_not_audio() -> None:
    note = chunk(b"LIST", b"INFOISFT\5\0\0\0abcd\0\0")
    for file in (wav(SECOND, before=note), wav(SECOND, after=note), wav(SECOND, before=chunk(b"junk", b"odd"))):
        clip = load(file)
        assert np.array_equal(clip.samples, load(wav(SECOND)).samples)
        assert clip.warnings == ()


@pytest.mark.parametrize("tail", [bytes(5000), b"TAG" + bytes(125), b"\xff" * 4000, b"<html>" * 999])
@pytest.mark.parametrize(
    ("format", "subtype"),
    [("FLAC", "PCM_16"), ("OGG", "OPUS"), ("OGG", "VORBIS"), ("MP3", None), ("WAV", "PCM_16"), ("AIFF", "PCM_16")],
)
def test_what_follows_the_end_of_a_file_as_a_tag_does_is_no_sound(
    format: str, subtype: str | None, tail: bytes
) -> None:
    file = encode(tone(1000), format=format, subtype=subtype)
    whole = load(file + tail)
    assert np.array_equal(whole.samples, load(file).samples)
    assert whole.warnings == ()


def test_half_a_sample_at_the_end_is_dropped() -> None:
    assert np.array_equal(load(wav(SECOND[:-1])).samples, load(wav(SECOND)).samples[:-1])


# --- Channels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("silent", [np.zeros(16_000), np.full(16_000, 0.2), 1e-4 * tone()])
@pytest.mark.parametrize("side", [0, 1])
def test_a_word_in_one_channel_keeps_its_level(word: Any, silent: Any, side: int) -> None:
    # The other channel is zero, constant, or below -70 dBFS.
    channels = [silent[: len(word)], silent[: len(word)]]
    channels[side] = word
    assert np.array_equal(load(np.stack(channels, axis=1), rate=SAMPLE_RATE).samples, word)


def test_channels_that_sound_are_averaged() -> None:
    pair = np.stack([tone(300), tone(500), np.zeros(16_000)], axis=1)
    assert load(pair, SAMPLE_RATE).samples == pytest.approx((tone(300) + tone(500)) / 2, abs=1e-6)


def test_channels_that_are_all_silent_give_silence() -> None:
    assert measure(load(np.zeros((16_000, 2)), SAMPLE_RATE).samples).is_silent


def test_sixteen_channels_are_accepted() -> None:
    assert load(np.tile(tone()[:, None], (1, 16)), SAMPLE_RATE).samples == pytest.approx(tone(), abs=1e-6)


# --- Headers that lie -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("riff_size", [0xFFFF_FFFF, 0x7FFF_FFFF, 0, 36])
@pytest.mark.parametrize("data_size", [0xFFFF_FFFF, 0xFFFF_FFDB, 0x7FFF_FFFF, 0x7FFF_F000, 0])
def test_a_streamed_header_decodes_the_bytes_present(data_size: int, riff_size: int) -> None:
    file = wav(SECOND, data_size=data_size, riff_size=riff_size)
    tracemalloc.start()
    clip = load(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(clip.samples, load(wav(SECOND)).samples)
    assert clip.warnings == ()
    assert peak < 2**24  # the claim is 2**31 or so; other threads of the tests may allocate too


@pytest.mark.parametrize("before", [b"", chunk(b"LIST", bytes(5_000)), chunk(b"LIST", bytes(70_001))])
def test_an_unfinished_data_size_is_found_wherever_it_is_and_whatever_the_outer_size_covers(before: bytes) -> None:
    for riff_size in (None, 0, 0xFFFF_FFFF):
        file = wav(SECOND, data_size=0, riff_size=riff_size, before=before)
        assert np.array_equal(load(file).samples, load(wav(SECOND)).samples)


@pytest.mark.parametrize("claimed", [(0, 0, 0), (2**64 - 1, 2**64 - 1, 0), (0, 0, 16_000)])
def test_an_rf64_whose_writer_could_not_go_back_is_decoded(claimed: tuple[int, int, int]) -> None:
    # case 8, as ffmpeg -rf64 always writes to a pipe: sizes of all and of the data, and the number of samples
    file = bytearray(encode(as_int16(tone()), format="RF64"))
    file[20:44] = struct.pack("<3Q", *claimed)
    clip = load(bytes(file))
    assert np.array_equal(clip.samples, load(wav(SECOND)).samples)
    assert clip.warnings == ()


def test_a_finished_rf64_without_samples_is_refused() -> None:
    file = encode(np.zeros(0, np.int16), format="RF64")
    with pytest.raises(AudioError, match="no samples"):
        load(file + chunk(b"LIST", b"INFO"))


def test_a_caf_whose_data_go_on_to_the_end_is_decoded() -> None:
    # Apple's specification: a size of -1, of who writes as it records
    file = encode(as_int16(tone()), format="CAF")
    at = file.index(b"data") + 4
    clip = load(file[:at] + b"\xff" * 8 + file[at + 8 :])
    assert np.array_equal(clip.samples, load(wav(SECOND)).samples)
    assert clip.warnings == ()


@pytest.mark.parametrize("riff_size", [None, 36 + 12, 0])
def test_chunks_after_no_data_are_not_taken_for_samples(riff_size: int | None) -> None:
    with pytest.raises(AudioError, match="no samples"):
        load(wav(b"", after=chunk(b"LIST", b"INFO") + chunk(b"id3 ", bytes(300)), riff_size=riff_size))


def test_a_format_behind_other_chunks_is_explained() -> None:
    with pytest.raises(AudioError, match="AC-3"):
        load(b"RIFF" + bytes(4) + b"WAVE" + chunk(b"LIST", bytes(9_000)) + wav(SECOND, fmt(tag=0x2000))[12:])


def test_flac_of_unknown_length() -> None:
    coded = bytearray(encode(as_int16(tone()), format="FLAC"))
    coded[21] &= 0xF0  # the sample count is 36 bits in STREAMINFO
    coded[22:26] = bytes(4)
    assert np.array_equal(load(bytes(coded)).samples, load(wav(SECOND)).samples)


@pytest.mark.parametrize("format", ["WAV", "WAVEX", "W64", "RF64", "AIFF", "AU", "CAF"])
def test_data_that_end_early_are_decoded_with_a_warning(format: str) -> None:
    whole = encode(as_int16(tone()), format=format)
    clip = load(whole[:-16_000])
    assert np.array_equal(clip.samples, load(whole).samples[: len(clip.samples)])
    assert len(clip.samples) > 7_900
    assert len(clip.warnings) == 1
    assert "the end is missing" in clip.warnings[0]


def test_the_warning_gives_both_sizes() -> None:
    assert load(wav(SECOND, data_size=64_000)).warnings == (
        "the header announces 64000 bytes, 32000 are present: the end is missing",
    )


def test_a_stereo_mp3_that_ends_early_gives_one_warning() -> None:
    coded = encode(np.stack([tone(seconds=4), tone(300, 4)], axis=1), format="MP3", subtype="MPEG_LAYER_III")
    assert len(load(coded[: len(coded) // 2]).warnings) == 1


def test_flac_that_ends_early_is_refused() -> None:
    coded = encode(as_int16(np.random.default_rng(0).standard_normal(16_000) * 0.1), format="FLAC")
    with pytest.raises(AudioError, match="damaged after"):
        load(coded[: len(coded) // 2])


@pytest.mark.parametrize(
    "file", [wav(b""), wav(b"\1"), wav(b"", after=chunk(b"LIST", b"INFO")), wav(b"", data_size=0xFFFF_FFFF)]
)
def test_no_samples(file: bytes) -> None:
    with pytest.raises(AudioError, match="no samples"):
        load(file)


@pytest.mark.parametrize("n", [1, 100, 4_800])
def test_a_clip_however_short_is_given_as_it_is(n: int) -> None:
    # The model pads it.
    assert len(load(wav(SECOND[: 2 * n])).samples) == n


def test_a_clip_of_which_resampling_leaves_nothing() -> None:
    with pytest.raises(AudioError, match="too short"):
        load(np.ones(1), rate=48_000)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (b"", "no bytes"),
        (bytes(5_000), "not readable as audio"),
        (np.random.default_rng(0).bytes(5_000), "not readable as audio"),
        (b"this is a text file, named .wav\n" * 20, "not readable as audio"),
        (b"RIFF", "not readable as audio"),
        (b"RIFF\0\0\0\0WAVE", "No 'data' chunk"),
        (b"\xff\xfb" + b"x" * 5_000, "MP3 file without a valid frame"),
        (wav(SECOND, fmt()[:8]), "'fmt ' chunk of 8 bytes; expected at least 16"),
        (wav(SECOND, fmt()[:14]), "'fmt ' chunk of 14 bytes; expected at least 16"),
        (wav(SECOND)[:28], "'fmt ' chunk of 8 bytes; expected at least 16"),
        (wav(SECOND)[:36], "No 'data' chunk"),
        (wav(SECOND, before=b"junk\xff\xff\xff\x7f"), "No 'data' chunk"),
        (wav(SECOND, fmt(channels=0)), "0 channels; expected 1 to 16"),
        (wav(SECOND, fmt(channels=17)), "17 channels; expected 1 to 16"),
        (wav(SECOND, fmt(channels=255)), "255 channels; expected 1 to 16"),
        (wav(SECOND, fmt(channels=65_535)), "65535 channels; expected 1 to 16"),
        (wav(SECOND, fmt(bits=0)), "0 bits per sample; expected 8, 16, 24, 32"),
        (wav(SECOND, fmt(bits=64)), "64 bits per sample; expected 8, 16, 24, 32"),
        (wav(SECOND, fmt(FLOAT, bits=16)), "16 bits per sample; expected 32, 64"),
        (wav(SECOND, fmt(rate=0)), "sample rate of 0 Hz; expected 4000 to 192000 Hz"),
        (wav(SECOND, fmt(rate=3_999)), "sample rate of 3999 Hz; expected 4000 to 192000 Hz"),
        (wav(SECOND, fmt(rate=2_000_000_000)), "sample rate of 2000000000 Hz"),
        (wav(SECOND, fmt(tag=0x00FF)), "AAC .WAVE format 0x00FF. is not supported; expected PCM"),
        (wav(SECOND, fmt(tag=0x0161)), "WMA .WAVE format 0x0161. is not supported"),
        (wav(SECOND, fmt(tag=0x1234)), "unknown codec .WAVE format 0x1234. is not supported"),
        (b"\0\0\0\x20ftypM4A " + bytes(500), "AAC or ALAC in MP4 is not supported; expected WAV"),
        (b"\x1a\x45\xdf\xa3" + bytes(500), "WebM or Matroska is not supported"),
        (b"\xff\xf1\x50\x80" + bytes(3_000), "AAC is not supported"),
        (b"#!AMR\n" + bytes(500), "AMR is not supported"),
        (b"OggS\0\2" + bytes(20) + b"\1\x50Speex   " + bytes(72), "Speex is not supported"),
    ],
)
def test_refused_bytes_say_why_in_one_line(file: bytes, message: str) -> None:
    with pytest.raises(AudioError, match=message) as refusal:
        load(file)
    assert str(refusal.value).startswith("bytes: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_nan_and_infinity_are_refused_in_files_and_arrays(bad: float, dtype: str) -> None:
    # One sample, in a channel that would count as silent.
    samples = np.stack([tone(), np.zeros(16_000)], axis=1).astype(dtype)
    samples[12_345, 1] = bad
    for source, rate in ((wav(samples.tobytes(), fmt(FLOAT, 2, bits=samples.itemsize * 8)), None), (samples, 48_000)):
        with pytest.raises(AudioError, match="NaN or infinite"):
            load(source, rate)


def test_a_float_file_over_full_scale_is_kept_and_counts_as_clipped() -> None:
    samples = load(encode(tone(amplitude=3), subtype="FLOAT")).samples
    assert samples == pytest.approx(tone(amplitude=3), abs=1e-5)
    assert measure(samples).is_clipped


@pytest.mark.parametrize("scale", [32_767, 1e30, 1e300])
def test_floats_that_are_not_scaled_to_one_are_refused(scale: float) -> None:
    with pytest.raises(AudioError, match=r"divide integers|infinite"):
        load(tone(amplitude=scale), rate=SAMPLE_RATE)


# --- Sources ----------------------------------------------------------------------------------------------------------


class Nameless(io.BytesIO):
    """A file object that does not say its name."""


def test_path_bytes_and_file_object_give_the_same(tmp_path: Path) -> None:
    file = wav(SECOND, data_size=64_000)
    path = tmp_path / "clip.raw"  # the name says nothing
    path.write_bytes(file)
    clips: list[Audio] = [load(path), load(str(path)), load(file), load(bytearray(file)), load(memoryview(file))]
    clips.append(load(memoryview(bytes(byte for one in file for byte in (one, 0)))[::2]))
    with path.open("rb") as opened, tempfile.SpooledTemporaryFile() as spooled:
        opened.read(100)
        spooled.write(file)
        clips += [load(opened), load(spooled), load(Nameless(file))]  # type: ignore[arg-type]
        assert not opened.closed
    for clip in clips:
        assert np.array_equal(clip.samples, clips[0].samples)
        assert clip.warnings == clips[0].warnings != ()


@pytest.mark.parametrize("file", [b"", b"text" * 99, wav(b""), wav(SECOND, fmt(channels=0)), wav(SECOND, fmt()[:8])])
def test_path_bytes_and_file_object_are_refused_alike(tmp_path: Path, file: bytes) -> None:
    path = tmp_path / "clip.wav"
    path.write_bytes(file)
    reasons = set()
    for source, name in ((path, str(path)), (file, "bytes"), (io.BytesIO(file), "file object")):
        with pytest.raises(AudioError) as refusal:
            load(source)
        reasons.add(str(refusal.value).removeprefix(name))
    assert len(reasons) == 1


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "absent.wav", "No such file"),
        (tmp_path, "a directory, pipe or device"),
        (tmp_path / "pipe", "a directory, pipe or device"),
        ("nul\0.wav", "null byte"),
    ):
        with pytest.raises(AudioError, match=message) as refusal:
            load(path)
        assert str(refusal.value).startswith(str(path))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_path_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "secret.wav"
    path.write_bytes(wav(SECOND))
    path.chmod(0)
    with pytest.raises(AudioError, match="Permission denied"):
        load(path)


class Failing(io.BytesIO):
    """A file on a disk that fails after the header."""

    def read(self, n: int | None = -1, /) -> bytes:
        if self.tell() > 10_000:
            raise OSError("disk on fire")
        return super().read(n)


def test_a_file_object_that_fails_while_it_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AudioError, match="disk on fire"):
        load(Failing(wav(SECOND)))
    assert capfd.readouterr().err == ""


def test_things_that_are_not_binary_files() -> None:
    closed = io.BytesIO(wav(SECOND))
    closed.close()
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe, os.fdopen(writer, "wb"):
        for source in (io.StringIO("text"), closed, pipe, None, 7, [0.0, 0.1]):
            with pytest.raises(AudioError, match="expected a"):
                load(source)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["uint8", "int16", ">i2", "int32", "float16", "float32", "float64"])
def test_array_types_are_scaled_to_one(dtype: str) -> None:
    steps = np.array([-1, -0.5, 0, 0.5])
    kind = np.dtype(dtype)
    full = 2 ** (8 * kind.itemsize - 1) if kind.kind in "iu" else 1
    array = (steps * full + (full if kind.kind == "u" else 0)).astype(kind)
    assert load(array, SAMPLE_RATE).samples.tolist() == steps.tolist()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(0, np.float32), "no samples"),
        (np.zeros((0, 2), np.float32), "no samples"),
        (np.zeros((5, 0), np.float32), "0 channels"),
        (np.zeros((2, 16_000), np.float32), "16000 channels; expected 1 to 16"),
        (np.zeros((2, 2, 2), np.float32), r"shape \(2, 2, 2\)"),
        (np.array(0.5, np.float32), r"shape \(\)"),
        (np.zeros(9, np.int64), "array of int64; expected one of uint8, int16"),
        (np.zeros(9, np.complex64), "array of complex64"),
    ],
)
def test_arrays_that_are_refused(array: Any, message: str) -> None:
    with pytest.raises(AudioError, match=message):
        load(array, SAMPLE_RATE)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (tone(amplitude=1.0).astype(np.int16), "-1, 0 and 1.*multiply by 32767"),
        (np.round(1.2 * tone(amplitude=1.0)).astype(np.int16), "-1, 0 and 1"),
        ((tone(amplitude=0.5) * 32767).astype(np.int32), "give them as int16"),
        (tone(amplitude=0.5) / 32768, "divided twice"),
    ],
    ids=["cast", "rounded", "16 bits in 32", "divided twice"],
)
def test_silence_that_comes_of_a_wrong_scale_says_what_it_looks_like(array: Any, message: str) -> None:
    clip = load(array, SAMPLE_RATE)
    assert measure(clip.samples).is_silent
    (warning,) = clip.warnings
    assert re.search(message, warning)


def test_a_file_of_the_lowest_bit_alone_says_what_it_looks_like() -> None:
    (warning,) = load(encode(tone(amplitude=1.0).astype(np.int16))).warnings
    assert "-1, 0 and 1" in warning


@pytest.mark.parametrize(
    "array", [np.zeros(400, np.int16), np.zeros(400), (tone(amplitude=0.5) * 2**31).astype(np.int32), tone()]
)
def test_silence_and_sound_of_the_right_scale_have_no_warning(array: Any) -> None:
    assert load(array, SAMPLE_RATE).warnings == ()


@pytest.mark.parametrize("rate", [8_000, 48_000])
def test_the_longest_clip_is_as_many_seconds_at_any_rate(rate: int) -> None:
    assert len(load(np.zeros(rate), rate, max_seconds=1.5).samples) == 16_000
    with pytest.raises(TooMuchAudioError, match=r"2\.0 s or more of audio; expected at most 1\.5 s"):
        load(np.zeros(2 * rate), rate, max_seconds=1.5)


def test_an_array_needs_a_rate_and_a_file_says_its_own() -> None:
    with pytest.raises(SettingError, match="rate="):
        load(np.zeros(9, np.float32))
    with pytest.raises(SettingError, match="rate=8000"):
        load(wav(SECOND), rate=8_000)
    with pytest.raises(AudioError, match="sample rate of 100 Hz"):
        load(np.zeros(9, np.float32), rate=100)
    with pytest.raises(SettingError, match="rate='16000' of an array; expected a number"):
        load(np.zeros(9, np.float32), rate="16000")  # type: ignore[arg-type]
    with pytest.raises(AudioError, match="audio of type list; expected a path, bytes, a binary file or an array"):
        load([0.0, 0.1], rate=16_000)  # type: ignore[arg-type]


# --- Long files -------------------------------------------------------------------------------------------------------


@given(
    rate=st.sampled_from([8_000, 16_000, 44_100, 48_000]),
    n=st.integers(1_000, 200_000),
    channels=st.integers(1, 2),
    seconds=st.floats(0.01, 8),
)
@settings(max_examples=25, deadline=None)
def test_blocks_are_the_samples_of_load(rate: int, n: int, channels: int, seconds: float) -> None:
    samples = np.random.default_rng(n).standard_normal((n, channels)).astype(np.float32) * 0.1
    file = encode(samples, rate)
    blocks = list(read_blocks(file, seconds))
    size = round(seconds * SAMPLE_RATE)
    assert all(len(b) == size for b in blocks[:-1])
    assert 0 < len(blocks[-1]) <= size
    assert np.array_equal(np.concatenate(blocks), load(file).samples)


def test_blocks_of_16_khz_are_the_file_bit_by_bit() -> None:
    samples = np.random.default_rng(0).integers(-32_768, 32_767, 300_000, np.int16)
    blocks = read_blocks(encode(samples), seconds=0.7)
    assert np.array_equal(np.concatenate(list(blocks)), samples.astype(np.float32) / 32_768)


@pytest.mark.parametrize(("minutes", "rate", "channels"), [(10, 16_000, 1), (1, 48_000, 2)])
def test_a_long_file_is_read_in_bounded_memory(tmp_path: Path, minutes: int, rate: int, channels: int) -> None:
    # A sparse file of zeros.
    size = minutes * 60 * rate * channels * 2
    path = tmp_path / "long.wav"
    path.write_bytes(wav(b"", fmt(channels=channels, rate=rate), data_size=size, riff_size=size + 36))
    os.truncate(path, 44 + size)
    tracemalloc.start()
    total = sum(len(block) for block in read_blocks(path, seconds=1.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == minutes * 60 * SAMPLE_RATE
    assert peak < 2**20


@pytest.mark.parametrize("channels", [1, 2])
def test_a_small_file_that_expands_without_end_is_no_clip(channels: int) -> None:
    bomb = encode(np.zeros((30 * SAMPLE_RATE, channels), np.int16), format="FLAC")
    with pytest.raises(AudioError, match="at most 20 s"):
        load(bomb, max_seconds=20)
    assert sum(map(len, read_blocks(bomb))) == 30 * SAMPLE_RATE


def test_blocks_log_the_warnings_that_load_returns(caplog: pytest.LogCaptureFixture) -> None:
    assert sum(map(len, read_blocks(wav(SECOND, data_size=64_000)))) == 16_000
    assert [r.getMessage() for r in caplog.records] == [
        "bytes: the header announces 64000 bytes, 32000 are present: the end is missing"
    ]


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-5, float("nan")])
def test_blocks_of_no_length_are_refused_at_once(seconds: float) -> None:
    with pytest.raises(SettingError, match="at least one sample"):
        read_blocks(wav(SECOND), seconds)


def test_blocks_of_no_samples_are_refused() -> None:
    with pytest.raises(AudioError, match="no samples"):
        list(read_blocks(wav(b"")))


# --- Levels -----------------------------------------------------------------------------------------------------------


def test_the_level_of_a_tone_with_an_offset() -> None:
    level = measure(tone(amplitude=0.5) + 0.2)
    assert level.dc == pytest.approx(0.2, abs=1e-9)
    assert level.peak == pytest.approx(0.5, abs=1e-4)
    assert level.rms == pytest.approx(0.5 / np.sqrt(2), rel=1e-6)
    assert level.clipped == 0


@pytest.mark.parametrize("dc", [0.0, 0.2, -1.0, 0.1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_is_silence(dc: float, dtype: Any) -> None:
    level = measure(np.full(16_000, dc, dtype))
    assert level.is_silent
    assert level.dc == pytest.approx(dc, abs=1e-7)


@pytest.mark.parametrize(("dbfs", "silent"), [(-80, True), (-71, True), (-69, False), (-40, False), (-1, False)])
def test_silence_ends_at_minus_70_dbfs(dbfs: float, silent: bool) -> None:
    level = measure(tone(amplitude=10 ** (dbfs / 20)))
    assert level.is_silent is silent
    assert not level.is_clipped


@pytest.mark.parametrize("period", [2, 10, 160])
def test_a_full_scale_square_wave_is_clipped_throughout(period: int) -> None:
    square = np.where(np.arange(16_000) % period < period / 2, 1.0, -1.0).astype(np.float32)
    level = measure(square)
    assert level.clipped == 1
    assert level.is_clipped
    assert level.rms == pytest.approx(1)


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_hard_clipped_speech_is_clipped_and_the_same_at_minus_1_dbfs_is_not(data: Path, rate: int) -> None:
    # Also where it was clipped before it was resampled.
    flagged = []
    for path in sorted((data / "speech_commands" / "stop").iterdir())[:20]:
        word = load(path).samples
        there = soxr.resample(word / np.abs(word).max(), SAMPLE_RATE, rate)
        flagged.append(measure(load(encode(np.clip(10 * there, -1, 1), rate)).samples).is_clipped)
        assert not measure(load(encode(there * 10 ** (-1 / 20), rate)).samples).is_clipped
    assert sum(flagged) >= 19


def test_single_samples_at_full_scale_are_not_clipping() -> None:
    samples = tone()
    samples[100:102] = samples[500] = 1
    assert measure(samples).clipped == 0
    samples[102] = 1
    assert measure(samples).clipped == 3 / 16_000


@pytest.mark.parametrize(
    "bad", [np.zeros(0), np.zeros((2, 2)), np.zeros(5, np.int16), np.array([0.1, np.nan]), np.array([np.inf, -np.inf])]
)
def test_a_level_of_nothing_or_of_nan_is_refused(bad: Any) -> None:
    with pytest.raises(AudioError):
        measure(bad)


# --- Anything at all --------------------------------------------------------------------------------------------------

VALID = [
    wav(SECOND[:4_000]),
    wav(SECOND[:4_000], fmt(MULAW, bits=8), before=chunk(b"LIST", b"INFOISFT\4\0\0\0abcd")),
    *(
        encode(tone(seconds=0.2), format=f, subtype=s)
        for f, s in (
            ("WAV", "IMA_ADPCM"),
            ("WAV", "FLOAT"),
            ("RF64", "PCM_16"),
            ("W64", "PCM_16"),
            ("AIFF", "PCM_16"),
            ("FLAC", "PCM_16"),
            ("OGG", "VORBIS"),
            ("OGG", "OPUS"),
            ("MP3", "MPEG_LAYER_III"),
        )
    ),
]


def assert_decoded_or_refused(file: bytes) -> None:
    start = time.thread_time()  # of the processor: other programs do not count
    try:
        samples = load(file).samples
    except AudioError as refusal:
        assert "\n" not in str(refusal)  # noqa: PT017 - either outcome is right
    else:
        assert len(samples)
        assert np.isfinite(samples).all()
    assert time.thread_time() - start < 5


@given(
    st.binary(max_size=2_000), st.sampled_from([b"", b"RIFF", b"fLaC", b"OggS", b"\xff\xfb\x90\x64", b"ID3", b"FORM"])
)
@settings(max_examples=200, deadline=None)
def test_random_bytes_raise_nothing_but_audio_error(body: bytes, magic: bytes) -> None:
    assert_decoded_or_refused(magic + body)


@given(
    file=st.sampled_from(VALID),
    changes=st.lists(st.tuples(st.integers(0, 120), st.binary(min_size=1, max_size=4)), max_size=4),
    keep=st.floats(0, 1),
)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_file_raises_nothing_but_audio_error(
    file: bytes, changes: list[tuple[int, bytes]], keep: float
) -> None:
    damaged = bytearray(file)
    for at, new in changes:
        damaged[at : at + len(new)] = new
    assert_decoded_or_refused(bytes(damaged[: round(len(damaged) * keep)]))
    assert_decoded_or_refused(bytes(damaged))


def test_damage_prints_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(VALID[rng.integers(len(VALID))])
        for at in rng.integers(0, min(120, len(damaged)), 3):
            damaged[at] = rng.integers(256)
        assert_decoded_or_refused(bytes(damaged))
    assert "Traceback" not in capfd.readouterr().err


def ended(*_: object) -> None:
    """As a program is told by SIGTERM, where it tidies up before it ends."""
    sys.exit(0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("container", "codec"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS")])
def test_a_signal_at_any_moment_of_decoding_ends_it(
    container: str, codec: str, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    handler = signal.default_int_handler if number == signal.SIGINT else ended
    before = signal.signal(number, handler)
    file = encode(tone(seconds=3.0), format=container, subtype=codec)

    class Interrupted(io.BytesIO):
        reads, at = 0, 0

        def read(self, n: int | None = -1, /) -> bytes:
            self.reads += 1
            if self.reads == self.at:
                signal.raise_signal(number)
            return super().read(n)

    try:
        whole = Interrupted(file)
        load(whole)
        for at in range(1, whole.reads + 1):
            source = Interrupted(file)
            source.at = at
            with pytest.raises((KeyboardInterrupt, SystemExit)):
                load(source)
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert capfd.readouterr() == ("", "")


# --- Recordings in folders --------------------------------------------------------------------------------------------


def test_recordings_below_a_folder_are_found_to_its_depths(tmp_path: Path) -> None:
    for name in ("a.wav", "b/c/d.OPUS", "b/.hidden.wav", "b/notes.txt", "e.flac/f.mp3"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = [path.relative_to(tmp_path).as_posix() for path in audio_below(tmp_path)]
    assert sorted(found) == ["a.wav", "b/c/d.OPUS", "e.flac/f.mp3"]
    assert [path.name for path in audio_in(tmp_path)] == ["a.wav"]


def test_a_folder_that_cannot_be_read_is_an_error_and_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "a.wav").touch()
    (tmp_path / "shut").mkdir()
    scandir = os.scandir

    def refused(path: Any) -> Any:  # as for another user; the tests may be root's, to whom all is open
        if os.fspath(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    monkeypatch.setattr(os, "listdir", refused)
    unread: list[str] = []
    assert [path.name for path in audio_below(tmp_path, unread.append)] == ["a.wav"]
    assert unread == [str(tmp_path / "shut")]
    for look in (lambda: list(audio_below(tmp_path)), lambda: audio_in(tmp_path / "shut")):
        with pytest.raises(AudioError, match=r"shut: Permission denied; expected a folder all of which can be read"):
            look()

"""Ogg Opus whose pages give positions that contradict their packets, as ffmpeg writes them, is read whole."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from made_audio import tone, wav

from kws_edge.audio import ogg
from kws_edge.audio.load import load
from kws_edge.errors import AudioError


def opus(seconds: float = 5.0) -> bytes:
    file = io.BytesIO()
    t = np.arange(round(seconds * 16_000)) / 16_000
    tones = 0.3 * np.sin(2 * np.pi * (300 + 200 * t) * t)
    soundfile.write(file, tones + 0.01 * np.random.default_rng(0).standard_normal(len(t)), 16_000, "OPUS", format="OGG")
    return file.getvalue()


def crc(page: bytes) -> int:
    """Ogg's checksum bit by bit, after RFC 3533."""
    value = 0
    for byte in page:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1) ^ (0x04C11DB7 if value & 0x80000000 else 0)
            value &= 0xFFFFFFFF
    return value


def moved(file: bytes, shifts: dict[int, int]) -> bytes:
    """A file in which the position of some pages, counted from 0, is so many samples later; with right checksums."""
    out, at, number = bytearray(file), 0, 0
    while at < len(file):
        sizes = file[at + 27 : at + 27 + file[at + 26]]
        end = at + 27 + len(sizes) + sum(sizes)
        granule = struct.unpack_from("<q", file, at + 6)[0]
        struct.pack_into("<q", out, at + 6, granule + shifts.get(number, 0))
        out[at + 22 : at + 26] = bytes(4)
        struct.pack_into("<I", out, at + 22, crc(bytes(out[at:end])))
        at, number = end, number + 1
    return bytes(out)


def unrepaired(file: bytes) -> str:
    try:
        soundfile.read(io.BytesIO(file))
    except soundfile.LibsndfileError as error:
        return error.error_string
    return "read"


def test_the_helper_leaves_a_file_that_is_right_as_it_is() -> None:
    whole = opus()
    assert moved(whole, {}) == whole


@pytest.mark.parametrize("shifts", [{2: 489, 5: 489}, {2: 489}, {3: -480}], ids=str)
def test_positions_that_jump_back_do_not_end_a_file(shifts: dict[int, int]) -> None:
    whole = opus()
    broken = moved(whole, shifts)
    assert "malformed" in unrepaired(broken)
    clip = load(broken)
    assert np.array_equal(clip.samples, load(whole).samples)
    assert clip.warnings == ()


@pytest.mark.parametrize("rate", [0, 1, 2**32 - 1])
def test_a_rate_that_says_nothing_takes_nothing_away(rate: int) -> None:
    """RFC 7845: 0 where the writer does not know it. libsndfile would decode at 8 kHz, without what is above 4."""
    high = wav(tone(6_000, rate=48_000), 48_000, "OPUS", "OGG")
    at = high.index(b"OpusHead") + 12
    clip = load(moved(high[:at] + rate.to_bytes(4, "little") + high[at + 4 :], {}))
    assert clip.source_rate == 48_000
    assert np.std(clip.samples[1_000:15_000]) == pytest.approx(0.5 / np.sqrt(2), rel=0.05)


def test_a_first_page_that_starts_before_the_stream_is_read() -> None:
    """What ffmpeg -itsoffset -0.5 leaves."""
    whole = opus()
    pages = dict.fromkeys(range(2, 50), -24_000)
    assert np.array_equal(load(moved(whole, pages)).samples, load(whole).samples)


def test_samples_that_the_last_page_cuts_off_stay_cut_off() -> None:
    assert len(load(moved(opus(2.5), {2: 480})).samples) == 40_000


def test_a_file_that_is_right_is_not_touched() -> None:
    whole = opus()
    assert ogg.corrections(lambda position, n: whole[position : position + n]) == ([], len(whole))


def test_a_damaged_page_stays_damaged() -> None:
    """The checksum is moved on with the position, not made anew: what was wrong before is wrong afterwards."""
    broken = bytearray(moved(opus(), {2: 489}))
    broken[-400] ^= 0x55
    clean = load(moved(opus(), {2: 489}))
    try:
        damaged: Any = load(bytes(broken)).samples
    except AudioError:
        return
    assert len(damaged) < len(clean.samples)


@pytest.mark.parametrize(
    ("first", "second", "samples"),
    [
        (0b00000_000, 0, 480),
        (0b01100_000, 0, 480),
        (0b10000_000, 0, 120),
        (0b11111_001, 0, 1920),
        (0b11111_011, 5, 4800),
    ],
)
def test_a_packet_says_how_long_it_is(first: int, second: int, samples: int) -> None:
    assert ogg.duration(bytes([first, second])) == samples


def test_rain_as_ffmpeg_writes_it_is_read_whole(data: Path) -> None:
    path = data / "odd" / "ffmpeg_rain.opus"
    if not path.is_file():
        pytest.skip(f"needs {path}")
    assert "malformed" in unrepaired(path.read_bytes())
    assert len(load(path).samples) == 60 * 16_000


@pytest.mark.parametrize("subtype", ["OPUS", "VORBIS"])
def test_of_streams_one_after_the_other_it_is_said_that_the_first_alone_is_read(subtype: str) -> None:
    one = wav(np.tile(tone(440), 3), subtype=subtype, container="OGG")
    clip = load(one + one)
    np.testing.assert_array_equal(clip.samples, load(one).samples)
    (warning,) = clip.warnings
    assert "several Ogg streams one after the other, of which the first is read" in warning
    assert load(one).warnings == ()

"""Damaged audio files of each format: an answer or an error of one line, in time, without a word, and no crash."""

import os
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from made_audio import wav
from mutation import budget, mutated

from kws_edge.audio.load import load
from kws_edge.errors import AudioError
from kws_edge.server.decoder import Decoder

SUBTYPES = {
    "WAV": [
        "PCM_16",
        "PCM_U8",
        "PCM_24",
        "PCM_32",
        "FLOAT",
        "DOUBLE",
        "ULAW",
        "ALAW",
        "IMA_ADPCM",
        "MS_ADPCM",
        "GSM610",
    ],
    "WAVEX": ["PCM_16", "PCM_24", "FLOAT"],
    "RF64": ["PCM_16", "PCM_24", "FLOAT"],
    "W64": ["PCM_16", "PCM_24", "FLOAT"],
    "FLAC": ["PCM_S8", "PCM_16", "PCM_24"],
    "OGG": ["VORBIS"],
    "OPUS": ["OPUS"],
    "MP3": ["MPEG_LAYER_III"],
    "AIFF": ["PCM_16", "PCM_S8", "PCM_24", "FLOAT", "ULAW", "ALAW", "IMA_ADPCM"],
    "AU": ["PCM_16", "PCM_S8", "PCM_24", "FLOAT", "ULAW", "ALAW"],
    "CAF": ["PCM_16", "PCM_24", "FLOAT", "ULAW", "ALAW", "ALAC_16", "ALAC_24"],
}
RATES = [8_000, 16_000, 22_050, 24_000, 44_100, 48_000]
SIZES = [160, 2_000, 4_001, 9_000, 16_000]
SEEDS = 60


@cache
def seeds(kind: str) -> tuple[bytes, ...]:
    """Sixty files of a format: all subtypes, several rates, channels and lengths."""
    rng = np.random.default_rng(1)
    container = "OGG" if kind == "OPUS" else kind
    made: list[bytes] = []
    for size, channels, rate, subtype in product(SIZES, (1, 2, 6), RATES, SUBTYPES[kind]):
        if len(made) == SEEDS:
            break
        if not soundfile.check_format(container, subtype) or (
            channels == 6 and subtype in ("GSM610", "MPEG_LAYER_III")
        ):
            continue
        try:
            made.append(wav(rng.normal(0, 0.1, (size, channels)), rate, subtype, container))
        except soundfile.LibsndfileError:  # a codec that has no such rate or so many channels
            continue
    assert len(made) == SEEDS
    return tuple(made)


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    made = Decoder(max_seconds=60, max_samples=2**24, max_body=2**23, timeout=5)
    yield made
    made.close()


def check(audio: Any) -> None:
    assert audio.samples.dtype == np.float32
    assert len(audio.samples)
    assert np.isfinite(audio.samples).all()
    assert len(audio.samples) <= 60 * 16_000


def refusal(decoder: Decoder, data: bytes) -> str:
    """Why a file is refused; empty where it is decoded."""
    try:
        check(decoder.load(data, "clip"))
    except AudioError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", SUBTYPES)
def test_a_damaged_file_is_decoded_or_refused(decoder: Decoder, kind: str) -> None:
    @given(mutated(seeds(kind)))
    @budget(30)
    def decode(data: bytes) -> None:
        refused = refusal(decoder, data)
        assert refused == "" or refused.startswith("clip: ")
        assert "\n" not in refused
        assert "its decoder failed" not in refused

    decode()


@pytest.mark.parametrize(
    "kind", [kind for kind in SUBTYPES if kind != "OPUS"]
)  # which can take minutes: a fault of its own
def test_a_damaged_file_prints_nothing(kind: str) -> None:
    @given(mutated(seeds(kind)))
    @budget(12)
    def decode(data: bytes) -> None:
        with tempfile.TemporaryFile() as heard:
            kept = os.dup(1), os.dup(2)
            os.dup2(heard.fileno(), 1)
            os.dup2(heard.fileno(), 2)
            try:
                check(load(data, max_seconds=60, max_samples=2**24))
            except AudioError:
                pass
            finally:
                for number, saved in zip((1, 2), kept, strict=True):
                    os.dup2(saved, number)
                    os.close(saved)
            assert os.fstat(heard.fileno()).st_size == 0

    decode()


@given(st.binary(max_size=2000))
@budget(100)
def test_bytes_of_any_kind_are_decoded_or_refused(decoder: Decoder, data: bytes) -> None:
    assert "\n" not in refusal(decoder, data)

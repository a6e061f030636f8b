"""What a speech synthesiser must offer, and what is done alike for all of them: pitch, rate, trimming."""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.errors import KwsEdgeError, SettingError
from kws_export.data.credit import Credit

PEAK = 0.5
"""Every clip is scaled to this peak: engines differ in level by 20 dB, and training draws levels of its own."""
SILENCE_DB = -50.0
"""What lies this far below the peak at either end is cut off."""
MARGIN = 0.03
"""Seconds that are kept on both sides of what is cut."""


class VoiceError(KwsEdgeError):
    """An engine failed, or gave no sound."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """What is to be said.

    Attributes
    ----------
    text : as it is written.
    phonemes : how it is pronounced, in espeak-ng's notation (`espeak-ng -q -x "hey lamp"` prints `h'eI l'amp`); empty
        to leave that to the engine. Only engines that take phonemes can say it then.
    language : as espeak-ng calls it: en-us, en-gb, de, nl.
    """

    text: str
    phonemes: str = ""
    language: str = "en-us"

    def __post_init__(self) -> None:
        """Refuse what no engine can say."""
        if not self.text.strip():
            raise SettingError("nothing to say; expected a text")


@dataclass(frozen=True, slots=True)
class Rendition:
    """One way of saying an utterance.

    Attributes
    ----------
    voice : as `Engine.voices` calls it.
    speed, pitch : factors on 1.
    manner : 0 as the voice says it by itself; other numbers draw another intonation and, of half, a foreign accent.
    """

    utterance: Utterance
    voice: str
    speed: float = 1.0
    pitch: float = 1.0
    manner: int = 0

    def __post_init__(self) -> None:
        """Refuse what would be no speech."""
        for name, value in (("speed", self.speed), ("pitch", self.pitch)):
            if not 0.4 <= value <= 2.5:
                raise SettingError(f"{name}={value}; expected 0.4 to 2.5")


class Engine(Protocol):
    """A speech synthesiser.

    Attributes
    ----------
    name : as on the command line.
    credit : of the voices and of what they say, for a model's card.
    takes_phonemes : whether it can say an utterance that gives its phonemes.
    """

    name: str
    credit: Credit
    takes_phonemes: bool

    def missing(self) -> str | None:
        """None where it can speak here, else what to install."""
        ...

    def voices(self, language: str) -> tuple[str, ...]:
        """The voices that speak a language, the most natural first; none where there is no such voice."""
        ...

    def render(self, renditions: Sequence[Rendition]) -> Iterator[tuple[F32, int]]:
        """Each rendition's samples, float32 [n], and their rate. Engines need not heed its pitch, nor its manner."""
        ...


def speak(engine: Engine, utterance: Utterance, voice: str, speed: float = 1.0, pitch: float = 1.0) -> F32:
    """One clip: float32 [n] at 16 kHz with peak `PEAK`, without the silence at its ends.

    Raises
    ------
    SettingError : a voice that the engine does not have, a speed or pitch out of range.
    VoiceError : the engine failed.
    """
    return next(speak_all(engine, [Rendition(utterance, voice, speed, pitch)]))


def speak_all(engine: Engine, renditions: Sequence[Rendition]) -> Iterator[F32]:
    """As `speak`, for many: an engine that is slow to start is started once for all of them.

    Pitch is changed by resampling what was spoken at another speed, so that formants move with it, as they do between
    people of different size.
    """
    for language in {rendition.utterance.language for rendition in renditions}:
        known = set(engine.voices(language))
        wanted = {t.voice for t in renditions if t.utterance.language == language}
        # A blend that is not listed, such as one in the other order, will do where its parts are.
        if unknown := {part for voice in wanted - known for part in voice.split("+")} - known:
            raise SettingError(f"{engine.name} has no voice {min(unknown)} for {language}; expected one of {known}")
    if not engine.takes_phonemes and any(t.utterance.phonemes for t in renditions):
        raise SettingError(f"{engine.name} cannot be given phonemes; expected kokoro or espeak")
    slowed = [replace(t, speed=min(2.5, max(0.4, t.speed / t.pitch)), pitch=1.0) for t in renditions]
    for rendition, (samples, rate) in zip(renditions, engine.render(slowed), strict=True):
        yield _finish(samples, rate, rendition)


def _finish(samples: F32, rate: int, rendition: Rendition) -> F32:
    import soxr

    if samples.size == 0 or not np.isfinite(samples).all() or np.abs(samples).max() < 1e-4:
        raise VoiceError(f"voice {rendition.voice} gave no sound for {rendition.utterance.text!r}")
    resampled = soxr.resample(samples.astype(np.float32), rate * rendition.pitch, SAMPLE_RATE).astype(np.float32)
    trimmed = trim(resampled)
    return trimmed * np.float32(PEAK / np.abs(trimmed).max())


def trim(samples: F32) -> F32:
    """Cut off what is quieter than `SILENCE_DB` below the peak at both ends, but for `MARGIN`. float32 [n] → [≤ n]."""
    frame = SAMPLE_RATE // 100
    level = np.abs(np.pad(samples, (0, -len(samples) % frame))).reshape(-1, frame).max(axis=1)
    loud = np.flatnonzero(level > level.max() * 10 ** (SILENCE_DB / 20))
    margin = round(MARGIN * SAMPLE_RATE)
    return samples[max(0, loud[0] * frame - margin) : (loud[-1] + 1) * frame + margin]


def run_program(command: Sequence[str], text: str = "", timeout: float = 120.0) -> bytes:
    """A program's standard output. Raises VoiceError with the last line that it complained in, where it fails."""
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VoiceError(f"{command[0]}: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"]
        raise VoiceError(f"{command[0]}: {said[-1]}")
    return done.stdout

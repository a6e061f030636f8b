"""Where streams come from: files, standard input and the microphone, the last with a stand-in for sounddevice."""

import io
import logging
import os
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kws_edge.audio.devices import input_devices
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.audio.microphone import Microphone
from kws_edge.audio.sources import Block, StandardInput, WavFile
from kws_edge.cli.classify import _kept
from kws_edge.errors import AudioError, DependencyError, DeviceError, SettingError


def sine(frequency: float, seconds: float, rate: int = SAMPLE_RATE) -> Any:
    return (0.3 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def joined(blocks: Any) -> Any:
    return np.concatenate([block.samples for block in blocks] or [np.empty(0, np.float32)])


def slow_pipe(data: bytes, pieces: int) -> Any:
    """The reading end, which does not wait of itself, of a pipe that data comes out of little by little."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def write() -> None:
        size = -(-len(data) // pieces)
        for i in range(0, len(data), size):
            time.sleep(0.02)
            os.write(writing, data[i : i + size])
        os.close(writing)

    threading.Thread(target=write).start()
    return os.fdopen(reading, "rb")


# Files


def test_a_file_gives_the_samples_of_the_clip(tmp_path: Path) -> None:
    path = tmp_path / "stereo.wav"
    soundfile.write(path, np.stack([sine(440, 0.73, 44_100)] * 2, axis=1), 44_100)
    blocks = list(WavFile(path))
    assert np.array_equal(joined(blocks), load(path).samples)
    assert all(block.samples.dtype == np.float32 and not block.dropped for block in blocks)


def test_a_file_that_is_no_audio_is_refused() -> None:
    with pytest.raises(AudioError, match="nowhere"):
        list(WavFile("nowhere.wav"))


def test_in_real_time_no_block_comes_before_its_end(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", sine(440, 0.35), SAMPLE_RATE)
    start, heard = time.monotonic(), 0
    for block in WavFile(tmp_path / "a.wav", realtime=True):
        heard += len(block.samples)
        assert time.monotonic() - start >= heard / SAMPLE_RATE
    assert heard == 0.35 * SAMPLE_RATE


def test_a_closed_file_ends(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", sine(440, 1), SAMPLE_RATE)
    source = WavFile(tmp_path / "a.wav")
    blocks = iter(source)
    next(blocks)
    source.close()
    assert list(blocks) == []


def test_a_file_is_heard_again_from_its_start(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", sine(440, 1), SAMPLE_RATE)
    source = WavFile(tmp_path / "a.wav")
    first = joined(source)
    source.close()
    assert np.array_equal(joined(source), first)
    blocks = iter(source)
    source.close()
    assert list(blocks) == []


# Standard input


class Pipe(io.RawIOBase):
    """Gives its bytes in pieces of the sizes asked of it, as a pipe does."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data, self.sizes, self.at, self.reads = data, sizes, 0, 0

    def read(self, n: int = -1) -> bytes:
        n = min(n, self.sizes[self.reads % len(self.sizes)])
        self.reads += 1
        piece = self.data[self.at : self.at + n]
        self.at += len(piece)
        return piece


def pcm(samples: Any) -> bytes:
    return (samples * 32767).astype("<i2").tobytes()


def with_header(data: bytes, rate: int = SAMPLE_RATE, channels: int = 1, width: int = 2) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes(data)
    return file.getvalue()


@given(st.binary(max_size=5000), st.lists(st.integers(1, 999), min_size=1, max_size=5))
@hypothesis_settings(deadline=None, max_examples=50)
def test_raw_samples_come_through_however_the_pipe_cuts_them(data: bytes, sizes: list[int]) -> None:
    assume(not data.startswith((b"fLaC", b"OggS", b"RF64", b"caff")))
    samples = joined(StandardInput(stream=Pipe(data, sizes)))
    expected = np.frombuffer(data[: len(data) // 2 * 2], "<i2") / 32768
    assert np.array_equal(samples, expected)


def test_an_audio_file_in_the_pipe_is_not_taken_for_samples() -> None:
    file = io.BytesIO()
    soundfile.write(file, sine(440, 1), SAMPLE_RATE, format="FLAC")
    file.seek(0)
    with pytest.raises(AudioError, match=r"an audio file, not raw PCM; .* --replay"):
        joined(StandardInput(stream=file))


def test_a_pipe_that_does_not_wait_is_read_to_its_end() -> None:
    data = pcm(sine(440, 1))
    with slow_pipe(data, 7) as pipe:
        assert len(joined(StandardInput(stream=pipe))) == len(data) // 2
    with slow_pipe(data, 7) as pipe, _kept(pipe) as file:
        assert file.read() == data


def test_another_rate_is_resampled() -> None:
    samples = joined(StandardInput(48_000, io.BytesIO(pcm(sine(440, 1, 48_000)))))
    assert len(samples) == pytest.approx(SAMPLE_RATE, abs=1)
    assert samples[1000:-1000] == pytest.approx(sine(440, 1)[1000:-1000][: len(samples) - 2000], abs=1e-3)


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_a_wav_header_as_arecord_writes_it_is_left_out_and_believed(rate: int) -> None:
    data = with_header(pcm(sine(440, 0.5, rate)), rate)
    streamed = data[:4] + b"\xff\xff\xff\x7f" + data[8:40] + b"\xff\xff\xff\x7f" + data[44:]
    unsized = data[:40] + bytes(4) + data[44:]
    extra = data[:36] + b"LIST\4\0\0\0abcd" + data[36:]
    odd = data[:36] + b"note\5\0\0\0abcde\0" + data[36:]
    trailing = data + b"LIST\x80\x0c\0\0" + b"\x7f" * 3200
    clip = load(data).samples
    for each in (data, streamed, unsized, extra, odd, trailing):
        samples = joined(StandardInput(stream=Pipe(each, [7, 1000])))
        assert len(samples) == pytest.approx(len(clip), abs=1)
        assert samples[: len(clip)] == pytest.approx(clip[: len(samples)], abs=1e-4)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (with_header(bytes(408), channels=17), "17 channels of 16 bits"),
        (with_header(bytes(400), width=1), "1 channels of 8 bits"),
        (with_header(bytes(400))[:30], "damaged"),
        (b"RIFF\0\0\0\0WAVEdata" + bytes(100), "damaged"),
        (b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\xff" + bytes(100), "damaged"),
        (b"RIFF\0\0\0\0WAVE", "damaged"),
    ],
    ids=["17 channels", "8 bits", "cut", "no format", "endless chunk", "nothing"],
)
def test_a_wav_header_of_something_else_is_refused(data: bytes, found: str) -> None:
    with pytest.raises(AudioError, match=f"{found}.*expected.*arecord"):
        list(StandardInput(stream=io.BytesIO(data)))


@pytest.mark.parametrize("rate", [0, 3_999, 192_001, 16_000.0, True])
def test_an_impossible_rate_is_refused(rate: Any) -> None:
    with pytest.raises(SettingError, match="4000 to 192000"):
        StandardInput(rate)


def test_a_header_of_several_channels_is_mixed_or_one_is_picked() -> None:
    left, right = sine(440, 0.5), sine(880, 0.5)
    data = with_header(pcm(np.stack([left, right], axis=1)), channels=2)
    assert joined(StandardInput(stream=Pipe(data, [7, 1000]))) == pytest.approx((left + right) / 2, abs=1e-4)
    assert joined(StandardInput(stream=Pipe(data, [7, 1000]), channel=2)) == pytest.approx(right, abs=1e-4)
    with pytest.raises(AudioError, match="channel 3 of 2"):
        list(StandardInput(stream=Pipe(data, [1000]), channel=3))


def test_channels_in_a_pipe_that_cancel_or_are_silent_are_no_part_of_the_mix(caplog: pytest.LogCaptureFixture) -> None:
    left = sine(440, 3.0)
    opposite = -0.8 * left
    opposite[-1600:] *= -1  # for a moment, over which they are not judged anew
    for right in (opposite, 0 * left):
        data = with_header(pcm(np.stack([left, right], axis=1)), channels=2)
        assert np.abs(joined(StandardInput(stream=Pipe(data, [1000]))) - left).max() < 1e-4
    (said,) = caplog.messages
    assert said.startswith("standard input: the channels cancel each other")


@pytest.mark.parametrize("seconds", [2, 4])
@pytest.mark.parametrize("kind", ["pipe", "pipe at 48 kHz", "recording"])
def test_a_source_of_zeros_is_named_after_three_seconds(
    kind: str, seconds: int, caplog: pytest.LogCaptureFixture
) -> None:
    rate = 48_000 if "48" in kind else SAMPLE_RATE
    zeros = bytes(2 * rate * seconds)
    source = WavFile(with_header(zeros)) if kind == "recording" else StandardInput(rate, io.BytesIO(zeros))
    first = None
    for i, _ in enumerate(source, 1):
        if source.problem and first is None:
            first = i * 0.1
    assert first == (None if seconds < 3 else pytest.approx(3.0, abs=0.11))
    assert len(caplog.records) == (seconds >= 3)


# The microphone


class PortAudioError(Exception):
    pass


class StandInStream:
    def __init__(self, machine: "StandIn", rate: int, channels: int, callback: Callable[..., None]) -> None:
        self.machine, self.rate, self.channels, self.callback = machine, rate, channels, callback
        self.active = False

    def start(self) -> None:
        self.active = True

    def abort(self) -> None:
        self.active = False
        if not self.machine.present:
            raise PortAudioError("device unavailable")

    def close(self) -> None:
        self.machine.open.remove(self)


class StandIn:
    """A module like sounddevice with one microphone, or several, which a test speaks into and unplugs.

    `inputs` are the names of the inputs by their index.
    """

    PortAudioError = PortAudioError

    def __init__(
        self, *, native: int = 48_000, channels: int = 2, accepts: Callable[[int, int], bool] | None = None
    ) -> None:
        self.native, self.channels = native, channels
        self.accepts = accepts or (lambda rate, n: True)
        self.inputs = {1: "USB Mic"}
        self.present = True
        self.open: list[StandInStream] = []
        self.opened: list[int] = []
        self.rescans = 0
        self.default = SimpleNamespace(device=[1, 0])

    def device(self, index: int) -> dict[str, Any]:
        name = self.inputs.get(index, "Speaker") if self.present else "Speaker"
        channels = self.channels if self.present and index in self.inputs else 0
        return {
            "name": name, "index": index, "hostapi": 0, "max_input_channels": channels,
            "default_samplerate": float(self.native),
        }  # fmt: skip

    def query_hostapis(self) -> list[dict[str, str]]:
        return [{"name": "ALSA"}]

    def query_devices(self, device: Any = None, kind: str | None = None) -> Any:
        if kind is None:
            return [self.device(i) for i in range(max(self.inputs) + 1)]
        if not self.present:
            raise PortAudioError("Error querying device -1")
        matching = [i for i, name in self.inputs.items() if device in (None, i) or str(device) in name]
        if len(matching) > 1 and isinstance(device, str):
            raise ValueError(f"Multiple input devices found for {device!r}")
        if not matching:
            raise ValueError(f"No input device matching {device!r}")
        return self.device(matching[0])

    def InputStream(  # noqa: N802
        self, *, device: int, samplerate: int, channels: int, dtype: str, blocksize: int, callback: Callable[..., None]
    ) -> StandInStream:
        assert device in self.inputs
        assert dtype == "int16"
        if channels > self.channels or not self.accepts(samplerate, channels):
            raise PortAudioError(f"Invalid format: {samplerate} x {channels}")
        self.opened.append(device)
        self.open.append(StandInStream(self, samplerate, channels, callback))
        return self.open[-1]

    def _terminate(self) -> None:
        self.rescans += 1

    def _initialize(self) -> None:
        pass

    def speak(self, samples: Any, *, overflow: bool = False) -> None:
        """Call back with float [n] or [n, channels]; the buffer is used again afterwards, as PortAudio does."""
        (stream,) = self.open
        data = (np.asarray(samples) * 32767).astype(np.int16)
        buffer = np.array(np.broadcast_to(data[:, None] if data.ndim == 1 else data, (len(data), stream.channels)))
        stream.callback(buffer, len(buffer), None, SimpleNamespace(input_overflow=overflow))
        buffer[:] = 32_000


@pytest.fixture
def machine() -> StandIn:
    return StandIn()


def opened(machine: StandIn, **settings: Any) -> tuple[Microphone, Iterator[Block]]:
    """A microphone that has given its first block, 0.1 s of a tone."""
    mic = Microphone(backend=machine, **settings)
    blocks = iter(mic)
    speaker = threading.Thread(target=lambda: (wait(lambda: len(machine.open)), say(machine, 0.1)))
    speaker.start()
    next(blocks)
    speaker.join()
    return mic, blocks


def say(machine: StandIn, seconds: float, block: float = 0.05) -> None:
    for _ in range(round(seconds / block)):
        machine.speak(sine(440, block, machine.open[0].rate))


def wait(until: Callable[[], Any], seconds: float = 60.0) -> None:
    start = time.monotonic()
    while not until():
        assert time.monotonic() - start < seconds, "it did not happen"
        time.sleep(0.005)


def test_sound_comes_through_unchanged(machine: StandIn) -> None:
    mic, blocks = opened(machine)
    assert (machine.open[0].rate, machine.open[0].channels) == (SAMPLE_RATE, 1)
    next(blocks)
    machine.speak(sine(440, 0.05))
    block = next(blocks)
    assert block.dropped == 0
    assert block.samples == pytest.approx(sine(440, 0.05), abs=1e-4)
    assert (mic.overflows, mic.dropped, mic.problem) == (0, 0, None)


def test_a_device_that_refuses_16_khz_is_resampled_from_its_native_rate() -> None:
    machine = StandIn(accepts=lambda rate, n: rate == 48_000)
    mic = Microphone(backend=machine)
    blocks, heard = iter(mic), []
    threading.Thread(target=lambda: (wait(lambda: len(machine.open)), say(machine, 1))).start()
    while sum(map(len, heard)) < 15_000:
        heard.append(next(blocks).samples)
    samples = np.concatenate(heard)
    assert machine.open[0].rate == 48_000
    spectrum = np.abs(np.fft.rfft(samples[: SAMPLE_RATE // 2]))
    assert spectrum.argmax() * 2 == 440
    assert samples.max() == pytest.approx(0.3, abs=0.02)


def test_what_the_resampler_holds_at_an_overflow_comes_before_it() -> None:
    machine = StandIn(accepts=lambda rate, n: rate == 48_000)
    mic = Microphone(backend=machine)
    blocks, heard = iter(mic), []

    def speak() -> None:
        wait(lambda: len(machine.open))
        for _ in range(20):
            machine.speak(sine(440, 0.05, 48_000), overflow=True)

    threading.Thread(target=speak).start()
    while sum(map(len, heard)) < 19 * 800:  # the last block's end waits for the next
        heard.append(next(blocks).samples)
    assert np.concatenate(heard)[: 19 * 800].std() == pytest.approx(sine(440, 1).std(), rel=0.02)


def test_a_device_that_refuses_one_channel_is_opened_with_two_and_mixed() -> None:
    machine = StandIn(accepts=lambda rate, n: n == 2)
    _, blocks = opened(machine)
    assert (machine.open[0].rate, machine.open[0].channels) == (SAMPLE_RATE, 2)
    next(blocks)
    machine.speak(np.stack([sine(440, 0.05), sine(880, 0.05)], axis=1))
    assert next(blocks).samples == pytest.approx((sine(440, 0.05) + sine(880, 0.05)) / 2, abs=1e-4)


def test_a_silent_channel_does_not_halve_the_other() -> None:
    machine = StandIn(accepts=lambda rate, n: n == 2)
    mic = Microphone(backend=machine)
    blocks = iter(mic)
    stereo = np.stack([np.zeros(800), sine(440, 0.05)], axis=1)
    threading.Thread(target=lambda: (wait(lambda: len(machine.open)), machine.speak(stereo))).start()
    assert next(blocks).samples == pytest.approx(sine(440, 0.05), abs=1e-4)


def test_a_device_that_refuses_everything_is_an_error_that_says_what_was_tried() -> None:
    machine = StandIn(channels=4, accepts=lambda rate, n: False)
    with pytest.raises(DeviceError, match=r"USB Mic.*16000 Hz x 1.*16000 Hz x 4.*48000 Hz x 2.*expected"):
        next(iter(Microphone(backend=machine)))
    assert machine.open == []


@pytest.mark.parametrize("device", [7, "Nothing"])
def test_a_device_that_is_not_there_is_an_error_that_lists_those_that_are(machine: StandIn, device: Any) -> None:
    with pytest.raises(DeviceError, match="1 USB Mic"):
        next(iter(Microphone(device, backend=machine)))


def test_a_machine_without_a_microphone_is_an_error(machine: StandIn) -> None:
    machine.present = False
    with pytest.raises(DeviceError, match="none: is one plugged in"):
        next(iter(Microphone(backend=machine)))


def test_overflow_is_counted_and_parts_the_stream_and_the_log_stays_short(
    machine: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    mic, blocks = opened(machine)
    next(blocks)
    for _ in range(20):
        machine.speak(sine(440, 0.05), overflow=True)
    dropped = [next(blocks).dropped for _ in range(20)]
    assert (mic.overflows, dropped) == (20, [1] * 20)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    machine.speak(sine(440, 0.05))
    assert next(blocks).dropped == 0


def test_a_slow_consumer_finds_one_long_gap_and_then_no_lag(machine: StandIn, caplog: pytest.LogCaptureFixture) -> None:
    mic, blocks = opened(machine, queue=1.0)
    next(blocks)
    heard, dropped, gaps, lag = 1600, 0, 0, 0.0
    for _ in range(60):  # three blocks come for each that is taken
        say(machine, 0.15)
        lag = max(lag, mic.lag)
        block = next(blocks)
        heard, dropped, gaps = heard + len(block.samples), dropped + block.dropped, gaps + bool(block.dropped)
    assert lag <= 1.0
    assert mic.dropped == dropped > 0
    assert heard + dropped + round(mic.lag * SAMPLE_RATE) == 1600 + 60 * 2400
    assert gaps <= 60 * 0.15 * (2 / 3) / 1.0 + 1  # each as long as the queue
    assert len(caplog.records) == 1
    while mic.lag:  # it keeps up again: what waits is at most the queue
        next(blocks)
    say(machine, 0.05)
    assert next(blocks).dropped == 0


@pytest.mark.parametrize("abrupt", [True, False], ids=["the stream ends", "callbacks stop"])
def test_a_device_that_dies_is_noticed_and_reopened_and_the_outage_is_a_gap(machine: StandIn, abrupt: bool) -> None:
    before_last = time.monotonic()
    # A patience that a thread of this test, which speaks, does not exhaust where the machine is busy.
    mic, blocks = opened(machine, patience=2.0)
    next(blocks)
    dead, after_last = machine.open[0], time.monotonic()
    dead.active = not abrupt
    revived = 0.0

    def revive() -> None:
        nonlocal revived
        wait(lambda: [stream for stream in machine.open if stream is not dead])
        revived = time.monotonic()
        say(machine, 0.05)

    threading.Thread(target=revive).start()
    block = next(blocks)
    noticed, block_seconds = time.monotonic(), 0.05
    assert noticed - after_last < 2.0 + 10
    assert revived - after_last - 1e-3 < block.dropped / SAMPLE_RATE + block_seconds < noticed - before_last + 1e-3
    assert (mic.reopened, len(machine.open), mic.problem) == (1, 1, None)


def test_a_sound_system_that_starts_again_late_is_waited_for(machine: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    mic, blocks = opened(machine, backoff=0.001, retries=12)
    next(blocks)
    machine.present = machine.open[0].active = False
    tried = 0

    def initialize() -> None:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise PortAudioError("Error initializing PortAudio: Unanticipated host error")
        machine.present = True

    def terminate() -> None:
        if tried:
            raise PortAudioError("Error terminating PortAudio: PortAudio not initialized")

    monkeypatch.setattr(machine, "_initialize", initialize)
    monkeypatch.setattr(machine, "_terminate", terminate)
    threading.Thread(target=lambda: (wait(lambda: tried == 3 and machine.open), say(machine, 0.05))).start()
    assert next(blocks).dropped > 0
    assert (mic.reopened, tried) == (1, 3)


def test_a_sound_system_that_does_not_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sounddevice.py").write_text("raise Exception('Error initializing PortAudio:\\nno host')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    with pytest.raises(DeviceError, match=r"PortAudio cannot start: Error initializing PortAudio: no host; expected"):
        Microphone()


def test_a_device_that_is_plugged_in_again_is_found(machine: StandIn) -> None:
    mic, blocks = opened(machine, backoff=0.001, retries=12)
    next(blocks)
    machine.present = machine.open[0].active = False

    def plug_in() -> None:
        wait(lambda: machine.rescans >= 2)
        machine.present = True
        wait(lambda: machine.open)
        say(machine, 0.05)

    threading.Thread(target=plug_in).start()
    assert next(blocks).dropped > 0
    assert mic.reopened == 1


def lost_and_back(before: dict[int, str], device: int | str, after: dict[int, str]) -> list[int]:
    """The indices that a microphone opens where the devices change after its first block."""
    machine = StandIn()
    machine.inputs = before
    mic, blocks = opened(machine, device=device, backoff=0.001, retries=3)
    next(blocks)
    machine.inputs = after
    machine.open[0].active = False

    def plug_in() -> None:
        while len(machine.opened) < 2 and not mic._closed.is_set():
            time.sleep(0.005)
        if machine.open:
            say(machine, 0.05)

    threading.Thread(target=plug_in).start()
    assert next(blocks).dropped > 0
    return machine.opened


A, B = "USB Mic: Audio (hw:1,0)", "USB Mic: Audio (hw:2,0)"


@pytest.mark.parametrize("device", [1, "hw:1,0"])
def test_a_device_whose_number_and_place_moved_is_found_again(device: int | str) -> None:
    assert lost_and_back({1: A}, device, {3: B, 1: "HDMI (hw:0,3)"}) == [1, 3]


def test_of_two_devices_of_one_name_the_one_that_was_chosen_comes_back() -> None:
    assert lost_and_back({1: A, 2: B}, 2, {1: A, 2: B}) == [2, 2]
    assert lost_and_back({1: "Mic", 2: "Mic"}, 2, {1: "Mic", 2: "Mic"}) == [2, 2]
    assert lost_and_back({1: "Mic", 2: "Mic"}, 1, {0: "Mic", 1: "Mic", 2: "Mic"}) == [1, 1]  # beside a new one
    assert lost_and_back({1: A, 2: B}, 2, {1: A, 4: "USB Mic: Audio (hw:3,0)"}) == [2, 4]
    assert lost_and_back({1: A, 2: B}, 2, {3: A, 4: B}) == [2, 4]


def test_the_twin_of_a_device_that_is_gone_is_not_taken_for_it() -> None:
    with pytest.raises(DeviceError, match="no sound after 3 attempts"):
        lost_and_back({1: A, 2: B}, 2, {1: A})


def test_a_callback_that_fails_is_said_at_once_with_its_own_error(
    machine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    mic, blocks = opened(machine)
    next(blocks)

    class Unreadable:
        """What says of itself neither that samples were lost nor that they were not."""

    start = time.monotonic()
    machine.open[0].callback(np.zeros((800, 1), np.int16), 800, None, Unreadable())
    with pytest.raises(DeviceError, match=r"USB Mic.*AttributeError.*input_overflow"):
        next(blocks)
    assert time.monotonic() - start < mic._patience
    assert machine.open == []


def test_a_microphone_of_opposite_polarity_is_heard_and_named(
    machine: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    machine.accepts = lambda rate, n: n == 2
    mic, blocks = opened(machine)
    next(blocks)
    for _ in range(80):
        machine.speak(np.stack([sine(440, 0.05), -0.8 * sine(440, 0.05)], axis=1))
        samples = next(blocks).samples
    assert samples == pytest.approx(sine(440, 0.05), abs=1e-3)
    assert "cancel" in str(mic.problem)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("channel", "frequency"), [(1, 440), (2, 880)])
def test_a_microphone_gives_the_channel_that_is_asked_for(machine: StandIn, channel: int, frequency: int) -> None:
    _, blocks = opened(machine, channel=channel)
    next(blocks)
    machine.speak(np.stack([sine(440, 0.05), sine(880, 0.05)], axis=1))
    assert next(blocks).samples == pytest.approx(sine(frequency, 0.05), abs=1e-3)


def test_as_many_channels_are_asked_for_as_the_one_that_is_wanted_or_their_mix_takes() -> None:
    machine = StandIn(channels=4)
    _, blocks = opened(machine, channel=3)
    next(blocks)
    machine.speak(np.stack([sine(frequency, 0.05) for frequency in (440, 660, 880)], axis=1))
    assert next(blocks).samples == pytest.approx(sine(880, 0.05), abs=1e-3)
    machine = StandIn(channels=4)
    _, blocks = opened(machine, channel="mix")
    assert machine.open[0].channels == 4


def test_the_channels_of_a_microphone_are_compared_over_seconds_not_in_each_block() -> None:
    machine = StandIn(accepts=lambda rate, n: n == 2)
    _, blocks = opened(machine)
    next(blocks)
    for sign in [-0.8] * 80 + [0.8]:
        machine.speak(np.stack([sine(440, 0.05), sign * sine(440, 0.05)], axis=1))
        samples = next(blocks).samples
    assert samples == pytest.approx(sine(440, 0.05), abs=1e-3)


def test_what_a_slow_consumer_loses_of_another_rate_is_counted_in_samples_of_16_khz() -> None:
    machine = StandIn(accepts=lambda rate, n: rate == 48_000)
    mic, blocks = opened(machine, queue=0.2)
    next(blocks)
    say(machine, 0.3)  # four of these six blocks
    assert next(block.dropped for block in blocks if block.dropped) == mic.dropped == 4 * 800


def test_a_channel_that_a_microphone_does_not_have_is_an_error(machine: StandIn) -> None:
    with pytest.raises(DeviceError, match="channel 3 of 2; expected 1 to 2"):
        next(iter(Microphone(channel=3, backend=machine)))


def test_a_device_that_stays_away_is_an_error_after_the_attempts(
    machine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    mic, blocks = opened(machine, backoff=0.5, retries=4)
    next(blocks)
    machine.present = machine.open[0].active = False
    waits: list[float] = []
    monkeypatch.setattr(mic._closed, "wait", waits.append)
    with pytest.raises(DeviceError, match="4 attempts"):
        next(blocks)
    assert (mic.reopened, machine.rescans, machine.open) == (0, 3, [])
    assert waits == [0.5, 1.0, 2.0]  # each twice as long as the one before


def test_nothing_but_zeros_is_named_as_muted_until_there_is_sound(
    machine: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    mic, blocks = opened(machine, queue=10)
    next(blocks)
    for _ in range(80):
        machine.speak(np.zeros(800))
        next(blocks)
    assert "muted" in str(mic.problem)
    assert len(caplog.records) == 1
    say(machine, 0.05)
    next(blocks)
    assert mic.problem is None


def test_closing_from_another_thread_ends_the_iteration_and_releases_the_device(machine: StandIn) -> None:
    mic = Microphone(backend=machine)
    threading.Thread(target=lambda: (wait(lambda: len(machine.open)), mic.close())).start()
    start = time.monotonic()
    assert list(mic) == []
    assert time.monotonic() - start < 20
    assert machine.open == []


def test_closing_before_the_first_block_opens_no_device_and_iterating_again_does(machine: StandIn) -> None:
    mic = Microphone(backend=machine)
    blocks = iter(mic)
    mic.close()
    assert list(blocks) == []
    assert machine.opened == []
    blocks = iter(mic)
    threading.Thread(target=lambda: (wait(lambda: len(machine.open)), say(machine, 0.05))).start()
    assert len(next(blocks).samples) == 800


def test_giving_up_releases_the_device(machine: StandIn) -> None:
    _, blocks = opened(machine)
    blocks.close()  # type: ignore[attr-defined]  # a generator's
    assert machine.open == []


@pytest.mark.parametrize(
    "bad", [{"block": 0}, {"block": 2}, {"queue": 0.05}, {"patience": 0.01}, {"retries": -1}, {"backoff": -1}]
)
def test_impossible_settings_are_refused(machine: StandIn, bad: dict[str, float]) -> None:
    with pytest.raises(SettingError, match="expected"):
        Microphone(backend=machine, **bad)


def test_the_devices_that_can_record_are_listed(machine: StandIn) -> None:
    (device,) = input_devices(machine)
    assert device.to_dict() == {
        "index": 1, "name": "USB Mic", "api": "ALSA", "channels": 2, "rate": 48_000, "default": True,
    }  # fmt: skip


def run_without(problem: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process where importing sounddevice fails."""
    block = f"""
import sys
class Blocker:
    def find_spec(self, name, *_):
        if name == "sounddevice":
            raise {problem}
sys.meta_path.insert(0, Blocker())
{code}"""
    return subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("problem", "package"),
    [('OSError("PortAudio library not found")', "libportaudio2"), ('ImportError("none")', r"'\.\[mic\]'")],
)
def test_without_portaudio_the_microphone_alone_fails_and_names_the_package(
    problem: str, package: str, tmp_path: Path
) -> None:
    soundfile.write(tmp_path / "a.wav", sine(440, 0.2), SAMPLE_RATE)
    code = f"""
from kws_edge import DependencyError, Microphone, StandardInput, WavFile
print(len(list(WavFile({str(tmp_path / "a.wav")!r}))))
try:
    Microphone()
except DependencyError as error:
    print(error)
"""
    result = run_without(problem, code)
    assert result.returncode == 0, result.stderr
    blocks, message = result.stdout.splitlines()
    assert int(blocks) == 2
    with pytest.raises(DependencyError, match=package):
        raise DependencyError(message)


def test_logging_is_quiet_where_all_is_well(machine: StandIn, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    _, blocks = opened(machine)
    next(blocks)
    assert caplog.records == []


@pytest.mark.parametrize("stream", [io.StringIO("text"), "sound.raw", 3])
def test_a_stream_that_gives_no_bytes_is_refused_at_once(stream: Any) -> None:
    with pytest.raises(SettingError, match="expected a binary one"):
        StandardInput(stream=stream)


def test_standard_input_that_is_closed_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SettingError, match="standard input is closed"):
        StandardInput()

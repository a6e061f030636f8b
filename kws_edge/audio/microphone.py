"""The microphone, through sounddevice and PortAudio, for long-running use.

PortAudio's callback copies its block into a queue and does nothing else; everything else happens in the thread that
iterates. The queue is bounded: a consumer that is too slow finds it emptied at once, since one long gap can be listened
around, and many short ones would leave no window whole. A device that falls silent or goes away is reopened.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from kws_edge.arrays import I16
from kws_edge.audio.channels import Channel, DownMix, check_channel
from kws_edge.audio.devices import Identity, input_devices, sounddevice
from kws_edge.audio.inbox import Inbox, Piece
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.mute import MuteWatch
from kws_edge.audio.pcm import as_float
from kws_edge.audio.resample import Resampler
from kws_edge.audio.sources import CHANNEL_MEMORY, Block
from kws_edge.errors import DeviceError, SettingError
from kws_edge.text import collapsed
from kws_edge.throttle import Throttle

BLOCK_SECONDS: Final = 0.05
QUEUE_SECONDS: Final = 2.0
PATIENCE: Final = 2.0
"""Seconds without a block after which the device counts as dead."""
RETRIES: Final = 6
"""Attempts to reopen it, with no block in between, before an error."""
BACKOFF: Final = 0.5
"""Seconds before the second attempt; each next one waits twice as long."""

_POLL = 0.25  # s

_log = logging.getLogger(__name__)


class Microphone:
    """An input device, as a source of blocks. It is opened when it is iterated, by one thread at a time.

    A device that refuses 16 kHz is opened at its native rate and resampled. One that refuses a single channel is opened
    with more, which are mixed down (`channel`). A device that was unplugged is found again by its host API and name,
    even if its index has changed.

    Attributes
    ----------
    overflows : how often PortAudio reported lost samples.
    dropped : samples at 16 kHz lost since they were recorded, as far as their number is known.
    reopened : how often the device was reopened.

    Examples
    --------
    >>> from kws_edge import KeywordModel, Microphone, Spotter
    >>> for event in Spotter(KeywordModel.load()).listen(Microphone("USB")):  # doctest: +SKIP
    ...     print(event.label)
    """

    def __init__(
        self,
        device: int | str | None = None,
        *,
        channel: Channel | None = None,
        block: float = BLOCK_SECONDS,
        queue: float = QUEUE_SECONDS,
        patience: float = PATIENCE,
        retries: int = RETRIES,
        backoff: float = BACKOFF,
        backend: Any = None,
    ) -> None:
        """Prepare to listen.

        Parameters
        ----------
        device : index or part of a name, as in `input_devices`; None for the system's default.
        channel : one of several channels, from 1; "mix" for their average; None for the average where the channels do
            not cancel each other, else the strongest.
        block : seconds of sound in a block.
        queue : most seconds of sound that may wait for the consumer.
        patience : seconds without a block after which the device counts as lost.
        retries : attempts to open it again, with no block in between, before an error.
        backoff : seconds before the second attempt; each next one waits twice as long.
        backend : a module with sounddevice's interface, for tests.

        Raises
        ------
        DependencyError : sounddevice or PortAudio is not installed; the message says what to install.
        SettingError : a length that is not above 0, a queue shorter than two blocks, or an impossible channel.
        """
        check_channel(channel)
        numbers = all(isinstance(n, int | float) for n in (block, queue, patience, retries, backoff))
        if not (
            numbers
            and 0 < block <= 1
            and 2 * block <= queue < 3600
            and patience > block
            and retries >= 0
            and backoff >= 0
        ):
            raise SettingError(
                f"block={block}, queue={queue}, patience={patience}, retries={retries}, backoff={backoff}; expected a "
                "block of up to 1 s, a queue of at least two, a patience longer than one, retries and backoff from 0"
            )
        self._sd = backend or sounddevice()
        self._device, self._channel = device, channel
        self._identity: Identity | None = None  # of the device, once one that was named is known
        self._block, self._patience, self._retries, self._backoff = block, patience, retries, backoff
        self._inbox = Inbox(round(queue / block))
        self._closed = threading.Event()
        self._stream: Any = None
        self._changing = threading.Lock()  # held to start or shut the device, since `close` comes at any moment
        self.overflows = self.dropped = self.reopened = 0
        self._gone: str | None = None
        self._mute = MuteWatch("the microphone", "")
        self._down_mix = DownMix(1)
        self._warn_overflow, self._warn_drop, self._warn_cancelled = Throttle(), Throttle(), Throttle()

    @property
    def problem(self) -> str | None:
        """What is wrong at the moment, in words; None where all is well."""
        return self._gone or self._mute.problem or self._down_mix.warning()

    @property
    def is_mute(self) -> bool:
        """Whether it has given nothing but zeros for a while."""
        return self._mute.problem is not None

    @property
    def lag(self) -> float:
        """Seconds of sound that wait for the consumer."""
        return len(self._inbox) * self._block

    def __iter__(self) -> Iterator[Block]:
        """The blocks, until the next `close`.

        Raises
        ------
        DeviceError : there is no such device, it cannot be opened, what it brings cannot be taken, or it went away and
            did not come back.
        """
        self._closed.clear()  # here and not at the first block, so that a `close` between the two counts
        return self._blocks()

    def _blocks(self) -> Iterator[Block]:
        if self._closed.is_set():
            return
        self._open()
        attempts, last = 0, time.monotonic()
        try:
            while not self._closed.is_set():
                piece = self._inbox.get(min(_POLL, self._patience))
                if self._inbox.error:
                    error = self._inbox.error
                    raise DeviceError(
                        f"{self._name}: reading from it failed: {type(error).__name__}: {collapsed(error)}"
                    ) from error
                if piece:
                    outage = round((piece.arrived - last - self._block) * SAMPLE_RATE) if attempts else 0
                    attempts, last = 0, piece.arrived
                    yield from self._convert(piece, outage)
                elif self._is_dead() and not self._closed.is_set():
                    attempts += 1
                    self._reopen(attempts)
        finally:
            self.close()

    def close(self) -> None:
        """Release the device; an iteration in another thread ends."""
        self._closed.set()
        self._shut()
        self._inbox.clear()

    def _open(self) -> None:
        sd = self._sd
        try:
            info = sd.query_devices(self._find(), "input")
        except (sd.PortAudioError, ValueError) as e:
            names = ", ".join(f"{d.index} {d.name}" for d in input_devices(sd)) or "none: is one plugged in?"
            raise DeviceError(f"no input device {self._device!r} ({collapsed(e)}); expected one of: {names}") from None
        self._name, most = info["name"], info["max_input_channels"]
        if self._device is not None and self._identity is None:
            self._identity = Identity.of(info["index"], input_devices(sd))
        if isinstance(self._channel, int) and self._channel > most:
            raise DeviceError(f"{self._name}: channel {self._channel} of {most}; expected 1 to {most}")
        rates = dict.fromkeys((SAMPLE_RATE, round(info["default_samplerate"])))
        refusals = []
        for rate in rates:
            for channels in self._layouts(most):
                self._rate, self._channels = rate, channels
                try:
                    self._start(info["index"])
                except (sd.PortAudioError, ValueError) as e:
                    refusals.append(f"{rate} Hz x {channels}: {collapsed(e)}")
                    self._shut()
                    continue
                self._opened = time.monotonic()
                self._down_mix = DownMix(channels, self._channel, memory=CHANNEL_MEMORY * rate)
                self._mute = MuteWatch(self._name, "it is muted, or this program may not use it")
                self._resampler = Resampler(rate)
                return
        raise DeviceError(
            f"{self._name} refused every format ({'; '.join(refusals)}); expected an input that no other program holds"
        )

    def _find(self) -> int | str | None:
        """What to ask the system for: the device as it was named at first, and after that by what stays of it."""
        if self._identity is None:
            return self._device
        index = self._identity.find(input_devices(self._sd))
        if index is None:
            raise ValueError(f"{self._name} is not connected")
        return index

    def _layouts(self, most: int) -> list[int]:
        """How many channels to ask for, in turn. A driver that is asked for fewer mixes or drops them as it likes."""
        if self._channel is None:
            return sorted({1, min(2, most), most} - {0})
        if self._channel == "mix":
            return sorted({1, min(2, most), most} - {0}, reverse=True)
        return sorted({max(self._channel, min(2, most)), most})

    def _start(self, index: int) -> None:
        with self._changing:
            if self._closed.is_set():
                return
            self._stream = self._sd.InputStream(
                device=index, samplerate=self._rate, channels=self._channels, dtype="int16",
                blocksize=round(self._block * self._rate), callback=self._callback,
            )  # fmt: skip
            self._stream.start()

    def _callback(self, data: I16, frames: int, when: Any, status: Any) -> None:
        try:
            self._inbox.put(data.copy(), overflow=bool(status.input_overflow))
        except Exception as e:  # else it is printed, the stream ends, and the device seems to be gone
            self._inbox.fail(e)

    def _is_dead(self) -> bool:
        stream = self._stream
        if stream is None or not stream.active:
            return True
        return time.monotonic() - max(self._inbox.arrived, self._opened) > self._patience

    def _reopen(self, attempt: int) -> None:
        if attempt > self._retries:
            raise DeviceError(f"{self._name}: no sound after {self._retries} attempts to reopen it; is it plugged in?")
        self._gone = f"{self._name} went away; reopening it, attempt {attempt} of {self._retries}"
        _log.warning("%s", self._gone)
        self._shut()
        if attempt > 1:
            self._closed.wait(self._backoff * 2 ** (attempt - 2))
            # PortAudio looks for devices only when it starts. This would end other streams of the process, so it comes
            # after an attempt without.
            with contextlib.suppress(self._sd.PortAudioError):  # of one that did not start the last time
                self._sd._terminate()
        try:
            if attempt > 1:
                self._sd._initialize()
            self._open()
            self.reopened += 1
        except (DeviceError, self._sd.PortAudioError) as e:
            _log.warning("%s", collapsed(e))

    def _shut(self) -> None:
        with self._changing:
            stream, self._stream = self._stream, None
        if stream is not None:
            for release in (stream.abort, stream.close):
                with contextlib.suppress(self._sd.PortAudioError):  # of a device that is gone
                    release()

    def _convert(self, piece: Piece, outage: int) -> Iterator[Block]:
        lost = round(piece.lost * SAMPLE_RATE / self._rate)
        self.dropped += lost
        if lost and self._warn_drop.passes():
            _log.warning("%s: too slow to keep up; %d samples dropped so far", self._name, self.dropped)
        if piece.overflow:
            self.overflows += 1
            if self._warn_overflow.passes():
                _log.warning("%s: input overflow; %d so far", self._name, self.overflows)
        dropped = max(lost, outage, int(piece.overflow))
        if dropped:
            if len(held := self._resampler.finish()):  # it came before the loss
                yield Block(held)
            self._resampler.reset()
        self._gone = None
        self._mute.add(len(piece.data) / self._rate, zeros=not piece.data.any())
        frames = as_float(piece.data)
        self._down_mix.add(frames)
        mono = self._down_mix.mix(frames)
        if (warning := self._down_mix.warning()) and self._warn_cancelled.passes():
            _log.warning("%s: %s", self._name, warning)
        yield Block(self._resampler.push(mono), dropped)

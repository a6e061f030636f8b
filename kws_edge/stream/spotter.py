"""The live stream: push samples, get events.

spotter = Spotter(KeywordModel.load(), words={"yes", "no"})
for event in spotter.listen(Microphone()):
    print(f"{event.end:.1f} s", event.label or f"not sure ({event.reason})")
"""

import io
import threading
from collections import deque
from collections.abc import AsyncGenerator, Collection, Generator, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.pcm import as_float, check_peak
from kws_edge.audio.sources import AudioSource, Block
from kws_edge.errors import AudioError, SettingError
from kws_edge.model.evidence import no_evidence
from kws_edge.model.features import pad
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import is_word
from kws_edge.model.prediction import Reason
from kws_edge.model.score import StreamScore
from kws_edge.model.session import Outputs
from kws_edge.model.target import Target
from kws_edge.stream.decision import Decision
from kws_edge.stream.events import Abstentions, Clock, Event
from kws_edge.stream.framing import DEFAULT_HOP, Hop, HopStream, window_seconds
from kws_edge.stream.incremental import Steps, has_steps
from kws_edge.stream.losses import SPAN, Losses
from kws_edge.stream.settings import StreamSettings, commands_of, event_words
from kws_edge.stream.state import Snapshot, State
from kws_edge.stream.wake import Wake, WakeTimer

Samples: TypeAlias = npt.NDArray[Any] | bytes | bytearray | memoryview


class Spotter:
    """One stream through a model. Streams may share a model, but a stream must not be used by several threads at once.

    Time is stream time: samples pushed or reported lost, divided by 16 000 Hz. Events do not depend on how the samples
    are divided into chunks.

    Attributes
    ----------
    model, settings, words, hop : as given, or as in the model file.
    last : the last hop; None before the first.

    Examples
    --------
    >>> from kws_edge import KeywordModel, Spotter, WavFile
    >>> spotter = Spotter(KeywordModel.load(), words={"yes", "left", "three"})
    >>> for event in spotter.listen(WavFile("kws_edge/samples/demo.flac")):
    ...     if not event.abstained:
    ...         print(event.label)
    yes
    left
    three
    """

    def __init__(
        self,
        model: KeywordModel,
        *,
        words: Collection[str] | None = None,
        hop: float = DEFAULT_HOP,
        score: StreamScore | None = None,
        target: Target | None = None,
        settings: StreamSettings | None = None,
        abstentions: Abstentions = "words",
        wake: Wake | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Start a stream.

        Parameters
        ----------
        words : the labels that give events, such as {"yes", "no"}, in capitals or not; None for those that the stream
            settings in the model's file were calibrated for (after a wake word, those for after one), where it is these
            that are used, else for all. Other words give no event.
        hop : seconds between the windows that the network sees, 0.01 to 1, a multiple of 0.01.
        score, target : which clip thresholds to use; None for the model's stream settings, or its own score at 0.995
            where it was not calibrated on streams.
        settings : all settings of the decision, instead of those in the model's file.
        abstentions : "words": an abstention is an event where a chosen word might have been meant, which stands out
            from the others; "all": after any other sound of an utterance's length too; "none": never.
        wake : the wake words that must come before the words count, and for how long they then do; each is an event,
            and none is a command too. The words are decided on by the settings that the model has for after a wake
            word, where others are not given. None where the words always count.
        clock : says what time it is, for `Event.clock`: as though the last sample of a push came at that time, but not
            before the last event, where samples come faster than in real time.

        Raises
        ------
        SettingError : a model that is none, unknown words, score, target or abstentions, no words beside the wake
            words, a hop out of range, or settings beside a score or target.
        ModelError : the stream settings in the model's file are malformed.
        """
        if not isinstance(model, KeywordModel):
            how = f"KeywordModel.load({model!r})" if isinstance(model, str) else "KeywordModel.load()"
            raise SettingError(f"model of type {type(model).__name__}; expected a KeywordModel, such as {how}")
        if clock is not None and not callable(clock):
            raise SettingError(f"clock of type {type(clock).__name__}; expected a function that gives a datetime")
        if wake is not None and not isinstance(wake, Wake):
            raise SettingError(f"wake of type {type(wake).__name__}; expected Wake(words), such as Wake({{'yes'}})")
        for given in (settings, wake and wake.settings):
            if given is not None and not isinstance(given, StreamSettings):
                raise SettingError(f"settings of type {type(given).__name__}; expected StreamSettings")
        if settings is not None and not (score is None and target is None):
            raise SettingError("settings beside a score or target; expected one or the other: settings hold thresholds")
        self.model, self.hop = model, hop
        own = settings is None and score is None and target is None
        if wake is not None and own:
            settings = StreamSettings.after_wake(model.metadata)
        self.settings = settings or StreamSettings.of(model.metadata, score=score, target=target)
        chosen = event_words(model.metadata, words, own_settings=own, after_wake=wake is not None)
        self.words = tuple(filter(is_word, chosen))
        self._hops = HopStream(model.metadata, hop)
        self._steps = Steps(model, self._hops.frames_per_hop) if has_steps(model) else None
        self._clock, self._pushing = clock, threading.Lock()
        self._last_clock: datetime | None = None
        self._wake_timer = WakeTimer(wake.seconds) if wake else None
        self._wake: Decision | Spotter | None = None
        if wake:
            self._wake, wakes = self._waking(wake)
            chosen = commands_of(chosen, wakes, model.labels)
        self._decision = Decision(model.metadata, self.settings, hop, chosen, abstentions=abstentions)
        K = len(model.labels)
        self._nothing = no_evidence(K, model.metadata.variant)[np.newaxis], np.ones(1, np.float32)
        self.reset()

    def __reduce__(self) -> NoReturn:
        """A copy, in this process or another, would share half of the stream."""
        raise SettingError("a Spotter is a stream, which cannot be copied or pickled; expected another Spotter(model)")

    def reset(self) -> None:
        """Start again: time 0, nothing heard, ready for an event."""
        self._hops.reset()
        self._decision.reset()
        if self._wake_timer and self._wake:
            self._wake_timer.reset()
            self._wake.reset()
        self._losses, self._lossy = Losses(), False
        self._pending: list[Event] = []
        self.last: Snapshot | None = None

    @property
    def state(self) -> State:
        """State of the stream."""
        if self._lossy:
            return State.LOSSES
        return State.WARMING_UP if self._hops.warming_up or self.last is None else self.last.state

    @property
    def time(self) -> float:
        """Stream time, s: the end of the last sample pushed."""
        return self._hops.position / SAMPLE_RATE

    def push(self, samples: Samples) -> list[Event]:
        """Process the next samples, any number of them, and return the events that they complete.

        Parameters
        ----------
        samples : mono at 16 kHz: int16 [n], floating point [n] with a full scale of ±1, or the bytes of int16,
            little-endian.

        Raises
        ------
        AudioError : of another type or shape, an odd number of bytes, or samples that are NaN, infinite or far beyond
            full scale. None of them is then taken, and the stream may go on; `gap` tells it of the loss.
        SettingError : another thread is in a push of this stream.

        Examples
        --------
        >>> import soundfile
        >>> from kws_edge import KeywordModel, Spotter
        >>> samples, rate = soundfile.read("kws_edge/samples/demo.flac", dtype="int16")
        >>> spotter = Spotter(KeywordModel.load())
        >>> events = [event for i in range(0, len(samples), 1000) for event in spotter.push(samples[i : i + 1000])]
        >>> events[0].label, rate
        ('yes', 16000)
        """
        samples = as_samples(samples)
        if not self._pushing.acquire(blocking=False):  # two would overfill a hop, and wait for it forever
            raise SettingError("a Spotter that another thread is using; expected one thread at a time, or one for each")
        try:
            return self._push(samples)
        finally:
            self._pushing.release()

    def _push(self, samples: F32) -> list[Event]:
        wakes: deque[Event] = deque()
        if isinstance(self._wake, Spotter):
            wakes.extend(event for event in self._wake.push(samples) if event.label is not None)
        events, self._pending = self._pending, []
        for hop in self._hops.push(samples):
            events += self._decide(hop, wakes)
        while wakes:
            events.append(self._woken(wakes.popleft()))
        if self._clock and events:
            now = self._clock()
            if not isinstance(now, datetime):
                raise SettingError(f"a clock that gives {type(now).__name__}; expected a datetime")
            events = [self._clocked(event, now) for event in events]
        return events

    def gap(self, samples: int) -> None:
        """Tell that samples were lost before the next push: time passes, and what comes is decided on as after a pause.

        Where so many samples are lost that no word can be recognised, the next push gives an event without label.

        Raises SettingError for less than 0; 0 is a loss of unknown length that takes no time.
        """
        start = self.time
        self._hops.gap(samples)
        seconds = samples / SAMPLE_RATE
        self._decision.gap(seconds)
        if isinstance(self._wake, Spotter):
            self._wake.gap(samples)
        elif self._wake:
            self._wake.gap(seconds)
        self._losses.add(start, seconds)
        if not self._lossy and self._losses.too_many(self.time):
            self._lossy = True
            self._pending.append(self._losses_event())

    def finish(self) -> list[Event]:
        """End the stream with silence, so that a word at its very end is seen whole and decided on."""
        return self.push(self.closing_silence)

    @property
    def closing_silence(self) -> F32:
        """What `finish` ends a stream with: a second, or a window where that is longer, as zeros, float32 [n]."""
        return np.zeros(round(max(1.0, window_seconds(self.model.metadata)) * SAMPLE_RATE), np.float32)

    def listen(self, source: AudioSource) -> Generator[Event, None, None]:
        """The events of a source, until it ends; it is closed then, and when the iteration is given up.

        Raises SettingError for what is no source, or gives anything but blocks. Other errors are those of the source.
        """
        if not (isinstance(source, Iterable) and hasattr(source, "close")) or isinstance(source, io.IOBase):
            raise SettingError(f"a source of type {type(source).__name__}; expected {_source_for(source)}")
        return self._listen(source, iter(source))

    def _listen(self, source: AudioSource, blocks: Iterator[Block]) -> Generator[Event, None, None]:
        try:
            for block in blocks:
                if not isinstance(block, Block):
                    raise SettingError(f"a source that gives {type(block).__name__}; expected Block(samples)")
                if block.dropped:
                    self.gap(block.dropped)
                yield from self.push(block.samples)
            yield from self.finish()
        finally:
            source.close()

    async def alisten(self, source: AudioSource) -> AsyncGenerator[Event, None]:
        """The same for `async for`: the source and the network run in a thread, so the loop is never held up."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        events = self.listen(source)
        # A thread of its own: the loop's are few, and this one waits for as long as nobody speaks.
        thread, loop = ThreadPoolExecutor(1, "kws-edge-listen"), asyncio.get_running_loop()
        try:
            while (event := await loop.run_in_executor(thread, next, events, None)) is not None:
                yield event
        finally:
            source.close()  # which also ends the thread, where this is cancelled while it waits
            thread.submit(events.close)
            thread.shutdown(wait=False)

    def _waking(self, wake: Wake) -> "tuple[Decision | Spotter, Collection[str]]":
        """What decides on the wake words, on what this stream's network says or on what another one does; and those."""
        if wake.model is not None and wake.model is not self.model:
            spotter = Spotter(
                wake.model, words=wake.words, hop=self.hop, settings=wake.settings, abstentions="none"
            )  # fmt: skip
            return spotter, spotter.words
        metadata = self.model.metadata
        words = event_words(metadata, wake.words, own_settings=wake.settings is None)
        settings = wake.settings or StreamSettings.of(metadata)
        return Decision(metadata, settings, self.hop, words, abstentions="none"), words

    def _clocked(self, event: Event, now: datetime) -> Event:
        clock = now - timedelta(seconds=max(0.0, self.time - event.time))
        if self._last_clock is not None:
            clock = max(clock, min(self._last_clock, now))  # now: a clock that is set back takes the events with it
        self._last_clock = clock
        return replace(event, clock=clock)

    def _woken(self, event: Event) -> Event:
        assert self._wake_timer is not None
        self._wake_timer.wake(event)
        return event

    def _decide(self, hop: Hop, wakes: deque[Event]) -> list[Event]:
        self._lossy = self._lossy and self._losses.too_many(hop.time)
        if hop.frames is None:
            state = State.SILENCE
            alpha, vacuity = self._nothing
        else:
            state, outputs = State.LISTENING, self._ask(hop.frames, hop.new)
            alpha, vacuity = outputs.alpha, outputs.vacuity
        state = State.LOSSES if self._lossy else state
        events = self._decision.step_one(hop, alpha, vacuity)
        if self._wake_timer:
            woken = self._wake.step_one(hop, alpha, vacuity) if isinstance(self._wake, Decision) else []
            while wakes and wakes[0].time <= hop.time:
                woken.append(wakes.popleft())
            woken = [self._woken(event) for event in woken]
            events = woken + [event for event in events if self._wake_timer.is_awake(event.time)]
        now = self._decision.last
        assert now is not None  # a step sets it
        self.last = Snapshot(hop.time, state, hop.level, hop.noise, now.probability, now.vacuity, now.entropy)
        return events

    def _losses_event(self) -> Event:
        """The event that samples are lost too often."""
        alpha, vacuity = self._nothing
        return Event(
            label=None,
            guess=None,
            probability=1 / alpha.shape[1],
            alpha=alpha[0],
            vacuity=float(vacuity[0]),
            entropy=1.0,
            reason=Reason.LOSSES,
            start=max(0.0, self.time - SPAN),
            end=self.time,
            time=self.time,
            model=self.model.name,
        )

    def _ask(self, frames: F32, new: int) -> Outputs:
        """What the network says of the window of these frames, the last `new` of which it has not seen."""
        if self._steps:
            return self._steps.push(frames[-new:])
        return self.model.run(pad(frames, self.model.metadata.front_end)[np.newaxis])


def _source_for(given: object) -> str:
    """What to listen to instead of what was given, in words."""
    if isinstance(given, np.ndarray | bytes | bytearray | memoryview):
        return "an AudioSource, such as WavFile(path); samples go to push(samples)"
    return "an AudioSource, such as WavFile(path), StandardInput() or Microphone()"


_PLAIN = ("B", "b", "c", "h", "<h")
"""Formats of a memoryview whose bytes are int16, or may be."""


def as_samples(samples: Samples) -> F32:
    """What `Spotter.push` takes, as float32 [n]; errors are those of it."""
    if isinstance(samples, memoryview) and (samples.ndim != 1 or samples.format not in _PLAIN):
        raise AudioError(
            f"a memoryview of format {samples.format}, of {samples.ndim} dimensions; expected bytes or int16 [n], mono "
            "at 16 kHz; for others, numpy.asarray(view)"
        )
    if isinstance(samples, bytes | bytearray | memoryview):
        data = bytes(samples)
        if len(data) % 2:
            raise AudioError(f"{len(data)} bytes; expected an even number: 16-bit samples")
        samples = np.frombuffer(data, "<i2")
    if not isinstance(samples, np.ndarray):
        raise AudioError(
            f"samples of type {type(samples).__name__}; expected a numpy array, int16 or floating point [n], mono at "
            "16 kHz, or bytes of int16; for a file, listen(WavFile(path))"
        )
    if samples.ndim != 1 or not (samples.dtype.name == "int16" or samples.dtype.kind == "f"):
        raise AudioError(
            f"samples {samples.dtype} {list(samples.shape)}; expected int16 or floating point [n], mono at 16 kHz"
        )
    if samples.dtype.kind == "i":
        return as_float(samples)
    check_peak(samples)
    return samples.astype(np.float32, copy=False)

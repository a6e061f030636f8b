"""Decoding and inference off the event loop: a few threads, a bounded queue, and clips that wait run together.

Whoever had least of the threads' time is next, and what can wait keeps no thread for longer than a slice of time. The
book-keeping is done in the event loop alone, so there is nothing to lock; a thread only ever sees what it was handed.
"""

import asyncio
import contextlib
import math
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from kws_edge.audio.channels import Channel
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import Audio
from kws_edge.errors import AudioError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.prediction import Prediction
from kws_edge.model.score import Score
from kws_edge.server.decoder import Decoder
from kws_edge.server.fairness import FairQueue
from kws_edge.server.http.problems import ProblemError

_DECODING: Final = 0.25
"""Of the time for a request, how much of a processor's one file may take: others wait for the thread meanwhile."""

_HUNG: Final = 6
"""Times the time for a request that a file may take by the clock, which is long where the machine is busy."""

_SLICE: Final = 0.05
"""Seconds after which a thread begins nothing more of what it was handed, so that others have their turn."""


@dataclass(frozen=True, slots=True)
class ClipRequest:
    """A question: a file's name and bytes, what to ask of which model."""

    name: str
    body: bytes
    model: KeywordModel
    target: float
    score: Score | None
    channel: Channel | None = None


@dataclass(frozen=True, slots=True)
class ClipAnswer:
    """What came of a clip: the prediction, its length in seconds, and what was odd about the file."""

    prediction: Prediction
    seconds: float
    warnings: tuple[str, ...]


ClipOutcome: TypeAlias = ClipAnswer | Exception


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    client: str
    work: ClipRequest | Callable[[], Any]
    deadline: float
    future: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def check(self, *_: float) -> None:
        """Stop work that nobody waits for any more."""
        if self.future.cancelled() or time.monotonic() > self.deadline:
            raise ProblemError("overloaded", "the time for this clip has run out")


_LATER: Final = object()
"""The outcome of what was not begun."""


class InferencePool:
    """Threads for clips, which are refused when too many wait, and for streams, of which each has one step at a time.

    Attributes
    ----------
    batch_sizes : called with the number of clips of each run, for the metrics.
    report_waiting : called with the number of clips that wait, whenever it may have changed, for the same.
    """

    def __init__(
        self,
        *,
        workers: int,
        max_queue: int,
        max_client_queue: int,
        max_batch: int,
        timeout: float,
        max_seconds: float,
        max_samples: float,
        max_body: int,
        batch_sizes: Callable[[int], None] = lambda n: None,
        report_waiting: Callable[[int], None] = lambda n: None,
    ) -> None:
        """Start `workers` threads; see `ServerSettings` for the limits."""
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="kws-edge")
        self._workers, self._idle = workers, workers
        self._max_queue, self._max_batch = max_queue, max_batch
        self._max_client_queue = min(max_queue, max_client_queue)
        self._timeout = timeout
        self._all_decoders = [
            Decoder(max_seconds=max_seconds, max_samples=max_samples, max_body=max_body, timeout=timeout * _DECODING)
            for _ in range(workers)
        ]
        self._decoders: queue.LifoQueue[Decoder] = queue.LifoQueue()
        for decoder in self._all_decoders:
            self._decoders.put(decoder)
        self._batch_sizes, self._report_waiting = batch_sizes, report_waiting
        self._clips: FairQueue[_Job] = FairQueue()
        self._steps: FairQueue[_Job] = FairQueue()
        self._steps_next = True
        self._clip_seconds = self._step_seconds = 0.01  # of a thread's time, averaged
        self._began: set[float] = set()  # when the work began that threads have now
        self._running: set[asyncio.Task[None]] = set()  # the loop itself holds tasks by weak references

    @property
    def waiting(self) -> int:
        """Clips that no thread has taken yet."""
        return len(self._clips)

    @property
    def longest(self) -> float:
        """Seconds for which a thread has been busy with one piece of work."""
        return time.perf_counter() - min(self._began) if self._began else 0.0

    async def classify(self, clips: Sequence[ClipRequest], client: str) -> list[ClipOutcome]:
        """Answer clips of a client, in order; what is wrong with one of them takes its place.

        Raises
        ------
        ProblemError : overloaded: there is no room in the queue for all of them, or they were not done in time;
            too-many-requests: this client's share of it is taken.
        """
        if len(self._clips) + len(clips) > self._max_queue:
            raise self._overloaded(f"{len(self._clips)} clips wait, at most {self._max_queue} may")
        if (waiting := self._clips.of(client)) + len(clips) > self._max_client_queue:
            most = f"{waiting} clips of this client wait, at most {self._max_client_queue} may"
            raise self._overloaded(most, "too-many-requests")
        deadline = time.monotonic() + self._timeout
        jobs = [_Job(client, clip, deadline) for clip in clips]
        for job in jobs:
            self._clips.append(job)
        self._dispatch()
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.gather(*(job.future for job in jobs))
        except TimeoutError:
            raise self._overloaded(f"no answer within {self._timeout:g} s") from None
        finally:
            for job in jobs:
                job.future.cancel()

    async def run(self, step: Callable[[], Any], client: str) -> Any:
        """Run one step of a client's stream, and raise what it raises; never refused, since each waits for its own."""
        job = _Job(client, step, math.inf)
        self._steps.append(job)
        self._dispatch()
        outcome = await job.future
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def ready(self) -> None:
        """Wait until the decoders, which were started with this, can decode."""
        decoders = [self._decoders.get() for _ in range(self._workers)]
        for decoder in decoders:
            with contextlib.suppress(AudioError):
                decoder.load(b"", "nothing")
            self._decoders.put(decoder)

    def end_late_decoders(self) -> None:
        """End those that hang, whose clips had their 503 long ago; for a clock to call too, as no work may come."""
        for decoder in self._all_decoders:
            decoder.end_if_late(self._timeout * _HUNG)

    def close(self) -> None:
        """Take no more work; what runs ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        while True:  # those that are at work end with the program
            try:
                self._decoders.get_nowait().close()
            except queue.Empty:
                return

    def _overloaded(self, detail: str, code: str = "overloaded") -> ProblemError:
        seconds = math.ceil(max(1.0, len(self._clips) * self._clip_seconds / self._workers))
        return ProblemError(code, f"{detail}; try again later", headers={"Retry-After": str(seconds)})

    def _dispatch(self) -> None:
        """Hand work to the threads that have none."""
        self.end_late_decoders()
        while self._idle and (jobs := self._take()):
            self._idle -= 1
            task = asyncio.get_running_loop().create_task(self._finish(jobs))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        self._report_waiting(len(self._clips))

    def _take(self) -> list[_Job]:
        """The next work: steps and clips in turn, each as many as one thread's share of them."""
        take_steps = self._steps and (self._steps_next or not self._clips)
        self._steps_next = not take_steps
        waiting = self._steps if take_steps else self._clips
        share = min(self._max_batch, math.ceil(len(waiting) / self._workers))
        return [waiting.pop(self._step_seconds if take_steps else self._clip_seconds) for _ in range(share)]

    async def _finish(self, jobs: list[_Job]) -> None:
        began = time.perf_counter()
        self._began.add(began)
        outcomes = await asyncio.get_running_loop().run_in_executor(self._threads, self._work, jobs)
        self._began.discard(began)
        clips = isinstance(jobs[0].work, ClipRequest)
        waiting, expected = (self._clips, self._clip_seconds) if clips else (self._steps, self._step_seconds)
        done = [job for job, outcome in zip(jobs, outcomes, strict=True) if outcome is not _LATER]
        took = (time.perf_counter() - began) / len(done)
        if clips:
            self._clip_seconds += 0.1 * (took - self._clip_seconds)
        else:
            self._step_seconds += 0.1 * (took - self._step_seconds)
        for job, outcome in zip(reversed(jobs), reversed(outcomes), strict=True):
            waiting.charge(job.client, (0.0 if outcome is _LATER else took) - expected)
            if job.future.done():  # nobody waits for it any more
                continue
            if outcome is _LATER:
                waiting.put_back(job)
            else:
                job.future.set_result(outcome)
        self._idle += 1
        self._dispatch()

    def _work(self, jobs: list[_Job]) -> list[Any]:
        """In a thread: do jobs of one kind. Nothing escapes, or a thread's place would be lost."""
        end = time.perf_counter() + _SLICE
        steps = [job.work for job in jobs if not isinstance(job.work, ClipRequest)]
        try:
            if steps:
                return [
                    _attempt(step) if i == 0 or time.perf_counter() < end else _LATER for i, step in enumerate(steps)
                ]
            return self._answer(jobs, end)
        except Exception as error:
            return [error] * len(jobs)

    def _answer(self, jobs: list[_Job], end: float) -> list[Any]:
        """Decode clips; those that are one window of the same length go through the network together."""
        outcomes: dict[int, Any] = {}
        groups: dict[tuple[Any, ...], list[tuple[int, Audio]]] = {}
        for i, job in enumerate(jobs):
            clip = job.work
            assert isinstance(clip, ClipRequest)
            if i and time.perf_counter() > end:
                outcomes[i] = _LATER
                continue
            try:
                job.check()
                audio = self._decode(clip)
                fe = clip.model.metadata.front_end
                if fe.fits(len(audio.samples)):
                    key = (id(clip.model), clip.target, clip.score, len(audio.samples))
                    groups.setdefault(key, []).append((i, audio))
                    continue
                prediction = clip.model.classify(
                    audio.samples, SAMPLE_RATE, target=clip.target, score=clip.score, progress=job.check
                )
                outcomes[i] = ClipAnswer(prediction, len(audio.samples) / SAMPLE_RATE, audio.warnings)
            except Exception as error:
                outcomes[i] = error
        for group in groups.values():
            outcomes |= self._answer_together([(i, jobs[i].work, audio) for i, audio in group])
        return [outcomes[i] for i in range(len(jobs))]

    def _decode(self, clip: ClipRequest) -> Audio:
        decoder = self._decoders.get()  # there are as many as threads
        try:
            return decoder.load(clip.body, clip.name, clip.channel)
        finally:
            self._decoders.put(decoder)

    def _answer_together(self, group: list[tuple[int, Any, Audio]]) -> dict[int, ClipOutcome]:
        clip = group[0][1]
        self._batch_sizes(len(group))
        try:
            predictions = clip.model.classify_batch(
                np.stack([audio.samples for _, _, audio in group]), target=clip.target, score=clip.score
            )
        except Exception as error:
            return dict.fromkeys((i for i, _, _ in group), error)
        return {
            i: ClipAnswer(prediction, len(audio.samples) / SAMPLE_RATE, audio.warnings)
            for (i, _, audio), prediction in zip(group, predictions, strict=True)
        }


def _attempt(step: Callable[[], Any]) -> Any:
    """What a step returns or raises."""
    try:
        return step()
    except Exception as error:
        return error

"""Decoding and inference off the event loop: a few threads, a bounded queue, and clips that wait run together.

The book-keeping is done in the event loop alone, so there is nothing to lock; a thread only ever sees the work it was
handed.
"""

import asyncio
import io
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import Audio, load
from kws_edge.errors import AudioError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import Score
from kws_edge.model.prediction import Prediction
from kws_edge.server.http.problems import ProblemError


@dataclass(frozen=True, slots=True)
class Clip:
    """A question: a file's name and bytes, what to ask of which model."""

    name: str
    body: bytes
    model: KeywordModel
    target: float
    score: Score | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a clip: the prediction, its length in seconds, and what was odd about the file."""

    prediction: Prediction
    seconds: float
    warnings: tuple[str, ...]


Outcome: TypeAlias = Answer | Exception


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    work: Clip | Callable[[], Any]
    deadline: float
    future: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def check(self, *_: float) -> None:
        """Stop work that nobody waits for any more."""
        if self.future.cancelled() or time.monotonic() > self.deadline:
            raise ProblemError("overloaded", "the time for this clip is over")


class InferencePool:
    """Threads for clips, which are refused when too many wait, and for streams, of which each has one step at a time.

    Attributes
    ----------
    batch_sizes : called with the number of clips of each run, for the metrics.
    tell_waiting : called with the number of clips that wait, whenever it may have changed, for the same.
    """

    def __init__(
        self,
        *,
        workers: int,
        max_queue: int,
        max_batch: int,
        timeout: float,
        max_seconds: float,
        batch_sizes: Callable[[int], None] = lambda n: None,
        tell_waiting: Callable[[int], None] = lambda n: None,
    ) -> None:
        """Start `workers` threads; see `Settings` for the limits."""
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="kws-edge")
        self._workers, self._idle = workers, workers
        self._max_queue, self._max_batch = max_queue, max_batch
        self._timeout, self._max_seconds = timeout, max_seconds
        self._batch_sizes, self._tell_waiting = batch_sizes, tell_waiting
        self._clips: deque[_Job] = deque()
        self._steps: deque[_Job] = deque()
        self._steps_next = True
        self._clip_seconds = 0.01  # of a thread's time for a clip, averaged
        self._running: set[asyncio.Task[None]] = set()  # the loop itself holds tasks by weak references

    @property
    def waiting(self) -> int:
        """Clips that no thread has taken yet."""
        return len(self._clips)

    async def classify(self, clips: Sequence[Clip]) -> list[Outcome]:
        """Answer clips, in order; what is wrong with one of them takes its place.

        Raises
        ------
        ProblemError : overloaded: there is no room in the queue for all of them, or they were not done in time.
        """
        if len(self._clips) + len(clips) > self._max_queue:
            raise self._overloaded(f"{len(self._clips)} clips wait, at most {self._max_queue} may")
        deadline = time.monotonic() + self._timeout
        jobs = [_Job(clip, deadline) for clip in clips]
        self._clips.extend(jobs)
        self._dispatch()
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.gather(*(job.future for job in jobs))
        except TimeoutError:
            raise self._overloaded(f"no answer within {self._timeout:g} s") from None
        finally:
            for job in jobs:
                job.future.cancel()

    async def run(self, step: Callable[[], Any]) -> Any:
        """Run one step of a stream; never refused, since each stream waits for its own. What it raises is raised."""
        job = _Job(step, math.inf)
        self._steps.append(job)
        self._dispatch()
        outcome = await job.future
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        """Take no more work; what runs ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _overloaded(self, detail: str) -> ProblemError:
        seconds = math.ceil(max(1.0, len(self._clips) * self._clip_seconds / self._workers))
        return ProblemError("overloaded", f"{detail}; try again later", headers={"Retry-After": str(seconds)})

    def _dispatch(self) -> None:
        """Hand work to the threads that have none."""
        while self._idle and (jobs := self._take()):
            self._idle -= 1
            task = asyncio.get_running_loop().create_task(self._finish(jobs))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        self._tell_waiting(len(self._clips))

    def _take(self) -> list[_Job]:
        """The next work: steps and clips in turn, each as many as one thread's share of them."""
        take_steps = self._steps and (self._steps_next or not self._clips)
        self._steps_next = not take_steps
        queue = self._steps if take_steps else self._clips
        share = min(self._max_batch, math.ceil(len(queue) / self._workers))
        return [queue.popleft() for _ in range(share)]

    async def _finish(self, jobs: list[_Job]) -> None:
        began = time.perf_counter()
        outcomes = await asyncio.get_running_loop().run_in_executor(self._threads, self._work, jobs)
        if isinstance(jobs[0].work, Clip):
            self._clip_seconds += 0.1 * ((time.perf_counter() - began) / len(jobs) - self._clip_seconds)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if not job.future.done():
                job.future.set_result(outcome)
        self._idle += 1
        self._dispatch()

    def _work(self, jobs: list[_Job]) -> list[Any]:
        """In a thread: do jobs of one kind. Nothing escapes, or a thread's place would be lost."""
        steps = [job.work for job in jobs if not isinstance(job.work, Clip)]
        try:
            return [_attempt(step) for step in steps] or self._answer(jobs)
        except Exception as error:
            return [error] * len(jobs)

    def _answer(self, jobs: list[_Job]) -> list[Outcome]:
        """Decode clips; those that are one window of the same length go through the network together."""
        outcomes: dict[int, Outcome] = {}
        groups: dict[tuple[Any, ...], list[tuple[int, Audio]]] = {}
        for i, job in enumerate(jobs):
            clip = job.work
            assert isinstance(clip, Clip)
            try:
                audio = load(_Body(clip, job))
                seconds = len(audio.samples) / SAMPLE_RATE
                if seconds > self._max_seconds:
                    raise AudioError(
                        f"{seconds:.1f} s of audio; expected at most {self._max_seconds:g} s, the server's "
                        "--max-clip-seconds; a stream may be of any length"
                    )
                fe = clip.model.metadata.front_end
                if fe.window <= len(audio.samples) <= fe.max_samples:
                    key = (id(clip.model), clip.target, clip.score, len(audio.samples))
                    groups.setdefault(key, []).append((i, audio))
                    continue
                prediction = clip.model.classify(
                    audio.samples, SAMPLE_RATE, target=clip.target, score=clip.score, progress=job.check
                )
                outcomes[i] = Answer(prediction, seconds, audio.warnings)
            except Exception as error:
                outcomes[i] = error
        for group in groups.values():
            outcomes |= self._answer_together([(i, jobs[i].work, audio) for i, audio in group])
        return [outcomes[i] for i in range(len(jobs))]

    def _answer_together(self, group: list[tuple[int, Any, Audio]]) -> dict[int, Outcome]:
        clip = group[0][1]
        self._batch_sizes(len(group))
        try:
            predictions = clip.model.classify_batch(
                np.stack([audio.samples for _, _, audio in group]), target=clip.target, score=clip.score
            )
        except Exception as error:
            return dict.fromkeys((i for i, _, _ in group), error)
        return {
            i: Answer(prediction, len(audio.samples) / SAMPLE_RATE, audio.warnings)
            for (i, _, audio), prediction in zip(group, predictions, strict=True)
        }


def _attempt(step: Callable[[], Any]) -> Any:
    """What a step returns or raises."""
    try:
        return step()
    except Exception as error:
        return error


class _Body(io.BytesIO):
    """Bytes that stop giving when their time is over, since a few can hold hours of audio."""

    def __init__(self, clip: Clip, job: _Job) -> None:
        super().__init__(clip.body)
        self.name = clip.name  # which errors mention
        self._job = job

    def read(self, size: int | None = -1, /) -> bytes:
        self._job.check()
        return super().read(size)

"""The threads that answer clips and streams: whose turn it is, what is not begun, and what is told of them."""

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from live_server import PATIENT
from made_audio import tone, wav
from tiny_model import LABELS, TONES, save

from kws_edge import KeywordModel
from kws_edge.model.selection import DEFAULT_TARGET
from kws_edge.server.decoder import Decoder
from kws_edge.server.http.problems import ProblemError
from kws_edge.server.inference import ClipAnswer, ClipRequest, InferencePool

T = TypeVar("T")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the clips that are decoded, in order."""
    names: list[str] = []
    load = Decoder.load

    def noted(self: Decoder, body: bytes, name: str, *given: Any) -> Any:
        names.append(name)
        return load(self, body, name, *given)

    monkeypatch.setattr(Decoder, "load", noted)
    return names


@contextmanager
def threads(workers: int, **given: Any) -> Iterator[InferencePool]:
    """A pool of so many."""
    limits = {"max_queue": 64, "max_client_queue": 64, "max_batch": 16, "timeout": PATIENT} | given
    pool = InferencePool(workers=workers, max_seconds=60, max_samples=2**24, max_body=2**23, **limits)
    try:
        yield pool
    finally:
        pool.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """What comes of it, not too late."""
    return asyncio.run(asyncio.wait_for(work, PATIENT))


async def behind(pool: InferencePool, go: threading.Event) -> Awaitable[Any]:
    """Keep the thread at a step until then, so that what is asked meanwhile waits."""
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def step() -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go.wait(PATIENT)

    held = asyncio.create_task(pool.run(step, "holder"))
    await begun.wait()
    return held


def clip(model: KeywordModel, label: str = "mid", name: str = "clip.wav", **asked: Any) -> ClipRequest:
    return ClipRequest(name, wav(tone(TONES[label])), model, **{"target": DEFAULT_TARGET, "score": None} | asked)


async def waiting(pool: InferencePool, clips: int) -> None:
    """Let those who ask come so far that so many clips wait."""
    async with asyncio.timeout(PATIENT):
        while pool.waiting < clips:
            await asyncio.sleep(0)


def test_clips_that_are_answered_together_are_answered_as_each_was_asked(
    model: KeywordModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kws_edge.server.inference._SLICE", PATIENT)  # or a slow machine takes them one by one
    other = KeywordModel.load(save(tmp_path, "other"))
    asked = [
        clip(model),
        clip(model, target=0.99),
        clip(model, score="vacuity"),
        clip(other, "low"),
        clip(model, "high", channel=1),
    ]

    async def ask() -> list[ClipAnswer]:
        go = threading.Event()
        held = await behind(pool, go)
        tasks = [asyncio.create_task(pool.classify([question], f"client {i}")) for i, question in enumerate(asked)]
        await waiting(pool, len(asked))
        go.set()
        await held
        return [answer for task in tasks for answer in await task]

    with threads(1) as pool:
        answers = [answer.prediction for answer in run(ask())]
    found = [(answer.model, answer.guess, answer.target, answer.score, answer.threshold) for answer in answers]
    assert found == [
        ("tiny", "mid", 0.995, "entropy", 0.5),
        ("tiny", "mid", 0.99, "entropy", 0.7),
        ("tiny", "mid", 0.995, "vacuity", 0.5),
        ("other", "low", 0.995, "entropy", 0.5),
        ("tiny", "high", 0.995, "entropy", 0.5),
    ]


def test_what_one_turn_of_the_thread_has_no_time_for_comes_in_the_next(
    model: KeywordModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kws_edge.server.inference._SLICE", 0.0)
    labels = [LABELS[i % 3] for i in range(5)]
    done: list[int] = []

    async def ask() -> list[Any]:
        go = threading.Event()
        held = await behind(pool, go)
        steps = [asyncio.create_task(pool.run(lambda i=i: done.append(i), "a stream")) for i in range(5)]
        clips = asyncio.create_task(pool.classify([clip(model, label) for label in labels], "a client"))
        await waiting(pool, 5)
        go.set()
        await asyncio.gather(held, *steps)
        return await clips

    with threads(1) as pool:
        assert [answer.prediction.label for answer in run(ask())] == labels
    assert done == [0, 1, 2, 3, 4]


def test_clips_and_streams_have_turns_one_after_the_other(model: KeywordModel, decoded: list[str]) -> None:
    async def ask() -> None:
        go = threading.Event()
        held = await behind(pool, go)
        steps = [pool.run(lambda: decoded.append("step"), f"stream {i}") for i in range(3)]
        clips = [pool.classify([clip(model)], f"client {i}") for i in range(3)]
        tasks = [asyncio.create_task(work) for work in (*steps, *clips)]
        await waiting(pool, 3)
        go.set()
        await asyncio.gather(held, *tasks)

    with threads(1, max_batch=1) as pool:
        run(ask())
    assert decoded == ["clip.wav", "step"] * 3


def test_nothing_is_done_for_a_clip_whose_time_has_run_out(model: KeywordModel, decoded: list[str]) -> None:
    async def ask() -> None:
        go = threading.Event()
        held = await behind(pool, go)
        with pytest.raises(ProblemError, match=r"no answer within 0\.05 s") as late:
            await pool.classify([clip(model)], "client")
        assert (late.value.code, late.value.headers) == ("overloaded", {"Retry-After": "1"})
        go.set()
        await held
        await pool.run(lambda: None, "client")  # the thread has been at the clip before

    with threads(1, timeout=0.05) as pool:
        run(ask())
        assert pool.waiting == 0
    assert decoded == []


def test_of_the_clips_that_may_wait_a_client_has_its_share(model: KeywordModel) -> None:
    async def ask() -> list[str | None]:
        go = threading.Event()
        held = await behind(pool, go)

        def asks(client: str, clips: int) -> Awaitable[list[Any]]:
            return asyncio.create_task(pool.classify([clip(model)] * clips, client))

        greedy = asks("greedy", 2)
        await waiting(pool, 2)
        with pytest.raises(ProblemError, match="2 clips of this client wait, at most 2 may") as refused:
            await asks("greedy", 1)
        assert (refused.value.code, refused.value.headers) == ("too-many-requests", {"Retry-After": "1"})
        modest = asks("modest", 1)
        await waiting(pool, 3)
        with pytest.raises(ProblemError, match="3 clips wait, at most 3 may") as full:
            await asks("late", 1)
        assert full.value.code == "overloaded"
        go.set()
        await held
        return [answer.prediction.label for answer in [*await greedy, *await modest]]

    with threads(1, max_queue=3, max_client_queue=2) as pool:
        assert run(ask()) == ["mid"] * 3


def test_it_is_told_how_many_clips_wait_until_none_does(model: KeywordModel) -> None:
    told: list[int] = []

    async def ask() -> None:
        go = threading.Event()
        held = await behind(pool, go)
        clips = asyncio.create_task(pool.classify([clip(model)] * 2, "client"))
        await waiting(pool, 2)
        assert told[-1] == 2
        go.set()
        await asyncio.gather(held, clips)

    with threads(1, report_waiting=told.append) as pool:
        run(ask())
    assert told[-1] == 0


def test_how_long_the_thread_that_is_longest_at_one_piece_of_work_has_been_at_it_is_known() -> None:
    async def ask() -> None:
        first, second = threading.Event(), threading.Event()
        held = [await behind(pool, first)]
        await asyncio.sleep(0.1)
        held.append(await behind(pool, second))
        longest = pool.longest
        assert 0.05 < longest <= pool.longest
        first.set()
        await held[0]
        assert pool.longest > 0
        second.set()
        await held[1]

    with threads(2) as pool:
        assert pool.longest == 0
        run(ask())
        assert pool.longest == 0

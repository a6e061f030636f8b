"""One stream that is open: PCM in, events out as they happen, by a spotter of its own on a shared model.

Messages from the server are JSON texts with a "type": `hello` once, then `hop` (where asked for) and `event`; `slow`
where live audio waits; `end` after a `finish`, or `error` with a "problem"; then the close. The client sends PCM in
binary, and the texts `{"type": "finish"}`, `{"type": "reset"}` and `{"type": "gap", "samples": n}`. While the server is
busy it reads no further, so that a client that is too fast waits instead of filling memory.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal

import numpy as np
from fastapi import WebSocket
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.websockets import WebSocketDisconnect

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.resample import MAX_RATE, MIN_RATE
from kws_edge.errors import SettingError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.score import StreamScore
from kws_edge.server.http.problems import ProblemError, about, refuse_repeated
from kws_edge.server.http.websocket import WAITING
from kws_edge.server.http.wording import TARGET
from kws_edge.server.lag import Lag
from kws_edge.server.messages import Pcm
from kws_edge.server.service import Service
from kws_edge.stream.events import Abstentions, local_time
from kws_edge.stream.framing import DEFAULT_HOP, MAX_HOP, MIN_HOP, check_hop, window_seconds
from kws_edge.stream.settings import StreamSettings, chosen_labels
from kws_edge.stream.spotter import Spotter
from kws_edge.stream.state import Snapshot
from kws_edge.stream.wake import LONGEST, SHORTEST, WAKE_SECONDS, Wake
from kws_edge.text import shortened
from kws_edge.version import installed_version

_MAX_GAP: Final = 3600  # s; after a longer one a new stream is as good
_MAX_COMMAND: Final = 1_024  # characters of a text message
_MOST_RUNS: Final = 16  # of the network in one step, after which others have their turn


class StreamParameters(BaseModel):
    """The query of `/v1/stream`."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    rate: int = Field(SAMPLE_RATE, ge=MIN_RATE, le=MAX_RATE)
    encoding: Literal["int16", "float32"] = "int16"
    words: Annotated[str | None, Field(max_length=10_000)] = None
    hop: float = Field(DEFAULT_HOP, ge=MIN_HOP, le=MAX_HOP, allow_inf_nan=False)
    score: StreamScore | None = None
    target: Annotated[float, *TARGET] | None = None
    abstentions: Abstentions = "words"
    wake: Annotated[str | None, Field(max_length=10_000)] = None
    wake_model: str | None = None
    wake_seconds: float = Field(WAKE_SECONDS, ge=SHORTEST, le=LONGEST, allow_inf_nan=False)
    posteriors: bool = False

    @classmethod
    def of(cls, websocket: WebSocket) -> "StreamParameters":
        """Read the query.

        Raises
        ------
        ProblemError : invalid-parameter: one is wrong, unknown or given twice.
        """
        query = websocket.query_params.multi_items()
        refuse_repeated(query)
        try:
            return cls.model_validate(dict(query))
        except ValidationError as error:
            raise ProblemError.of_query(error.errors(), cls.model_fields) from None


class StreamSession:
    """One stream that is open."""

    def __init__(self, websocket: WebSocket, service: Service, parameters: StreamParameters, client: str) -> None:
        """Raises ProblemError, invalid-parameter, for a model, word, score, target or hop that there is not."""
        self._websocket, self._service, self._parameters = websocket, service, parameters
        self._client = client
        p = parameters
        with about("model"):
            model = _default(service) if p.model is None else service.model(p.model)
        with about("wake_model"):
            waking = model if p.wake_model is None else service.model(p.wake_model)
        words, wake_words = _listed(p.words), _listed(p.wake)
        _check(p, model, words)
        wake = None
        if p.wake is not None or p.wake_model is not None:
            with about("wake"):
                chosen_labels(wake_words, waking.labels)
            if waking is not model:
                with about("wake_model"):  # it may have no thresholds
                    StreamSettings.of(waking.metadata)
            wake = Wake(wake_words, p.wake_seconds, waking)
        # All was checked but its file's own settings, and whether a command is left beside the wake words.
        with about("words" if wake else "model"):
            self.spotter = Spotter(
                model,
                words=words,
                hop=p.hop,
                score=p.score,
                target=p.target,
                abstentions=p.abstentions,
                wake=wake,
                clock=local_time,
            )
        self._pcm = Pcm(p.rate, p.encoding)
        self._pending: F32 = np.empty(0, np.float32)  # samples at 16 kHz that are still to be looked at
        self._pace = service.pace(client)
        self._lag = Lag(p.rate * self._pcm.width, websocket.scope.get("extensions", {}).get(WAITING))
        self._hello = {
            "type": "hello",
            "instance": service.instance,
            "version": installed_version(),
            "model": model.name,
            "labels": list(model.labels),
            "words": list(self.spotter.words),
            "rate": p.rate,
            "encoding": p.encoding,
            "hop": p.hop,
            "window": window_seconds(model.metadata),
            "thresholds": dict(self.spotter.settings.thresholds),
            "posteriors": p.posteriors,
            "idle_timeout": service.settings.idle_timeout,
            "max_message": service.settings.max_message,
        }

    async def run(self) -> None:
        """Talk until the client is done.

        Raises
        ------
        WebSocketDisconnect : the client went away.
        ProblemError, KwsEdgeError : what it sent cannot be used, or nothing came for too long.
        """
        self._heard = asyncio.get_running_loop().time()
        await self._send([self._hello])
        while not (await self._step(await self._receive())):
            await self._pace.wait()
            await self._tell_lag()

    async def _step(self, message: bytes | str) -> bool:
        """Handle one message; whether it was the last."""
        if isinstance(message, bytes):
            if message:
                self._lag.begin()
                await self._push(lambda: self._pcm.decode(message))
                self._heard = asyncio.get_running_loop().time()
            return False
        match _command(message):
            case {"type": "finish", **rest} if not rest:
                await self._push(self._pcm.flush)
                await self._push(lambda: self.spotter.closing_silence)
                await self._send([{"type": "end", "time": self.spotter.time}])
                return True
            case {"type": "reset", **rest} if not rest:
                self.spotter.reset()
                self._pcm.reset()
                self._lag.reset()
            case {"type": "gap", "samples": int(samples), **rest} if not rest and not isinstance(samples, bool):
                rate = self._parameters.rate
                if not 0 <= samples <= _MAX_GAP * rate:
                    said = f"a gap of {shortened(str(samples))}; expected 0 to {_MAX_GAP * rate} samples"
                    raise ProblemError("invalid-parameter", said)
                await self._push(self._pcm.flush)  # what the resampler holds came before the loss
                self.spotter.gap(round(samples * SAMPLE_RATE / rate))
                self._pcm.reset()
            case {"type": "gap"}:
                raise ProblemError("malformed", 'a gap without its length; expected {"type": "gap", "samples": 1600}')
            case _:
                raise ProblemError("malformed", "unknown text message; expected a finish, reset or gap")
        return False

    async def _push(self, samples: Callable[[], F32]) -> None:
        """Decode and spot in a thread, some runs of the network at a time, and tell what comes of each."""
        size = max(1, round(_MOST_RUNS * self.spotter.hop * SAMPLE_RATE))

        def first() -> list[dict[str, Any]]:
            self._pending = samples()
            return step()

        def step() -> list[dict[str, Any]]:
            part, self._pending = self._pending[:size], self._pending[size:]
            return list(self._spot(part))

        before = self.spotter.time
        await self._send(await self._service.pool.run(first, self._client))
        while len(self._pending):
            await self._send(await self._service.pool.run(step, self._client))
        self._service.metrics.stream_audio.inc(max(0.0, self.spotter.time - before))

    async def _tell_lag(self) -> None:
        lag = self._lag.of(self.spotter.time)
        if lag is not None:
            self._service.metrics.slow.inc()
            await self._send([{"type": "slow", "lag": round(lag, 2)}])

    def _spot(self, samples: F32) -> Iterator[dict[str, Any]]:
        # No more than a hop at a time where each hop is told: the spotter keeps the last one only.
        size = round(self.spotter.hop * SAMPLE_RATE) if self._parameters.posteriors else max(1, len(samples))
        for i in range(0, len(samples), size):
            last = self.spotter.last
            events = self.spotter.push(samples[i : i + size])
            if self._parameters.posteriors and self.spotter.last is not None and self.spotter.last is not last:
                yield _hop(self.spotter.last)
            for event in events:
                outcome = event.reason or "accepted"
                self._service.metrics.events.labels(event.model, outcome).inc()
                yield {"type": "event", **event.to_dict()}

    async def _receive(self) -> bytes | str:
        timeout = self._service.settings.idle_timeout
        try:
            async with asyncio.timeout_at(self._heard + timeout):
                message = await self._websocket.receive()
        except TimeoutError:
            raise ProblemError("idle", f"no audio came for {timeout:g} s") from None
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        data = message.get("bytes")
        given: bytes | str = message["text"] if data is None else data
        if len(given) > (most := self._service.settings.max_message):
            raise ProblemError("too-large", f"a message {len(given)} long; expected at most {most}")
        if isinstance(given, str) and len(given) > _MAX_COMMAND:
            raise ProblemError("malformed", f"a text message {len(given)} long; expected a finish, reset or gap")
        return given

    async def _send(self, messages: list[dict[str, Any]]) -> None:
        timeout = self._service.settings.idle_timeout
        try:
            async with asyncio.timeout(timeout):
                for message in messages:
                    await self._websocket.send_text(json.dumps(message, allow_nan=False))
        except TimeoutError:
            raise ProblemError("idle", f"nothing was read for {timeout:g} s") from None


def _command(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _check(p: StreamParameters, model: KeywordModel, words: list[str] | None) -> None:
    """Raise a ProblemError that names the parameter which the model cannot fulfil, or which says nothing here."""
    if "wake_seconds" in p.model_fields_set and p.wake is None and p.wake_model is None:
        with about("wake_seconds"):
            raise SettingError("wake_seconds without a wake word; expected wake or wake_model beside it")
    with about("words"):
        chosen_labels(words, model.labels)
    with about("hop"):
        check_hop(p.hop, model.metadata.front_end)
    if p.score is not None or p.target is not None:
        with about("score" if p.target is None else "target"):
            StreamSettings.of(model.metadata, score=p.score, target=p.target)


def _listed(words: str | None) -> list[str] | None:
    return None if words is None else [word.strip() for word in words.split(",") if word.strip()]


def _hop(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "type": "hop",
        "time": snapshot.time,
        "state": snapshot.state.value,
        "level": snapshot.level,
        "noise": snapshot.noise,
        "probability": [round(p, 6) for p in snapshot.probability.tolist()],
        "vacuity": snapshot.vacuity,
        "entropy": snapshot.entropy,
    }


def _default(service: Service) -> KeywordModel:
    """The first model that was calibrated on streams, or else the default of clips."""
    return next((m for m in service.models.values() if m.metadata.stream), service.default_model)

"""Metrics for Prometheus, and one line of log per request, without audio or keys."""

import asyncio
import logging
import re
import time
import uuid
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kws_edge.model.prediction import Prediction
from kws_edge.server.http.problems import ProblemError

_log = logging.getLogger("kws_edge.server")

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS: Final = ("GET", "HEAD", "OPTIONS", "POST")
_CLIENT_GONE: Final = 499  # what nginx logs where no answer was waited for
_CLOSED: Final = "the handler is closed"  # what uvloop says of writing to a connection that its client has reset


class Metrics:
    """The numbers of one app, or of several that share a folder.

    Attributes
    ----------
    registry : holds them all.
    """

    def __init__(self, folder: str | None = None) -> None:
        """Start at 0; a folder is what PROMETHEUS_MULTIPROC_DIR named when prometheus_client was imported."""
        self.registry = CollectorRegistry()
        r = None if folder else self.registry
        if folder:
            MultiProcessCollector(self.registry, folder)  # type: ignore[no-untyped-call]
        self.requests = Counter("kws_edge_requests", "HTTP requests", ["method", "route", "status"], registry=r)
        self.seconds = Histogram(
            "kws_edge_request_seconds", "Time from a request to its answer", ["route"], buckets=_SECONDS, registry=r
        )
        self.predictions = Counter(
            "kws_edge_predictions", "Clips answered: accepted, or why not", ["model", "outcome"], registry=r
        )
        self.batch = Histogram(
            "kws_edge_batch_clips", "Clips in one run of the network", buckets=(1, 2, 4, 8, 16, 32, 64), registry=r
        )
        self.waiting = Gauge(
            "kws_edge_waiting_clips", "Clips that wait for a thread", registry=r, multiprocess_mode="livesum"
        )
        self.streams = Gauge("kws_edge_streams", "Open streams", registry=r, multiprocess_mode="livesum")
        self.stream_audio = Counter("kws_edge_stream_audio_seconds", "Audio that came in streams", registry=r)
        self.slow = Counter("kws_edge_stream_slow", "Times that a stream was told how far it is behind", registry=r)
        self.events = Counter(
            "kws_edge_stream_events", "Stream events: accepted, or why not", ["model", "outcome"], registry=r
        )

    def count(self, prediction: Prediction) -> None:
        """Count an answer."""
        self.predictions.labels(prediction.model, prediction.reason or "accepted").inc()


class Observer:
    """ASGI middleware: gives each request an id, counts and logs it, and answers where the program fails or stops."""

    def __init__(self, app: ASGIApp, metrics: Metrics, stopping: asyncio.Event) -> None:
        """Wrap an app; `stopping` is set when the server was told to stop."""
        self._app, self._metrics, self._stopping = app, metrics, stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or handshake; streams that were accepted log and count themselves."""
        if scope["type"] == "http":
            await self._request(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._handshake(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _handshake(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count and log a refused handshake as the GET request that it is."""
        began, status = time.perf_counter(), 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "websocket.http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, observed)
        finally:
            if status:
                self._note(scope, status, began, uuid.uuid4().hex)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        given = Headers(scope=scope).get("X-Request-ID", "")
        request_id = given if re.fullmatch(r"[\w.:-]{1,128}", given, re.ASCII) else uuid.uuid4().hex
        status = _CLIENT_GONE

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
            try:
                await send(message)
            except RuntimeError as error:
                if _CLOSED not in str(error):
                    raise
                status = _CLIENT_GONE
                await asyncio.sleep(0.01)  # in which uvicorn hears that the connection is lost
                raise ClientDisconnect from None

        try:
            await self._app(scope, receive, observed)
        except ClientDisconnect:
            pass
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
            if status == _CLIENT_GONE:  # it was not done within the grace time
                await ProblemError("not-ready", "the server stops; ask again").response()(scope, receive, observed)
        except Exception:
            _log.exception("failed", extra={"fields": {"request_id": request_id}})
            if status == _CLIENT_GONE:
                await ProblemError("internal", "see the server's log for this request's id").response()(
                    scope, receive, observed
                )
        finally:
            self._note(scope, status, began, request_id)

    def _note(self, scope: Scope, status: int, began: float, request_id: str) -> None:
        """Count and log one answer."""
        seconds = time.perf_counter() - began
        method = scope.get("method", "GET")  # as a handshake is
        route = getattr(scope.get("route"), "path", "unmatched")
        known = method if method in _METHODS else "other"  # each label takes memory for good
        self._metrics.requests.labels(known, route, status).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        fields = {
            "request_id": request_id,
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1e3, 1),
            "client": (scope.get("client") or ["unknown"])[0],
        }
        level = logging.DEBUG if route.startswith("/health") else logging.INFO
        _log.log(level, "request", extra={"fields": fields})

"""One line of log and one count for each request, whatever becomes of its connection."""

import asyncio
import logging
import time

import httpx
import pytest
from live_server import wait_for
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from kws_edge.server.observe import Metrics, Observer

SCOPE = {"type": "http", "method": "GET", "path": "/", "headers": []}


def answer(problem: str, metrics: Metrics) -> None:
    """Have an answer sent to a connection that raises this."""

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        raise RuntimeError(problem)

    async def run() -> None:
        await Observer(PlainTextResponse("yes"), metrics, asyncio.Event())(SCOPE, receive, send)

    asyncio.run(run())


def test_a_client_that_reset_its_connection_is_no_failure_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    with caplog.at_level(logging.INFO, "kws_edge.server"):
        answer("unable to perform operation on <TCPTransport closed=True>; the handler is closed", metrics)
    assert [record.message for record in caplog.records] == ["request"]
    labels = {"method": "GET", "route": "unmatched", "status": "499"}
    assert metrics.registry.get_sample_value("kws_edge_requests_total", labels) == 1


def test_any_other_error_of_a_connection_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    answer("Expected ASGI message 'http.response.body'", Metrics())
    assert caplog.records[0].message == "failed"


def test_a_request_is_one_line_of_log_that_for_health_is_a_detail(
    server: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "kws_edge.server"):
        server.get("/health/live")
        answer = server.get("/v1/models")
        wait_for(lambda: sum(record.message == "request" for record in caplog.records) == 2)
    health, request = [record for record in caplog.records if record.message == "request"]
    assert (health.levelname, request.levelname) == ("DEBUG", "INFO")
    fields = dict(request.fields)  # type: ignore[attr-defined]
    assert fields.pop("ms") >= 0
    assert fields == {
        "request_id": answer.headers["X-Request-ID"],
        "method": "GET",
        "route": "/v1/models",
        "status": 200,
        "client": "127.0.0.1",
    }


def test_how_long_an_answer_took_is_logged_in_milliseconds_and_counted_in_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.05)
        await PlainTextResponse("yes")(scope, receive, send)

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_: Message) -> None:
        pass

    metrics = Metrics()
    began = time.perf_counter()
    with caplog.at_level(logging.INFO, "kws_edge.server"):
        asyncio.run(Observer(slow, metrics, asyncio.Event())(SCOPE, receive, send))
    took = time.perf_counter() - began
    seconds = metrics.registry.get_sample_value("kws_edge_request_seconds_sum", {"route": "unmatched"})
    assert seconds is not None
    assert 0.04 < seconds < took
    (ms,) = [record.fields["ms"] for record in caplog.records if record.message == "request"]  # type: ignore[attr-defined]
    assert 40 < ms < took * 1e3 + 0.1

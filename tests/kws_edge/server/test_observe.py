"""One line of log and one count for each request, whatever becomes of its connection."""

import asyncio
import logging

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message

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

"""One HTTP connection: what a head must have, how large it may be, and how long each state may last.

All this uvicorn leaves to a proxy: it waits for ever for the rest of a head, or for a request after a line end.
"""

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kws_edge.server.http.connections import Connections

MOST_HEAD: Final = 65_536  # bytes
MOST_LINE: Final = 8_000  # bytes; of more, websockets would answer nothing to a handshake
MOST_HEADERS: Final = 100
MOST_PIPELINED: Final = 8  # requests that come before the first of them is answered, which hardly any client does

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 27\r\n"
    b"retry-after: 1\r\nconnection: close\r\n\r\nAll connections are taken.\n"
)


def limited(timeout: float, connections: Connections) -> type[HttpToolsProtocol]:
    """The protocol of a connection whose heads come within so many seconds; one that does not is closed."""

    class HttpConnection(HttpToolsProtocol):
        _late: asyncio.TimerHandle | None = None
        _size = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if connections.opened(transport):
                self._await_head()
            else:
                transport.write(_FULL)
                transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            connections.closed(self.transport)
            self._have_head()
            self._unset_keepalive_if_required()  # which uvicorn leaves running where the connection was reset
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self._await_head()  # a line end alone begins no message, and would end the time for one
            super().data_received(data)
            if self._late:
                self._size += len(data)
                if self._size > MOST_HEAD:
                    self.send_400_response("Request head too large.")

        def resume_writing(self) -> None:
            connections.was_read(self.transport)
            super().resume_writing()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._await_head()
            self._head = 0

        def on_url(self, url: bytes) -> None:
            super().on_url(url)
            self._count(len(url))
            _check(len(self.url))

        def on_header(self, name: bytes, value: bytes) -> None:
            super().on_header(name, value)
            self._count(len(name) + len(value) + len(": \r\n"))
            _check(len(name) + len(value), len(self.headers))

        def on_headers_complete(self) -> None:
            self._have_head()
            _check_headers([name for name, _ in self.headers], self.parser.get_http_version(), self._should_upgrade())
            super().on_headers_complete()
            if len(self.pipeline) > MOST_PIPELINED:
                raise ValueError(f"more than {MOST_PIPELINED} requests at once; expected fewer")

        def _count(self, size: int) -> None:
            self._head += size
            if self._head > MOST_HEAD:
                raise ValueError(f"a head of over {MOST_HEAD} bytes")

        def _await_head(self) -> None:
            if self._late is None:
                self._size = 0
                self._late = self.loop.call_later(timeout, self.transport.close)

        def _have_head(self) -> None:
            if self._late:
                self._late.cancel()
                self._late = None

    return HttpConnection


def _check_headers(names: list[bytes], version: str, upgrade: bool) -> None:
    """Raise where a head means different things to different readers, or nothing to websockets, which says nothing."""
    hosts = names.count(b"host")
    if hosts > 1 or (hosts == 0 and version != "1.0"):
        raise ValueError(f"{hosts} Host headers; expected one")
    if upgrade and {b"content-length", b"transfer-encoding"} & set(names):
        raise ValueError("a WebSocket handshake with a body; expected one without")


def _check(size: int, count: int = 0) -> None:
    """Raise in the parser, which makes it a bad request."""
    if size > MOST_LINE or count > MOST_HEADERS:
        raise ValueError(f"a line of {size} bytes, {count} headers; expected up to {MOST_LINE} and {MOST_HEADERS}")

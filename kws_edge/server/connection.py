"""The head of a request: how long it may take and how large it may be, which uvicorn leaves open."""

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD: Final = 65_536  # bytes
MOST_LINE: Final = 8_000  # bytes; of more, websockets would answer nothing to a handshake
MOST_HEADERS: Final = 100


def limited(timeout: float) -> type[HttpToolsProtocol]:
    """The protocol of a connection whose heads come within so many seconds; one that does not is closed."""

    class Connection(HttpToolsProtocol):
        _late: asyncio.TimerHandle | None = None
        _size = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._have_head()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._late:
                self._size += len(data)
                if self._size > MOST_HEAD:
                    self.send_400_response("Request head too large.")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._await_head()

        def on_url(self, url: bytes) -> None:
            super().on_url(url)
            _check(len(self.url))

        def on_header(self, name: bytes, value: bytes) -> None:
            super().on_header(name, value)
            _check(len(name) + len(value), len(self.headers))

        def on_headers_complete(self) -> None:
            self._have_head()
            super().on_headers_complete()

        def _await_head(self) -> None:
            if self._late is None:
                self._size = 0
                self._late = self.loop.call_later(timeout, self.transport.close)

        def _have_head(self) -> None:
            if self._late:
                self._late.cancel()
                self._late = None

    return Connection


def _check(size: int, count: int = 0) -> None:
    """Raise in the parser, which makes it a bad request."""
    if size > MOST_LINE or count > MOST_HEADERS:
        raise ValueError(f"a line of {size} bytes, {count} headers; expected up to {MOST_LINE} and {MOST_HEADERS}")

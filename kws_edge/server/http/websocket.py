"""One WebSocket connection: frames that come without end, texts that are none, a client that left, and how far behind.

uvicorn leaves the first unbounded, and tells the app of the others by a traceback. It parses all that a read brings at
once, and keeps it as messages: 37,000 of a byte, for a second, and 20 MB. Here the bytes wait, and are parsed in turn.
"""

import array
from typing import Any, Final

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from kws_edge.server.http.connections import Connections
from kws_edge.server.http.turns import Turn, Turns

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MOST_FRAMES: Final = 128  # of one message
MOST_CONTROL: Final = 1_000  # pings and pongs between two messages
WAITING: Final = "kws_edge.waiting"
"""The extension of a stream's scope that says how many bytes have come and were not handed to the app."""

_PIECE: Final = 1_024  # bytes parsed at a time: some 150 frames at most, and 3 ms
_CLOSE_TIMEOUT: Final = 2.0  # s, for the other side to answer a close


def stream_protocol(connections: Connections) -> type[WebSocketsSansIOProtocol]:
    """The protocol of a connection after its handshake."""
    turns = Turns()

    class WebSocketConnection(WebSocketsSansIOProtocol):
        _control = 0

        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            self.close_timeout = _CLOSE_TIMEOUT
            self._unparsed = bytearray()
            self._turn: Turn | None = None  # while it waits for one

        def connection_lost(self, exc: Exception | None) -> None:
            self._unparsed.clear()  # nobody would get an answer
            connections.closed(self.transport)
            if exc is not None:  # it was cut off: nobody waits for what would come of the rest
                while not self.queue.empty():
                    self.queue.get_nowait()
            super().connection_lost(exc)

        def handle_connect(self, event: Request) -> None:
            super().handle_connect(event)
            if self.response.status_code == 101:
                extensions: Any = self.scope["extensions"]
                extensions[WAITING] = self.waiting

        def waiting(self) -> int:
            """Bytes that have come, here and in the system, and wait for the app."""
            queued = self.queue._queue  # type: ignore[attr-defined]  # as it has no way to look
            size = len(self._unparsed) + sum(len(message.get("bytes") or b"") for message in queued)
            sock = self.transport.get_extra_info("socket")
            if fcntl is None or sock is None or self.transport.is_closing():
                return size
            unread = array.array("i", [0])
            try:
                fcntl.ioctl(sock.fileno(), termios.FIONREAD, unread)
            except OSError:
                return size
            return size + unread[0]

        def data_received(self, data: bytes) -> None:
            if not self.handshake_initiated:
                super().data_received(data)
                return
            self._unparsed += data
            self._hold()
            self._go_on()

        async def receive(self) -> Any:
            message = await self.queue.get()
            self._go_on()
            return message

        def _parse(self) -> None:
            self._turn = None
            piece = bytes(self._unparsed[:_PIECE])
            del self._unparsed[:_PIECE]
            super().data_received(piece)
            self._go_on()

        def _hold(self) -> None:
            """Read no more from the other side for now."""
            if not self.read_paused:
                self.read_paused = True
                self.transport.pause_reading()

        def _go_on(self) -> None:
            """Parse what has come, or else read more, where the app and the other side have taken what they got."""
            if self.transport.is_closing():
                self._unparsed.clear()
            elif not self.close_sent and not (self.queue.empty() and self.writable.is_set()):
                return
            elif self._unparsed:
                if self._turn is None:
                    self._turn = Turn(connections.client(self.transport), self._parse)
                    turns.add(self._turn)
            elif self.read_paused:
                self.read_paused = False
                self.transport.resume_reading()

        def handle_cont(self, event: Frame) -> None:
            if len(self.frames) >= MOST_FRAMES:
                self._end(1008, f"a message in more than {MOST_FRAMES} frames")
                return
            super().handle_cont(event)

        def handle_ping(self) -> None:
            if self._bears_control():
                super().handle_ping()

        def handle_pong(self, event: Frame) -> None:
            if self._bears_control():
                super().handle_pong(event)

        def send_receive_event_to_app(self) -> None:
            self._control = 0
            if self.curr_msg_data_type == "text":
                try:
                    b"".join(self.frames).decode()
                except UnicodeDecodeError:
                    self._end(1007, "a text that is not UTF-8")
                    return
            super().send_receive_event_to_app()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._hold()  # or each ping would add to what is not read

        def resume_writing(self) -> None:
            connections.was_read(self.transport)
            super().resume_writing()
            self._go_on()

        async def send(self, message: Any) -> None:
            try:
                await super().send(message)
                if self.initial_response and self.close_sent:
                    self.handshake_complete = True  # refused, which uvicorn would log as a failure of the app
                self._go_on()  # after a close, to the other side's answer
            except RuntimeError:
                if self.close_sent and message["type"] in ("websocket.send", "websocket.close"):
                    raise ClientDisconnected from None  # it broke the protocol, and was told so
                raise

        def _bears_control(self) -> bool:
            self._control += 1
            if self._control > MOST_CONTROL:
                self._end(1008, f"more than {MOST_CONTROL} pings without a message")
            return self._control <= MOST_CONTROL

        def _end(self, code: int, reason: str) -> None:
            """Close the connection from this side; the app hears that the client has gone."""
            if not self.close_sent and not self.transport.is_closing():
                self.frames = []
                self.conn.fail(code, reason)
                self.handle_parser_exception()

    return WebSocketConnection

"""What one caller may take: bytes of a body, time to send it, requests a second, places."""

import asyncio
import re
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, MutableHeaders, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kws_edge.server.http.problems import ProblemError
from kws_edge.text import shortened

_LENGTH: Final = re.compile("[0-9]{1,19}")  # Python refuses to read a number of thousands of digits, as zeros before it


async def read_chunks(
    request: Request, *, max_body: int, timeout: float, take: Callable[[int], None] = lambda size: None
) -> AsyncGenerator[bytes, None]:
    """The body as it arrives; `take` is called with the bytes that it will need, before they are there.

    Raises
    ------
    ProblemError : what `take` raises; too-large: its Content-Length, or what has come of it, is over max_body;
        body-timeout: it is not there after so many seconds; malformed: the Content-Length is not a number;
        unsupported-media-type: it is compressed, which is never undone, since a few bytes can be very many.
    """
    for header, plain in (("Content-Encoding", "identity"), ("Transfer-Encoding", "chunked")):
        coding = request.headers.get(header, plain)
        if coding.lower() != plain:
            raise ProblemError(
                "unsupported-media-type",
                f"{header} {shortened(coding)!r}; expected an uncompressed body",
                headers={"Accept-Encoding": "identity"},
            )
    announced = request.headers.get("Content-Length", "0")
    if not _LENGTH.fullmatch(announced):
        raise ProblemError("malformed", f"Content-Length {shortened(announced)!r}; expected a number of bytes")
    too_large = ProblemError(
        "too-large", f"expected a body of at most {max_body} bytes, the server's --max-body; cut it, or send FLAC"
    )
    if int(announced) > max_body:
        raise too_large
    take(int(announced))
    size = 0
    deadline = asyncio.get_running_loop().time() + timeout
    chunks = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                chunk = await anext(chunks, b"")
        except TimeoutError:
            detail = f"{size} bytes within {timeout:g} s; expected the whole body by then"
            raise ProblemError("body-timeout", detail) from None
        if not chunk:
            return
        size += len(chunk)
        if size > max_body:
            raise too_large
        if size > int(announced):
            take(len(chunk))
        yield chunk


_BOUNDARY: Final = re.compile(rb"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")  # RFC 2046
_MOST_TEXT: Final = 4_096  # bytes of a field that is no file, which is refused in any case


class _MemoryParser(MultiPartParser):
    """Keeps files in memory: what people said does not go to the disk, and `read_chunks` bounds it."""

    spool_max_size = 2**31


async def read_form(
    request: Request, chunks: AsyncGenerator[bytes, None], *, max_files: int, expected: str
) -> FormData:
    """Parse a multipart body; `expected` is said where there are more files than max_files.

    Texts are UTF-8 whatever charset is named: Python has some, as punycode, that take hours for a form of a megabyte.

    Raises
    ------
    ProblemError : malformed: no boundary, no name, a broken part, a long text, or more than max_files files.
    """
    _, parameters = parse_options_header(request.headers.get("Content-Type", ""))
    boundary = parameters.get(b"boundary", b"")
    if not _BOUNDARY.fullmatch(boundary):
        raise ProblemError("malformed", "multipart body: no boundary, or no possible one; expected up to 70 characters")
    headers = Headers(raw=[(b"content-type", b'multipart/form-data; boundary="' + boundary + b'"')])
    try:
        return await _MemoryParser(headers, chunks, max_files=max_files, max_fields=8, max_part_size=_MOST_TEXT).parse()
    except MultiPartException as error:
        if error.message.startswith("Too many files"):
            raise ProblemError("malformed", f"more files than {max_files}; expected {expected}") from None
        raise ProblemError("malformed", f"multipart body: {error.message}") from None


async def read_files(form: FormData, field: str) -> list[tuple[str, bytes]]:
    """The files [(name, bytes)] of a form's field.

    Raises
    ------
    ProblemError : invalid-parameter: there is none, or something else is in the form.
    """
    files: list[tuple[str, bytes]] = []
    for name, value in form.multi_items():
        if name != field or not isinstance(value, UploadFile):
            kind = "file" if isinstance(value, UploadFile) else "text"
            raise ProblemError(
                "invalid-parameter",
                f"a {kind} in the form's field {shortened(name)!r}; expected a file in {field!r} alone: "
                "parameters go into the query, as ?model=NAME",
            )
        files.append((value.filename or "", await value.read()))
    if not files:
        raise ProblemError("invalid-parameter", f"no file in the form; expected one in the field {field!r}")
    return files


class CloseUnread:
    """ASGI middleware: an answer that comes before the end of the body ends the connection, so the rest is not read."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an app."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        unread = "Transfer-Encoding" in headers or headers.get("Content-Length", "0") != "0"

        async def reading() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        async def closing(message: Message) -> None:
            if unread and message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        await self._app(scope, reading, closing)


class RateLimiter:
    """A token bucket for each client: `burst` at once, `rate` a second after that."""

    _MOST = 10_000
    """Clients remembered; of more, those that have been away longest start anew."""

    def __init__(self, rate: float, burst: int) -> None:
        """A rate of 0 limits nothing."""
        self._rate, self._burst = rate, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now: float | None = None) -> None:
        """Count a request at a time in seconds, now unless given.

        Raises
        ------
        ProblemError : too-many-requests, with a Retry-After of when there is a token again.
        """
        if not self._rate:
            return
        now = time.monotonic() if now is None else now
        tokens, then = self._buckets.pop(client, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        self._buckets[client] = (tokens - 1 if tokens >= 1 else tokens, now)
        while len(self._buckets) > self._MOST:
            self._buckets.popitem(last=False)
        if tokens < 1:
            wait = int((1 - tokens) / self._rate) + 1
            raise ProblemError(
                "too-many-requests",
                f"expected at most {self._rate:g} requests a second; try again in {wait} s",
                headers={"Retry-After": str(wait)},
            )


class Places:
    """How much of something there may be at once, in all and of one client."""

    def __init__(self, what: str, most: int, most_of_client: int | None = None) -> None:
        """Name it in the plural, as the refusal does."""
        self._what, self._most = what, most
        self._most_of_client = most if most_of_client is None else min(most, most_of_client)
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many are taken."""
        return self._taken.total()

    @contextmanager
    def take(self, client: str) -> Iterator[None]:
        """Hold one place; errors are those of `hold`."""
        with self.hold(client) as take:
            take(1)
            yield

    @contextmanager
    def hold(self, client: str) -> Iterator[Callable[[int], None]]:
        """Hold what the function is called with that this gives, added up, until the end.

        It raises a ProblemError: overloaded, when all are taken, or too-many-requests, when the client has its share.
        """
        held = 0

        def take(count: int) -> None:
            nonlocal held
            if len(self) + count > self._most:
                raise ProblemError(
                    "overloaded", f"all {self._most} {self._what} are taken", headers={"Retry-After": "1"}
                )
            if self._taken[client] + count > self._most_of_client:
                detail = f"this client has {self._taken[client]} {self._what}; expected at most {self._most_of_client}"
                raise ProblemError("too-many-requests", detail, headers={"Retry-After": "1"})
            self._taken[client] += count
            held += count

        try:
            yield take
        finally:
            self._taken[client] -= held
            if not self._taken[client]:
                del self._taken[client]


class Pace:
    """So many messages a second; a flood of tiny ones would keep the event loop from all else."""

    def __init__(self, most: int) -> None:
        """So many a second."""
        self._most, self._count, self._began = most, 0, 0.0

    async def wait(self) -> None:
        """Count one, and wait where it is one too many; in any case others have their turn."""
        now = asyncio.get_running_loop().time()
        if now - self._began >= 1:
            self._count, self._began = 0, now
        self._count += 1
        await asyncio.sleep(0 if self._count < self._most else self._began + 1 - now)

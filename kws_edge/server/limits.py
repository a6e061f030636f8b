"""What one caller may take: bytes of a body, time to send it, requests a second, places."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Final

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from kws_edge.server.problems import Problem

_CLOSE: Final = {"Connection": "close"}
"""Ends the connection with the answer, so that the rest of a body that is refused is not read either."""


async def read_chunks(request: Request, *, max_body: int, timeout: float) -> AsyncGenerator[bytes, None]:
    """The body as it arrives.

    Raises
    ------
    Problem : too-large: its Content-Length, or what has come of it, is over max_body; body-timeout: it is not there
        after so many seconds; malformed: the Content-Length is not a number.
    """
    announced = request.headers.get("Content-Length", "0")
    if not (announced.isascii() and announced.isdigit()):
        raise Problem("malformed", f"Content-Length {announced!r}; expected a number of bytes", headers=_CLOSE)
    too_large = Problem("too-large", f"expected a body of at most {max_body} bytes", headers=_CLOSE)
    if int(announced) > max_body:
        raise too_large
    size = 0
    deadline = time.monotonic() + timeout
    chunks = request.stream()
    while True:
        try:
            chunk = await asyncio.wait_for(anext(chunks, b""), max(0.001, deadline - time.monotonic()))
        except TimeoutError:
            detail = f"{size} bytes within {timeout:g} s; expected the whole body by then"
            raise Problem("body-timeout", detail, headers=_CLOSE) from None
        if not chunk:
            return
        size += len(chunk)
        if size > max_body:
            raise too_large
        yield chunk


class _MemoryParser(MultiPartParser):
    """Keeps files in memory: what people said does not go to the disk, and `read_chunks` bounds it."""

    spool_max_size = 2**31


async def read_form(request: Request, chunks: AsyncGenerator[bytes, None], *, max_files: int) -> FormData:
    """Parse a multipart body.

    Raises
    ------
    Problem : malformed: no boundary, no name, a broken part, or more than max_files files.
    """
    try:
        return await _MemoryParser(request.headers, chunks, max_files=max_files, max_fields=8).parse()
    except MultiPartException as error:
        raise Problem("malformed", f"multipart body: {error.message}") from None


async def read_files(form: FormData, field: str) -> list[tuple[str, bytes]]:
    """The files [(name, bytes)] of a form's field.

    Raises
    ------
    Problem : invalid-parameter: there is none, or something else is in the form.
    """
    files: list[tuple[str, bytes]] = []
    for name, value in form.multi_items():
        if name != field or not isinstance(value, UploadFile):
            kind = "file" if isinstance(value, UploadFile) else "text"
            raise Problem("invalid-parameter", f"a {kind} in the field {name!r}; expected files in {field!r} alone")
        files.append((value.filename or "", await value.read()))
    if not files:
        raise Problem("invalid-parameter", f"no file in the form; expected one in the field {field!r}")
    return files


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
        Problem : too-many-requests, with a Retry-After of when there is a token again.
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
            raise Problem(
                "too-many-requests",
                f"expected at most {self._rate:g} requests a second; try again in {wait} s",
                headers={"Retry-After": str(wait)},
            )


class Places:
    """How many of something there may be at once, in all and of one client."""

    def __init__(self, what: str, most: int, most_of_client: int | None = None) -> None:
        """Name it in the plural, as the refusal does."""
        self._what, self._most = what, most
        self._most_of_client = most if most_of_client is None else most_of_client
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._taken.total()

    @contextmanager
    def take(self, client: str) -> Iterator[None]:
        """Hold a place.

        Raises
        ------
        Problem : overloaded, when all are taken, or too-many-requests, when the client has its share.
        """
        if len(self) >= self._most:
            raise Problem("overloaded", f"all {self._most} {self._what} are taken", headers={"Retry-After": "1"})
        if self._taken[client] >= self._most_of_client:
            detail = f"this client has {self._taken[client]} {self._what}; expected at most {self._most_of_client}"
            raise Problem("too-many-requests", detail, headers={"Retry-After": "1"})
        self._taken[client] += 1
        try:
            yield
        finally:
            self._taken[client] -= 1
            self._taken += Counter()  # drops those at 0

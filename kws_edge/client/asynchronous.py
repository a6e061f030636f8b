"""The client for asyncio."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kws_edge.audio.channels import Channel
from kws_edge.audio.opened import Source
from kws_edge.audio.sources import AudioSource, Block
from kws_edge.client import requests, streaming
from kws_edge.client.address import TIMEOUT, Address, check_seconds
from kws_edge.client.errors import Patience, ServerError, denied, reaching
from kws_edge.client.requests import Body, Request
from kws_edge.client.streaming import Hello
from kws_edge.errors import AudioError
from kws_edge.model.prediction import Prediction
from kws_edge.model.score import Score, StreamScore
from kws_edge.model.target import Target
from kws_edge.stream.events import Abstentions, Event
from kws_edge.stream.state import Snapshot
from kws_edge.stream.wake import Wake

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

T = TypeVar("T")

_AHEAD = 10
"""Blocks, of a tenth of a second, that are read before they can be sent."""

_ENDED = object()


class AsyncClient:
    """The client for asyncio, with the methods of `Client`; an async context manager, otherwise call `close`.

    Examples
    --------
    >>> import asyncio
    >>> from kws_edge.client import AsyncClient
    >>> async def word(file):
    ...     async with AsyncClient("http://127.0.0.1:8765") as client:
    ...         return (await client.classify(file)).label
    >>> asyncio.run(word("kws_edge/samples/left.flac"))
    'left'
    """

    def __init__(self, url: str, *, key: str | None = None, timeout: float = TIMEOUT, patience: float = 0.0) -> None:
        """Name a server; nothing is sent yet. Parameters and errors are those of `Client`."""
        check_seconds("patience", patience, "0 or more", lambda seconds: seconds >= 0)
        self._address, self._patience = Address.of(url, key, timeout), patience
        import httpx

        self._http = httpx.AsyncClient(**self._address.http_options())

    async def __aenter__(self) -> Self:
        """Be a context."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def classify(
        self,
        source: Source,
        rate: int | None = None,
        *,
        model: str | None = None,
        target: Target | None = None,
        score: Score | None = None,
        channel: Channel | None = None,
    ) -> Prediction:
        """As `Client.classify`."""
        return await self._ask(requests.classify(source, rate, model, target, score, channel))

    async def classify_batch(
        self,
        sources: Sequence[Source],
        rate: int | None = None,
        *,
        model: str | None = None,
        target: Target | None = None,
        score: Score | None = None,
        channel: Channel | None = None,
    ) -> list[Prediction | AudioError]:
        """As `Client.classify_batch`."""
        if not len(sources):
            return []
        return await self._ask(requests.classify_batch(sources, rate, model, target, score, channel))

    async def models(self) -> list[dict[str, Any]]:
        """As `Client.models`."""
        return await self._ask(requests.models())

    async def model(self, name: str) -> dict[str, Any]:
        """As `Client.model`."""
        return await self._ask(requests.model(name))

    async def listen(
        self,
        source: AudioSource | Iterable[Block] | AsyncIterable[Block],
        *,
        model: str | None = None,
        words: Collection[str] | None = None,
        hop: float | None = None,
        score: StreamScore | None = None,
        target: Target | None = None,
        abstentions: Abstentions | None = None,
        wake: Collection[str] | Wake | None = None,
        wake_model: str | None = None,
        wake_seconds: float | None = None,
        watch: Callable[[Hello | Snapshot], None] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """As `Client.listen`. A source that is not for `async for` is read in a thread, a second ahead at most."""
        from websockets.exceptions import ConnectionClosed

        streaming.check_source(source, AsyncIterable, Iterable)
        blocks: Any = source if isinstance(source, AsyncIterable) else _read_in_thread(source)
        failed: list[Exception] = []

        async def send() -> None:
            try:
                async for block in blocks:
                    for message in streaming.messages(block, hello):
                        await ws.send(message)
                await ws.send(streaming.FINISH)
            except ConnectionClosed:
                pass  # the reader sees why
            except Exception as error:
                failed.append(error)
                await ws.close()
            finally:
                if blocks is not source:
                    await blocks.aclose()

        sender: asyncio.Task[None] | None = None
        try:
            parameters = streaming.parameters(
                model, words, hop, score, target, abstentions, wake, wake_model, wake_seconds, posteriors=bool(watch)
            )
            ws, hello, closing = await self._open(parameters)
            sender = asyncio.create_task(send())
            async with closing:
                if watch:
                    watch(hello)
                while True:
                    with reaching(self._address.url):  # and nothing of the caller's, whose errors are its own
                        message = streaming.read(await ws.recv(), len(hello.labels))
                    if message is streaming.END:
                        return
                    if (event := streaming.event_of(message, watch)) is not None:
                        yield event
        except ServerError as error:
            if failed and error.code == "closed":
                raise failed[0] from None
            raise
        finally:
            if sender:
                sender.cancel()
                await asyncio.wait({sender})  # it is inside of the source, or of what reads it
            await streaming.aclose(source)

    async def _ask(self, request: Request[T]) -> T:
        patience = Patience(self._patience)
        while True:
            try:
                with reaching(self._address.url, closed=self._http.is_closed):
                    return await self._answer(request)
            except ServerError as error:
                await asyncio.sleep(patience.wait(error))

    async def _answer(self, request: Request[T]) -> T:
        async with self._http.stream(**request.options()) as response:
            body = Body(self._address)
            async for piece in response.aiter_raw():
                body.add(piece)
        return request.answer(response, bytes(body.data))

    async def _open(self, parameters: dict[str, Any]) -> tuple["ClientConnection", Hello, contextlib.AsyncExitStack]:
        """A stream that the server has said hello to, and what closes it."""
        from websockets.asyncio.client import ClientConnection, connect
        from websockets.exceptions import InvalidStatus

        url = self._address.url

        class Staying(ClientConnection):
            """Follows no redirect, as that of `Client`."""

            async def handshake(self, *given: Any, **options: Any) -> None:
                try:
                    await super().handshake(*given, **options)
                except InvalidStatus as refused:
                    raise denied(url, refused.response) from None

        patience = Patience(self._patience)
        while True:
            try:
                with reaching(self._address.url, closed=self._http.is_closed):
                    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(self._address.timeout):
                        options = self._address.stream_options(parameters)
                        ws = await stack.enter_async_context(connect(**options, create_connection=Staying))
                        return ws, streaming.hello(await ws.recv()), stack.pop_all()
            except ServerError as error:
                await asyncio.sleep(patience.wait(error))


async def _read_in_thread(source: AudioSource | Iterable[Block]) -> AsyncGenerator[Block, None]:
    """The blocks of a source whose iteration waits.

    Raises what that raises.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Any] = asyncio.Queue()  # of blocks, and last an exception or `_ENDED`
    room, given_up = threading.Semaphore(_AHEAD), threading.Event()

    def read() -> None:
        last: object = _ENDED
        try:
            for block in source:
                room.acquire()
                if given_up.is_set():
                    return
                loop.call_soon_threadsafe(queue.put_nowait, block)
        except Exception as error:
            last = error
        finally:
            streaming.leave(source)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(queue.put_nowait, last)

    threading.Thread(target=read, name="kws-edge-client", daemon=True).start()
    try:
        while True:
            block = await queue.get()
            if block is _ENDED:
                return
            if isinstance(block, Exception):
                raise block
            room.release()
            yield block
    finally:
        given_up.set()
        room.release()

"""The blocking client."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
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
    from websockets.sync.client import ClientConnection

T = TypeVar("T")


class Client:
    """The blocking client, a context manager; otherwise call `close`.

    Examples
    --------
    >>> from kws_edge import WavFile
    >>> from kws_edge.client import Client
    >>> with Client("http://127.0.0.1:8765") as client:
    ...     print(client.classify("kws_edge/samples/yes.flac").label)
    ...     print(next(client.listen(WavFile("kws_edge/samples/demo.flac"))).label)
    yes
    yes
    """

    def __init__(self, url: str, *, key: str | None = None, timeout: float = TIMEOUT, patience: float = 0.0) -> None:
        """Name a server; nothing is sent yet.

        Parameters
        ----------
        url : address of the server, such as `http://127.0.0.1:8765`; with `NAME:PASSWORD@` before the host, where
            something in front of it asks for these.
        key : API key, if the server requires one.
        timeout : seconds to wait for a connection, and for each answer; up to a day.
        patience : how long to retry a call, in seconds, while the server is too busy: after the time it names
            (Retry-After), or with growing pauses. A call whose connection breaks is retried once, and a stream until it
            begins. 0 for an error at once.

        Raises
        ------
        SettingError : the URL is not an http or https URL, a header cannot carry the key, or a time is impossible.
        DependencyError : httpx or websockets is not installed.
        """
        check_seconds("patience", patience, "0 or more", lambda seconds: seconds >= 0)
        self._address, self._patience = Address.of(url, key, timeout), patience
        import httpx

        self._http = httpx.Client(**self._address.http_options())

    def __enter__(self) -> Self:
        """Be a context."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the connections; a call after that raises ServerError."""
        self._http.close()

    def classify(
        self,
        source: Source,
        rate: int | None = None,
        *,
        model: str | None = None,
        target: Target | None = None,
        score: Score | None = None,
        channel: Channel | None = None,
    ) -> Prediction:
        """Name the word in a clip, or abstain; as `KeywordModel.classify`.

        Parameters
        ----------
        source, rate : a path, the bytes of a file, a file object, or an array with its rate. The name of a file is not
            sent; oddities of the file go to the log.
        model, target, score : None for the server's own.
        channel : as for `KeywordModel.classify`.

        Raises
        ------
        AudioError, SettingError : as `KeywordModel.classify` does.
        ServerError : the server cannot be reached, or did not answer.
        """
        return self._ask(requests.classify(source, rate, model, target, score, channel))

    def classify_batch(
        self,
        sources: Sequence[Source],
        rate: int | None = None,
        *,
        model: str | None = None,
        target: Target | None = None,
        score: Score | None = None,
        channel: Channel | None = None,
    ) -> list[Prediction | AudioError]:
        """Classify clips in one request; for a clip that cannot be used, the answer is an AudioError.

        Parameters, and errors that concern the request as a whole, are those of `classify`.
        """
        if not len(sources):
            return []
        return self._ask(requests.classify_batch(sources, rate, model, target, score, channel))

    def models(self) -> list[dict[str, Any]]:
        """The models that are served, the default first; raises ServerError."""
        return self._ask(requests.models())

    def model(self, name: str) -> dict[str, Any]:
        """The description of a model; raises SettingError if the server does not have it, or ServerError."""
        return self._ask(requests.model(name))

    def listen(
        self,
        source: AudioSource | Iterable[Block],
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
    ) -> Generator[Event, None, None]:
        """The events of a source, as they happen; as `Spotter.listen`.

        The source is read in a thread, ahead of the events by no more than the connection holds. Where it can be
        closed, it is, when it ends and when the iteration is given up.

        Parameters
        ----------
        wake, wake_model, wake_seconds : words after which alone `words` count, the served model whose words they are,
            and for how long. Words and seconds may also be a `kws_edge.Wake`, as for a Spotter, without a model.
        watch : called with the server's Hello, and then with each hop; for displays.

        Raises
        ------
        SettingError : words, hop, score, target or wake that are not possible, or a source that does not give blocks.
        AudioError : samples that are NaN, infinite or far beyond full scale.
        ServerError : the server cannot be reached, is full, or ended the stream.
        """
        from websockets.exceptions import ConnectionClosed

        streaming.check_source(source, Iterable)
        failed: list[Exception] = []

        def send() -> None:
            try:
                for block in source:
                    for message in streaming.messages(block, hello):
                        ws.send(message)
                ws.send(streaming.FINISH)
            except ConnectionClosed:
                pass  # the reader sees why
            except Exception as error:
                failed.append(error)
                ws.close()
            finally:
                streaming.leave(source)

        try:
            parameters = streaming.parameters(
                model, words, hop, score, target, abstentions, wake, wake_model, wake_seconds, posteriors=bool(watch)
            )
            ws, hello, closing = self._open(parameters)
            with closing:
                if watch:
                    watch(hello)
                threading.Thread(target=send, name="kws-edge-client", daemon=True).start()
                while True:
                    with reaching(self._address.url):  # and nothing of the caller's, whose errors are its own
                        message = streaming.read(ws.recv(), len(hello.labels))
                    if message is streaming.END:
                        return
                    if (event := streaming.event_of(message, watch)) is not None:
                        yield event
        except ServerError as error:
            if failed and error.code == "closed":
                raise failed[0] from None
            raise
        finally:
            streaming.close(source)

    def _ask(self, request: Request[T]) -> T:
        patience = Patience(self._patience)
        while True:
            try:
                with reaching(self._address.url, closed=self._http.is_closed):
                    return self._answer(request)
            except ServerError as error:
                time.sleep(patience.wait(error))

    def _answer(self, request: Request[T]) -> T:
        with self._http.stream(**request.options()) as response:
            body = Body(self._address)
            for piece in response.iter_raw():
                body.add(piece)
        return request.answer(response, bytes(body.data))

    def _open(self, parameters: dict[str, Any]) -> tuple["ClientConnection", Hello, contextlib.ExitStack]:
        """A stream that the server has said hello to, and what closes it."""
        from websockets.exceptions import InvalidStatus
        from websockets.sync.client import ClientConnection, connect

        url = self._address.url

        class Staying(ClientConnection):
            """Follows no redirect: audio goes where it was sent, and nowhere else."""

            def handshake(self, *given: Any, **options: Any) -> None:
                try:
                    super().handshake(*given, **options)
                except InvalidStatus as refused:
                    raise denied(url, refused.response) from None

        patience = Patience(self._patience)
        while True:
            try:
                with reaching(self._address.url, closed=self._http.is_closed), contextlib.ExitStack() as stack:
                    options = self._address.stream_options(parameters)
                    ws = stack.enter_context(connect(**options, create_connection=Staying))
                    return ws, streaming.hello(ws.recv(timeout=self._address.timeout)), stack.pop_all()
            except ServerError as error:
                time.sleep(patience.wait(error))

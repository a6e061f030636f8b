"""A client of `kws-edge serve`: the answers and errors of the package, from a model that runs elsewhere.

with Client("http://127.0.0.1:8765") as client:
    p = client.classify("clip.wav")
    for event in client.listen(Microphone()):
        ...

`AsyncClient` has the same methods to await. Both can be used by several threads or tasks at once.
"""

import asyncio
import contextlib
import io
import json
import logging
import os
import threading
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias
from urllib.parse import quote, urlencode

import numpy as np
import numpy.typing as npt

from kws_edge.audio import SAMPLE_RATE
from kws_edge.decision import Event
from kws_edge.errors import AudioError, DependencyError, KwsEdgeError, SettingError
from kws_edge.metadata import Score
from kws_edge.prediction import Prediction, Reason
from kws_edge.sources import AudioSource, Block

if TYPE_CHECKING:
    import httpx

Clip: TypeAlias = str | os.PathLike[str] | bytes | npt.NDArray[Any]

TIMEOUT: Final = 30.0  # s, for an answer, and for a connection

_log = logging.getLogger(__name__)


class ServerError(KwsEdgeError, OSError):
    """The server cannot be reached, refused for a reason of its own, or failed.

    Attributes
    ----------
    code : the problem's code, such as "overloaded" or "unauthorized"; "unreachable" where there was no answer.
    retry_after : seconds after which trying again may help; None where the server did not say.
    """

    def __init__(self, message: str, code: str = "unreachable", retry_after: float | None = None) -> None:
        """Say what happened."""
        super().__init__(message)
        self.code, self.retry_after = code, retry_after


class _Calls:
    """What both clients ask, and how they read the answers."""

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        """Check them; they are described at the clients."""
        try:
            import httpx  # noqa: F401
            import websockets  # noqa: F401
        except ImportError as missing:
            raise DependencyError(f"{missing.name} is not installed; pip install 'kws-edge[client]'") from None
        if not url.startswith(("http://", "https://")):
            raise SettingError(f"server {url!r}; expected http://HOST:PORT or https://HOST")
        self._url, self._timeout = url.rstrip("/"), timeout
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def _options(self) -> dict[str, Any]:
        return {"base_url": self._url, "headers": self._headers, "timeout": self._timeout}

    def _stream(self, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """URL and options of a WebSocket."""
        given = {"encoding": "float32", **{k: v for k, v in parameters.items() if v is not None}}
        url = f"ws{self._url.removeprefix('http')}/v1/stream?{urlencode(given)}"
        return url, {"additional_headers": self._headers, "open_timeout": self._timeout, "compression": None}


class Client(_Calls):
    """The blocking client. Used as a context, or closed by `close`."""

    def __init__(self, url: str, *, key: str | None = None, timeout: float = TIMEOUT) -> None:
        """Name a server; nothing is sent yet.

        Parameters
        ----------
        url : of the server, as `http://127.0.0.1:8765`.
        key : where the server asks for one.
        timeout : seconds to wait for a connection, and for each answer.

        Raises
        ------
        SettingError : the URL is no http or https URL.
        DependencyError : httpx or websockets is not installed.
        """
        super().__init__(url, key, timeout)
        import httpx

        self._http = httpx.Client(**self._options())

    def __enter__(self) -> Self:
        """Be a context."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def classify(
        self,
        source: Clip,
        rate: int | None = None,
        *,
        model: str | None = None,
        target: float | None = None,
        score: Score | None = None,
    ) -> Prediction:
        """Name the word in a clip, or abstain; as `KeywordModel.classify`.

        Parameters
        ----------
        source, rate : a path, the bytes of a file, or an array with its rate. What is odd about it goes to the log.
        model, target, score : None for the server's own.

        Raises
        ------
        AudioError, SettingError : as `KeywordModel.classify` does.
        ServerError : the server cannot be reached, or did not answer.
        """
        return _prediction(self._post("classify", [_file("file", source, rate)], model, target, score))

    def classify_batch(
        self,
        sources: Sequence[Clip],
        rate: int | None = None,
        *,
        model: str | None = None,
        target: float | None = None,
        score: Score | None = None,
    ) -> list[Prediction | AudioError]:
        """Classify clips in one request; an AudioError takes the place of an answer about one that cannot be used.

        Parameters, and errors that concern the request as a whole, are those of `classify`.
        """
        if not len(sources):
            return []
        files = [_file("files", source, rate) for source in sources]
        return _predictions(self._post("classify/batch", files, model, target, score))

    def models(self) -> list[dict[str, Any]]:
        """The models that are served, the default first; raises ServerError."""
        return self._get("models")["models"]

    def model(self, name: str) -> dict[str, Any]:
        """All that a model's file says of itself; raises SettingError where it is not served, or ServerError."""
        return self._get(f"models/{quote(name, safe='')}")

    def listen(
        self,
        source: AudioSource | Iterable[Block],
        *,
        model: str | None = None,
        words: Collection[str] | None = None,
        hop: float | None = None,
        score: Literal["entropy", "vacuity", "both"] | None = None,
        target: float | None = None,
    ) -> Iterator[Event]:
        """The events of a source, as they happen; as `Spotter.listen`.

        The source is read in a thread, ahead of the events by no more than the connection holds. Where it can be
        closed, it is, when it ends and when the iteration is given up.

        Raises
        ------
        SettingError : words, hop, score or target that are not possible.
        AudioError : samples that are NaN, infinite or far beyond full scale.
        ServerError : the server cannot be reached, is full, or ended the stream.
        """
        from websockets.exceptions import ConnectionClosed
        from websockets.sync.client import connect

        url, options = self._stream(_parameters(model, words, hop, score, target))
        failed: list[Exception] = []

        def send() -> None:
            try:
                for block in source:
                    for message in _messages(block):
                        ws.send(message)
                ws.send(_FINISH)
            except ConnectionClosed:
                pass  # the reader sees why
            except Exception as error:
                failed.append(error)
                ws.close()

        with _reaching(self._url), connect(url, **options) as ws:
            sender = threading.Thread(target=send, name="kws-edge-client", daemon=True)
            sender.start()
            try:
                while (message := _read(ws.recv())) is not _END:
                    if isinstance(message, Event):
                        yield message
            except ConnectionClosed:
                if failed:
                    raise failed[0] from None
                raise
            finally:
                _close(source)

    def _get(self, path: str) -> Any:
        with _reaching(self._url):
            return _json(self._http.get(f"/v1/{path}"))

    def _post(self, path: str, files: list[Any], model: str | None, target: float | None, score: str | None) -> Any:
        parameters = {k: v for k, v in (("model", model), ("target", target), ("score", score)) if v is not None}
        with _reaching(self._url):
            return _json(self._http.post(f"/v1/{path}", params=parameters, files=files))


class AsyncClient(_Calls):
    """The client for asyncio: the methods of `Client`, to await. Used as an async context, or closed by `close`."""

    def __init__(self, url: str, *, key: str | None = None, timeout: float = TIMEOUT) -> None:
        """Name a server; nothing is sent yet.

        Parameters
        ----------
        url : of the server, as `http://127.0.0.1:8765`.
        key : where the server asks for one.
        timeout : seconds to wait for a connection, and for each answer.

        Raises
        ------
        SettingError : the URL is no http or https URL.
        DependencyError : httpx or websockets is not installed.
        """
        super().__init__(url, key, timeout)
        import httpx

        self._http = httpx.AsyncClient(**self._options())

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
        source: Clip,
        rate: int | None = None,
        *,
        model: str | None = None,
        target: float | None = None,
        score: Score | None = None,
    ) -> Prediction:
        """As `Client.classify`."""
        return _prediction(await self._post("classify", [_file("file", source, rate)], model, target, score))

    async def classify_batch(
        self,
        sources: Sequence[Clip],
        rate: int | None = None,
        *,
        model: str | None = None,
        target: float | None = None,
        score: Score | None = None,
    ) -> list[Prediction | AudioError]:
        """As `Client.classify_batch`."""
        if not len(sources):
            return []
        files = [_file("files", source, rate) for source in sources]
        return _predictions(await self._post("classify/batch", files, model, target, score))

    async def models(self) -> list[dict[str, Any]]:
        """As `Client.models`."""
        return (await self._get("models"))["models"]

    async def model(self, name: str) -> dict[str, Any]:
        """As `Client.model`."""
        return await self._get(f"models/{quote(name, safe='')}")

    async def listen(
        self,
        source: AsyncIterable[Block],
        *,
        model: str | None = None,
        words: Collection[str] | None = None,
        hop: float | None = None,
        score: Literal["entropy", "vacuity", "both"] | None = None,
        target: float | None = None,
    ) -> AsyncIterator[Event]:
        """As `Client.listen`, from a source that is iterated by `async for`, in a task."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed

        url, options = self._stream(_parameters(model, words, hop, score, target))
        failed: list[Exception] = []

        async def send() -> None:
            try:
                async for block in source:
                    for message in _messages(block):
                        await ws.send(message)
                await ws.send(_FINISH)
            except ConnectionClosed:
                pass  # the reader sees why
            except Exception as error:
                failed.append(error)
                await ws.close()

        with _reaching(self._url):
            async with connect(url, **options) as ws:
                sender = asyncio.create_task(send())
                try:
                    while (message := _read(await ws.recv())) is not _END:
                        if isinstance(message, Event):
                            yield message
                except ConnectionClosed:
                    if failed:
                        raise failed[0] from None
                    raise
                finally:
                    sender.cancel()

    async def _get(self, path: str) -> Any:
        with _reaching(self._url):
            return _json(await self._http.get(f"/v1/{path}"))

    async def _post(
        self, path: str, files: list[Any], model: str | None, target: float | None, score: str | None
    ) -> Any:
        parameters = {k: v for k, v in (("model", model), ("target", target), ("score", score)) if v is not None}
        with _reaching(self._url):
            return _json(await self._http.post(f"/v1/{path}", params=parameters, files=files))


_FINISH: Final = json.dumps({"type": "finish"})
_END: Final = object()


def _file(field: str, source: Clip, rate: int | None) -> tuple[str, tuple[str, bytes]]:
    """A clip as a file of a form."""
    if isinstance(source, np.ndarray):
        if rate is None:
            raise SettingError("an array of samples without its rate; expected rate= in Hz")
        import soundfile

        file = io.BytesIO()
        try:
            soundfile.write(file, source, rate, format="WAV", subtype="FLOAT" if source.dtype.kind == "f" else None)
        except (TypeError, ValueError, soundfile.LibsndfileError) as error:
            raise AudioError(f"array {source.dtype} {list(source.shape)} at {rate} Hz: {error}") from None
        return field, ("array.wav", file.getvalue())
    if rate is not None:
        raise SettingError(f"rate={rate} for a file, which says its own; expected a rate with an array only")
    if isinstance(source, bytes):
        return field, ("bytes", source)
    path = Path(source)
    try:
        return field, (path.name, path.read_bytes())
    except (OSError, ValueError) as error:
        raise AudioError(f"{path}: {getattr(error, 'strerror', None) or error}; expected a readable file") from None


def _parameters(
    model: str | None, words: Collection[str] | None, hop: float | None, score: str | None, target: float | None
) -> dict[str, Any]:
    listed = None if words is None else ",".join(words)
    return {"model": model, "words": listed, "hop": hop, "score": score, "target": target, "rate": SAMPLE_RATE}


def _messages(block: Block) -> Iterator[bytes | str]:
    """What a block is on the wire."""
    if block.dropped:
        yield json.dumps({"type": "gap", "samples": block.dropped})
    for i in range(0, len(block.samples), SAMPLE_RATE):
        yield block.samples[i : i + SAMPLE_RATE].astype("<f4").tobytes()


def _read(text: str | bytes) -> Any:
    """An Event, `_END`, or None for what is neither."""
    message = json.loads(text)
    match message["type"]:
        case "event":
            return Event(**_fields(message, "type"))
        case "end":
            return _END
        case "error":
            raise _error(message["problem"])
    return None


def _json(response: "httpx.Response") -> Any:
    """The body of an answer, or the error that it tells of."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if response.is_success and isinstance(body, dict):
        return body
    if not isinstance(body, dict) or "type" not in body:
        raise ServerError(f"{response.url}: {response.status_code}, not in JSON; expected a kws-edge server")
    after = response.headers.get("Retry-After", "")
    raise _error(body, float(after) if after.isdecimal() else None)


def _error(problem: dict[str, Any], retry_after: float | None = None) -> KwsEdgeError:
    """The exception that a problem of the server is."""
    code, detail = problem["type"].rpartition(":")[2], problem["detail"]
    if code in ("invalid-audio", "too-large"):
        return AudioError(detail)
    if code in ("invalid-parameter", "not-found"):
        return SettingError(detail)
    return ServerError(f"{problem['title']}: {detail}", code, retry_after)


def _prediction(answer: dict[str, Any]) -> Prediction:
    for warning in answer["warnings"]:
        _log.warning("%s", warning)
    return Prediction(**_fields(answer, "abstained", "seconds", "warnings"))


def _predictions(answer: dict[str, Any]) -> list[Prediction | AudioError]:
    return [
        AudioError(item["problem"]["detail"]) if item["problem"] else _prediction(item["prediction"])
        for item in answer["results"]
    ]


def _fields(message: dict[str, Any], *others: str) -> dict[str, Any]:
    """The fields of a Prediction or Event, of the types that they have there."""
    fields = {key: value for key, value in message.items() if key not in (*others, "abstained")}
    reason = None if fields["reason"] is None else Reason(fields["reason"])
    return fields | {"alpha": np.array(fields["alpha"], np.float32), "reason": reason}


@contextlib.contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Turns what a connection raises into errors of the package."""
    import httpx
    from websockets.exceptions import ConnectionClosed, InvalidHandshake

    try:
        yield
    except httpx.TimeoutException:
        raise ServerError(f"{url}: no answer in time; expected a kws-edge server that is not overloaded") from None
    except (httpx.HTTPError, InvalidHandshake) as error:
        raise ServerError(f"{url}: {error or type(error).__name__}; expected a kws-edge server there") from None
    except ConnectionClosed as error:
        raise ServerError(f"{url}: the stream was closed: {error}", "closed") from None
    except (OSError, TimeoutError) as error:
        if isinstance(error, KwsEdgeError):
            raise
        raise ServerError(f"{url}: {error.strerror or error}; expected a kws-edge server there") from None


def _close(source: object) -> None:
    close = getattr(source, "close", None)
    if close is not None:
        close()

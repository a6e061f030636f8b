"""What goes over the wire, both ways, and nothing that waits for it: requests built, answers and messages read."""

import io
import json
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import numpy as np
import numpy.typing as npt

from kws_edge.audio.channels import Channel
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.sources import Block
from kws_edge.client.checked import made, number, plain, text, texts
from kws_edge.client.errors import ServerError, another_version, error_of, foreign_error, named, retry_after, told
from kws_edge.client.proxy import proxy_of
from kws_edge.errors import AudioError, SettingError, lacking
from kws_edge.model.prediction import Prediction
from kws_edge.model.target import Target
from kws_edge.stream.events import Event
from kws_edge.stream.spotter import Snapshot

if TYPE_CHECKING:
    import httpx

Clip: TypeAlias = str | os.PathLike[str] | bytes | BinaryIO | npt.NDArray[Any]
T = TypeVar("T")

TIMEOUT: Final = 30.0  # s, for an answer, and for a connection
MOST_ANSWER: Final = 2**24  # bytes of an answer
FINISH: Final = json.dumps({"type": "finish"})
END: Final = object()

_PING_TIMEOUT: Final = 300.0
"""Seconds for a pong, which waits behind audio where the server falls behind: then it is slow, and has not gone."""

_MOST_WARNINGS: Final = 10  # about one clip; nobody reads more

_CLOSE_TIMEOUT: Final = 1.0  # s, for the server to answer the close of a stream

_log = logging.getLogger("kws_edge.client")


@dataclass(frozen=True, slots=True)
class Hello:
    """What a server says of a stream before it begins.

    Attributes
    ----------
    version : of kws-edge there.
    model, labels, words : its name, all that it knows, and those that give events.
    hop : seconds from one to the next.
    thresholds : score → the highest uncertainty that is accepted.
    max_message : bytes that one message to the server may have.

    Examples
    --------
    >>> from kws_edge import WavFile
    >>> from kws_edge.client import Client
    >>> seen = []
    >>> with Client("http://127.0.0.1:8765") as client:
    ...     events = list(client.listen(WavFile("kws_edge/samples/yes.flac"), watch=seen.append))
    >>> seen[0].model, seen[0].hop
    ('stream', 0.1)
    """

    version: str
    model: str
    labels: tuple[str, ...]
    words: tuple[str, ...]
    hop: float
    thresholds: Mapping[str, float]
    max_message: int


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and what every call there is made with.

    Attributes
    ----------
    url : without a slash at its end.
    headers : with the key, where there is one.
    timeout : seconds for a connection, and for each answer.
    proxy : URL of the one between, by the environment.
    """

    url: str
    headers: Mapping[str, str]
    timeout: float
    proxy: str | None = None

    @classmethod
    def of(cls, url: str, key: str | None, timeout: float) -> "Address":
        """Check them; the parameters and errors are those of the clients."""
        try:
            import httpx
            import websockets  # noqa: F401
        except ImportError as missing:
            raise lacking("the client", missing.name, "client") from None
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            parsed = httpx.URL("")
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
            raise SettingError(f"server {url!r}; expected http://HOST:PORT or https://HOST")
        if key is not None and not re.fullmatch(r"[!-~]+", key):
            raise SettingError("the API key has spaces or other characters that no header can carry, or none at all")
        proxy = proxy_of(url)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return cls(url.rstrip("/"), headers, timeout, None if proxy is None else proxy.url)

    def http_options(self) -> dict[str, Any]:
        """For httpx.Client or httpx.AsyncClient."""
        # No answer is worth compressing, and one that is may be of any size.
        headers = {**self.headers, "Accept-Encoding": "identity"}
        import httpx

        return {
            "base_url": self.url,
            "headers": headers,
            "timeout": self.timeout,
            "proxy": self.proxy,
            "trust_env": False,  # or httpx would fail over the variables of proxies that are not for this address
            "verify": httpx.create_ssl_context(),
        }

    def stream_options(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """For either `connect` of websockets; parameters that are None are left to the server."""
        given = {"encoding": "float32", **{k: v for k, v in parameters.items() if v is not None}}
        return {
            "uri": f"ws{self.url.removeprefix('http')}/v1/stream?{urlencode(given)}",
            "additional_headers": self.headers,
            "open_timeout": self.timeout,
            "close_timeout": _CLOSE_TIMEOUT,
            "compression": None,
            "ping_timeout": _PING_TIMEOUT,
            "proxy": self.proxy,
        }


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A request, and how its answer is read.

    Attributes
    ----------
    read : from the JSON of a success to what the caller gets.
    name : of what is sent, by which an AudioError names it.
    """

    method: str
    path: str
    read: Callable[[Any], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[tuple[str, tuple[str, bytes]]] = ()
    name: str = ""

    def options(self) -> dict[str, Any]:
        """For `request` of either client of httpx."""
        options: dict[str, Any] = {"method": self.method, "url": f"/v1/{self.path}", "params": self.params}
        return options | ({"files": self.files} if self.files else {})

    def answer(self, response: "httpx.Response", raw: bytes) -> T:
        """What the response and its bytes say, or the error that they tell of."""
        url = str(response.url.copy_with(query=None))
        try:
            body = None if "Content-Encoding" in response.headers else plain(json.loads(raw))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or not (response.is_success or "type" in body):
            raise foreign_error(url, response.status_code, response.headers, self.name)
        try:
            if response.is_success:
                return self.read(body)
            error = error_of(body, retry_after(response.headers), self.name, url)
        except (KeyError, TypeError, ValueError) as e:
            raise another_version(e) from None
        raise error


class Body:
    """An answer as it arrives, up to `MOST_ANSWER`, and for so long as an answer may take."""

    def __init__(self, address: Address) -> None:
        """Begin, with the address for messages and the time that there is."""
        self._url, self._timeout = address.url, address.timeout
        self._end = time.monotonic() + address.timeout
        self.data = bytearray()

    def add(self, piece: bytes) -> None:
        """Take a piece; raises ServerError where it becomes more than any answer has, or comes too late."""
        self.data += piece
        if time.monotonic() > self._end:
            raise ServerError(f"{self._url}: no whole answer within {self._timeout:g} s; expected a quicker server")
        if len(self.data) > MOST_ANSWER:
            raise ServerError(
                f"{self._url}: an answer of over {MOST_ANSWER >> 20} MiB; expected a kws-edge server there"
            )


def classify(
    source: Clip,
    rate: int | None,
    model: str | None,
    target: Target | None,
    score: str | None,
    channel: Channel | None,
) -> Request[Prediction]:
    """Ask about a clip. Raises AudioError and SettingError for a source that cannot be sent."""
    name, body = _body(source, rate)
    params = _given(model=model, target=target, score=score, channel=channel)
    return Request("POST", "classify", lambda a: _prediction(a, name), params, [("file", ("audio", body))], name)


def classify_batch(
    sources: Sequence[Clip],
    rate: int | None,
    model: str | None,
    target: Target | None,
    score: str | None,
    channel: Channel | None,
) -> Request[list[Prediction | AudioError]]:
    """Ask about several at once; errors are those of `classify`."""
    bodies = [_body(source, rate) for source in sources]
    names = [name for name, _ in bodies]

    def read(answer: Any) -> list[Prediction | AudioError]:
        return [
            AudioError(named(told(item["problem"]["detail"]), name))
            if item["problem"]
            else _prediction(item["prediction"], name)
            for item, name in zip(answer["results"], names, strict=True)
        ]

    files = [("files", ("audio", body)) for _, body in bodies]
    params = _given(model=model, target=target, score=score, channel=channel)
    return Request("POST", "classify/batch", read, params, files)


def models() -> Request[list[dict[str, Any]]]:
    """Ask which there are."""

    def read(answer: Any) -> list[dict[str, Any]]:
        checked: dict[str, Callable[[Any], Any]] = {"name": text, "default": bool, "score": text}
        return [{**m, **{name: check(m[name]) for name, check in checked.items()}} for m in answer["models"]]

    return Request("GET", "models", read)


def model(name: str) -> Request[dict[str, Any]]:
    """Ask about one."""
    return Request("GET", f"models/{quote(name, safe='')}", lambda answer: answer)


def stream_parameters(
    model: str | None,
    words: Collection[str] | None,
    hop: float | None,
    score: str | None,
    target: Target | None,
    abstentions: str | None,
    posteriors: bool,
) -> dict[str, Any]:
    """The query of a stream."""
    listed = None if words is None else ",".join(words)
    wanted = "true" if posteriors else None
    given = _given(model=model, words=listed, hop=hop, score=score, target=target, abstentions=abstentions)
    return {**given, **_given(posteriors=wanted), "rate": SAMPLE_RATE}


def wake_parameters(wake: Collection[str] | None, model: str | None, seconds: float | None) -> dict[str, Any]:
    """What of the query of a stream concerns wake words."""
    return _given(wake=None if wake is None else ",".join(wake), wake_model=model, wake_seconds=seconds)


_SOURCE: Final = "one that gives Block, as WavFile(path) or Microphone()"


def check_source(source: object, *kinds: type) -> None:
    """Raise a SettingError where a source is of no kind that can be iterated."""
    if not isinstance(source, kinds):
        raise SettingError(f"a source of type {type(source).__name__}; expected {_SOURCE}")


def messages(block: Block, hello: Hello) -> Iterator[bytes | str]:
    """What a block is on the wire, in messages of up to a second that the server takes.

    Raises SettingError where a source gave something else.
    """
    if not isinstance(block, Block):
        raise SettingError(f"a source that gives {type(block).__name__}; expected {_SOURCE}")
    if block.dropped:
        yield json.dumps({"type": "gap", "samples": block.dropped})
    size = min(SAMPLE_RATE, hello.max_message // 4)
    for i in range(0, len(block.samples), size):
        yield block.samples[i : i + size].astype("<f4").tobytes()


def read(sent: str | bytes, labels: int | None = None) -> Any:
    """A message of a stream: a Hello, a Snapshot, an Event or `END`; None for what a later version may send.

    Its model has so many labels, where that is known.

    Raises
    ------
    AudioError, SettingError, ServerError : it is an error, or cannot be understood.
    """
    try:
        message = plain(json.loads(sent))
        match message["type"]:
            case "hello":
                return made(Hello, message)
            case "hop":
                snapshot = made(Snapshot, message)
                if labels is not None and len(snapshot.probability) != labels:
                    raise ValueError(f"{len(snapshot.probability)} probabilities of {labels} labels")
                return snapshot
            case "event":
                return made(Event, message)
            case "end":
                return END
            case "slow":
                _log.warning("the server is %.1f s behind", number(message["lag"]))
                return None
            case "error":
                after = message.get("retry_after")
                error = error_of(message["problem"], None if after is None else number(after))
            case _:
                return None
    except (KeyError, TypeError, ValueError, RecursionError) as e:
        raise another_version(e) from None
    raise error


def hello(sent: str | bytes) -> Hello:
    """The first message of a stream; errors are those of `read`."""
    message = read(sent)
    if not isinstance(message, Hello):
        raise another_version(ValueError("no hello"))
    return message


def _given(**parameters: Any) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _body(source: Clip, rate: int | None) -> tuple[str, bytes]:
    """A clip's name here, which stays here, and the bytes of a file."""
    if isinstance(source, np.ndarray):
        if rate is None:
            raise SettingError("an array of samples without its rate; expected rate= in Hz")
        import soundfile

        file = io.BytesIO()
        try:
            soundfile.write(file, source, rate, format="WAV", subtype="FLOAT" if source.dtype.kind == "f" else None)
        except (TypeError, ValueError, soundfile.LibsndfileError) as error:
            raise AudioError(f"array {source.dtype} {list(source.shape)} at {rate} Hz: {error}") from None
        return f"array {source.dtype} {list(source.shape)}", file.getvalue()
    if rate is not None:
        raise SettingError(f"rate={rate} for a file, which says its own; expected a rate with an array only")
    if isinstance(source, bytes):
        return f"{len(source)} bytes", source
    if not isinstance(source, str | os.PathLike):
        source.seek(0)  # as `audio.load` does
        return "file object", source.read()
    path = Path(source)
    try:
        return str(path), path.read_bytes()
    except (OSError, ValueError) as error:
        raise AudioError(f"{path}: {getattr(error, 'strerror', None) or error}; expected a readable file") from None


def _prediction(answer: dict[str, Any], name: str) -> Prediction:
    for warning in texts(answer["warnings"])[:_MOST_WARNINGS]:
        _log.warning("%s: %s", name, told(warning))
    return made(Prediction, answer)

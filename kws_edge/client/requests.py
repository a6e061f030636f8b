"""Build HTTP requests and read their answers; sending is up to the two clients."""

import io
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, TypeVar
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from kws_edge.audio import pcm
from kws_edge.audio.channels import Channel
from kws_edge.audio.opened import Source, open_path, open_source
from kws_edge.client.address import Address, query
from kws_edge.client.checked import from_json, printable, text, texts
from kws_edge.client.errors import ServerError, another_version, brief, error_of, foreign_error, named, retry_after
from kws_edge.errors import AudioError, SettingError
from kws_edge.model.prediction import Prediction
from kws_edge.model.target import Target
from kws_edge.text import shown

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

MOST_ANSWER: Final = 2**24  # bytes of an answer
_MOST_BODY: Final = 2**30  # bytes of a file; no server takes more
_MOST_WARNINGS: Final = 10  # about one clip; nobody reads more

_log = logging.getLogger("kws_edge.client")


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A request, and how its answer is read.

    Attributes
    ----------
    read : from the JSON of a success to what the caller gets.
    params : of the query; those that are None are left to the server.
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
        options: dict[str, Any] = {"method": self.method, "url": f"/v1/{self.path}", "params": query(self.params)}
        return options | ({"files": self.files} if self.files else {})

    def answer(self, response: "httpx.Response", raw: bytes) -> T:
        """What the response and its bytes say, or the error that they tell of."""
        url = str(response.url.copy_with(query=None))
        try:
            body = None if "Content-Encoding" in response.headers else printable(json.loads(raw))
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
            raise ServerError(f"{self._url}: no whole answer within {self._timeout:g} s; allow a longer timeout")
        if len(self.data) > MOST_ANSWER:
            raise ServerError(f"{self._url}: an answer of over {MOST_ANSWER >> 20} MiB; expected a kws-edge server")


def classify(
    source: Source,
    rate: int | None,
    model: str | None,
    target: Target | None,
    score: str | None,
    channel: Channel | None,
) -> Request[Prediction]:
    """Ask about a clip. Raises AudioError and SettingError for a source that cannot be sent."""
    name, body = _body(source, rate)
    params = {"model": model, "target": target, "score": score, "channel": channel}
    return Request("POST", "classify", lambda a: _prediction(a, name), params, [("file", ("audio", body))], name)


def classify_batch(
    sources: Sequence[Source],
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
            AudioError(named(brief(item["problem"]["detail"]), name))
            if item["problem"]
            else _prediction(item["prediction"], name)
            for item, name in zip(answer["results"], names, strict=True)
        ]

    files = [("files", ("audio", body)) for _, body in bodies]
    params = {"model": model, "target": target, "score": score, "channel": channel}
    return Request("POST", "classify/batch", read, params, files)


def models() -> Request[list[dict[str, Any]]]:
    """Ask which there are."""

    def read(answer: Any) -> list[dict[str, Any]]:
        checked: dict[str, Callable[[Any], Any]] = {"name": text, "default": bool, "score": text}
        return [{**m, **{name: check(m[name]) for name, check in checked.items()}} for m in answer["models"]]

    return Request("GET", "models", read)


def model(name: str) -> Request[dict[str, Any]]:
    """Ask about one. Raises SettingError for what can be the name of none."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or not name.isprintable():
        raise SettingError(f"model {shown(name)}; expected a name, as one of models()")
    return Request("GET", f"models/{quote(name, safe='')}", lambda answer: answer)


def _body(source: Source, rate: int | None) -> tuple[str, bytes]:
    """A clip's name here, which stays here, and the bytes of a file."""
    if isinstance(source, np.ndarray):
        return f"array {source.dtype} {list(source.shape)}", _wav(source, rate)
    if rate is not None:
        raise SettingError(f"rate={rate} for a file, which has its own; expected a rate only with an array")
    if isinstance(source, bytes | bytearray | memoryview):
        body = bytes(source)
        return f"{len(body)} bytes", body
    if not isinstance(source, str | os.PathLike):
        if not (hasattr(source, "read") and hasattr(source, "seek")):
            what = type(source).__name__
            raise AudioError(f"audio of type {what}; expected a path, bytes, a binary file or an array")
        return "file object", _read("file object", source, "a seekable binary file, or its bytes")
    with open_path(source) as file:
        name = os.fspath(source)
        return name, _read(name, file, "a readable file")


def _read(name: str, file: BinaryIO, expected: str) -> bytes:
    """All bytes of a file, from its start, as `audio.load` reads it."""
    try:
        file.seek(0, io.SEEK_END)
        if (size := file.tell()) > _MOST_BODY:
            raise AudioError(f"{name}: {size >> 20} MiB; expected up to {_MOST_BODY >> 20}: no server takes more")
        file.seek(0)
        body = file.read()
    except AudioError:
        raise
    except (OSError, ValueError) as error:
        raise AudioError(f"{name}: {getattr(error, 'strerror', None) or error}; expected {expected}") from None
    if not isinstance(body, bytes | bytearray):
        raise AudioError(f"{name}: gives {type(body).__name__}; expected {expected}")
    return bytes(body)


def _wav(samples: npt.NDArray[Any], rate: int | None) -> bytes:
    """A file of an array that `audio.load` would take; what it would not is refused as it does."""
    import soundfile

    with open_source(samples, rate) as opened:
        hertz = int(opened.rate)
    if hertz != rate:
        raise SettingError(f"rate={rate!r} of an array; expected a whole number of Hz, as a file's header has")
    if samples.dtype.name in ("uint8", "float16"):  # which soundfile does not take
        samples = pcm.scaled(samples)
    samples = samples.astype(samples.dtype.newbyteorder("="), copy=False)  # soundfile takes the bytes as they are
    subtype = {"int16": "PCM_16", "int32": "PCM_32"}.get(samples.dtype.name, "FLOAT")
    file = io.BytesIO()
    soundfile.write(file, samples, hertz, format="WAV", subtype=subtype)
    return file.getvalue()


def _prediction(answer: dict[str, Any], name: str) -> Prediction:
    for warning in texts(answer["warnings"])[:_MOST_WARNINGS]:
        _log.warning("%s: %s", name, brief(warning))
    return from_json(Prediction, answer)

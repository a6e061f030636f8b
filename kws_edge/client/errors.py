"""Turn failures of a server into errors of the package, and decide when to retry."""

import contextlib
import json
import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kws_edge.client.checked import printable, text
from kws_edge.client.proxy import proxy_of
from kws_edge.errors import AudioError, KwsEdgeError, SettingError
from kws_edge.text import collapsed, one_line, shortened

if TYPE_CHECKING:
    from websockets.http11 import Response

BUSY: Final = ("overloaded", "too-many-requests", "not-ready")
"""Problems that pass: the same call may succeed later."""

CUT_OFF: Final = "cut-off"
"""The connection ended before the answer, as where one of several servers behind an address dies."""

_FIRST_WAIT, _LONGEST_WAIT = 0.25, 8.0  # s, between tries where the server does not say when
_MOST_WAIT = 86_400.0  # s, where it does: a system's clock takes no number of seconds

_log = logging.getLogger("kws_edge.client")


class ServerError(KwsEdgeError, OSError):
    """The server cannot be reached, refused for a reason of its own, or failed.

    Attributes
    ----------
    code : the problem's code, such as "overloaded" or "unauthorized"; "unreachable" if no kws-edge server answered,
        "cut-off" if the connection broke before an answer, "version" if the answer cannot be understood, "closed" if a
        stream broke, "no-client" if the client itself was closed before the call.
    retry_after : seconds after which trying again may help; None if the server did not say.

    Examples
    --------
    >>> from kws_edge.client import Client, ServerError
    >>> try:
    ...     Client("http://127.0.0.1:1").models()
    ... except ServerError as error:
    ...     print(error.code)
    unreachable
    """

    def __init__(self, message: str, code: str = "unreachable", retry_after: float | None = None) -> None:
        """Say what happened."""
        super().__init__(message)
        self.code, self.retry_after = code, retry_after


def error_of(problem: Mapping[str, Any], after: float | None = None, name: str = "", url: str = "") -> KwsEdgeError:
    """The exception that a problem of the server is; an AudioError names what was sent, one about a path the URL."""
    code, detail = text(problem["type"]).rpartition(":")[2], brief(problem.get("detail", ""))
    if code in ("invalid-audio", "too-large"):
        return AudioError(named(detail, name))
    if code == "invalid-parameter" or (code == "not-found" and detail.startswith("model ")):
        return SettingError(detail)
    if code in ("not-found", "method-not-allowed"):
        return ServerError(
            f"{url}: {detail.partition(';')[0]}; expected the address of a server without its /v1, "
            "and kws-edge of the same version there",
            "version",
        )
    if code == "unauthorized":
        detail = f"{detail.partition(';')[0]}; expected Client(url, key=...)"
    return ServerError(f"{brief(problem.get('title', code))}: {detail}", code, after)


def foreign(url: str, status: int, headers: Mapping[str, str]) -> ServerError:
    """The error that an answer is which is no kws-edge server's; its status may say that the proxy before one waits."""
    code = {429: "too-many-requests", 503: "overloaded"}.get(status, "unreachable")
    via = _via(url)
    message = f"{url}: status {status} from {via or 'something else'}; expected a kws-edge server there"
    return ServerError(message, code, retry_after(headers))


def foreign_error(url: str, status: int, headers: Mapping[str, str], name: str) -> KwsEdgeError:
    """The same, or an AudioError where something before the server takes no file as large as this."""
    if status != 413:
        return foreign(url, status, headers)
    what = "something before the server takes no body of that size"
    return AudioError(named(f"{what}; expected a shorter clip, or a larger limit there, as client_max_body_size", name))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of a Retry-After; None where there is none, or a date."""
    after = headers.get("Retry-After", "")
    return float(after) if after.isascii() and after.isdecimal() else None


def another_version(error: Exception) -> ServerError:
    """The error that an answer is which is not of the form that is known here."""
    what = brief(f"no {error}" if isinstance(error, KeyError) else collapsed(error))
    return ServerError(
        f"the server's answer is not understood ({what}); expected kws-edge of the same version", "version"
    )


def brief(detail: Any) -> str:
    """What a server says of an error, on one line and not at any length; raises TypeError where it is no text."""
    return shortened(one_line(text(detail)), 1000)


def named(detail: str, name: str) -> str:
    """A detail that calls a file by its name here instead of that under which it was sent."""
    return f"{name}: {detail.removeprefix('audio: ')}" if name else detail


class Patience:
    """How long a call may still be tried again, for a server that is busy; once, for a connection that was cut off."""

    def __init__(self, seconds: float) -> None:
        """Start to count."""
        self._until, self._wait = time.monotonic() + seconds, _FIRST_WAIT
        self._passing = {*BUSY, CUT_OFF}

    def wait(self, error: ServerError) -> float:
        """Seconds to wait before the next try: what the server said, or else twice as long each time.

        Raises the error again where it is not one that passes, or not in time.
        """
        seconds = self._wait if error.retry_after is None else max(_FIRST_WAIT, min(error.retry_after, _MOST_WAIT))
        if error.code not in self._passing or time.monotonic() + seconds > self._until:
            raise error
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        self._passing.discard(CUT_OFF)  # what always closes is something else
        _log.warning("%s; trying again in %g s", error, seconds)
        return seconds


@contextlib.contextmanager
def reaching(url: str, *, closed: bool = False) -> Iterator[None]:
    """Turns what a connection raises into errors of the package; through a client that is closed there is none."""
    import httpx
    from websockets.exceptions import ConnectionClosed, WebSocketException

    if closed:
        raise ServerError(f"{url}: this client is closed; expected an open one: make a new Client", "no-client")
    try:
        yield
    except httpx.TimeoutException:
        raise ServerError(f"{url}: no answer in time; expected a kws-edge server that is not overloaded") from None
    except ConnectionClosed as error:
        raise ServerError(f"{url}: the stream was cut off: {brief(str(error))}; connect again", "closed") from None
    except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
        why = brief(str(error) or type(error).__name__).rstrip(".")
        raise ServerError(f"{url}: {why}; expected a running kws-edge server", CUT_OFF) from None
    except (httpx.HTTPError, WebSocketException) as error:
        raise _unreachable(url, str(error) or type(error).__name__) from None
    except OSError as error:
        if isinstance(error, KwsEdgeError):
            raise
        # The TimeoutError of asyncio has no text.
        raise _unreachable(url, str(error.strerror or error) or "no answer in time") from None


def _unreachable(url: str, why: str) -> ServerError:
    """The error that a connection is which cannot be made, or was cut off."""
    via, why = _via(url), brief(why)
    if via:
        host = urlsplit(url).hostname
        return ServerError(f"{url}: {why}; expected {via} to lead there, or no_proxy={host}")
    plain = url.startswith("https:") and "SSL" in why and "CERTIFICATE" not in why
    expected = f"TLS there, or http{url.removeprefix('https')}" if plain else "a kws-edge server there"
    return ServerError(f"{url}: {why}; expected {expected}")


def _via(url: str) -> str | None:
    """The proxy between, in words."""
    try:
        proxy = proxy_of(url)
    except SettingError:
        return None
    return None if proxy is None else str(proxy)


def denied(url: str, response: "Response") -> KwsEdgeError:
    """The error that an answer is which refuses the handshake of a stream."""
    try:
        problem = printable(json.loads(response.body or b""))
        return error_of(problem, retry_after(response.headers), url=f"{url}/v1/stream")
    except (ValueError, KeyError, TypeError, RecursionError):
        return foreign(url, response.status_code, response.headers)

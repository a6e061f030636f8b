"""What can go wrong with a server, as errors of the package, and how long to try again."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kws_edge.errors import AudioError, KwsEdgeError, SettingError

BUSY: Final = ("overloaded", "too-many-requests", "not-ready")
"""Problems that pass: the same call may succeed later."""

_FIRST_WAIT, _LONGEST_WAIT = 0.25, 8.0  # s, between tries where the server does not say when

_log = logging.getLogger("kws_edge.client")


class ServerError(KwsEdgeError, OSError):
    """The server cannot be reached, refused for a reason of its own, or failed.

    Attributes
    ----------
    code : the problem's code, such as "overloaded" or "unauthorized"; "unreachable" where there was no answer of a
        kws-edge server, "version" where it cannot be understood, "closed" where a stream was cut off.
    retry_after : seconds after which trying again may help; None where the server did not say.
    """

    def __init__(self, message: str, code: str = "unreachable", retry_after: float | None = None) -> None:
        """Say what happened."""
        super().__init__(message)
        self.code, self.retry_after = code, retry_after


def error_of(problem: Mapping[str, Any], after: float | None = None, name: str = "") -> KwsEdgeError:
    """The exception that a problem of the server is; an AudioError names what was sent."""
    code, detail = str(problem["type"]).rpartition(":")[2], str(problem.get("detail", ""))
    if code in ("invalid-audio", "too-large"):
        return AudioError(named(detail, name))
    if code == "invalid-parameter" or (code == "not-found" and detail.startswith("model ")):
        return SettingError(detail)
    if code in ("not-found", "method-not-allowed"):
        return another_version(ValueError(detail))
    return ServerError(f"{problem.get('title', code)}: {detail}", code, after)


def foreign(url: str, status: int, headers: Mapping[str, str]) -> ServerError:
    """The error that an answer is which is no kws-edge server's; its status may say that the proxy before one waits."""
    code = {429: "too-many-requests", 503: "overloaded"}.get(status, "unreachable")
    message = f"{url}: status {status} from something else; expected a kws-edge server there"
    return ServerError(message, code, retry_after(headers))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of a Retry-After; None where there is none, or a date."""
    after = headers.get("Retry-After", "")
    return float(after) if after.isascii() and after.isdecimal() else None


def another_version(error: Exception) -> ServerError:
    """The error that an answer is which is not of the form that is known here."""
    what = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
    return ServerError(
        f"the server's answer is not understood ({what}); expected kws-edge of the same version", "version"
    )


def named(detail: str, name: str) -> str:
    """A detail that calls a file by its name here instead of that under which it was sent."""
    return f"{name}: {detail.removeprefix('audio: ')}" if name else detail


class Patience:
    """How long a call may still be tried again, for a server that is busy."""

    def __init__(self, seconds: float) -> None:
        """Start to count."""
        self._until, self._wait = time.monotonic() + seconds, _FIRST_WAIT

    def wait(self, error: ServerError) -> float:
        """Seconds to wait before the next try: what the server said, or else twice as long each time.

        Raises the error again where it is not one that passes, or not in time.
        """
        seconds = self._wait if error.retry_after is None else error.retry_after
        if error.code not in BUSY or time.monotonic() + seconds > self._until:
            raise error
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        _log.warning("%s; trying again in %g s", error, seconds)
        return seconds


@contextlib.contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turns what a connection raises into errors of the package."""
    import httpx
    from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

    try:
        yield
    except httpx.TimeoutException:
        raise ServerError(f"{url}: no answer in time; expected a kws-edge server that is not overloaded") from None
    except InvalidStatus as error:
        raise foreign(url, error.response.status_code, error.response.headers) from None
    except ConnectionClosed as error:
        raise ServerError(f"{url}: the stream was closed: {error}", "closed") from None
    except (httpx.HTTPError, WebSocketException) as error:
        raise ServerError(f"{url}: {str(error) or type(error).__name__}; expected a kws-edge server there") from None
    except OSError as error:
        if isinstance(error, KwsEdgeError):
            raise
        raise ServerError(f"{url}: {error.strerror or error}; expected a kws-edge server there") from None

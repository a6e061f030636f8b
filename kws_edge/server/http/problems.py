"""Every refusal of the server: one exception, sent as the problem details of RFC 9457."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from fastapi import Request
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from kws_edge.errors import AudioError, KwsEdgeError, SettingError
from kws_edge.server.http.wording import wrong
from kws_edge.text import shortened

MEDIA_TYPE = "application/problem+json"
_MOST_LISTED = 5
"""Wrong parameters that an answer lists: it must not be far longer than the question."""

CODES: Mapping[str, tuple[int, str]] = {
    "malformed": (400, "The request cannot be parsed"),
    "unauthorized": (401, "An API key is needed"),
    "forbidden": (403, "Pages of this origin may not call"),
    "not-found": (404, "There is nothing here"),
    "method-not-allowed": (405, "This method is not possible here"),
    "body-timeout": (408, "The body took too long to arrive"),
    "too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The content type or coding is not one that is read"),
    "misdirected": (421, "This server is not called so"),
    "invalid-audio": (422, "The audio cannot be used"),
    "invalid-parameter": (422, "A parameter is missing or wrong"),
    "upgrade-required": (426, "This is a WebSocket"),
    "too-many-requests": (429, "This client asks too often"),
    "idle": (408, "No audio came for too long"),
    "internal": (500, "The server failed"),
    "overloaded": (503, "The server is busy"),
    "not-ready": (503, "The server is stopping"),
}
"""The closed set of problems: what the type's last part can be, with its HTTP status and title."""


class ProblemError(KwsEdgeError):
    """A refusal, raised anywhere while a request is handled.

    Attributes
    ----------
    code : a key of `CODES`; the type is `urn:kws-edge:problem:CODE`.
    detail : what was given, what was expected, in one line.
    headers : sent with it.
    errors : for wrong parameters of a query, each {"parameter", "detail"}.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: list[dict[str, str]] | None = None,
    ) -> None:
        """Give a code of `CODES`."""
        super().__init__(detail)
        self.code, self.detail = code, detail
        self.status, self.title = CODES[code]
        self.headers = dict(headers or {})
        self.errors = errors

    def to_dict(self) -> dict[str, Any]:
        """The members of RFC 9457."""
        members: dict[str, Any] = {
            "type": f"urn:kws-edge:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        return members | ({"errors": self.errors} if self.errors else {})

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.to_dict(), self.status, self.headers, media_type=MEDIA_TYPE)

    @classmethod
    def of(cls, error: Exception) -> "ProblemError":
        """The problem that an exception of the package, the framework or the program comes to."""
        if isinstance(error, ProblemError):
            return error
        if isinstance(error, AudioError):
            return cls("invalid-audio", str(error))
        if isinstance(error, SettingError):
            return cls("invalid-parameter", str(error))
        if isinstance(error, HTTPException):
            code = next((c for c, (status, _) in CODES.items() if status == error.status_code), "internal")
            detail = {
                "not-found": "no such path; GET /openapi.json lists those there are",
                "method-not-allowed": f"expected {(error.headers or {}).get('Allow', 'another')}",
            }.get(code, error.detail)
            return cls(code, detail, headers=error.headers)
        return cls("internal", HTTPStatus(500).description)

    @classmethod
    def of_query(cls, errors: Sequence[ErrorDetails], fields: Mapping[str, FieldInfo]) -> "ProblemError":
        """The problem that wrong parameters are, where a query takes these fields."""
        listed = [
            {"parameter": shortened(str(e["loc"][-1])), "detail": wrong(e, fields, "parameter")}
            for e in errors[:_MOST_LISTED]
        ]
        detail = "; ".join(f"{e['parameter']}: {e['detail']}" for e in listed)
        if len(errors) > _MOST_LISTED:
            detail = f"{detail}; and {len(errors) - _MOST_LISTED} more"
        return cls("invalid-parameter", detail, errors=listed)


def refuse_repeated(query: Iterable[tuple[str, str]]) -> None:
    """Raise a ProblemError, invalid-parameter, where a parameter is given twice: which would count?"""
    counts = Counter(name for name, _ in query)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        listed, what = [shortened(name) for name in twice[:_MOST_LISTED]], "given more than once; expected one value"
        errors = [{"parameter": name, "detail": what} for name in listed]
        raise ProblemError("invalid-parameter", f"{', '.join(listed)}: {what}", errors=errors)


@contextmanager
def about(parameter: str) -> Iterator[None]:
    """Turns a SettingError into the problem that a parameter of the query is, which it names."""
    try:
        yield
    except SettingError as error:
        errors = [{"parameter": parameter, "detail": str(error)}]
        raise ProblemError("invalid-parameter", str(error), errors=errors) from None


async def answer(request: Request, error: Exception) -> JSONResponse:
    """Exception handler of the app."""
    return ProblemError.of(error).response()


HANDLED: tuple[type[Exception], ...] = (ProblemError, AudioError, SettingError, HTTPException)
"""What `answer` is registered for; anything else is a failure of the program, and is logged."""

"""Which pages may call, and under which names: a browser lets any page send requests to any server, this one included.

A page of another origin cannot read the answer, but what it sends costs work. And it can read everything where the name
of its own server has come to mean this one's address (DNS rebinding): then Origin and Host agree, so that Host is
compared with names that are known. An address in digits cannot come to mean another.
"""

import ipaddress
import socket
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kws_edge.server.http.problems import ProblemError
from kws_edge.server.settings import ServerSettings

_OPEN: Final = ("/", "/openapi.json")
_OPEN_FOLDERS: Final = ("/page/", "/health/")
"""What tells nobody anything and costs nothing, and what links from elsewhere may lead to."""


class Guard:
    """ASGI middleware: refuses pages of other origins, and hosts that this server is not called."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        """Wrap an app."""
        self._app = app
        self._origins = settings.cors_origins
        self._hosts = {"localhost", settings.host.lower(), *_own_names(), *(h.lower() for h in settings.allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or handshake."""
        problem = self._wrong(scope) if scope["type"] in ("http", "websocket") else None
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await refuse(problem, scope, receive, send)

    def _wrong(self, scope: Scope) -> ProblemError | None:
        headers, path = Headers(scope=scope), scope["path"]
        host, origin = headers.get("Host"), headers.get("Origin")
        if host is not None and not path.startswith("/health/") and not self._is_served(host):
            return ProblemError(
                "misdirected",
                f"Host {host[:100]!r}; expected an address in digits, localhost, the name of this machine, or one of "
                "--allowed-hosts",
            )
        reads = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if reads and (path in _OPEN or path.startswith(_OPEN_FOLDERS)):
            return None
        if origin is None:
            site = headers.get("Sec-Fetch-Site", "none")  # which other programs than browsers do not send
            if site in ("none", "same-origin") or "*" in self._origins:
                return None
            return ProblemError("forbidden", f"Sec-Fetch-Site {site[:20]!r}; expected a page of this server")
        if origin in self._origins or "*" in self._origins or (host is not None and _netloc(origin) == host):
            return None
        return ProblemError(
            "forbidden",
            f"a page of {origin[:100]!r}; expected one of {(host or '')[:100]!r}, a Host that a proxy must pass on as "
            "it came, or one that --cors-origins names",
        )

    def _is_served(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".").lower()
        except ValueError:
            return False
        if name in self._hosts or "*" in self._hosts or name.endswith(".localhost"):
            return True
        if any(known.startswith("*.") and name.endswith(known[1:]) for known in self._hosts):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


async def refuse(problem: ProblemError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with a problem; a handshake with a bare 403 where what runs the app, as Ray Serve, cannot do more."""
    if scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
        await problem.response()(scope, receive, send)
    else:
        await send({"type": "websocket.close"})


def _own_names() -> set[str]:
    name = socket.gethostname().lower()
    return {name, f"{name.partition('.')[0]}.local"}


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc or None
    except ValueError:  # it is no URL
        return None

"""The address of a server, and the libraries that connect to it."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from kws_edge.client.proxy import proxy_of
from kws_edge.errors import SettingError, lacking

TIMEOUT: Final = 30.0  # s, for an answer, and for a connection
_PING_TIMEOUT: Final = 300.0
"""Seconds for a pong, which waits behind audio where the server falls behind: then it is slow, and has not gone."""
_CLOSE_TIMEOUT: Final = 1.0  # s, for the server to answer the close of a stream

_SILENT: Final = logging.getLogger("kws_edge.client.websockets")
"""For websockets, which prints a traceback of what a server broke the protocol with besides raising it."""
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


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
        url = str(parsed).rstrip("/")  # with its scheme in small letters, by which others here know it
        proxy = proxy_of(url)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return cls(url, headers, timeout, None if proxy is None else proxy.url)

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
            "logger": _SILENT,
            "proxy": self.proxy,
        }

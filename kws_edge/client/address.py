"""The address of a server, and the libraries that connect to it."""

import base64
import logging
import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from kws_edge.client.proxy import address_of, proxy_of, without_password
from kws_edge.errors import SettingError, missing_package
from kws_edge.text import shown

TIMEOUT: Final = 30.0  # s, for an answer, and for a connection
_LONGEST: Final = 86_400.0  # s; systems refuse much longer ones, each at another length
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
    url : without a slash at its end, and without a name and password.
    headers : with these and the key, where there are any.
    timeout : seconds for a connection, and for each answer.
    tls : whose certificates are trusted.
    proxy : URL of the one between, by the environment.
    """

    url: str
    headers: Mapping[str, str]
    timeout: float
    tls: ssl.SSLContext
    proxy: str | None = None

    @classmethod
    def of(cls, url: str, key: str | None, timeout: float) -> "Address":
        """Check them; the parameters and errors are those of the clients."""
        try:
            import httpx  # noqa: F401
            import websockets  # noqa: F401
        except ImportError as missing:
            raise missing_package("the client", missing.name, "client") from None
        parsed = address_of(url)
        if parsed is None or parsed.scheme not in ("http", "https") or parsed.query or parsed.fragment:
            given = without_password(url) if isinstance(url, str) else url
            raise SettingError(f"server {shown(given)}; expected http://HOST:PORT or https://HOST")
        if key is not None and not (isinstance(key, str) and re.fullmatch(r"[!-~]+", key)):
            raise SettingError(
                "the API key is empty or has characters that no header can carry; expected the key of the server"
            )
        check_seconds("timeout", timeout, "above 0 and up to a day", lambda seconds: 0 < seconds <= _LONGEST)
        url = str(parsed.copy_with(userinfo=b"")).rstrip("/")  # its scheme in small letters, by which others know it
        proxy = proxy_of(url)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        if parsed.userinfo:  # of something before the server; the two headers would be one otherwise
            user = base64.b64encode(f"{parsed.username}:{parsed.password}".encode()).decode()
            headers = {"Authorization": f"Basic {user}"} | ({} if key is None else {"X-API-Key": key})
        return cls(url, headers, timeout, _trusted(url), None if proxy is None else proxy.url)

    def http_options(self) -> dict[str, Any]:
        """For httpx.Client or httpx.AsyncClient."""
        # No answer is worth compressing, and one that is may be of any size.
        headers = {**self.headers, "Accept-Encoding": "identity"}
        return {
            "base_url": self.url,
            "headers": headers,
            "timeout": self.timeout,
            "proxy": self.proxy,
            "trust_env": False,  # or httpx would fail over the variables of proxies that are not for this address
            "verify": self.tls,
        }

    def stream_options(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """For either `connect` of websockets; parameters that are None are left to the server."""
        given = {"encoding": "float32", **query(parameters)}
        secure = {"ssl": self.tls} if self.url.startswith("https:") else {}
        return {
            "uri": f"ws{self.url.removeprefix('http')}/v1/stream?{urlencode(given)}",
            "additional_headers": self.headers,
            "open_timeout": self.timeout,
            "close_timeout": _CLOSE_TIMEOUT,
            "compression": None,
            "ping_timeout": _PING_TIMEOUT,
            "logger": _SILENT,
            "proxy": self.proxy,
            **secure,
        }


def check_seconds(name: str, given: object, expected: str, fits: Callable[[float], bool]) -> None:
    """Raise SettingError unless it is a number that fits."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not fits(given):
        raise SettingError(f"{name}={shown(given)}; expected a number of seconds, {expected}")


def query(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as texts; those that are None are left to the server. Raises SettingError for what no URL can hold."""
    given = {name: str(value) for name, value in parameters.items() if value is not None}
    for name, text in given.items():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise SettingError(f"{name}={shown(text)}; expected a text of Unicode characters") from None
    return given


def _trusted(url: str) -> ssl.SSLContext:
    """Those that httpx brings and those of the system, for requests and streams alike; nobody where there is no TLS.

    Raises SettingError where the variable that names others cannot be used.
    """
    import httpx

    if not url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context = httpx.create_ssl_context()
        context.load_default_certs()
    except OSError as error:
        file = shown(os.environ.get("SSL_CERT_FILE"), 200)
        raise SettingError(f"SSL_CERT_FILE={file}: {error.strerror or error}; expected certificates as PEM") from None
    return context

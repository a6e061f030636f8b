"""Find the proxy that the environment sets for an address, so that errors can name it."""

import importlib.util
import re
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kws_edge.errors import SettingError
from kws_edge.text import one_line

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy.

    Attributes
    ----------
    variable : which names it, as HTTP_PROXY.
    url : of it, as it is there.
    """

    variable: str
    url: str

    def __str__(self) -> str:
        """Both, without a password."""
        return f"the proxy {one_line(without_password(self.url))} of the variable {self.variable}"


def address_of(url: object) -> "httpx.URL | None":
    """A URL with a host, and with a port that there is, if with any; None for anything else."""
    import httpx

    try:
        parsed = httpx.URL(url if isinstance(url, str) else "")
    except httpx.InvalidURL:
        return None
    return parsed if parsed.host and (parsed.port is None or 1 <= parsed.port <= 65_535) else None


def without_password(url: str) -> str:
    """An address without a name and password, for messages."""
    return re.sub("//[^/?#]*@", "//", url)


def proxy_of(url: str) -> Proxy | None:
    """The proxy for a server, by the rules of urllib, which are those of most programs; None where there is none.

    Raises
    ------
    SettingError : it is of a kind that cannot be used here.
    """
    parsed = urlsplit(url)
    proxies = urllib.request.getproxies()
    kind = next((kind for kind in (parsed.scheme, "all") if proxies.get(kind)), None)
    if kind is None or urllib.request.proxy_bypass(parsed.netloc.rpartition("@")[2]):
        return None
    address = proxies[kind] if "://" in proxies[kind] else f"http://{proxies[kind]}"
    proxy = Proxy(f"{kind}_proxy", address)
    if address_of(address) is None:
        raise SettingError(f"{proxy} is no address; expected http://HOST:PORT there, or no_proxy={parsed.hostname}")
    scheme = urlsplit(address).scheme
    socks = scheme in ("socks5", "socks5h")
    if socks and all(map(importlib.util.find_spec, ("socksio", "python_socks"))):
        return proxy
    if scheme not in ("http", "https"):
        needs = "which needs the packages socksio and python-socks" if socks else "of a kind that is not supported"
        raise SettingError(f"{proxy}, {needs}; expected http://HOST:PORT there, or no_proxy={parsed.hostname}")
    return proxy

"""The sockets of a server: one, or one for each of its processes at the same address."""

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any, Final

from kws_edge.errors import SettingError
from kws_edge.server.settings import ServerSettings

_log = logging.getLogger("kws_edge.server")

BACKLOG: Final = 2048
"""Connections that may wait to be accepted."""

_AN_ADDRESS: Final = "--host with an address of this machine, as 127.0.0.1, or 0.0.0.0 for all of them"
_EXPECTED_OF_ADDRESS: Final = {
    errno.EADDRINUSE: "--port with one that is free, or 0",
    errno.EACCES: "--port with one that this user may take, as 8765",
}
"""Why an address cannot be listened on → what would do; for all else it is `_AN_ADDRESS`."""


def listen(settings: ServerSettings) -> socket.socket:
    """Open the socket.

    Raises
    ------
    SettingError : the address is taken, or none of this machine.
    """
    host, port = settings.host, settings.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:  # the latter for a name that cannot be one
        code = 0 if isinstance(error, UnicodeError | socket.gaierror) else error.errno or 0
        raise refusal(settings, code) from None


def refusal(settings: ServerSettings, code: int) -> SettingError:
    """The error that an address is which cannot be listened on, by the system's code; 0 where there is none."""
    why = os.strerror(code) if code else "no such host"
    expected = _EXPECTED_OF_ADDRESS.get(code, _AN_ADDRESS)
    return SettingError(f"cannot listen on {settings.host}:{settings.port}: {why}; expected {expected}")


@contextlib.contextmanager
def reserved(settings: ServerSettings) -> Iterator[socket.socket]:
    """A socket that keeps a port for `another`, and does not listen itself; errors are those of `listen`."""
    with listen(settings) as sock:  # with the port to itself, unlike those below: nobody else has it
        family, address = sock.family, sock.getsockname()
    with _claim(settings, address), _bound(family, address) as sock:
        yield sock


@contextlib.contextmanager
def _claim(settings: ServerSettings, address: tuple[Any, ...]) -> Iterator[None]:
    """Keep other servers of several processes away, which Linux would let share the port.

    A name in Linux's abstract namespace belongs to one process, and is free again when that ends.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    with socket.socket(socket.AF_UNIX) as claim:
        try:
            claim.bind(f"\0kws-edge {address[0]} {address[1]}")
        except OSError:
            raise refusal(settings, errno.EADDRINUSE) from None
        yield


def another(reserved: socket.socket) -> socket.socket:
    """A socket for one of several processes. Linux spreads connections evenly over those that listen at an address.

    On a single socket for all, the first process to wake would take all connections that wait: often nearly all of a
    burst, and keep them for as long as their clients do, while another has nothing to do.
    """
    return _bound(reserved.family, reserved.getsockname())


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as `socket.create_server` has it
    sock.bind(address)
    return sock


def announce(sock: socket.socket, settings: ServerSettings) -> None:
    """Log where the server listens and who may call."""
    shown, port = sock.getsockname()[:2]
    url = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
    _log.info("listening", extra={"fields": {"url": url, "api_keys": bool(settings.api_keys)}})
    if not settings.api_keys and not ipaddress.ip_address(shown).is_loopback:
        _log.warning(f"{url}: anyone who can reach it may use it; set KWS_EDGE_API_KEYS to require a key")

"""The open connections of a server, of which one client has a share, and which end when nobody reads at the other side.

uvicorn limits requests in progress, not connections, and waits for as long as a client takes to read an answer.
"""

import ipaddress
import logging
import time
from asyncio import Transport
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kws_edge.throttle import Throttle

_log = logging.getLogger("kws_edge.server")

_CLOSING: Final = 5.0
"""Seconds for a connection that is closed to be rid of what it still has to send."""


def client_of(address: str) -> str:
    """Under which name the limits of an address are counted: IPv6 hands out addresses by the network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


@dataclass(slots=True)
class _Open:
    client: str
    unread_since: float | None = None
    closing_since: float | None = None


class Connections:
    """Those that are open, HTTP and WebSocket alike."""

    def __init__(self, most: int, most_of_client: int, send_timeout: float, proxies: Iterable[str] = ()) -> None:
        """Set the limits; the addresses and networks of proxies have no limit of their own."""
        self._most, self._most_of_client, self._send_timeout = most, most_of_client, send_timeout
        self._proxies = [ipaddress.ip_network(address) for address in proxies if address != "*"]
        self._any_proxy = "*" in proxies
        self._open: dict[Transport, _Open] = {}
        self._clients: Counter[str] = Counter()
        self._refused, self._say_refused = 0, Throttle()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def opened(self, transport: Transport) -> bool:
        """Count one; whether there may be that many."""
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else "unknown"
        client = client_of(address)
        full = len(self._open) >= self._most
        greedy = self._clients[client] >= self._most_of_client and not self._is_proxy(address)
        self._open[transport] = _Open(client)
        self._clients[client] += 1
        if full or greedy:
            self._refused += 1
        return not (full or greedy)

    def client(self, transport: Transport) -> str:
        """Under which name the limits of an open one are counted."""
        entry = self._open.get(transport)
        return entry.client if entry else "unknown"

    def closed(self, transport: Transport) -> None:
        """One is gone."""
        entry = self._open.pop(transport, None)
        if entry:
            self._clients[entry.client] -= 1
            if not self._clients[entry.client]:
                del self._clients[entry.client]

    def was_read(self, transport: Transport) -> None:
        """The other side has taken most of what waited for it."""
        entry = self._open.get(transport)
        if entry:
            entry.unread_since = None

    def sweep(self) -> None:
        """Cut off those whose other side reads nothing; called about once a second."""
        now = time.monotonic()
        for transport, entry in list(self._open.items()):
            if transport.is_closing():
                entry.closing_since = entry.closing_since or now
                if now - entry.closing_since > _CLOSING:
                    transport.abort()
            elif transport.get_write_buffer_size():
                entry.unread_since = entry.unread_since or now
                if now - entry.unread_since > self._send_timeout:
                    transport.abort()
            else:
                entry.unread_since = None
        if self._refused and self._say_refused.passes():
            most = f"{self._most} in all, {self._most_of_client} of one client"
            _log.warning(f"{self._refused} connections refused; {len(self)} are open, and there may be {most}")
            self._refused = 0

    def _is_proxy(self, address: str) -> bool:
        if self._any_proxy:
            return True
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._proxies)

"""A server among abusive clients: what two honest ones get, what it costs, and whether anything is left behind.

    python bench/soak.py                        ten minutes, and a table
    python bench/soak.py --seconds 60           less
    python bench/soak.py --docs                 and put it into docs/measurements/server.md

Everything stays on the loopback, where each kind of client has an address of its own (127.0.0.N, on Linux). Abusers do
again and again, at a bounded pace, what once froze, filled or held up the server: they hold half-sent bodies, idle
streams and connections after a line end, ask without reading, send files that decode to very much, forms with a charset
that takes for ever, streams of 100 hops a second, frames that break the protocol, and what pages from elsewhere send.
Meanwhile one honest client sends a clip twice a second, and another has a live stream.
"""

import argparse
import asyncio
import contextlib
import io
import json
import os
import platform
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile
from load import RunningServer, server, word, write_docs

from kws_edge.audio.wav import as_wav
from kws_edge.model.shipped import DEFAULT_MODEL, shipped_models

BEGIN, END = "<!-- soak: written by bench/soak.py --docs -->", "<!-- /soak -->"
HANDSHAKE = (
    b"GET /v1/stream?%b HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def flac(samples: np.ndarray, rate: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def frame(opcode: int, data: bytes) -> bytes:
    size = len(data)
    if size < 126:
        return struct.pack(">BB", 0x80 | opcode, 0x80 | size) + bytes(4) + data
    if size < 65_536:
        return struct.pack(">BBH", 0x80 | opcode, 0xFE, size) + bytes(4) + data
    return struct.pack(">BBQ", 0x80 | opcode, 0xFF, size) + bytes(4) + data


def post(body: bytes, kind: bytes = b"audio/wav", length: int | None = None, more: bytes = b"") -> bytes:
    size = len(body) if length is None else length
    head = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (more, kind, size) + body


class Abuse:
    """What abusers do; each method once, on one connection that it holds for a while."""

    def __init__(self) -> None:
        noise = (word() * 20_000).astype("<i2").tobytes()
        self.bomb = flac(np.zeros((192_000 * 20, 8), np.int16), 192_000)
        self.long = flac(np.tile(word(), 59), 16_000)
        self.hops = frame(2, (noise * 8)[: 2**18 - 16])
        self.form = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"a-" * 100_000 + b"\r\n--x--\r\n"

    async def half_sent_bodies(self, connection: "Connection") -> None:
        await connection.send(post(bytes(1000), length=8_000_000))
        await connection.hold(20)

    async def large_bodies(self, connection: "Connection") -> None:
        await connection.send(post(random.randbytes(8_000_000)))
        await connection.hold(2)

    async def decompression_bombs(self, connection: "Connection") -> None:
        await connection.send(post(self.bomb))
        await connection.hold(2)

    async def long_clips(self, connection: "Connection") -> None:
        await connection.send(post(self.long))
        await connection.hold(10)

    async def slow_forms(self, connection: "Connection") -> None:
        await connection.send(post(self.form, b"multipart/form-data; boundary=x; charset=punycode"))
        await connection.hold(1)

    async def other_pages(self, connection: "Connection") -> None:
        await connection.send(post(self.long, more=b"Origin: https://example.org\r\nSec-Fetch-Site: cross-site\r\n"))
        await connection.hold(1)

    async def line_ends(self, connection: "Connection") -> None:
        await connection.send(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(20):
            await connection.hold(1)
            await connection.send(b"\r\n")

    async def asking_without_reading(self, connection: "Connection") -> None:
        asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for _ in range(200):
            await connection.send(asked * 4)
            await asyncio.sleep(0.05)

    async def slow_heads(self, connection: "Connection") -> None:
        for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\n":
            await connection.send(bytes([byte]))
            await asyncio.sleep(0.5)

    async def idle_streams(self, connection: "Connection") -> None:
        await connection.send(HANDSHAKE % b"")
        await connection.hold(40)

    async def streams_of_many_hops(self, connection: "Connection") -> None:
        await connection.stream(b"rate=4000&hop=0.01&posteriors=true")
        await connection.send(self.hops)
        await connection.hold(5)

    async def broken_frames(self, connection: "Connection") -> None:
        broken = random.choice([b"\xff\xff", random.randbytes(60), frame(1, b"\xff"), frame(9, b"x" * 126)])
        await connection.stream(b"")
        await connection.send(broken)
        await connection.hold(0.2)

    async def floods_of_frames(self, connection: "Connection") -> None:
        flood = random.choice([frame(2, b""), frame(9, b"x" * 100), struct.pack(">BB", 0, 0x80) + bytes(4)])
        await connection.stream(b"")
        await connection.send(flood * 5000)
        await connection.hold(2)

    async def floods_of_tiny_messages(self, connection: "Connection") -> None:
        await connection.stream(b"")
        await connection.send(frame(2, bytes(2)) * 30_000)
        await connection.hold(5)


class Connection:
    """A raw connection of an abuser, from its own address."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(5):
            await self._writer.drain()

    async def stream(self, query: bytes) -> None:
        """Shake hands."""
        await self.send(HANDSHAKE % query)
        async with asyncio.timeout(20):
            await self._reader.readuntil(b"\r\n\r\n")

    async def hold(self, seconds: float) -> None:
        """Keep it open, reading nothing, for so long or until the other side closes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._reader.at_eof():
                    await asyncio.sleep(0.2)
        if self._reader.at_eof():
            raise ConnectionError


async def abuse(port: int, do: Callable[[Connection], Awaitable[None]], address: str, pace: float, until: float) -> int:
    done = 0
    while time.monotonic() < until:
        writer = None
        try:
            async with asyncio.timeout(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            await do(Connection(reader, writer))
        except (OSError, EOFError, TimeoutError):
            pass
        finally:
            if writer:
                writer.transport.abort()
        done += 1
        await asyncio.sleep(pace * random.random())
    return done


async def clips(url: str, address: str, until: float) -> list[tuple[float, str]]:
    """An honest client: (seconds, what came) of each clip."""
    body, found = as_wav(word()), []
    transport = httpx.AsyncHTTPTransport(local_address=address)
    async with httpx.AsyncClient(base_url=url, timeout=60, transport=transport) as client:
        while time.monotonic() < until:
            began = time.monotonic()
            try:
                answer = await client.post("/v1/classify", content=body, headers={"Content-Type": "audio/wav"})
                said = str(answer.status_code)
            except httpx.HTTPError as error:
                said = type(error).__name__
            found.append((time.monotonic() - began, said))
            await asyncio.sleep(0.5)
    return found


async def live(url: str, address: str, until: float) -> tuple[list[float], int, Counter[str]]:
    """An honest stream: the lag of each hop, how often it had to connect, and what else it was told."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException

    sound = (word() * 32767).astype("<i2").reshape(10, 1600)
    lags: list[float] = []
    told: Counter[str] = Counter()
    begun = 0
    while time.monotonic() < until:
        begun += 1
        try:
            stream = f"{url.replace('http', 'ws')}/v1/stream?posteriors=true"
            async with connect(
                stream, compression=None, local_addr=(address, 0), open_timeout=60, ping_timeout=None
            ) as socket:
                sent: dict[int, float] = {}

                async def read(socket: Any = socket, sent: dict[int, float] = sent) -> None:
                    async for text in socket:
                        message = json.loads(text)
                        if message["type"] == "hop":
                            lags.append(time.monotonic() - sent.pop(round(message["time"] * 10)))
                        elif message["type"] != "hello":
                            told[message["type"]] += 1

                reader = asyncio.create_task(read())
                start, k = time.monotonic(), 0
                while time.monotonic() < until and not reader.done():
                    await asyncio.sleep(max(0.0, start + k / 10 - time.monotonic()))
                    k += 1
                    sent[k] = time.monotonic()
                    await socket.send(sound[k % 10].tobytes())
                reader.cancel()
        except (OSError, TimeoutError, WebSocketException):
            await asyncio.sleep(0.5)
    return lags, begun, told


def spread(what: str, seconds: list[float]) -> dict[str, float | str]:
    """Median, 99th percentile and longest; said where nothing came, as on a machine that is far too busy."""
    if not seconds:
        return {f"{what}, s": "nothing came"}
    p50, p99 = np.quantile(seconds, [0.5, 0.99])
    times = {"p50": float(p50), "p99": float(p99), "slowest": max(seconds)}
    return {f"{what} {name}, s": round(value, 3) for name, value in times.items()}


async def soak(running: RunningServer, seconds: float, most: list[float]) -> dict[str, Any]:
    kinds = Abuse()
    port, until = int(running.url.rpartition(":")[2]), time.monotonic() + seconds
    names = [name for name in vars(Abuse) if not name.startswith("_")]
    tasks = [
        abuse(port, getattr(kinds, name), f"127.0.0.{10 + i}", 1.0, until)
        for i, name in enumerate(names)
        for _ in range(80 if name in ("idle_streams", "half_sent_bodies", "line_ends") else 3)
    ]

    async def watch() -> None:
        while time.monotonic() < until:
            most[0] = max(most[0], running.memory())
            most[1] = max(most[1], len(os.listdir(f"/proc/{running.pid}/fd")))
            await asyncio.sleep(1)

    answers, (lags, begun, told), _, *done = await asyncio.gather(
        clips(running.url, "127.0.0.3", until), live(running.url, "127.0.0.4", until), watch(), *tasks
    )
    return {
        "abuses": sum(done),
        "clips": len(answers),
        "answered": sum(said == "200" for _, said in answers),
        "other answers": dict(Counter(said for _, said in answers if said != "200")),
        **spread("clip", [took for took, _ in answers]),
        "hops": len(lags),
        **spread("lag", lags),
        "streams begun": begun,
        "told slow": told["slow"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=shipped_models()[DEFAULT_MODEL])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--docs", action="store_true", help="put the table into docs/measurements/server.md")
    given = parser.parse_args()
    if not sys.platform.startswith("linux"):
        parser.error("needs Linux, where all of 127.0.0.0/8 is this machine")
    load_before = os.getloadavg()[0]
    with server(given.model) as running:
        before, most = running.memory(), [0.0, 0.0]
        result = asyncio.run(soak(running, given.seconds, most))
        time.sleep(45)  # longer than any time-out
        began = time.monotonic()
        left = httpx.get(f"{running.url}/health/ready", timeout=60).json()
        result |= {
            "memory before, MB": round(before),
            "memory at most, MB": round(most[0]),
            "memory after, MB": round(running.memory()),
            "open files at most": int(most[1]),
            "open files after": len(os.listdir(f"/proc/{running.pid}/fd")),
            "health after, s": round(time.monotonic() - began, 3),
            "streams after": left["streams"],
            "clips waiting after": left["waiting"],
        }
    levels = Counter(json.loads(line)["level"] if line.startswith("{") else "not JSON" for line in running.log)
    result |= {
        "log: errors": levels["error"],
        "log: tracebacks": sum('"traceback"' in line for line in running.log),
        "log: not JSON": levels["not JSON"],
        "exit status": running.status,
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in result.items())
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load before {load_before:.1f}"
    text = f"Model `{given.model.stem}` on {machine}, {given.seconds:.0f} s.\n\n| | |\n| --- | ---: |\n{rows}"
    print(text)
    if given.docs:
        write_docs(BEGIN, text, END)


if __name__ == "__main__":
    main()

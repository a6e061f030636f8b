"""The measuring side, inside a peer's own environment: the standard library alone.

A peer is loaded, then takes stretches of 16-bit audio in chunks of its own choice. Requests come as JSON on standard
input, a line each, and every one is answered by a line on standard output:

    {"file": "speech.raw", "first": 0, "samples": 80000} → {"wall": [...], "cpu": [...], "fired": 0, "rested": 0}
    {"memory": true} → {"peak_mb": 61.2}

`wall` and `cpu` are seconds of each chunk; `fired` counts the chunks in which a word was found. A request that has
"scores": true also gets `scores`, one a chunk, of a peer that has them.
"""

import json
import os
import sys
import time
from typing import Any, Protocol, cast


class Peer(Protocol):
    """A keyword spotter behind one interface.

    Attributes
    ----------
    chunk : samples that it takes at a time.
    rested : chunks so far in which it did not run its network.
    """

    chunk: int
    rested: int

    def step(self, pcm: bytes) -> bool:
        """Take a chunk of 16-bit little-endian mono at 16 kHz; whether a word was found in it."""


class Scored(Peer, Protocol):
    """One that says how sure it is.

    Attributes
    ----------
    threshold : what the score of a chunk must exceed for a word to be found in it: the peer's own, by default.
    score : of the last chunk.
    """

    threshold: float
    score: float


def serve(make: Any) -> None:
    """Load the peer that `make` gives for the options in the command line, then answer until standard input ends."""
    options = json.loads(sys.argv[1])
    os.sched_setaffinity(0, {options.pop("core")})  # before anything starts a thread
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not end up among the answers

    def answer(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    peer: Peer = make(**options)
    threshold = getattr(peer, "threshold", None)
    answer({"cpu": time.process_time(), "chunk": peer.chunk, "threshold": threshold})
    for line in sys.stdin:
        request = json.loads(line)
        if "memory" in request:
            answer({"peak_mb": peak_memory()})
        else:
            answer(process(peer, **request))


def peak_memory() -> float:
    """The most that this process has held resident, MB; getrusage's figure would begin with that of its parent."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def process(peer: Peer, file: str, first: int, samples: int, scores: bool = False) -> dict[str, Any]:
    """Play a stretch of a file to the peer, as fast as it goes. The last chunk is left out where it is not whole."""
    with open(file, "rb") as audio:
        audio.seek(2 * first)
        pcm = audio.read(2 * samples)
    size, rested = 2 * peer.chunk, peer.rested
    wall, cpu, fired, scored = [], [], 0, []
    for start in range(0, len(pcm) - size + 1, size):
        chunk = pcm[start : start + size]
        cpu_before, before = time.process_time(), time.perf_counter()
        found = peer.step(chunk)
        after, cpu_after = time.perf_counter(), time.process_time()  # CPU time is of all threads
        wall.append(after - before)
        cpu.append(cpu_after - cpu_before)
        fired += found
        if scores:
            scored.append(cast(Scored, peer).score)
    more = {"scores": scored} if scores else {}
    return {"wall": wall, "cpu": cpu, "fired": fired, "rested": peer.rested - rested, **more}

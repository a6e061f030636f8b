"""A whole recording as the network saw it, hop by hop, for the decision to be made again under any settings."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kws_edge.arrays import F32, F64, Bools
from kws_edge.model.evidence import no_evidence
from kws_edge.model.features import pad
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.session import MAX_BATCH
from kws_edge.stream.framing import DEFAULT_HOP, Hop, HopStream


@dataclass(frozen=True, slots=True, eq=False)
class Hops:
    """What the decision needs to know of n hops, times rising.

    Attributes
    ----------
    hop : seconds from one to the next, save where samples were lost.
    time : float64 [n], stream time at the end of each, s.
    alpha : float32 [n, K]; where the network did not run, that of no evidence.
    vacuity : float32 [n], 1 where the network did not run.
    level, noise : float64 [n], dBFS.
    clipped : bool [n].
    heard : bool [n], whether the network ran.
    """

    hop: float
    time: F64
    alpha: F32
    vacuity: F32
    level: F64
    noise: F64
    clipped: Bools
    heard: Bools

    def __len__(self) -> int:
        """Count the hops."""
        return len(self.time)


def trace(model: KeywordModel, blocks: Iterable[F32], hop: float = DEFAULT_HOP) -> Hops:
    """Run the network over a whole recording, in batches; `decision.decide` then turns it into events.

    For sweeps over settings: the network, which costs most, runs once. Its numbers are those of a `Spotter` to within
    float32's rounding, since batches are summed in another order.

    Parameters
    ----------
    blocks : float32 [n] each, mono at 16 kHz, such as `load.read_blocks` gives.
    """
    stream = HopStream(model.metadata, hop)
    hops: list[Hop] = []
    alphas: list[F32] = []
    vacuities: list[np.float32] = []
    waiting: list[tuple[int, F32]] = []  # a hop and its features

    def run() -> None:
        outputs = model.run(np.stack([features for _, features in waiting]))
        for (i, _), alpha, vacuity in zip(waiting, outputs.alpha, outputs.vacuity, strict=True):
            alphas[i], vacuities[i] = alpha, vacuity
        waiting.clear()

    nothing = no_evidence(len(model.labels), model.metadata.variant)
    for block in blocks:
        for h in stream.push(block):
            if h.frames is not None:
                waiting.append((len(hops), pad(h.frames, model.metadata.front_end)))
            hops.append(h)
            alphas.append(nothing)
            vacuities.append(np.float32(1))
            if len(waiting) == MAX_BATCH:
                run()
    if waiting:
        run()
    alpha = np.array(alphas, np.float32).reshape(len(hops), len(model.labels))
    return Hops(
        hop=hop,
        time=np.array([h.time for h in hops], np.float64),
        alpha=alpha,
        vacuity=np.array(vacuities, np.float32),
        level=np.array([h.level for h in hops], np.float64),
        noise=np.array([h.noise for h in hops], np.float64),
        clipped=np.array([h.clipped for h in hops], np.bool_),
        heard=np.array([h.frames is not None for h in hops], np.bool_),
    )

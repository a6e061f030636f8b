"""A stream computed whole, the fast way to judge a network by: features once, then the network in one piece.

It takes a network that needs no padding (padding "valid"). What decides is what decides on the device: the entropy of
the smoothed p̂, which must be surer where the stream is crowded (`kws_edge.stream.decision`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kws_edge.arrays import F16, F32, F64, I64, Bools
from kws_edge.errors import SettingError
from kws_edge.model.evidence import entropy_of, no_evidence
from kws_edge.model.features import FrontEnd
from kws_edge.model.metadata import Metadata
from kws_edge.stream.decision import Decision
from kws_edge.stream.framing import DEFAULT_HOP, HopStream
from kws_edge.stream.settings import StreamSettings
from kws_edge.stream.trace import Hops
from kws_export.data.features import frames_of
from kws_export.network.matchboxnet import MatchboxNet

WINDOW = 128
"""Frames."""
HOP = 10
"""Frames, 0.1 s: the default of a stream."""
SMOOTHING = 3
"""Hops."""
REFRACTORY = 8
"""Hops between two false accepts."""
_CHUNK = 20_000  # frames that the network takes at once


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A stream before the network.

    Attributes
    ----------
    features : float16 [T, coefficients], of each frame.
    heard : bool [hops], whether the network is asked at all.
    crowded : float64 [hops], seconds of sound as loud as itself that a hop is within (`decision`, "Crowding").
    """

    features: F16
    heard: Bools
    crowded: F64


def smoothed(logits: Tensor, heard: Bools) -> F64:
    """p̂ at each hop, averaged over `SMOOTHING`; no evidence where nothing is heard. [hops, classes] → the same."""
    p = torch.softmax(logits.double(), dim=1).numpy()
    nothing = 1 / p.shape[1]
    p[~heard] = nothing
    before = np.full((SMOOTHING, p.shape[1]), nothing)
    before[0] = 0
    total = np.cumsum(np.concatenate([before, p]), axis=0)
    mean: F64 = (total[SMOOTHING:] - total[:-SMOOTHING]) / SMOOTHING
    return mean


def certainty(p: F64, stream: Stream, words: int, crowding: float) -> F64:
    """How much each word is accepted at each hop, float64 [hops, words]: -inf where another class is the best.

    It is the negative of what the decision compares with its threshold: the logit of the entropy of p̂, and for each
    second that is crowded `crowding` more.
    """
    h = np.clip(entropy_of(p), 1e-12, 1)
    with np.errstate(divide="ignore"):
        sure = np.log1p(-h) - np.log(h) - crowding * stream.crowded
    best = p.argmax(axis=1)[:, None] == np.arange(words)
    found: F64 = np.where(best & stream.heard[:, None], sure[:, None], -np.inf)
    return found


def log_odds(p: F64, words: int) -> F64:
    """Of each word at each hop, from p̂ [hops, classes]: float64 [hops, words]."""
    p = np.clip(p[:, :words], 1e-12, 1 - 1e-12)
    odds: F64 = np.log(p / (1 - p))
    return odds


@torch.inference_mode()
def stream_logits(network: MatchboxNet, features: F32 | F16) -> Tensor:
    """A stream's logits, hop by hop: [T, coefficients] → [hops, classes], the first for frame 0 to `HOP`.

    What lies before the stream counts as its first frame, repeated: silence that has no edge.
    """
    if network.padding != "valid":
        raise SettingError('a network with padding "same" in a stream in one piece; expected padding "valid"')
    network.eval()
    frames, edge = WINDOW, network.reach
    pooled = frames - 2 * edge
    before = np.repeat(features[:1], frames - HOP, axis=0)
    x = np.concatenate([before, features])
    hops = (len(x) - frames) // HOP + 1
    found: list[Tensor] = []
    per_chunk = (_CHUNK - frames) // HOP + 1
    for first in range(0, hops, per_chunk):
        n = min(per_chunk, hops - first)
        block = x[first * HOP : first * HOP + (n - 1) * HOP + frames]
        part = torch.from_numpy(np.ascontiguousarray(block.T, np.float32))[None]  # [1, coefficients, T]
        inner = network.activations(part)[:, :, edge : part.shape[2] - edge]
        found.append(network.classifier(torch.nn.functional.avg_pool1d(inner, pooled, HOP)[0].T))
    return torch.cat(found)


def stream_features(blocks: Iterable[F32], front_end: FrontEnd) -> F16:
    """All frames of a stream: float16 [T, coefficients], half the memory of what they are computed in."""
    frames = [some.T.astype(np.float16) for some in frames_of(blocks, front_end)]
    if sum(map(len, frames)) < front_end.frames:
        raise SettingError("a stream shorter than a window; expected more")
    return np.concatenate(frames)


def heard_stream(blocks: Iterable[F32], start: Metadata) -> Stream:
    """A stream's features, and what the decision makes of its loudness."""
    framing = HopStream(start, DEFAULT_HOP)
    rows: list[tuple[float, float, float, bool]] = []

    def framed() -> Iterator[F32]:
        for block in blocks:
            rows.extend((h.time, h.level, h.noise, h.frames is not None) for h in framing.push(block))
            yield block

    features = stream_features(framed(), start.front_end)
    n = len(features) // HOP
    time, level, noise = (np.array(column[:n], np.float64) for column in list(zip(*rows, strict=True))[:3])
    heard = np.array([row[3] for row in rows[:n]], np.bool_)
    nothing = np.tile(no_evidence(len(start.labels), start.variant), (n, 1))
    hops = Hops(DEFAULT_HOP, time, nothing, np.ones(n, np.float32), level, noise, np.zeros(n, np.bool_), heard)
    rule = Decision(start, StreamSettings({start.score: 0.0}, crowding=1.0), DEFAULT_HOP)
    return Stream(features, heard, np.log([now.odds for _, now in rule.each(hops)]))


def peak_places(odds: F64, most: int = 1000, apart: int = REFRACTORY) -> I64:
    """Where a stream's values are highest, falling, no two closer than `apart` hops."""
    free = np.ones(len(odds), np.bool_)
    found: list[int] = []
    for i in np.argsort(-odds, kind="stable").tolist():
        if free[i]:
            found.append(i)
            free[max(0, i - apart + 1) : i + apart] = False
            if len(found) == most:
                break
    return np.array(found, np.int64)

"""A stream computed whole gives what windows, hop by hop, give."""

import numpy as np
import pytest
import torch

from kws_edge import KeywordModel
from kws_edge.errors import SettingError
from kws_edge.stream.decision import Decision
from kws_edge.stream.framing import DEFAULT_HOP, HopStream
from kws_edge.stream.settings import StreamSettings
from kws_edge.stream.trace import Hops
from kws_export.data.features import window_features
from kws_export.graph.read import load_network
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.wake.whole_stream import (
    HOP,
    REFRACTORY,
    certainty,
    heard_stream,
    peak_places,
    smoothed,
    stream_features,
    stream_logits,
)


def test_a_stream_in_one_piece_gives_what_its_windows_give() -> None:
    network, metadata = load_network(KeywordModel.load("stream").path)
    fe = metadata.front_end
    x = (0.1 * np.random.default_rng(0).standard_normal(20 * 16_000)).astype(np.float32)
    features = stream_features(np.array_split(x, 7), fe)
    logits = stream_logits(network, features)
    for hop in (20, 21, 100, 150):
        end = (hop + 1) * HOP
        window = x[(end - 128) * fe.hop : (end - 1) * fe.hop + fe.window]
        with torch.inference_mode():
            alone = network(torch.from_numpy(window_features(window, fe))[None])[0]
        torch.testing.assert_close(logits[hop], alone, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("crowding", [0.0, 8.0])
def test_epochs_are_judged_by_the_rule_that_decides_on_the_device(crowding: float) -> None:
    network, metadata = load_network(KeywordModel.load("computer").path)
    rng = np.random.default_rng(3)
    loudness = np.repeat(10 ** (rng.uniform(-70, -10, 120) / 20), 8_000)  # another level each half second
    x = (loudness * rng.standard_normal(len(loudness))).astype(np.float32)
    stream = heard_stream(np.array_split(x, 5), metadata)
    logits = stream_logits(network, stream.features)
    assert stream.crowded.max() == 1
    assert stream.crowded.min() == 0
    sure = certainty(smoothed(logits, stream.heard), stream, len(metadata.labels), crowding)

    rows = list(HopStream(metadata, DEFAULT_HOP).push(x))[: len(stream.heard)]
    alpha = torch.exp(logits).numpy()
    alpha[~stream.heard] = 1
    hops = Hops(
        DEFAULT_HOP, np.array([h.time for h in rows]), alpha, np.ones(len(rows), np.float32),
        np.array([h.level for h in rows]), np.array([h.noise for h in rows]), np.zeros(len(rows), np.bool_),
        stream.heard,
    )  # fmt: skip
    settings = StreamSettings({"entropy": 0.5}, crowding=crowding)
    ruled = [now for _, now in Decision(metadata, settings, DEFAULT_HOP).each(hops)]
    heard = np.flatnonzero(stream.heard)
    assert [sure[i].argmax() for i in heard] == [ruled[i].guess for i in heard]
    h = np.clip([ruled[i].score("entropy") for i in heard], 1e-6, 1 - 1e-6)
    np.testing.assert_allclose(np.clip(sure[heard].max(axis=1), -13, 13), -np.log(h / (1 - h)), atol=0.05)


def test_a_network_that_pads_its_windows_is_refused() -> None:
    with pytest.raises(SettingError, match="padding"):
        stream_logits(MatchboxNet(3), np.zeros((500, 64), np.float32))


def test_peaks_are_counted_once_and_fall() -> None:
    odds = np.full(100, -9.0)
    odds[[10, 12, 40, 41, 80]] = [3.0, 5.0, 2.0, 1.0, 4.0]
    assert odds[peak_places(odds)][:3].tolist() == [5.0, 4.0, 2.0]
    flat = peak_places(np.zeros(10 * REFRACTORY))
    assert len(flat) == 10

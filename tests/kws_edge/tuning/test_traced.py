"""What the network sees of a stream, with the words in it."""

from pathlib import Path

import numpy as np
import pytest
import tiny_model
from stream_points import tone

from kws_edge.errors import SettingError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning.points import assess
from kws_edge.tuning.soundscape import compose
from kws_edge.tuning.traced import trace_stream


def test_a_composed_stream_is_traced_with_its_words(tmp_path: Path) -> None:
    model = KeywordModel.load(tiny_model.save(tmp_path))
    clips = [(word, tone(word)) for word in ("low", "high", "low")]
    stream = [(samples, [word] if word else []) for samples, word in compose(clips, seed=1)]
    traced = trace_stream(model, stream, "three")
    report = assess(model.metadata, [traced], StreamSettings({"entropy": 0.5}))
    assert [word.label for word in traced.words] == ["low", "high", "low"]
    assert (report.hits, report.false_accepts, report.missed) == (3, 0, 0)
    assert report.seconds == pytest.approx(traced.seconds)


def test_a_stream_shorter_than_a_hop_is_refused(tmp_path: Path) -> None:
    model = KeywordModel.load(tiny_model.save(tmp_path))
    with pytest.raises(SettingError, match="short: shorter than a hop"):
        trace_stream(model, [(np.zeros(100, np.float32), [])], "short")

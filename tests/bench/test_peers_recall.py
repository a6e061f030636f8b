"""Counting of bench/peers/recall.py: what finds a phrase, what is a false accept, which threshold is the loosest."""

from pathlib import Path
from typing import Any

import harness
import numpy as np
import pytest
import recall

from kws_edge.tuning.soundscape import Word


def scored(*loud: tuple[float, float, float], seconds: float = 20.0) -> Any:
    """A score of 0 every tenth of a second, but for stretches (from, to, score)."""
    scores = np.zeros(round(seconds * 10))
    for start, end, value in loud:
        scores[round(start * 10) : round(end * 10)] = value
    return scores


def test_a_score_that_wavers_is_one_detection_at_its_first_rise() -> None:
    scores = scored((2.0, 2.3, 0.9), (3.0, 3.2, 0.9), (4.5, 4.6, 0.9))
    assert recall.detections(scores, 0.1, 0.5) == pytest.approx([2.1, 4.6])
    assert recall.detections(scores, 0.1, 0.9) == []  # above the threshold, not at it


def test_a_phrase_is_found_from_its_start_to_a_second_after_its_end() -> None:
    words = [Word("kal", start, start + 1) for start in (1.0, 5.0, 9.0, 13.0)]
    delays = recall.found([0.9, 5.0, 10.9, 15.1], words)
    assert delays[0] is None
    assert delays[1:3] == pytest.approx([-1.0, 0.9])
    assert delays[3] is None


@pytest.fixture
def streams() -> list[recall.Stream]:
    words = Word("a-kal", 1.0, 2.0), Word("b-slt", 5.0, 6.0), Word("b-slt", 9.0, 10.0)
    return [
        recall.Stream("in silence", Path("said.raw"), 20.0, words),
        recall.Stream(recall.SPEECH, Path("speech.raw"), 2 * 3600.0),
    ]


@pytest.fixture
def contestant() -> recall.Contestant:
    scores = {
        "in silence": scored((1.8, 2.2, 0.95), (6.2, 6.4, 0.7), (9.5, 9.8, 0.2), (15.0, 15.1, 1.0)),
        recall.SPEECH: scored((2.0, 2.2, 0.8), (5.0, 5.1, 0.6), (8.0, 8.1, 0.4), (11.0, 11.1, 0.4)),
    }
    tries = sorted({0.0, 0.4, 0.6, 0.8}, reverse=True)
    return recall.Contestant(0.9, tries, lambda name, t: recall.detections(scores[name], 0.1, t))


def test_the_loosest_threshold_is_the_last_that_keeps_to_the_limit(
    contestant: recall.Contestant, streams: list[recall.Stream]
) -> None:
    assert recall.loosest(contestant, 2 * 3600) == 0.4  # two in two hours; below it two more
    assert recall.loosest(contestant, 3600) == 0.6
    result = recall.compare(contestant, streams)
    assert (result["own"]["false_accepts"], result["best"]["false_accepts"]) == (0, 2)
    assert result["own"]["missed"]["in silence"]["voices"] == {"a-kal": [0, 1], "b-slt": [2, 2]}
    assert result["best"]["missed"]["in silence"]["voices"] == {"a-kal": [0, 1], "b-slt": [1, 2]}
    assert result["best"]["missed"]["in silence"]["value"] == pytest.approx(1 / 3)


def test_what_fires_too_often_at_any_threshold_has_no_best_one(streams: list[recall.Stream]) -> None:
    always = recall.Contestant(0.5, [0.9, 0.8], lambda name, t: [1.0, 3.0, 5.0])
    assert recall.compare(always, streams)["best"] is None


def test_a_stream_on_disk_is_what_all_hear(tmp_path: Path) -> None:
    part = np.linspace(-1, 1, 16_000, dtype=np.float32)
    stream = recall.write("s", [(part, Word("kal", 0.2, 0.5)), (part, None)], tmp_path)
    ((samples, words),) = recall.blocks(stream)
    assert (stream.seconds, list(words)) == (2.0, [Word("kal", 0.2, 0.5)])
    np.testing.assert_allclose(samples, np.concatenate([part, part]), atol=1 / 32768)


def test_a_peer_is_asked_for_its_scores(tmp_path: Path) -> None:
    (tmp_path / "a.raw").write_bytes(np.arange(12, dtype="<i2").tobytes())

    class Peer:
        chunk, rested, threshold, score = 4, 0, 5.0, 0.0

        def step(self, pcm: bytes) -> bool:
            self.score = float(np.frombuffer(pcm, "<i2").max())
            return self.score > self.threshold

    answer = harness.process(Peer(), str(tmp_path / "a.raw"), first=0, samples=12, scores=True)
    assert (answer["scores"], answer["fired"]) == ([3.0, 7.0, 11.0], 2)


def test_the_table_has_a_row_for_each_threshold(contestant: recall.Contestant, streams: list[recall.Stream]) -> None:
    silence, speech = streams
    three = [recall.Stream(n, silence.file, 20.0, silence.words) for n in recall.CONDITIONS]
    heard = recall.Contestant(
        contestant.own,
        contestant.thresholds,
        lambda name, t: contestant.times(name if name == recall.SPEECH else "in silence", t),
    )
    compared = recall.compare(heard, [*three, speech])
    table = recall.markdown({"hours": 2.0, "engines": ["a", "b"], "contestants": {"one": compared}}).splitlines()
    assert table[2].startswith("| one | its own, 0.9 | 66.7 % (")
    assert table[3].startswith("| one | for 1 an hour, 0.4 | 33.3 % (")
    assert table[3].endswith("| 2 (0.1 to 3.6 an hour) |")
    assert table[7:] == [
        "| one | its own, 0.9 | 0, 0, 0 of 1 | 2, 2, 2 of 2 |",
        "| one | for 1 an hour, 0.4 | 0, 0, 0 of 1 | 1, 1, 1 of 2 |",
    ]

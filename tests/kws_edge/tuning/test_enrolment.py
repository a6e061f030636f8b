"""A word from a few takes: the vectors of windows, the template, its threshold, and the graph that holds them."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.errors import AudioError, SettingError
from kws_edge.model.features import FrontEnd, mfcc
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning.embedding import Background, Embedding, tail
from kws_edge.tuning.enrolled_model import SLOPE, build, describe
from kws_edge.tuning.enrolment import FEWEST, MOST, Enrolled, enrol, take_windows

FE = FrontEnd()
SHIFTS = 13
"""Windows that a take is seen in, 0.04 s apart."""


@pytest.fixture(scope="module")
def embedding() -> Embedding:
    return Embedding()


def tone(seconds: float, before: float, after: float) -> F32:
    """A tone between two silences of so many seconds."""
    t = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    sound = (0.3 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)
    return np.pad(sound, (round(before * SAMPLE_RATE), round(after * SAMPLE_RATE)))


# Windows and their vectors


def test_the_vectors_of_a_recording_are_those_of_its_windows(embedding: Embedding) -> None:
    samples = (0.05 * np.random.default_rng(0).standard_normal(2 * SAMPLE_RATE)).astype(np.float32)
    samples[8_000:16_000] += tone(0.5, 0, 0)
    frames = mfcc(samples, embedding.front_end).T
    windows = np.stack([frames[:, start : start + 128] for start in range(0, frames.shape[1] - 127, 10)])
    np.testing.assert_allclose(embedding.of_stream(samples), embedding(windows), atol=1e-4)


def test_a_recording_shorter_than_a_window_has_no_vectors(embedding: Embedding) -> None:
    with pytest.raises(AudioError, match="127 frames; expected a window of 128 at least"):
        embedding.of_stream(np.zeros(FE.window + 126 * FE.hop, np.float32))
    assert len(embedding.of_stream(np.zeros(FE.window + 127 * FE.hop, np.float32))) == 1


def test_the_windows_of_a_take_lie_around_its_word_wherever_that_is_in_it() -> None:
    windows = take_windows(tone(0.5, 0.25, 0.25), FE)
    assert windows.shape == (SHIFTS, 64, 128)
    for before in (0.1, 0.4, 1.0):
        np.testing.assert_allclose(take_windows(tone(0.5, before, 0.3), FE), windows, atol=1e-4)
    loud = windows[SHIFTS // 2, 0] > windows[SHIFTS // 2, 0].mean()  # of the window in the middle
    assert np.flatnonzero(loud).mean() == pytest.approx(63.5, abs=2)


def test_each_window_of_a_take_lies_four_frames_after_the_one_before() -> None:
    windows = take_windows(tone(0.5, 0.25, 0.25), FE)
    np.testing.assert_allclose(windows[1:, :, :-4], windows[:-1, :, 4:], atol=1e-4)


def test_a_take_longer_than_a_window_is_seen_around_its_loudest_part() -> None:
    take = (0.01 * np.random.default_rng(0).standard_normal(5 * SAMPLE_RATE)).astype(np.float32)
    take[SAMPLE_RATE : 4 * SAMPLE_RATE] *= 5
    soft = mfcc(take, FE)[:, 0].max()
    take[SAMPLE_RATE : round(2.4 * SAMPLE_RATE)] *= 6
    assert take_windows(take, FE)[SHIFTS // 2, 0].min() > soft


# Template and threshold


def stand_in(*takes: npt.NDArray[np.float64]) -> Any:
    """An embedding that knows no sound: the first take's windows have the vectors that are given first, and so on."""
    vectors = iter(takes)

    class StandIn:
        front_end, fingerprint = FE, "made"

        def __call__(self, windows: F32) -> F32:
            return next(vectors).astype(np.float32)

    return StandIn()


def background(size: int, vectors: npt.NDArray[np.float64] | None = None, reach: float = 8.0) -> Background:
    """Of other speech whose vectors are as they are."""
    other = np.random.default_rng(0).standard_normal((100, size)) if vectors is None else vectors
    whitening = np.eye(size, dtype=np.float32)
    return Background(np.zeros(size, np.float32), whitening, other.astype(np.float32), reach, "made")


def run_of(first: int, size: int = 40) -> npt.NDArray[np.float64]:
    """The vectors of a take's windows, each at right angles to the others; `first` is where they begin."""
    return np.eye(size)[first : first + SHIFTS]


TAKE = tone(0.5, 0.25, 0.25)


def test_beyond_a_quantile_an_exponential_tail_exceeds_it_by_its_scale() -> None:
    """Which has no memory: golden values of scipy."""
    exponential = scipy.stats.expon(scale=0.05)
    quantile, excess = tail(exponential.ppf((np.arange(100_000) + 0.5) / 100_000).astype(np.float32))
    assert (quantile, excess) == pytest.approx((exponential.ppf(0.97), 0.05), rel=0.01)


def test_the_threshold_lies_so_many_mean_excesses_above_the_quantile_of_other_speech() -> None:
    cosines = np.linspace(-1, 1, 2001)
    threshold = background(1, cosines[:, np.newaxis], reach=3.0).threshold(np.ones(1, np.float32))
    assert threshold == pytest.approx(0.94 + 3 * 0.03, abs=2e-3)


def test_whitened_vectors_have_length_1_and_other_speech_lies_around_0() -> None:
    rng = np.random.default_rng(0)
    made = Background(np.float32([3, -1]), np.float32([[2, 0], [0, 0.5]]), np.eye(2, dtype=np.float32), 8.0, "made")
    x = rng.standard_normal((100, 2)).astype(np.float32)
    expected = (x - [3, -1]) * [2, 0.5]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(made.whitened(x), expected, atol=1e-6)
    assert np.isfinite(made.whitened(made.mean[np.newaxis])).all()


def test_takes_are_laid_over_each_other_before_their_mean_is_taken() -> None:
    shifted = stand_in(run_of(10), run_of(10), run_of(13), run_of(8))
    template = enrol([TAKE] * 4, shifted, background(40)).template
    assert np.linalg.norm(template) == pytest.approx(1)
    assert template[template > 1e-6] == pytest.approx([1 / np.sqrt(3)] * 3)  # one place, and both of its neighbours


def test_each_take_is_compared_with_the_mean_of_the_others_alone() -> None:
    unlike = [np.tile(np.eye(3)[i], (SHIFTS, 1)) for i in range(3)]
    assert enrol([TAKE] * 3, stand_in(*unlike), background(3)).cosines == pytest.approx((0, 0, 0), abs=1e-6)
    alike = enrol([TAKE] * 3, stand_in(unlike[0], unlike[0], unlike[1]), background(3)).cosines
    assert alike == pytest.approx((np.sqrt(0.5), np.sqrt(0.5), 0), abs=1e-6)


@pytest.mark.parametrize(
    ("cosines", "missed", "hears"),
    [
        ((0.5, 0.51, 0.9), (True, False, False), True),
        ((0.4, 0.4, 0.6, 0.6), (True, True, False, False), True),
        ((0.4, 0.5, 0.6), (True, True, False), False),
    ],
    ids=["one at the threshold", "half of them", "most of them"],
)
def test_takes_up_to_the_threshold_are_missed_and_a_word_of_which_most_are_is_not_heard(
    cosines: tuple[float, ...], missed: tuple[bool, ...], hears: bool
) -> None:
    enrolled = Enrolled(np.ones(1, np.float32), 0.5, cosines)
    assert (enrolled.missed, enrolled.hears) == (missed, hears)


@pytest.mark.parametrize("count", [FEWEST - 1, MOST + 1])
def test_too_few_and_too_many_takes_are_refused(count: int) -> None:
    with pytest.raises(SettingError, match=f"{count} takes; expected 3 to 10 of one voice"):
        enrol([TAKE] * count, stand_in(), background(3))


# The graph


def test_the_graph_gives_the_evidence_of_the_cosine_to_the_template(
    embedding: Embedding, data: Path, tmp_path: Path
) -> None:
    takes = [load(p).samples for p in sorted((data / "speech_commands" / "happy").glob("d312f481_nohash_*"))[:3]]
    other_speech = Background.load()
    enrolled = enrol(takes, embedding, other_speech)
    metadata = describe("mine", "happy", enrolled, other_speech, embedding.model.metadata)
    path = tmp_path / "mine.onnx"
    path.write_bytes(build(enrolled, other_speech, metadata))
    windows = take_windows(takes[0], FE)
    cosine = other_speech.whitened(embedding(windows)) @ enrolled.template
    evidence = np.exp(SLOPE * (cosine.astype(np.float64) - enrolled.threshold))  # the trunk is of belief_ce
    outputs = KeywordModel.load(path).run(windows)
    assert outputs.alpha[:, 0] == pytest.approx(1 + evidence, rel=1e-2)
    assert outputs.vacuity == pytest.approx(2 / (2 + evidence), rel=1e-2)


def test_a_window_counts_as_the_word_from_the_threshold_of_the_cosine_on(embedding: Embedding) -> None:
    enrolled = Enrolled(np.ones(1, np.float32), 0.5, (0.9, 0.9, 0.9))
    metadata = describe("mine", "happy", enrolled, background(1, np.ones((1, 1))), embedding.model.metadata)
    (point,) = metadata.thresholds["vacuity"]
    assert metadata.variant == "belief_ce"
    assert point.threshold == pytest.approx(2 / (2 + np.exp(0)))
    assert StreamSettings.of(metadata).thresholds == {"vacuity": point.threshold}

"""The stream end to end: samples in, events out."""

import asyncio
import copy
import gc
import io
import pickle
import resource
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT
from tiny_model import METADATA, TONES

from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.audio.sources import AudioSource, Block, WavFile
from kws_edge.errors import AudioError, DeviceError, SettingError
from kws_edge.model import evidence
from kws_edge.model.features import mfcc
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import is_wake_model
from kws_edge.model.prediction import Reason
from kws_edge.model.selection import DEFAULT_TARGET
from kws_edge.model.shipped import shipped_models
from kws_edge.stream.decision import decide
from kws_edge.stream.events import Event
from kws_edge.stream.framing import FLOOR_MIN, FLOOR_RISE, FLOOR_START, HopStream, quiet
from kws_edge.stream.settings import StreamSettings
from kws_edge.stream.spotter import Spotter
from kws_edge.stream.state import State
from kws_edge.stream.trace import trace
from kws_edge.stream.wake import Wake
from kws_edge.tuning.evaluation import evaluate
from kws_edge.tuning.soundscape import Word

WINDOW = 15_920
"""Samples that the 98 frames of a 1 s window see."""


def tone(word: str, seconds: float, amplitude: float = 0.3) -> Any:
    return (amplitude * np.sin(2 * np.pi * TONES[word] * np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE)).astype(
        np.float32
    )


def room(seconds: float, amplitude: float = 0.0003, seed: int = 1) -> Any:
    """The noise of a quiet room, about -70 dBFS."""
    noise = np.random.default_rng(seed).standard_normal(round(seconds * SAMPLE_RATE))
    return (amplitude * noise).astype(np.float32)


def hiss(seconds: float) -> Any:
    """Loud noise, of which the model is not sure."""
    return room(seconds, 0.05)


def words(*spoken: str, pause: float = 1.5) -> Any:
    """A quiet room in which words are said, each for 0.8 s."""
    parts = [room(pause)]
    for word in spoken:
        parts += [hiss(0.8) if word == "hiss" else tone(word, 0.8), room(pause)]
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> KeywordModel:
    return KeywordModel.load(tiny_model.save(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def shipped() -> KeywordModel:
    """The shipped model that was calibrated on streams, else the default; skips where none is built yet."""
    if not shipped_models():
        pytest.skip("no model is shipped in this checkout")
    models = map(KeywordModel.load, shipped_models())
    return next((m for m in models if m.metadata.stream and not is_wake_model(m.metadata)), None) or KeywordModel.load()


def labels(events: list[Event]) -> list[str | None]:
    return [event.label for event in events]


def plain(events: list[Event]) -> list[dict[str, Any]]:
    return [event.to_dict() for event in events]


# Events


def test_words_are_told_once_each_with_their_times(model: KeywordModel) -> None:
    events = Spotter(model).push(words("mid", "low", "mid"))
    assert labels(events) == ["mid", "low", "mid"]
    for event, start in zip(events, (1.5, 3.8, 6.1), strict=True):
        assert event.start == pytest.approx(start, abs=0.11)
        assert start + 0.1 < event.time < start + 1.4
        assert event.model == "tiny"


def test_an_utterance_that_is_no_word_is_an_abstention(model: KeywordModel) -> None:
    (event,) = Spotter(model, abstentions="all").push(words("hiss"))
    assert event.abstained
    assert (event.start, event.end) == pytest.approx((1.5, 2.3), abs=0.11)


@pytest.mark.parametrize("hop", [0.02, 0.03, 0.05, 0.08, 0.1])
def test_one_word_is_one_event_at_any_hop(model: KeywordModel, hop: float) -> None:
    assert labels(Spotter(model, hop=hop).push(words("mid"))) == ["mid"]


@pytest.mark.parametrize("hop", [0.02, 0.1, 0.27, 1.0])
def test_a_word_that_goes_on_for_5_s_is_one_event(model: KeywordModel, hop: float) -> None:
    sound = np.concatenate([room(1), tone("mid", 5), room(2)])
    assert labels(Spotter(model, hop=hop).push(sound)) == ["mid"]


def test_nothing_is_told_of_silence_after_a_reset(model: KeywordModel) -> None:
    spotter = Spotter(model)
    assert spotter.push(words("mid"))
    spotter.reset()
    assert spotter.push(np.zeros(3 * SAMPLE_RATE, np.float32)) == []


def test_a_reset_stream_is_as_a_new_one(model: KeywordModel) -> None:
    used, new, sound = Spotter(model), Spotter(model), words("mid", "hiss", "low")
    used.push(words("low")[:40_001])
    used.gap(5)
    used.reset()
    assert (used.time, used.state, used.last) == (new.time, new.state, new.last)
    assert plain(used.push(sound)) == plain(new.push(sound))


def test_only_chosen_words_are_told(model: KeywordModel) -> None:
    assert labels(Spotter(model, words={"low"}).push(words("mid", "low", "high"))) == ["low"]


def test_a_model_that_was_calibrated_for_some_words_tells_those_unless_asked_for_others(tmp_path: Path) -> None:
    own = {"settings": StreamSettings({"entropy": 0.7}).to_dict(), "calibration": {"words_chosen": ["low"]}}
    calibrated = KeywordModel.load(tiny_model.save(tmp_path, metadata=replace(METADATA, stream=own)))
    sound = words("mid", "low", "high")
    assert Spotter(calibrated).words == ("low",)
    assert labels(Spotter(calibrated).push(sound)) == ["low"]
    assert labels(Spotter(calibrated, words={"MID"}).push(sound)) == ["mid"]
    for looser in ({"target": 0.99}, {"settings": StreamSettings({"entropy": 0.7})}):  # whose thresholds are for all
        assert labels(Spotter(calibrated, **looser).push(sound)) == ["mid", "low", "high"]


def test_the_end_of_the_stream_is_decided_on(model: KeywordModel) -> None:
    spotter = Spotter(model)
    events = spotter.push(np.concatenate([room(0.3), tone("mid", 0.5)]))
    assert events == []
    assert labels(spotter.finish()) == ["mid"]


@pytest.mark.parametrize(("name", "samples"), [("softmax", 16_000), ("stream", 20_720)])
def test_the_silence_at_the_end_of_a_stream_is_as_long_as_a_window(name: str, samples: int) -> None:
    silence = Spotter(KeywordModel.load(name)).closing_silence
    assert (len(silence), silence.any()) == (samples, False)


# The beginning


def test_less_than_a_hop_gives_no_event_and_says_so(model: KeywordModel) -> None:
    spotter = Spotter(model)
    assert spotter.state == State.WARMING_UP
    assert spotter.push(tone("mid", 1)[: WINDOW % 1600 - 1]) == []
    assert spotter.state == State.WARMING_UP
    spotter.push(tone("mid", 1)[:1])
    assert spotter.state == State.LISTENING


def test_a_word_with_which_a_stream_begins_is_heard_as_soon_as_one_after_a_pause(model: KeywordModel) -> None:
    sound = np.concatenate([tone("mid", 0.6), room(1)])
    (first,) = Spotter(model).push(sound)
    (later,) = Spotter(model).push(np.concatenate([room(2), sound]))
    assert (first.label, later.label) == ("mid", "mid")
    assert first.time == pytest.approx(later.time - 2, abs=0.11)
    assert first.time < 1


@pytest.mark.parametrize("hop", [0.02, 0.1, 0.35])
def test_what_came_before_the_start_is_faint_noise_at_the_level_of_the_noise_floor(hop: float) -> None:
    stream = HopStream(METADATA, hop)
    sound = hiss(1)
    hop_at_once = next(stream.push(sound))
    begun = len(sound[: round(hop_at_once.time * SAMPLE_RATE)])
    before = quiet(WINDOW - begun) * 10 ** (hop_at_once.noise / 20)
    assert hop_at_once.frames is not None
    assert hop_at_once.frames[:-3] == pytest.approx(mfcc(np.concatenate([before, sound[:begun]]))[:-3], abs=0.02)


def test_the_noise_before_the_start_is_white_and_has_no_mean() -> None:
    noise = quiet(20_000)
    assert noise.std() == pytest.approx(1, abs=0.01)
    assert noise.mean() == pytest.approx(0, abs=0.02)
    power = np.abs(np.fft.rfft(noise)) ** 2 / len(noise)
    assert power[1:].reshape(-1, 100).mean(axis=1) == pytest.approx(1, abs=0.4)


# Chunks


CASES = (1, 160, 1000, 1280, 4096, 16_001)


def in_chunks(spotter: Spotter, sound: Any, sizes: list[int]) -> list[Event]:
    events, at, i = [], 0, 0
    while at < len(sound):
        events += spotter.push(sound[at : at + sizes[i % len(sizes)]])
        at, i = at + sizes[i % len(sizes)], i + 1
    return events


@pytest.mark.parametrize("size", CASES)
def test_chunks_of_any_size_give_identical_events(model: KeywordModel, size: int) -> None:
    sound = words("mid", "hiss")
    assert plain(in_chunks(Spotter(model), sound, [size])) == plain(Spotter(model).push(sound))


@given(sizes=st.lists(st.integers(0, 9000), min_size=1, max_size=8).filter(any), hop=st.sampled_from([0.05, 0.1, 1.0]))
@settings(max_examples=15, deadline=None)
def test_any_chunking_gives_identical_events(model: KeywordModel, sizes: list[int], hop: float) -> None:
    sound = words("mid", "hiss", pause=0.9)
    assert plain(in_chunks(Spotter(model, hop=hop), sound, sizes)) == plain(Spotter(model, hop=hop).push(sound))


@pytest.mark.parametrize("empty", [b"", np.empty(0, np.int16), np.empty(0, np.float32), memoryview(b"")])
def test_an_empty_chunk_is_ignored(model: KeywordModel, empty: Any) -> None:
    spotter = Spotter(model)
    assert spotter.push(empty) == []
    assert (spotter.time, spotter.last) == (0, None)


def test_bytes_and_int16_and_floats_are_the_same_stream(model: KeywordModel) -> None:
    integers = (words("mid", "hiss") * 32768).astype("<i2")
    events = [Spotter(model).push(x) for x in (integers, integers / 32768, integers.tobytes())]
    events.append(Spotter(model).push(bytearray(integers.tobytes())))
    assert labels(events[0]) == ["mid", None]
    assert all(plain(e) == plain(events[0]) for e in events)


@pytest.mark.parametrize(
    "bad",
    [
        np.array([0, np.nan], np.float32),
        np.array([0, -np.inf]),
        np.array([0, 20_000.0], np.float32),
        np.zeros((2, 100), np.float32),
        np.zeros(100, np.int32),
        np.zeros(100, np.complex64),
        b"odd",
    ],
    ids=["NaN", "infinite", "unscaled", "two channels", "int32", "complex", "odd bytes"],
)
def test_bad_samples_are_refused_and_the_stream_goes_on_without_them(model: KeywordModel, bad: Any) -> None:
    spotter, sound = Spotter(model), words("mid")
    events = spotter.push(sound[:30_000])
    with pytest.raises(AudioError, match="expected"):
        spotter.push(bad)
    assert plain(events + spotter.push(sound[30_000:])) == plain(Spotter(model).push(sound))


@pytest.mark.parametrize("given", [[0.1, 0.2], "clip.wav", None])
def test_what_is_no_samples_is_refused_with_what_would_be(model: KeywordModel, given: Any) -> None:
    with pytest.raises(AudioError, match=rf"type {type(given).__name__}; expected a numpy array.*WavFile\(path\)"):
        Spotter(model).push(given)


@pytest.mark.parametrize("given", ["clip.wav", np.zeros(100, np.float32), None, [0.1], io.BytesIO(b"")])
def test_what_is_no_source_is_refused_with_what_would_be(model: KeywordModel, given: Any) -> None:
    with pytest.raises(SettingError, match=rf"type {type(given).__name__}; expected .*WavFile\(path\)"):
        Spotter(model).listen(given)


@pytest.mark.parametrize(("given", "how"), [("stream", r"load\('stream'\)"), (None, r"load\(\)")])
def test_what_is_no_model_is_refused_with_what_would_be(given: Any, how: str) -> None:
    with pytest.raises(SettingError, match=rf"type {type(given).__name__}; expected .*{how}"):
        Spotter(given)


@pytest.mark.parametrize("given", ["mid", {"mid"}, 3])
def test_wake_words_and_settings_of_another_type_are_refused_with_what_would_do(
    model: KeywordModel, given: Any
) -> None:
    with pytest.raises(SettingError, match=r"wake of type .*; expected Wake\(words\)"):
        Spotter(model, wake=given)
    with pytest.raises(SettingError, match=r"settings of type .*; expected StreamSettings"):
        Spotter(model, settings=given)
    with pytest.raises(SettingError, match=r"settings of type .*; expected StreamSettings"):
        Spotter(model, wake=Wake({"mid"}, settings=given))


@pytest.mark.parametrize("seconds", ["3", None, [3]])
def test_a_time_after_a_wake_word_that_is_no_number_is_refused(seconds: Any) -> None:
    with pytest.raises(SettingError, match="expected a number from 1 to 60"):
        Wake({"mid"}, seconds=seconds)


# Gaps


def test_a_gap_takes_time_and_no_window_spans_it(model: KeywordModel) -> None:
    spotter = Spotter(model, abstentions="all")
    spotter.push(np.concatenate([room(2), tone("mid", 0.3)]))
    spotter.gap(SAMPLE_RATE)
    assert spotter.time == pytest.approx(3.3)
    lost, event = spotter.push(tone("high", 1.2))
    assert (lost.label, lost.end) == (None, pytest.approx(2.3, abs=0.1))
    assert event.label == "high"
    assert event.start >= 3.3 - 0.1


@pytest.mark.parametrize("hop", [0.02, 0.1])
def test_after_a_gap_it_hears_again_within_a_fifth_of_a_second(model: KeywordModel, hop: float) -> None:
    spotter = Spotter(model, hop=hop)
    spotter.push(hiss(3))
    spotter.gap(100)
    assert spotter.state == State.WARMING_UP
    spotter.push(tone("mid", 0.2))
    assert spotter.state == State.LISTENING


@pytest.mark.parametrize("wakes", [None, "this model", "another"])
def test_time_that_is_lost_is_quiet_in_which_what_came_before_crowds_no_word(
    model: KeywordModel, tmp_path: Path, wakes: str | None
) -> None:
    alone = Spotter(model, settings=StreamSettings({"entropy": 0.7}, smoothing=0.1)).push(words("mid"))[0]
    settings = StreamSettings({"entropy": 1.2 * alone.entropy}, smoothing=0.1, crowding=8.0)
    other = KeywordModel.load(tiny_model.save(tmp_path)) if wakes == "another" else None
    for lost, told in ((2.6, ["mid"]), (0.1, [])):
        wake = Wake({"mid"}, model=other, settings=settings)
        spotter = (
            Spotter(model, words={"high"}, wake=wake, abstentions="none")
            if wakes
            else Spotter(model, settings=settings, abstentions="none")
        )
        assert spotter.push(np.concatenate([room(1), 4 * hiss(1.5)])) == []  # as loud as the word
        spotter.gap(round(lost * SAMPLE_RATE))
        assert labels(spotter.push(np.concatenate([tone("mid", 0.8), room(1)]))) == told


@pytest.mark.parametrize("hop", [0.02, 0.1])
def test_the_level_after_a_gap_is_that_of_what_came_after_it(hop: float) -> None:
    stream = HopStream(METADATA, hop)
    list(stream.push(hiss(1)))
    stream.gap(100)
    assert all(h.level < -60 and h.frames is None for h in stream.push(room(0.5)))


def test_what_a_gap_parts_is_not_smoothed_together(model: KeywordModel) -> None:
    spotter = Spotter(model, settings=StreamSettings({"entropy": 0.01}, smoothing=0.5))
    spotter.push(np.concatenate([room(2), tone("mid", 0.5)]))
    before = spotter.last
    spotter.gap(0)
    spotter.push(hiss(0.1))
    assert before is not None
    assert spotter.last is not None
    assert before.probability.max() > 0.6
    assert spotter.last.probability.max() < 0.5


def test_time_goes_on_across_gaps_in_the_middle_of_a_hop(model: KeywordModel) -> None:
    spotter = Spotter(model)
    for n in (777, 16_000, 1):
        spotter.push(room(1)[:n])
        spotter.gap(n)
    assert spotter.time == 2 * (777 + 16_000 + 1) / SAMPLE_RATE


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.int64])
def test_a_gap_may_be_counted_in_integers_of_any_size(model: KeywordModel, kind: Any) -> None:
    spotter = Spotter(model)
    spotter.gap(kind(100))
    spotter.push(np.zeros(5 * SAMPLE_RATE, np.float32))
    assert spotter.time == 5 + 100 / SAMPLE_RATE


def test_a_gap_of_unknown_length_still_parts_what_is_on_its_sides(model: KeywordModel) -> None:
    spotter = Spotter(model)
    spotter.push(room(2))
    spotter.gap(0)
    assert spotter.state == State.WARMING_UP


@pytest.mark.parametrize("samples", [-1, 0.5, "1", None, 10**400])
def test_a_gap_that_is_no_number_of_samples_is_refused(model: KeywordModel, samples: Any) -> None:
    with pytest.raises(SettingError, match=f"a gap of {repr(samples)[:9]}.* expected a whole number, 0 or more"):
        Spotter(model).gap(samples)


# Losses


def losing(spotter: Spotter, every: float, seconds: float) -> list[Event]:
    """Lose a sample again and again, for so long."""
    events: list[Event] = []
    for _ in range(round(seconds / every)):
        events += spotter.push(room(every))
        spotter.gap(1)
    return events + spotter.push(room(0.2))


def test_too_many_losses_to_hear_are_a_state_and_one_event(model: KeywordModel) -> None:
    spotter = Spotter(model)
    (event,) = losing(spotter, 1.2, 30)
    assert (event.label, event.guess, event.reason) == (None, None, Reason.LOSSES)
    assert event.time == pytest.approx(3.6, abs=0.1)
    assert spotter.state == State.LOSSES
    assert spotter.last is not None
    assert spotter.last.state == State.LOSSES


def test_a_stream_that_loses_no_more_is_told_again_only_when_it_does(model: KeywordModel) -> None:
    spotter = Spotter(model)
    assert len(losing(spotter, 0.5, 10)) == 1
    spotter.push(room(11))
    assert spotter.state == State.SILENCE
    assert len(losing(spotter, 0.5, 10)) == 1


def test_a_reset_forgets_losses_that_were_not_told_yet(model: KeywordModel) -> None:
    spotter = Spotter(model)
    while spotter.state != State.LOSSES:
        assert spotter.push(room(0.5)) == []
        spotter.gap(1)
    spotter.reset()
    assert spotter.push(room(1)) == []


@pytest.mark.parametrize(("every", "seconds"), [(2.0, 60), (0.5, 1.0), (5.0, 60)])
def test_losses_between_which_words_are_heard_are_not_too_many(
    model: KeywordModel, every: float, seconds: float
) -> None:
    spotter = Spotter(model)
    assert losing(spotter, every, seconds) == []
    assert spotter.state == State.SILENCE


def test_one_long_outage_is_not_too_many_losses(model: KeywordModel) -> None:
    spotter = Spotter(model)
    spotter.push(room(1))
    spotter.gap(60 * SAMPLE_RATE)
    spotter.push(room(1))
    assert spotter.state == State.SILENCE


# The clock


def test_events_carry_what_a_clock_says_and_none_without(model: KeywordModel) -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    sound = words("mid")
    (event,) = Spotter(model, clock=lambda: noon).push(sound)
    assert event.clock == noon - timedelta(seconds=len(sound) / SAMPLE_RATE - event.time)
    assert event.to_dict()["clock"].startswith("2026-05-01T11:59:5")
    (plain_event,) = Spotter(model).push(sound)
    assert plain_event.to_dict() == {**event.to_dict(), "clock": None}


def test_the_clock_never_runs_backwards_where_samples_come_faster_than_in_real_time(model: KeywordModel) -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    times = iter([noon, noon + timedelta(seconds=0.1), noon - timedelta(hours=1)])
    spotter = Spotter(model, clock=lambda: next(times))
    (first,), (second,), (third,) = (spotter.push(np.concatenate([words(word), room(9)])) for word in TONES)
    assert first.clock is not None
    assert first.clock < noon - timedelta(seconds=8)
    assert second.clock is not None
    assert first.clock < second.clock < noon
    assert third.clock is not None
    assert third.clock <= noon - timedelta(hours=1)  # which somebody has set back


# The gate


def test_silence_costs_no_run_of_the_network(model: KeywordModel, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    run = model.run
    monkeypatch.setattr(model, "run", lambda x: runs.append(1) or run(x))
    spotter = Spotter(model)
    spotter.push(room(5))
    assert (runs, spotter.state) == ([], State.SILENCE)
    spotter.push(tone("mid", 0.5))
    assert spotter.state == State.LISTENING
    assert 1 <= len(runs) <= 5


def test_steady_noise_becomes_the_floor_and_words_are_heard_above_it(model: KeywordModel) -> None:
    spotter = Spotter(model)
    spotter.push(hiss(20))
    assert spotter.state == State.SILENCE
    assert labels(spotter.push(np.concatenate([tone("mid", 1), hiss(1)]))) == ["mid"]


@pytest.mark.parametrize("hop", [0.02, 0.1, 0.5])
def test_the_floor_rises_by_the_same_decibels_a_second_at_any_hop(hop: float) -> None:
    *_, last = HopStream(METADATA, hop).push(hiss(4))
    assert last.noise == pytest.approx(FLOOR_START + 4 * FLOOR_RISE, abs=0.1)


def test_clipping_is_of_the_hops_in_which_it_is() -> None:
    sound = np.concatenate([room(1), np.clip(100 * hiss(0.5), -1, 1), room(2)])
    clipped = [h.time for h in HopStream(METADATA).push(sound) if h.clipped]  # the last of which begins at 1.495 s
    assert clipped == pytest.approx([1.095, 1.195, 1.295, 1.395, 1.495, 1.595])


def test_clipped_sound_of_which_the_model_is_not_sure_is_called_clipped(model: KeywordModel) -> None:
    for gain, reason in ((100, Reason.CLIPPED), (1, Reason.UNCERTAIN)):
        sound = np.concatenate([room(1), np.clip(gain * hiss(0.8), -1, 1), room(1.5)])
        assert [event.reason for event in Spotter(model, abstentions="all").push(sound)] == [reason]


def test_noise_is_measured_without_its_dc() -> None:
    stream = HopStream(tiny_model.METADATA)
    *_, plain_hop = stream.push(room(2))
    stream.reset()
    *_, offset = stream.push(room(2) + np.float32(0.3))
    assert offset.level == pytest.approx(plain_hop.level, abs=0.1)
    assert offset.noise == FLOOR_MIN


@pytest.mark.parametrize("hop", [0.02, 0.1, 0.35, 1.0])
def test_frames_that_are_computed_late_are_those_of_the_whole_recording(hop: float) -> None:
    sound, stream = words("mid", "low", pause=2.2), HopStream(tiny_model.METADATA, hop)
    expected, seen = mfcc(sound), 0
    for h in stream.push(sound):
        if h.frames is not None:
            first = round(h.time * SAMPLE_RATE - WINDOW) // 160
            assert np.abs(h.frames - expected[first : first + 98]).max() < 1e-4
            seen += 1
    assert seen


# Offline


@pytest.mark.parametrize("hop", [0.05, 0.1])
def test_a_trace_decides_as_the_stream_does(model: KeywordModel, hop: float) -> None:
    sound = words("mid", "hiss", "low", "low")
    hops = trace(model, [sound[:50_000], sound[50_000:]], hop)
    offline = decide(model.metadata, hops, StreamSettings.of(model.metadata))
    online = Spotter(model, hop=hop).push(sound)
    assert [(e.label, e.start, e.end, e.time) for e in offline] == [(e.label, e.start, e.end, e.time) for e in online]
    assert [e.entropy for e in offline] == pytest.approx([e.entropy for e in online], abs=1e-5)


def test_where_nothing_is_heard_a_trace_holds_no_evidence(model: KeywordModel) -> None:
    hops = trace(model, [room(2)])
    assert len(hops) == 20
    assert not hops.heard.any()
    assert hops.vacuity.tolist() == [1] * 20
    np.testing.assert_array_equal(evidence.probability(hops.alpha), np.full((20, 3), 1 / 3, np.float32))


def test_a_trace_of_less_than_a_hop_is_empty(model: KeywordModel) -> None:
    hops = trace(model, [room(0.01)])
    assert (len(hops), hops.alpha.shape) == (0, (0, 3))
    assert decide(model.metadata, hops, StreamSettings.of(model.metadata)) == []


# Sources


class Recorded:
    """A source in memory, which notes that it was closed."""

    def __init__(self, *blocks: Block, error: Exception | None = None) -> None:
        self.blocks, self.error, self.closed = blocks, error, False

    def __iter__(self) -> Iterator[Block]:
        yield from self.blocks
        if self.error:
            raise self.error

    def close(self) -> None:
        self.closed = True


def test_listening_to_a_source_gives_its_events_and_closes_it(model: KeywordModel) -> None:
    source = Recorded(Block(words("mid")), Block(words("low"), dropped=SAMPLE_RATE))
    events = list(Spotter(model).listen(source))
    assert labels(events) == ["mid", "low"]
    assert events[1].start == pytest.approx(3.8 + 1 + 1.5, abs=0.11)
    assert source.closed


def test_giving_up_closes_the_source(model: KeywordModel) -> None:
    source = Recorded(Block(words("mid")), Block(words("low")))
    events = Spotter(model).listen(source)
    assert next(events).label == "mid"
    events.close()
    assert source.closed


def test_an_error_of_the_source_comes_through_and_closes_it(model: KeywordModel) -> None:
    source = Recorded(Block(words("mid")), error=DeviceError("gone"))
    events = Spotter(model).listen(source)
    assert next(events).label == "mid"
    with pytest.raises(DeviceError, match="gone"):
        next(events)
    assert source.closed


def test_the_same_events_come_asynchronously(model: KeywordModel) -> None:
    async def collect(source: Recorded) -> list[Event]:
        return [event async for event in Spotter(model).alisten(source)]

    source = Recorded(Block(words("mid", "hiss")))
    assert plain(asyncio.run(collect(source))) == plain(list(Spotter(model).listen(source)))
    assert source.closed


def test_a_source_closed_before_its_first_block_gives_none(model: KeywordModel, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "mid.wav", words("mid"), SAMPLE_RATE)
    source = WavFile(tmp_path / "mid.wav")
    events = Spotter(model).listen(source)
    source.close()
    assert list(events) == []
    assert [event.label for event in Spotter(model).listen(source)] == ["mid"]


class Endless:
    """A source that is silent until it is closed."""

    def __init__(self) -> None:
        self.iterated, self.closed = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[Block]:
        self.iterated.set()
        assert self.closed.wait(60)
        yield from ()

    def close(self) -> None:
        self.closed.set()


def test_streams_that_wait_for_words_leave_threads_to_other_ones(model: KeywordModel) -> None:
    quiet = [Endless() for _ in range(33)]  # a loop has 32 threads at most

    async def drain(source: AudioSource) -> list[str | None]:
        return [event.label async for event in Spotter(model).alisten(source)]

    async def hear() -> list[str | None]:
        waiting = [asyncio.create_task(drain(source)) for source in quiet]
        await asyncio.sleep(0)
        heard = await asyncio.wait_for(drain(Recorded(Block(words("mid")))), 30)
        for source in quiet:
            source.close()
        await asyncio.gather(*waiting)
        return heard

    assert asyncio.run(hear()) == ["mid"]


def test_a_stream_given_up_asynchronously_ends_the_iteration_of_its_source(model: KeywordModel) -> None:
    ended = threading.Event()

    class Noticing(Recorded):
        def __iter__(self) -> Iterator[Block]:
            try:
                yield from super().__iter__()
            finally:
                ended.set()

    async def first() -> str | None:
        events = Spotter(model).alisten(Noticing(Block(words("mid", "hiss"))))
        async for event in events:
            await events.aclose()
            return event.label
        return None

    assert asyncio.run(first()) == "mid"
    assert ended.wait(10)


@pytest.mark.parametrize("given", [np.zeros(160, np.float32), (np.zeros(160, np.float32), 0), None])
def test_a_source_of_anything_but_blocks_is_refused_and_closed(model: KeywordModel, given: Any) -> None:
    source = Recorded(given)
    with pytest.raises(SettingError, match=rf"a source that gives {type(given).__name__}; expected Block"):
        list(Spotter(model).listen(source))
    assert source.closed


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_stream_is_neither_copied_nor_pickled(model: KeywordModel, copied: Any) -> None:
    with pytest.raises(SettingError, match=r"expected another Spotter\(model\)"):
        copied(Spotter(model))


def test_two_threads_in_one_stream_are_an_error_of_the_second(model: KeywordModel) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def clock() -> datetime:
        inside.set()
        assert go_on.wait(60)
        return datetime.now(UTC)

    spotter = Spotter(model, clock=clock)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(spotter.push, words("mid"))
        assert inside.wait(60)
        with pytest.raises(SettingError, match="another thread is using"):
            spotter.push(words("high"))
        go_on.set()
        assert [event.label for event in first.result(60)] == ["mid"]
    assert [event.label for event in spotter.push(words("high"))] == ["high"]


@pytest.mark.parametrize("clock", [3, "now"])
def test_a_clock_that_cannot_be_asked_is_refused_at_once(model: KeywordModel, clock: Any) -> None:
    with pytest.raises(SettingError, match="expected a function that gives a datetime"):
        Spotter(model, clock=clock)


def test_a_clock_that_gives_no_datetime_is_refused(model: KeywordModel) -> None:
    clock: Any = time.time
    with pytest.raises(SettingError, match="a clock that gives float; expected a datetime"):
        Spotter(model, clock=clock).push(words("mid"))


@pytest.mark.parametrize(
    "view",
    [memoryview(np.zeros(4, np.float32)), memoryview(np.zeros(4, ">i2")), memoryview(np.zeros((4, 2), np.int16))],
    ids=["float32", "big-endian", "stereo"],
)
def test_a_view_of_anything_but_bytes_or_int16_is_not_taken_for_int16(model: KeywordModel, view: memoryview) -> None:
    with pytest.raises(AudioError, match="a memoryview of format"):
        Spotter(model).push(view)


def test_int16_of_either_byte_order_and_as_a_view_is_the_same(model: KeywordModel) -> None:
    samples = np.round(words("mid") * 32767).astype(np.int16)
    for same in (samples.astype(">i2"), memoryview(samples), memoryview(samples.tobytes())):
        assert [event.label for event in Spotter(model).push(same)] == ["mid"]


def test_the_words_are_those_of_which_there_can_be_events() -> None:
    assert Spotter(KeywordModel.load("computer")).words == ("computer",)


def test_cancelling_closes_a_source_that_waits_and_holds_nothing_up(model: KeywordModel) -> None:
    source = Endless()

    async def cancel() -> None:
        async def consume() -> None:
            async for _ in Spotter(model).alisten(source):
                pass

        task = asyncio.create_task(consume())
        await asyncio.to_thread(source.iterated.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert source.closed.is_set()


# Settings, state and cost


@pytest.mark.parametrize("hop", [0, 0.005, 0.025, 1.01, -0.1, float("nan"), "0.1", True])
def test_a_hop_off_the_grid_or_out_of_range_is_refused(model: KeywordModel, hop: Any) -> None:
    with pytest.raises(SettingError, match=r"multiple of 0\.01 s from 0\.01 to 1"):
        Spotter(model, hop=hop)


def test_settings_and_a_target_together_are_refused(model: KeywordModel) -> None:
    with pytest.raises(SettingError, match="one or the other"):
        Spotter(model, target=0.99, settings=StreamSettings({"entropy": 0.5}))


def test_a_score_and_target_choose_the_thresholds(model: KeywordModel) -> None:
    assert Spotter(model, target=0.99).settings.thresholds == {"entropy": 0.7}
    assert Spotter(model, score="both").settings.thresholds == {"entropy": 0.5, "vacuity": 0.5}


def test_the_last_hop_is_there_to_display(model: KeywordModel) -> None:
    spotter = Spotter(model)
    spotter.push(np.concatenate([room(2), tone("mid", 1)]))
    last = spotter.last
    assert last is not None
    assert last.time == pytest.approx(2.995)
    assert METADATA.labels[int(last.probability.argmax())] == "mid"
    assert last.entropy == pytest.approx(evidence.entropy(last.probability))
    assert last.level == pytest.approx(20 * np.log10(0.3 / np.sqrt(2)), abs=0.1)


def test_two_streams_share_a_model_without_sharing_anything_else(model: KeywordModel) -> None:
    first, second, sound = Spotter(model), Spotter(model), words("mid", "hiss")
    together: tuple[list[Event], list[Event]] = [], []
    for i in range(0, len(sound), 1000):
        together[0].extend(first.push(sound[i : i + 1000]))
        together[1].extend(second.push(sound[::-1][i : i + 1000]))
    assert plain(together[0]) == plain(Spotter(model).push(sound))
    assert plain(together[1]) == plain(Spotter(model).push(sound[::-1]))


def test_memory_stays_flat_over_a_stream_of_2_h(model: KeywordModel) -> None:
    spotter, events = Spotter(model, hop=0.5), 0
    minute = np.concatenate([words("mid"), room(60)])[: 60 * SAMPLE_RATE]
    for i in range(120):
        if i == 20:
            gc.collect()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # the highest so far, KiB on Linux
        events += len(spotter.push(minute))
    assert spotter.time == 7200
    assert events == 120
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024


# Real recordings


def spoken(data: Path, word: str, count: int) -> list[Any]:
    """Clips of the test split."""
    listed = (data / "speech_commands" / "testing_list.txt").read_text().split()
    names = [name for name in listed if name.startswith(f"{word}/")]
    assert len(names) >= count
    return [load(data / "speech_commands" / name).samples for name in names[:count]]


def in_a_room(clip: Any, seconds: float = 1.5) -> Any:
    return np.concatenate([room(seconds), clip, room(seconds)])


@pytest.mark.parametrize("hop", [0.02, 0.05, 0.1])
def test_a_real_word_is_one_event(shipped: KeywordModel, data: Path, hop: float) -> None:
    told = [labels(Spotter(shipped, hop=hop).push(in_a_room(clip))) for clip in spoken(data, "yes", 8)]
    assert all(sum(label is not None for label in events) <= 1 for events in told)
    assert sum(events == ["yes"] for events in told) >= 5  # one clip holds less than the word


def test_real_words_outside_the_vocabulary_are_mostly_abstained_from(shipped: KeywordModel, data: Path) -> None:
    clips = [load(p).samples for w in ("bird", "sheila") for p in sorted((data / "speech_commands" / w).iterdir())[:10]]
    told = [labels(Spotter(shipped).push(in_a_room(clip))) for clip in clips]
    assert sum(events == [None] for events in told) >= len(clips) / 2


def test_streaming_is_as_accurate_as_clips(shipped: KeywordModel, data: Path) -> None:
    vocabulary = [word for word in shipped.labels if (data / "speech_commands" / word).is_dir()][:20]
    clips = [(word, clip) for word in vocabulary for clip in spoken(data, word, 200 // len(vocabulary))]
    offline = sum(shipped.classify(clip, SAMPLE_RATE).label == word for word, clip in clips) / len(clips)
    at_its_threshold = [Spotter(shipped, target=DEFAULT_TARGET).push(in_a_room(clip)) for _, clip in clips]
    online = sum(labels(found) == [word] for found, (word, _) in zip(at_its_threshold, clips, strict=True)) / len(clips)
    assert online >= offline - 0.02


def test_clips_fed_to_a_stream_are_found_as_often_as_by_classify(shipped: KeywordModel, data: Path) -> None:
    vocabulary = [word for word in shipped.labels if (data / "speech_commands" / word).is_dir()][:20]
    clips = [(word, clip) for word in vocabulary for clip in spoken(data, word, 200 // len(vocabulary))]
    classified = sum(shipped.classify(clip, SAMPLE_RATE).label == word for word, clip in clips) / len(clips)

    def heard(clip: Any) -> list[str]:
        spotter = Spotter(shipped, target=DEFAULT_TARGET, abstentions="none")
        return labels(spotter.push(clip) + spotter.finish())

    assert sum(heard(clip) == [word] for word, clip in clips) / len(clips) >= classified - 0.02


def minutes(paths: list[Path], count: float) -> Iterator[Any]:
    """Recordings one after the other, until there are so many minutes."""
    left = round(count * 60 * SAMPLE_RATE)
    for path in paths:
        samples = load(path).samples[:left]
        left -= len(samples)
        yield samples
        if not left:
            return
    pytest.skip(f"{left / SAMPLE_RATE:.0f} s of recordings are missing in {paths[0].parent}")


def said_in_test_other(paths: list[Path]) -> list[Word]:
    """The words in recordings of LibriSpeech that are joined in this order."""
    track = (ROOT / "tests/support/words_in_test_other.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in track if not line.startswith("#")]
    words, start = [], 0.0
    for path in paths:
        for name, first, last, label in rows:
            if name == path.stem:
                words.append(Word(label, start + float(first), start + float(last)))
        start += len(load(path).samples) / SAMPLE_RATE
    return words


@pytest.mark.parametrize("kind", ["noise", "speech"])
def test_ten_minutes_without_the_words_stay_under_the_target(
    shipped: KeywordModel, data: Path, kind: str, record_property: Any
) -> None:
    noise = [*sorted((data / "esc10").glob("*/3-*")), *sorted((data / "speech_commands/_background_noise_").iterdir())]
    speech = sorted((data / "libri_speech" / "test-other").iterdir())
    hops = trace(shipped, minutes(noise if kind == "noise" else speech, 10))
    events = decide(shipped.metadata, hops, StreamSettings.of(shipped.metadata), abstentions="all")
    words = said_in_test_other(speech) if kind == "speech" else []
    report = evaluate(events, words, float(hops.time[-1]), shipped.labels)
    record_property("false_accepts_per_hour", report.false_accepts * 6)
    record_property("abstentions_per_hour", report.abstentions * 6)
    assert report.false_accepts <= 1  # one more is above the limit of 10 an hour that it was calibrated for
    assert report.abstentions > 30  # it did listen

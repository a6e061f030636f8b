"""Wake, then command: which events count."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_model
from tiny_model import METADATA, TONES

from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.errors import ModelError, SettingError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.stream.events import Event
from kws_edge.stream.settings import StreamSettings
from kws_edge.stream.spotter import Spotter
from kws_edge.stream.wake import Wake, WakeTimer, gated


def said(*parts: tuple[str, float]) -> Any:
    """A quiet room in which words are said for 0.8 s, each after so many seconds."""
    rng = np.random.default_rng(1)
    sound = [np.empty(0)]
    for word, pause in (*parts, ("", 2.0)):
        sound.append(0.0003 * rng.standard_normal(round(pause * SAMPLE_RATE)))
        if word:
            sound.append(0.3 * np.sin(2 * np.pi * TONES[word] * np.arange(12_800) / SAMPLE_RATE))
    return np.concatenate(sound).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> KeywordModel:
    return KeywordModel.load(tiny_model.save(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> KeywordModel:
    """Another file, whose words have other names."""
    metadata = replace(METADATA, name="other", labels=("computer", "_unknown_", "jarvis"))
    return KeywordModel.load(tiny_model.save(tmp_path_factory.mktemp("other"), "other", metadata=metadata))


def labels(events: list[Event]) -> list[str | None]:
    return [event.label for event in events if event.label]


def test_commands_count_only_after_a_wake_word(model: KeywordModel) -> None:
    spotter = Spotter(model, words={"mid", "high"}, wake=Wake({"low"}))
    assert labels(spotter.push(said(("mid", 1), ("low", 2), ("high", 1), ("mid", 6)))) == ["low", "high"]


def test_a_command_that_can_never_come_is_refused(model: KeywordModel) -> None:
    for words, wake in (({"low"}, {"low"}), ({"low", "mid"}, {"mid", "low", "high"}), (None, None)):
        with pytest.raises(SettingError, match="no command beside the wake words"):
            Spotter(model, words=words, wake=Wake(wake))
    assert Spotter(model, words=["low", "mid"], wake=Wake({"low"})).words == ("low", "mid")


@pytest.mark.parametrize("woken", [1.1, 2.3, 70.7])
@pytest.mark.parametrize(("after", "counts"), [(0.0, False), (0.2, False), (0.3, True), (4.0, True), (4.1, False)])
def test_a_command_counts_from_where_the_wake_word_is_over_up_to_the_last_hop_in_time(
    woken: float, after: float, counts: bool
) -> None:
    timer = WakeTimer(4.0)
    timer.wake(Event("low", "low", 1.0, np.ones(3, np.float32), 0.1, 0.1, None, woken - 0.5, woken, woken, "tiny"))
    assert timer.is_awake(round(woken + after, 1)) is counts


def test_they_count_for_as_long_as_is_said(model: KeywordModel) -> None:
    sound = said(("low", 1), ("high", 1), ("mid", 2))
    for seconds, told in ((2.0, ["low", "high"]), (5.0, ["low", "high", "mid"])):
        spotter = Spotter(model, words={"mid", "high"}, wake=Wake({"low"}, seconds))
        assert labels(spotter.push(sound)) == told


def test_the_wake_word_may_be_another_models(model: KeywordModel, other: KeywordModel) -> None:
    spotter = Spotter(model, words={"high"}, wake=Wake({"computer"}, model=other))
    events = [event for event in spotter.push(said(("high", 1), ("low", 2), ("high", 1))) if event.label]
    assert [(event.label, event.model) for event in events] == [("computer", "other"), ("high", "tiny")]


@pytest.mark.parametrize("words", [None, {"low", "high"}])
@pytest.mark.parametrize("of_another_model", [False, True])
def test_a_wake_word_that_is_said_again_is_no_command_as_well(
    model: KeywordModel, tmp_path: Path, words: set[str] | None, of_another_model: bool
) -> None:
    slower = StreamSettings({"entropy": 0.5}, smoothing=0.6)  # so that the two decisions come at different times
    twin = KeywordModel.load(tiny_model.save(tmp_path)) if of_another_model else None
    spotter = Spotter(model, words=words, wake=Wake({"low"}, model=twin, settings=slower))
    events = spotter.push(said(("low", 1), ("high", 1), ("low", 1), ("high", 1)))
    assert labels(events) == ["low", "high", "low", "high"]


def test_a_recorded_wake_word_said_twice_is_two_events(data: Path) -> None:
    happy = load(data / "speech_commands" / "happy" / "00970ce1_nohash_1.opus").samples
    pause = (0.0003 * np.random.default_rng(1).standard_normal(19_200)).astype(np.float32)
    spotter = Spotter(KeywordModel.load(), wake=Wake({"happy"}))
    assert labels(spotter.push(np.concatenate([pause, happy, pause, happy, pause]))) == ["happy", "happy"]


@pytest.mark.parametrize("size", [160, 1000, 4096, 50_000])
@pytest.mark.parametrize("of_another_model", [False, True])
def test_chunks_of_any_size_give_identical_events(
    model: KeywordModel, other: KeywordModel, size: int, of_another_model: bool
) -> None:
    wake = Wake({"computer"}, model=other) if of_another_model else Wake({"low"})
    sound = said(("low", 1), ("high", 1), ("low", 4), ("mid", 1), ("high", 1))
    whole = Spotter(model, words={"mid", "high"}, wake=wake).push(sound)
    spotter, parts = Spotter(model, words={"mid", "high"}, wake=wake), []
    for i in range(0, len(sound), size):
        parts += spotter.push(sound[i : i + size])
    assert [event.to_dict() for event in parts] == [event.to_dict() for event in whole]
    assert len(labels(whole)) == 5


def test_no_abstention_is_told_before_the_wake_word(model: KeywordModel) -> None:
    noise = (0.05 * np.random.default_rng(2).standard_normal(12_800)).astype(np.float32)
    quiet = said()
    spotter = Spotter(model, words={"high"}, wake=Wake({"low"}), abstentions="all")
    assert spotter.push(np.concatenate([quiet, noise, quiet])) == []


def test_a_reset_or_a_loss_leaves_it_as_it_should(model: KeywordModel) -> None:
    spotter = Spotter(model, words={"high"}, wake=Wake({"low"}))
    assert labels(spotter.push(said(("low", 1)))) == ["low"]
    spotter.gap(100)
    assert labels(spotter.push(said(("high", 0.5)))) == ["high"]
    spotter.push(said(("low", 1)))
    spotter.reset()
    assert labels(spotter.push(said(("high", 0.5)))) == []


@pytest.mark.parametrize("of_another_model", [False, True])
def test_after_a_reset_the_wake_word_is_heard_as_in_a_new_stream(
    model: KeywordModel, other: KeywordModel, of_another_model: bool
) -> None:
    wake = Wake({"computer"}, model=other) if of_another_model else Wake({"low"})
    used, new = (Spotter(model, words={"high"}, wake=wake) for _ in range(2))
    sound = said(("low", 1), ("high", 1))
    used.push(said(("low", 3)))
    used.reset()
    events = used.push(sound)
    assert [event.to_dict() for event in events] == [event.to_dict() for event in new.push(sound)]
    assert len(labels(events)) == 2


def test_commands_are_decided_on_by_the_settings_for_after_a_wake_word(tmp_path: Path) -> None:
    strict, loose = StreamSettings({"entropy": 0.01}), StreamSettings({"entropy": 0.7})
    stream = {"settings": strict.to_dict(), "after_wake": {"settings": loose.to_dict()}}
    own = KeywordModel.load(tiny_model.save(tmp_path, metadata=replace(METADATA, stream=stream)))
    assert Spotter(own, wake=Wake({"low"})).settings == loose
    assert Spotter(own).settings == strict
    assert Spotter(own, wake=Wake({"low"}), settings=strict).settings == strict


def test_commands_are_those_that_the_settings_for_after_a_wake_word_are_for(tmp_path: Path) -> None:
    settings = StreamSettings({"entropy": 0.7}).to_dict()

    def words(always: list[str] | None, after: list[str] | None) -> set[str]:
        stream = {"settings": settings, "calibration": {"words_chosen": always}}
        stream["after_wake"] = {"settings": settings, "calibration": {"words_chosen": after}}
        own = KeywordModel.load(tiny_model.save(tmp_path, metadata=replace(METADATA, stream=stream)))
        assert Spotter(own, wake=Wake({"low"}), words={"mid"}).words == ("mid",)
        return set(Spotter(own, wake=Wake({"low"})).words)

    assert words(["low"], ["mid", "high"]) == {"mid", "high"}
    assert words(["low"], None) == {"low", "mid", "high"}
    assert words(None, None) == {"low", "mid", "high"}


def test_without_such_settings_the_thresholds_of_clips_hold(tmp_path: Path) -> None:
    stream = {"settings": StreamSettings({"entropy": 0.01}).to_dict()}
    own = KeywordModel.load(tiny_model.save(tmp_path, metadata=replace(METADATA, stream=stream)))
    assert StreamSettings.after_wake(own.metadata).thresholds == {"entropy": 0.5}


@pytest.mark.parametrize("stored", [{}, {"settings": 5}, 7, {"settings": {"thresholds": {}}}])
def test_malformed_settings_for_after_a_wake_word_are_refused(tmp_path: Path, stored: Any) -> None:
    stream = {"settings": StreamSettings({"entropy": 0.01}).to_dict(), "after_wake": stored}
    with pytest.raises(ModelError, match="after_wake"):
        StreamSettings.after_wake(replace(METADATA, stream=stream))


@pytest.mark.parametrize("seconds", [0.5, 61, float("nan"), -1])
def test_a_time_in_which_nothing_can_be_said_is_refused(seconds: float) -> None:
    with pytest.raises(SettingError, match="expected a number from 1 to 60"):
        Wake({"low"}, seconds)


def test_a_wake_word_that_the_model_lacks_is_refused(model: KeywordModel) -> None:
    with pytest.raises(SettingError, match="alexa"):
        Spotter(model, wake=Wake({"alexa"}))


def test_recorded_events_are_let_through_as_a_stream_lets_them(model: KeywordModel) -> None:
    sound = said(("mid", 1), ("low", 2), ("high", 1), ("mid", 6))
    wakes = Spotter(model, words={"low"}, abstentions="none").push(sound)
    settings = StreamSettings.after_wake(model.metadata)
    commands = Spotter(model, words={"mid", "high"}, settings=settings).push(sound)
    online = Spotter(model, words={"mid", "high"}, wake=Wake({"low"})).push(sound)
    assert [e.to_dict() for e in gated(wakes, commands, 4.0)] == [e.to_dict() for e in online]

"""Batches: the features of training, and that every batch is a function of the seed alone."""

import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import python_speech_features as psf
import scipy.fft
import soundfile as sf
import torch
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from kws_edge.audio.load import load, read_blocks
from kws_edge.errors import SettingError, WorkerError
from kws_edge.model.clips import cut
from kws_edge.model.features import FrontEnd, mel_filterbank, pad
from kws_export.data.augment import Augmentation
from kws_export.data.batches import EpochBatches, clip_features, draw_epoch, split_features
from kws_export.data.negatives import NO_WORD, NegativeMix, Negatives
from kws_export.data.splits import ArrayDataset

FE = FrontEnd()
NOISES = [np.random.default_rng(9).uniform(-0.1, 0.1, 21_000).astype(np.float32)]


def dataset(clips: int = 20, classes: int = 3) -> ArrayDataset:
    rng = np.random.default_rng(0)
    samples = rng.integers(-8000, 8000, (clips, 16_000), dtype=np.int16)
    lengths = rng.choice([16_000, 9_000], clips).astype(np.int32)
    for row, length in zip(samples, lengths, strict=True):
        row[length:] = 0
    return ArrayDataset(samples, lengths, np.arange(clips) % classes, [f"w/{i}.wav" for i in range(clips)])


DATA = dataset()


def negatives(share: float) -> Negatives:
    return Negatives(DATA, NOISES, [np.ones(20_000, np.int16)], NegativeMix(share=share))


def batches(**changes: Any) -> EpochBatches:
    settings = {"batch": 6, "balance": 1.0, "seed": 1, "epoch": 0} | changes
    return EpochBatches(DATA, NOISES, FE, Augmentation(), **settings)


def assert_equal(a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert torch.equal(a[0], b[0])
    assert torch.equal(a[1], b[1])


# --- features


@pytest.fixture(scope="module")
def clips(data: Path) -> list[np.ndarray]:
    """Real clips as a data set cache holds them: int16, of 1 s and less."""
    paths = [p for word in ("yes", "stop", "zero", "bed") for p in sorted((data / "speech_commands" / word).iterdir())]
    samples = [np.rint(load(path).samples * 32767).astype(np.int16) for path in paths[::190]]
    assert len(samples) >= 30
    assert len({len(s) for s in samples}) > 1
    return samples


def test_features_in_training_are_those_on_the_device(clips: list[np.ndarray], tmp_path: Path) -> None:
    for samples in clips:
        row = np.pad(samples, (0, 16_000 - len(samples)))
        sf.write(tmp_path / "clip.wav", samples, 16_000)
        (window,) = cut(read_blocks(tmp_path / "clip.wav"), FE, FE.frames)
        np.testing.assert_allclose(clip_features(row, len(samples), FE), pad(window.frames, FE), atol=1e-4, rtol=0)


def test_features_in_training_are_those_of_the_reference(clips: list[np.ndarray]) -> None:
    for samples in clips:
        n = FE.frame_count(len(samples))
        energies, _ = psf.fbank(
            samples / 32768, 16_000, 0.025, 0.01, nfilt=64, nfft=512, preemph=0, winfunc=np.hanning
        )  # fmt: skip
        log_mel = np.log(np.maximum(energies[:n], FE.log_floor))
        expected = scipy.fft.dct(log_mel, norm="ortho", axis=1).T
        left = (128 - n) // 2
        features = clip_features(samples, len(samples), FE)
        np.testing.assert_allclose(features[:, left : left + n], expected, atol=1e-4, rtol=0)
        assert not features[:, :left].any()
        assert not features[:, left + n :].any()


def test_a_split_is_its_clips_one_by_one() -> None:
    features = split_features(DATA, FE)
    assert features.shape == (20, 64, 128)
    assert features.dtype == torch.float32
    for i in (0, 7, 19):
        np.testing.assert_array_equal(features[i], clip_features(DATA.samples[i], int(DATA.lengths[i]), FE))


def test_a_clip_shorter_than_a_frame_is_named() -> None:
    lengths = DATA.lengths.copy()
    lengths[4] = 399
    short = ArrayDataset(DATA.samples, lengths, DATA.labels, DATA.names)
    for use in (
        lambda: split_features(short, FE),
        lambda: EpochBatches(short, [], FE, Augmentation(), batch=6, balance=1, seed=1, epoch=0),
    ):
        with pytest.raises(SettingError, match=r"w/4\.wav has 399 samples; expected 400 or more"):
            use()


def test_a_clip_of_which_no_frame_is_left_when_it_is_played_faster_is_named() -> None:
    lengths = DATA.lengths.copy()
    lengths[4] = 420
    short = ArrayDataset(DATA.samples, lengths, DATA.labels, DATA.names)
    faster = Augmentation(speed=(0.9, 1.1), speed_probability=1, pad_probability=0)
    with pytest.raises(SettingError, match=r"w/4\.wav has 420 samples; expected 441 or more, a frame at 1\.1 times"):
        EpochBatches(short, [], FE, faster, batch=6, balance=1, seed=1, epoch=0)
    lengths[4] = 441
    for settings in (faster, replace(faster, speed=(1.1, 1.1))):
        epoch = EpochBatches(short, [], FE, settings, batch=6, balance=1, seed=1, epoch=0)
        assert [len(epoch[i][1]) for i in range(3)] == [6, 6, 6]


# --- batches


def test_a_batch_is_features_and_labels() -> None:
    features, labels = batches()[0]
    assert features.shape == (6, 64, 128)
    assert features.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert set(labels.tolist()) <= {0, 1, 2}
    assert torch.isfinite(features).all()


def test_an_epoch_has_as_many_whole_batches_as_the_split_holds() -> None:
    assert len(batches(batch=6)) == 3
    assert len(batches(batch=20, balance=0)) == 1


def test_a_split_smaller_than_a_batch_is_one_batch() -> None:
    few = batches(batch=64)
    assert len(few) == 1
    assert len(few[0][1]) == 18  # 3 classes of floor(20 / 3)


def test_a_batch_depends_on_nothing_but_its_place_and_the_seed() -> None:
    a, b = batches(), batches()
    forwards = [a[i] for i in range(3)]
    backwards = [b[i] for i in (2, 1, 0)][::-1]
    for one, other in zip(forwards, backwards, strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("change", [{"seed": 2}, {"epoch": 1}])
def test_another_seed_or_epoch_gives_other_batches(change: dict[str, int]) -> None:
    assert not torch.equal(batches()[0][0], batches(**change)[0][0])


def test_a_clip_shown_twice_is_augmented_differently() -> None:
    one = ArrayDataset(DATA.samples[:1], DATA.lengths[:1], DATA.labels[:1], DATA.names[:1])
    epochs = [EpochBatches(one, [], FE, Augmentation(), batch=1, balance=1, seed=1, epoch=e)[0][0] for e in (0, 1)]
    assert not torch.equal(*epochs)


@pytest.mark.parametrize("world_size", [1, 2, 3, 6])
@pytest.mark.parametrize("share", [0.0, 0.34])
def test_the_processes_shares_make_up_the_global_batch(world_size: int, share: float) -> None:
    extra = {"negatives": negatives(share)} if share else {}
    whole = batches(**extra)[1]
    shares = [batches(rank=rank, world_size=world_size, **extra)[1] for rank in range(world_size)]
    clips = sorted(t.numpy().tobytes() for features, _ in shares for t in features)
    assert clips == sorted(t.numpy().tobytes() for t in whole[0])
    assert Counter(torch.cat([labels for _, labels in shares]).tolist()) == Counter(whole[1].tolist())
    sizes = [len(labels) for _, labels in shares]
    assert max(sizes) - min(sizes) <= 1
    no_word = [int((labels == NO_WORD).sum()) for _, labels in shares]
    assert max(no_word) - min(no_word) <= 1


def test_extra_frames_make_what_is_seen_longer_and_a_clip_lies_in_its_middle() -> None:
    still = Augmentation(
        gain_probability=0, dc_probability=0, background_probability=0, shift_ms=0, pad_probability=0,
        time_masks=0, band_masks=0, cutouts=0,
    )  # fmt: skip
    plain, longer = (
        EpochBatches(DATA, [], FE, still, batch=6, balance=1, seed=1, epoch=0, extra_frames=n)[0][0] for n in (0, 16)
    )
    assert longer.shape == (6, 64, 144)
    torch.testing.assert_close(longer[:, :, 8:-8], plain)
    in_stream = replace(still, stream_probability=1, neighbour_probability=0, stream_margin_ms=(0, 0))
    whole = EpochBatches(DATA, [], FE, in_stream, batch=6, balance=1, seed=1, epoch=0, extra_frames=16)[0][0]
    assert whole.shape == (6, 64, 144)
    assert (whole.abs().sum(1) > 0).all()  # the sound goes to both edges


def test_how_often_a_word_is_faster() -> None:
    settings = Augmentation(speed=(2, 2), speed_probability=0.3, time_masks=0, band_masks=0, cutouts=0)
    data = dataset(clips=400)
    features, _ = EpochBatches(
        data, [], FE, replace(settings, pad_probability=0), batch=390, balance=0.0, seed=1, epoch=0
    )[0]
    frames = (features.abs().sum(1) > 0).sum(1)
    assert float((frames < 50).double().mean()) == pytest.approx(0.3, abs=0.07)  # 9,000 samples have 54 frames


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize("speed", [0.8, 2.0])
def test_a_window_without_a_word_can_be_slower_or_faster_and_keeps_its_length(speed: float, stream: int) -> None:
    tone = (8000 * np.sin(2 * np.pi * 1000 * np.arange(60_000) / 16_000)).astype(np.int16)
    mix = NegativeMix(share=0.5, partial=0, reversed=0, spliced=0, noise=0, other=1)
    settings = Augmentation(
        speed=(speed, speed), speed_probability=1, stream_probability=stream, background_probability=0,
        gain_probability=0, dc_probability=0, shift_ms=0, time_masks=0, band_masks=0, cutouts=0,
    )  # fmt: skip
    epoch = EpochBatches(
        DATA, [], FE, settings, batch=8, balance=1.0, seed=1, epoch=0, negatives=Negatives(DATA, [], [tone], mix)
    )
    features, labels = epoch[0]
    frames = features[labels == NO_WORD].numpy()
    log_mel = scipy.fft.idct(frames, axis=1, norm="ortho")
    sounding = np.abs(frames).sum(1) > 0
    assert (sounding.sum(1) == (128 if stream else 98)).all()
    loudest = log_mel.argmax(1)[sounding]
    expected = int(mel_filterbank(FE)[round(1000 * speed * FE.n_fft / 16_000)].argmax())
    assert (np.abs(loudest - expected) <= 1).all()


def test_a_window_of_a_stream_is_sound_in_every_frame() -> None:
    in_stream = Augmentation(stream_probability=1, time_masks=0, band_masks=0, cutouts=0)
    features, _ = EpochBatches(
        DATA, NOISES, FE, in_stream, batch=8, balance=1.0, seed=1, epoch=0, negatives=negatives(0.5)
    )[0]
    assert (features.abs().sum(1) > 0).all()
    padded = replace(in_stream, stream_probability=0)
    features, _ = EpochBatches(DATA, NOISES, FE, padded, batch=8, balance=1.0, seed=1, epoch=0)[0]
    assert (features[:, :, :15] == 0).all()


def test_how_often_a_window_is_one_of_a_stream() -> None:
    settings = Augmentation(stream_probability=0.3, time_masks=0, band_masks=0, cutouts=0)
    data = dataset(clips=400)
    epoch = EpochBatches(data, NOISES, FE, settings, batch=390, balance=0.0, seed=1, epoch=0)
    whole = (epoch[0][0][:, :, 0].abs().sum(1) > 0).double().mean()
    assert float(whole) == pytest.approx(0.3, abs=0.07)  # three standard errors


@pytest.mark.parametrize("share", [0.1, 0.34, 0.5])
def test_negatives_take_their_share_of_every_batch(share: float) -> None:
    for _, labels in (batches(batch=10, negatives=negatives(share))[i] for i in (0, 1)):
        assert int((labels == NO_WORD).sum()) == round(10 * share)


def test_a_batch_must_have_room_for_a_word_and_for_every_process() -> None:
    with pytest.raises(SettingError, match="batch=4, 4 of it negatives, for 1 processes"):
        batches(batch=4, negatives=negatives(0.9))
    with pytest.raises(SettingError, match="batch=2, 0 of it negatives, for 3 processes"):
        batches(batch=2, rank=2, world_size=3)


def test_neighbours_of_words_need_recordings() -> None:
    mix = NegativeMix(share=0.3, partial=1, reversed=0, noise=0, other=0)
    settings = Augmentation(stream_probability=1, neighbour_probability=0.5)
    shape: dict[str, Any] = {"batch": 6, "balance": 1, "seed": 1, "epoch": 0}
    with pytest.raises(SettingError, match=r"neighbour_probability=0\.5, but the negatives have no recordings"):
        EpochBatches(DATA, NOISES, FE, settings, **shape, negatives=Negatives(DATA, [], [], mix))
    EpochBatches(DATA, NOISES, FE, settings, **shape, negatives=Negatives(DATA, [], [np.ones(20_000, np.int16)], mix))
    EpochBatches(DATA, NOISES, FE, settings, **shape)


def test_loader_workers_make_the_same_batches_in_the_same_order() -> None:
    in_line = list(batches().loader(workers=0))
    in_workers = list(batches().loader(workers=2))
    assert len(in_line) == len(in_workers) == 3
    for one, other in zip(in_line, in_workers, strict=True):
        assert_equal(one, other)


IN_LITTLE_SHARED_MEMORY = """
import resource, test_batches
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))  # what a file may hold, in shared memory too
test_batches.DATA = test_batches.dataset(60)
batches = test_batches.batches(batch=60)
made = list(batches.loader(workers=2))
print(len(made), made[0][0].nbytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits on files in shared memory")
def test_loader_workers_need_no_shared_memory_for_their_batches() -> None:
    """A container has 64 MB of it, or 1: a worker that could not send its batch there left the training waiting."""
    paths = [str(ROOT), str(ROOT / "export"), str(Path(__file__).parent), str(ROOT / "tests" / "support")]
    done = subprocess.run(
        [sys.executable, "-c", IN_LITTLE_SHARED_MEMORY],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["1", str(60 * 64 * 128 * 4)]


def test_a_loader_worker_that_is_killed_ends_the_epoch_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: EpochBatches, step: int) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(EpochBatches, "__getitem__", killed)
    with pytest.raises(WorkerError, match=r"step 1 of 3.*fewer --workers"):
        list(batches().loader(workers=1))


# --- which clips

COUNTS = st.lists(st.integers(1, 60), min_size=2, max_size=8)


@given(counts=COUNTS, balance=st.floats(0, 1), seed=st.integers(0, 1000))
def test_within_a_class_every_clip_comes_equally_often(counts: list[int], balance: float, seed: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    times = np.bincount(draw_epoch(labels, balance, np.random.default_rng(seed)), minlength=len(labels))
    assert times.sum() <= len(labels) < times.sum() + len(counts) + 1
    for cls in range(len(counts)):
        assert np.ptp(times[labels == cls]) <= 1


@given(counts=COUNTS, seed=st.integers(0, 1000))
def test_full_balance_gives_every_class_the_same_number(counts: list[int], seed: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    drawn = labels[draw_epoch(labels, 1.0, np.random.default_rng(seed))]
    assert len(set(np.bincount(drawn, minlength=len(counts)))) == 1


@given(counts=COUNTS, seed=st.integers(0, 1000))
def test_no_balance_gives_the_clips_as_they_come(counts: list[int], seed: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    drawn = labels[draw_epoch(labels, 0.0, np.random.default_rng(seed))]
    difference = np.array(counts) - np.bincount(drawn, minlength=len(counts))
    assert difference.min() >= 0
    assert difference.max() <= 1  # rounded down


def test_a_class_of_one_clip_comes_where_rounding_would_leave_it_out() -> None:
    labels = np.repeat([0, 1], [48, 1])  # 1 / 49 * 49 is below 1
    assert 48 in draw_epoch(labels, 0.0, np.random.default_rng(0))


def test_half_balance_is_the_square_root() -> None:
    labels = np.repeat([0, 1], [900, 100])
    drawn = labels[draw_epoch(labels, 0.5, np.random.default_rng(0))]
    assert np.bincount(drawn).tolist() == [750, 250]


def test_the_order_is_shuffled() -> None:
    labels = np.repeat([0, 1], 50)
    drawn = labels[draw_epoch(labels, 1.0, np.random.default_rng(0))]
    assert 30 < np.count_nonzero(np.diff(drawn)) < 70  # sorted classes would change once

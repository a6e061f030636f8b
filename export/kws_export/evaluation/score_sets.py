"""What a run is scored on: the splits, sounds from outside the vocabulary, and the test split in noise.

Names of the sets, as they stand in score files and reports:

validation, test : clips of the model's classes; test those of the recipe's own list, where it names one.
test_20dB, … : the test split over noise.
other_words : clips of the data set's words that the model does not know, all splits.
unknown : `_unknown_`, words whose label was lost; some may be words of the model.
silence, background : the `_silence_` clips, and the seconds of `_background_noise_`, from which they were cut. Training
    may have used the latter as background.
sounds, speech : the seconds of other recordings. Running speech may hold a word of the model.

Where `_unknown_` is a class, clips of other words are in the splits, and there is neither `other_words` nor `unknown`;
where `_silence_` is one, there is neither `silence` nor `background`.

Seconds without sound are left out: the device answers them `silence` without asking the network.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache as cached
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from kws_edge.arrays import F32, I64
from kws_edge.audio.files import audio_in
from kws_edge.audio.level import measure
from kws_edge.audio.load import load
from kws_edge.audio.pcm import as_float
from kws_edge.errors import SettingError
from kws_edge.model.features import FrontEnd
from kws_edge.tuning.soundscape import speech_bounds
from kws_export.data.augment import scale_to_snr
from kws_export.data.batches import split_features
from kws_export.data.features import window_features
from kws_export.data.speech_commands import CLIP_SAMPLES, Clip, Split, index
from kws_export.data.splits import SILENCE, UNKNOWN, ArrayDataset, load_split, loudest_second, split_clips

SPLITS: tuple[Split, ...] = ("validation", "test")
SNRS = (20, 10, 5, 0)
"""dB, of the noisy test sets."""
NO_WORD = -1
"""The truth of a clip from outside the vocabulary."""

_NOISE_SEED = 0  # which noise goes with which clip: the same at every ratio, for every run
_FORMAT = 1  # part of every key: raise it when a set's features change


@dataclass(frozen=True)
class ClipSet:
    """A set of clips that is loaded when it is needed.

    Attributes
    ----------
    name : one of those that this module lists.
    key : changes with anything that the features depend on: clips, front end, noise.
    load : gives the features float32 [n, coefficients, frames] and the true classes int64 [n].
    files : the recordings that it is made of.
    """

    name: str
    key: str
    load: Callable[[], tuple[F32, I64]]
    files: Sequence[Path]

    @cached_property
    def content(self) -> str:
        """Changes with the recordings themselves, which the key knows by their names and sizes alone; read once."""
        return hashlib.sha256(b"".join(map(_digest, self.files))).hexdigest()[:16]


def noisy_name(snr: int) -> str:
    """The name of the test set at a signal-to-noise ratio in dB."""
    return f"test_{snr}dB"


def clip_sets(
    root: Path,
    labels: Sequence[str],
    front_end: FrontEnd,
    cache: Path,
    *,
    test_list: str = "",
    noise: Sequence[Path] = (),
    sounds: Sequence[Path] = (),
    speech: Sequence[Path] = (),
) -> list[ClipSet]:
    """The sets that the data make possible; a set without recordings is left out.

    Parameters
    ----------
    root : Speech Commands, in its public layout.
    labels, front_end : of the models to be scored.
    cache : decoded splits, as for `load_split`.
    test_list : of the models' recipe, as for `load_split`.
    noise : recordings, each a second or longer, to mix under the test split; none that training used.
    sounds, speech : recordings to cut into seconds.

    Raises
    ------
    SettingError : as `index` and `load_split` raise it; a set is loaded whose recordings hold no second with sound.
    """
    clips = {s: split_clips(root, s, labels, test_list=test_list) for s in SPLITS}
    files = {s: _listed(clips[s]) for s in SPLITS}
    paths = {s: [clip.path for clip in clips[s]] for s in SPLITS}
    settings = {"front end": asdict(front_end), "labels": list(labels), "format": _FORMAT}

    def key(name: str, listed: Sequence[str], **more: object) -> str:
        return hashlib.sha256(json.dumps([name, settings, listed, more]).encode()).hexdigest()[:16]

    def split(name: Split) -> tuple[F32, I64]:
        data = load_split(root, name, labels, cache, test_list=test_list)
        return split_features(data, front_end).numpy(), data.labels

    def noisy(snr: int) -> tuple[F32, I64]:
        data = load_split(root, "test", labels, cache, test_list=test_list)
        return noisy_features(data, [_noise_second(path) for path in noise], snr, front_end)

    def outside(name: str, paths: Sequence[Path], read: Callable[[Path], list[F32]]) -> tuple[F32, I64]:
        seconds = (x for path in paths for x in read(path))
        heard = [window_features(x, front_end) for x in seconds if not measure(x).is_silent]
        if not heard:
            raise SettingError(
                f"the recordings of {name}, such as {paths[0]}, hold no second with sound; expected a second or more, "
                "or no such recordings"
            )
        return np.stack(heard), np.full(len(heard), NO_WORD)

    whole: dict[str, Sequence[Path]] = {}
    cut = {"background": _optional(root / "_background_noise_"), "sounds": sounds, "speech": speech}
    if UNKNOWN not in labels:
        whole["other_words"] = [c.path for c in index(root) if c.word not in labels]
        whole["unknown"] = _optional(root / UNKNOWN)
    if SILENCE in labels:
        del cut["background"]
    else:
        whole["silence"] = _optional(root / SILENCE)
    sets = [ClipSet(name, key(name, files[name]), partial(split, name), paths[name]) for name in SPLITS]
    for recordings, read in ((whole, clip_of), (cut, seconds_of)):
        sets += [
            ClipSet(name, key(name, _sizes(of)), partial(outside, name, of, read), of)
            for name, of in recordings.items()
            if of
        ]
    for snr in SNRS if noise else ():
        name = noisy_name(snr)
        own = key(name, [*files["test"], *_sizes(noise)], seed=_NOISE_SEED)
        sets.append(ClipSet(name, own, partial(noisy, snr), [*paths["test"], *noise]))
    return sets


def clip_of(path: Path) -> list[F32]:
    """A clip as one window: float32 [1 to 16000], the loudest second of a longer one."""
    samples = load(path).samples
    return [loudest_second(samples) if len(samples) > CLIP_SAMPLES else samples]


def seconds_of(path: Path) -> list[F32]:
    """The whole seconds of a recording, one after the other: float32 [16000] each."""
    samples = load(path).samples
    return list(samples[: len(samples) // CLIP_SAMPLES * CLIP_SAMPLES].reshape(-1, CLIP_SAMPLES))


def noisy_features(data: ArrayDataset, noises: Sequence[F32], snr: float, front_end: FrontEnd) -> tuple[F32, I64]:
    """A split with a noise under every clip, the same one whatever the ratio, as `in_noise` mixes them.

    Parameters
    ----------
    noises : float32 [16000] each, full scale ±1.

    Returns
    -------
    features float32 [n, coefficients, frames], true classes int64 [n].
    """
    chosen = np.random.default_rng(_NOISE_SEED).integers(len(noises), size=len(data))
    features = np.empty((len(data), front_end.n_mfcc, front_end.frames), np.float32)
    for i, at in enumerate(chosen):
        clip = as_float(data.samples[i, : data.lengths[i]])
        features[i] = window_features(in_noise(clip, noises[at], snr), front_end)
    return features, data.labels


def in_noise(clip: F32, noise: F32, snr: float) -> F32:
    """A second of noise with the clip in its middle.

    The ratio, in dB, is that of the word's power while it is spoken (`soundscape.speech_bounds`) to that of the second
    of noise. The word keeps its level; nothing is clipped.

    Parameters
    ----------
    clip : float32 [1 to 16000].
    noise : float32 [16000].
    """
    first, last = speech_bounds(clip)
    mixed = scale_to_snr(noise, clip[first:last], snr).copy()
    start = (len(noise) - len(clip)) // 2
    mixed[start : start + len(clip)] += clip
    return mixed


def _noise_second(path: Path) -> F32:
    samples = load(path).samples
    if len(samples) < CLIP_SAMPLES:
        raise SettingError(f"noise {path} of {len(samples)} samples; expected a second, {CLIP_SAMPLES}, or more")
    second = loudest_second(samples)
    if measure(second).is_silent:
        raise SettingError(f"noise {path} is silent; expected sound to mix with the clips")
    return second


def _listed(clips: Iterable[Clip]) -> list[str]:
    """What a key holds of clips: names, which tell stretches of one recording apart, and sizes."""
    return [f"{clip.name} {clip.path.stat().st_size}" for clip in clips]


def _sizes(paths: Iterable[Path]) -> list[str]:
    """The same of files."""
    return [f"{path.parent.name}/{path.name} {path.stat().st_size}" for path in paths]


def _digest(path: Path) -> bytes:
    return _digest_at(path, path.stat().st_mtime_ns)


@cached
def _digest_at(path: Path, changed: int) -> bytes:
    """SHA-256 of a file, which is read once as long as it does not change: several sets hold it."""
    return hashlib.sha256(path.read_bytes()).digest()


def _optional(folder: Path) -> list[Path]:
    return audio_in(folder) if folder.is_dir() else []

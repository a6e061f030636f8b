"""Draw training windows as in a stream: with a whole wake word in them, and without.

Each is a pure function of (seed, epoch, step, place in the batch), so that a run goes on exactly after a kill.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from kws_edge.arrays import F16, F32, I16, I64
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.pcm import as_float, as_int16
from kws_edge.model.features import FrontEnd
from kws_edge.tuning.soundscape import joined
from kws_export.data.augment import (
    Augmentation,
    Transform,
    at_speed,
    in_stream,
    mfcc_transforms,
    sample_transforms,
    transformed,
)
from kws_export.data.features import window_features
from kws_export.data.negatives import stretch
from kws_export.wake.material import Material, Saying
from kws_export.wake.whole_stream import stream_features

AUGMENTATION = Augmentation(
    speed=(0.84, 1.2),
    speed_probability=0.7,
    vocal_tract=(0.86, 1.16),
    gain_db=(-25.0, 6.0),
    gain_probability=0.4,
    dc_probability=0.05,
    background_snr_db=(-3.0, 22.0),
    background_probability=0.7,
    room_probability=0.4,
    rooms=200,
    microphone_probability=0.35,
    overdrive_probability=0.05,
    coding_noise=1.0,
    time_masks=2,
    time_width=12,
    band_masks=2,
    band_width=6,
    cutouts=0,
)
SHARES = {"word": 0.28, "near": 0.14, "hard": 0.12, "speech": 0.28, "partial": 0.10, "sounds": 0.08}
"""Of every batch; what there is nothing of goes to speech."""
REAL_SHARE = 0.5
"""Of the windows with a word, those with a person's, where there are both: a person's take is worth several voices'."""
NEIGHBOURS = 0.5
"""How often other speech comes right before and after the word."""
VISIBLE = (0.15, 0.6)
"""How much of a word, or of what a window shows of a longer one, is seen in a window that holds a part of it."""
HARD_SHIFT = 8
"""Frames."""
TRAILING = 1_600
"""Samples: a word longer than the window has its end at most so far from the window's."""


class Windows:
    """Draws windows and their labels: the index of a word, or of `_unknown_` after the words."""

    def __init__(self, material: Material, labels: Sequence[str], front_end: FrontEnd, seed: int) -> None:
        """Sort the material by label.

        `hard` becomes where the network fires on `speech`: the frames at which the windows end.
        """
        self.front_end, self.seed = front_end, seed
        self.n = front_end.window + (front_end.frames - 1) * front_end.hop
        self.material, self.labels = material, labels
        self.unknown = len(labels)
        self.words: list[tuple[list[Saying], list[Saying]]] = []
        for label in labels:
            own = [s for s in material.words if s.label == label]
            self.words.append(([s for s in own if s.real], [s for s in own if not s.real]))
        self.hard: I64 = np.empty(0, np.int64)
        self._speech_odds, self._sound_odds = _odds(material.speech), _odds(material.sounds)
        self.of_mfcc = mfcc_transforms(AUGMENTATION)
        there = {"near": material.near, "sounds": material.sounds}
        shares = {kind: s for kind, s in SHARES.items() if kind not in there or there[kind]}
        shares["speech"] += 1 - sum(shares.values())
        self._kinds, self._shares = tuple(shares), np.array(tuple(shares.values()))
        self._draw: dict[str, Callable[[np.random.Generator], tuple[F32, int]]] = {
            "word": self._word,
            "near": self._near,
            "speech": self._speech,
            "partial": self._partial,
            "sounds": self._sounds,
        }

    @cached_property
    def transforms(self) -> list[Transform]:
        """What happens to the sound of a window."""
        return sample_transforms(AUGMENTATION, _backgrounds(self.material), in_stream=True)

    def batches(self, epoch: int, steps: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """An epoch: windows float32 [size, coefficients, frames] and labels int64 [size] of each step.

        Half of a step's windows come again in the next, with other changes of their MFCC: to make the sound of a window
        costs more than to learn from it.
        """
        again: list[tuple[F32, int]] = []
        for step in range(steps):
            new = self.draw(epoch, step, size - len(again))
            rng = np.random.Generator(np.random.PCG64([self.seed, epoch, step, size]))
            shown = [(transformed(x, self.of_mfcc, rng), label) for x, label in new + again]
            again = new[:: 2 if not again else 1]
            yield torch.from_numpy(np.stack([x for x, _ in shown])), torch.tensor([label for _, label in shown])

    def draw(self, epoch: int, step: int, size: int) -> list[tuple[F32, int]]:
        """Windows of all kinds by their shares, each the MFCC, float32 [coefficients, frames], and the label."""
        kinds = np.searchsorted(np.cumsum(self._shares), (np.arange(size) + 0.5) / size)
        return [self._window(epoch, step, i, self._kinds[kind]) for i, kind in enumerate(kinds)]

    def _window(self, epoch: int, step: int, place: int, kind: str) -> tuple[F32, int]:
        rng = np.random.Generator(np.random.PCG64([self.seed, epoch, step, place]))
        if kind == "hard" and len(self.hard):
            return self._hard(rng), self.unknown
        x, label = self._draw["speech" if kind == "hard" else kind](rng)
        return window_features(transformed(x, self.transforms, rng), self.front_end), label

    def _say(self, rng: np.random.Generator) -> tuple[F32, int]:
        label = int(rng.integers(len(self.words)))
        real, spoken = self.words[label]
        of = real if real and (not spoken or rng.random() < REAL_SHARE) else spoken
        return as_float(of[int(rng.integers(len(of)))].samples), label

    def _word(self, rng: np.random.Generator) -> tuple[F32, int]:
        clip, label = self._say(rng)
        return self._placed(clip, rng), label

    def _near(self, rng: np.random.Generator) -> tuple[F32, int]:
        near = self.material.near
        return self._placed(as_float(near[int(rng.integers(len(near)))]), rng), self.unknown

    def _placed(self, clip: F32, rng: np.random.Generator) -> F32:
        """A clip anywhere in a window, whole; the end of one that is longer than the window."""
        if rng.random() < AUGMENTATION.speed_probability:
            clip = at_speed(clip, rng.uniform(*AUGMENTATION.speed), 2 * self.n)
        around = self._stretch(rng) if rng.random() < NEIGHBOURS else None
        if len(clip) <= self.n - TRAILING:
            return in_stream(clip, self.n, rng, around)
        after = int(rng.integers(TRAILING))
        out = np.zeros(self.n, np.float32) if around is None else around
        kept = clip[-(self.n - after) :]
        out[self.n - after - len(kept) : self.n - after] = kept
        return out

    def _partial(self, rng: np.random.Generator) -> tuple[F32, int]:
        """The beginning of a word at the window's end, its end at the window's beginning, or one of these in speech."""
        clip, _ = self._say(rng)
        visible = int(min(len(clip), self.n) * rng.uniform(*VISIBLE))
        out = np.zeros(self.n, np.float32) if rng.random() < 0.5 else self._stretch(rng)
        if rng.random() < 0.5:
            out[self.n - visible :] = clip[:visible]
        elif rng.random() < 0.5:
            out[:visible] = clip[len(clip) - visible :]
        else:  # cut off in the midst of the window: the rest was never said
            at = int(rng.integers(self.n - visible))
            out[at : at + visible] = clip[:visible]
        return out, self.unknown

    def _speech(self, rng: np.random.Generator) -> tuple[F32, int]:
        return self._stretch(rng), self.unknown

    @cached_property
    def speech(self) -> F16:
        """All frames of the training speech, as it is: float16 [T, coefficients]."""
        return stream_features(joined(map(as_float, self.material.speech)), self.front_end)

    def _hard(self, rng: np.random.Generator) -> F32:
        """A window of training speech on which the network fired, give or take a few frames, as it is."""
        frames = self.front_end.frames
        end = int(self.hard[int(rng.integers(len(self.hard)))]) + int(rng.integers(-HARD_SHIFT, HARD_SHIFT + 1))
        end = min(len(self.speech), max(frames, end))
        return np.ascontiguousarray(self.speech[end - frames : end].T, np.float32)

    def _sounds(self, rng: np.random.Generator) -> tuple[F32, int]:
        if rng.random() < 0.25:
            return np.zeros(self.n, np.float32), self.unknown
        sounds = self.material.sounds
        sound = sounds[int(rng.choice(len(sounds), p=self._sound_odds))]
        return as_float(stretch(sound, self.n, rng)), self.unknown

    def _stretch(self, rng: np.random.Generator) -> F32:
        speech = self.material.speech
        return as_float(stretch(speech[int(rng.choice(len(speech), p=self._speech_odds))], self.n, rng))


def _odds(recordings: Sequence[I16]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    lengths = np.array([max(16_000.0, len(r)) for r in recordings])
    return lengths / lengths.sum() if len(lengths) else lengths


def _backgrounds(material: Material, seconds: int = 300) -> list[I16]:
    """What lies behind the words, in some long recordings, at one level: speech, which is the harder, most often.

    As int16, a quarter of an hour of which is 29 MB.
    """
    n = seconds * SAMPLE_RATE
    found: list[I16] = []
    for recordings, count in ((material.speech, 14), (material.sounds, 6)):
        levelled: list[I16] = []
        left = count * n
        for i in np.random.default_rng(0).permutation(len(recordings)):
            if left <= 0:
                break
            levelled.append(_levelled(recordings[i][:left]))
            left -= len(levelled[-1])
        if levelled:
            joined = np.concatenate(levelled)
            parts = np.array_split(joined, max(1, len(joined) // n))
            found += [part for part in parts if len(part) > 2 * SAMPLE_RATE]
    return found


def _levelled(recording: I16) -> I16:
    x = as_float(recording)
    return as_int16(x * np.float32(0.05 / max(1e-4, float(np.sqrt(np.mean(np.square(x)))))))

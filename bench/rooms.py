"""Clips as a microphone 3 m away hears them in a room, or as a telephone passes them on, for measurements.

    pip install pyroomacoustics
    python bench/rooms.py speech_commands --list speech_commands/testing_list.txt --decay 0.6 --out rooms/0.6
    python bench/rooms.py speech_commands --list speech_commands/testing_list.txt --rate 8000 --out rooms/8k
    kws-edge evaluate-stream --positives rooms/0.6 --negatives radio.wav

Writes OUT/WORD/CLIP.wav. Each clip is heard in one of 40 shoebox rooms of 5 to 7 m by 4 to 6 m by 2.5 to 3 m, whose
walls absorb so much that sound falls by 60 dB in the time given; its level is kept. A quarter of a second of the
room's decay follows each clip. With --rate, clips are resampled to that rate and back.
"""

import argparse
from pathlib import Path

import numpy as np
import soundfile

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.tuning.recordings import draw, spoken

ROOMS = 40
DISTANCE = 3.0  # m
TAIL = 0.25  # s


def impulse_responses(rt60: float, seed: int) -> list[F32]:
    """One for each of the rooms, with an energy of 1, from the direct sound on."""
    import pyroomacoustics as pra

    rng = np.random.default_rng(seed)
    found: list[F32] = []
    while len(found) < ROOMS:
        size = rng.uniform((5.0, 4.0, 2.5), (7.0, 6.0, 3.0))
        microphone = np.array([rng.uniform(0.5, 1.5), rng.uniform(0.5, size[1] - 0.5), 1.0])
        angle = rng.uniform(-0.5, 0.5)
        mouth = microphone + DISTANCE * np.array([np.cos(angle), np.sin(angle), 0.1])
        if (mouth < 0.3).any() or (mouth > size - 0.3).any():
            continue
        absorption, order = pra.inverse_sabine(rt60, size)
        room = pra.ShoeBox(size, fs=SAMPLE_RATE, materials=pra.Material(absorption), max_order=min(order, 40))
        room.add_source(mouth)
        room.add_microphone(microphone)
        room.compute_rir()
        h = np.asarray(room.rir[0][0], np.float64)
        first = max(0, int(np.abs(h).argmax()) - 20)
        h = h[first : first + round((rt60 + 0.2) * SAMPLE_RATE)]
        found.append((h / np.linalg.norm(h)).astype(np.float32))
    return found


def narrowed(samples: F32, rate: int) -> F32:
    """The same, without what lies above half the rate: a low-pass filter in the frequency domain, [n] → [n]."""
    spectrum = np.fft.rfft(samples)
    spectrum[np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE) > 0.47 * rate] = 0
    return np.fft.irfft(spectrum, len(samples)).astype(np.float32)


def main() -> None:
    """Write the clips."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", type=Path, help="Clips, as WORD/clip.")
    parser.add_argument("--list", type=Path, help="Only these of them, such as a testing_list.txt.")
    parser.add_argument("--count", type=int, default=600, help="How many.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--decay", type=float, help="RT60 in seconds, such as 0.3, 0.6 or 0.9.")
    what.add_argument("--rate", type=int, help="Samples a second, such as 8000.")
    given = parser.parse_args()
    responses = impulse_responses(given.decay, given.seed) if given.decay else []
    for i, (word, path) in enumerate(draw(spoken(given.clips, given.list), given.count, given.seed)):
        samples = load(path).samples
        if responses:
            tail = np.pad(samples, (0, round(TAIL * SAMPLE_RATE)))
            samples = np.convolve(tail, responses[i % ROOMS])[: len(tail)]
        else:
            samples = narrowed(samples, given.rate)
        folder = given.out / word
        folder.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / f"{path.stem}.wav", np.clip(samples, -1, 1), SAMPLE_RATE)


if __name__ == "__main__":
    main()

"""Make the recordings in kws_edge/samples: words by synthesised voices in a quiet room, noise, silence, a stream.

    pip install -e . -e ./export; apt-get install espeak-ng; kws-export download kokoro
    python scripts/samples.py --choose    # takes of every word, and how well networks hear them
    python scripts/samples.py             # write the files, from the takes named in CHOSEN

Every word is said by Kokoro in another voice, a blend of two, at about its natural speed. Nobody is recorded.
"""

import argparse
from pathlib import Path

import numpy as np
import soundfile

from kws_edge import KeywordModel
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.tuning.soundscape import ROOM_LEVEL, WORD_LEVEL, speech_bounds
from kws_export.voices import Rendition, Utterance, speak_all
from kws_export.voices.engine import F32
from kws_export.voices.kokoro import Kokoro

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "kws_edge" / "samples"
CHOSEN = {
    "yes": ("af_kore+af_sky", 0.87),
    "left": ("am_puck+bm_fable", 0.84),
    "happy": ("af_sky+am_michael", 0.9),
    "three": ("am_michael+bf_alice", 0.94),
    "banana": ("af_kore+af_nova", 0.92),
}
"""Word → the voice that says it, and how fast: a take of `--choose` that its networks hear best or second."""
KNOWN = ("yes", "left", "happy", "three")
"""Those that the models know."""
STREAM = ("yes", "left", "banana", "noise", "happy", "silence", "three")
"""What demo.flac has, with the room alone before, between and after."""
PAUSE = round(0.9 * SAMPLE_RATE)
TAKES = 24
SPEEDS = (0.8, 0.95)
"""Kokoro hurries a word that stands alone."""
NETWORKS = ROOT / "research" / "nine" / "models"
WHISPER = "af_nicole"
"""A voice that is no voice for a command."""


def takes(word: str) -> list[Rendition]:
    """Different blended voices, drawn by chance, at different speeds."""
    rng = np.random.default_rng([1, *word.encode()])
    voices = [voice for voice in Kokoro().voices("en-us") if "+" in voice]
    drawn = rng.permutation(voices)[:TAKES]
    cast = [Rendition(Utterance(word), str(voice), round(float(rng.uniform(*SPEEDS)), 2)) for voice in drawn]
    return [take for take in cast if WHISPER not in take.voice]


def room(samples: int, seed: int) -> F32:
    """The faint noise of a quiet room, float32 [n]."""
    return np.float32(ROOM_LEVEL) * np.random.default_rng(seed).standard_normal(samples, np.float32)


def in_a_second(word: F32, seed: int) -> F32:
    """A word amid a second of the room, at the usual level of speech. float32 [n] → [16000]."""
    first, last = speech_bounds(word)
    word = word * np.float32(WORD_LEVEL / np.sqrt(np.mean(np.square(word[first:last]))))
    second = room(SAMPLE_RATE, seed)
    start = max(0, (SAMPLE_RATE - len(word)) // 2)
    second[start : start + len(word)] += word[:SAMPLE_RATE]
    return second


def pink(samples: int, seed: int) -> F32:
    """Noise whose power falls by 3 dB an octave, float32 [n]."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(samples))
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    spectrum[0] = 0
    noise = np.fft.irfft(spectrum, samples)
    return (noise * WORD_LEVEL / noise.std()).astype(np.float32)


def choose() -> None:
    """Print the takes of each word, those first that the networks hear best, or of an unknown word take for none."""
    networks = [KeywordModel.load(path) for path in sorted(NETWORKS.glob("*.onnx"))]
    for word in CHOSEN:
        cast = takes(word)
        rows = []
        for i, (take, samples) in enumerate(zip(cast, speak_all(Kokoro(), cast), strict=True)):
            answers = [network.classify(in_a_second(samples, i), SAMPLE_RATE) for network in networks]
            heard = [a.probability if a.guess == word else 0.0 for a in answers]
            rows.append((float(np.mean(heard if word in KNOWN else [a.entropy for a in answers])), take, len(samples)))
        for mean, take, length in sorted(rows, key=lambda row: -row[0]):
            print(f"{word:8}{take.voice:24}{take.speed:6.2f}{length / SAMPLE_RATE:6.2f} s{mean:8.4f}")


def made() -> dict[str, F32]:
    """Name → samples, float32 [n] at 16 kHz."""
    sounds = {"noise": pink(SAMPLE_RATE, 1), "silence": np.zeros(SAMPLE_RATE, np.float32)}
    for i, (word, (voice, speed)) in enumerate(CHOSEN.items()):
        (samples,) = speak_all(Kokoro(), [Rendition(Utterance(word), voice, speed)])
        sounds[word] = in_a_second(samples, i)
    parts = [room(PAUSE, 100)]
    for i, name in enumerate(STREAM):
        sound = pink(2 * SAMPLE_RATE, 2) if name == "noise" else sounds[name]
        parts += [sound, room(PAUSE, 101 + i)]
    return {**sounds, "demo": np.concatenate(parts)}


def main() -> None:
    """Write the files, or help to choose."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choose", action="store_true", help="only say how well networks hear takes of every word")
    if parser.parse_args().choose:
        choose()
        return
    for name, samples in made().items():
        soundfile.write(FOLDER / f"{name}.flac", samples, SAMPLE_RATE, subtype="PCM_16")


if __name__ == "__main__":
    main()

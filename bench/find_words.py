"""Find a model's words in recordings of speech that should hold none, and write a label track beside a copy of each.

    pip install pocketsphinx==5.1.1
    python bench/find_words.py speech/ --out labelled/ [--model stream]

pocketsphinx transcribes with its own US English model, which gets about a word in four wrong in read speech: what it
finds is mostly there, and some of what is there it does not find. `kws-edge calibrate`, `kws-edge evaluate-stream` and
`kws-export train` read the tracks, NAME.labels.txt beside NAME.opus: an event at a word in them is no false accept, and
training does not show it as a window without a word. Words that sound the same count ("for" as "four", "know" as "no").
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pocketsphinx
from rich.progress import track

from kws_edge import KeywordModel
from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import is_audio, load

SOUNDS_LIKE = {
    "ate": "eight",
    "for": "four",
    "fore": "four",
    "know": "no",
    "too": "two",
    "won": "one",
    "someone": "one",
    "anyone": "one",
    "everyone": "one",
    "write": "right",
    "knows": "no",
}
FRAMES = 100  # of pocketsphinx, a second


def words_in(decoder: pocketsphinx.Decoder, path: Path, labels: tuple[str, ...]) -> Iterator[tuple[float, float, str]]:
    """The labels that are heard in a recording: start and end in seconds, and the label."""
    for start, end, word in decoded(decoder, load(path).samples):
        if (label := SOUNDS_LIKE.get(word, word)) in labels:
            yield start, end, label


def decoded(decoder: pocketsphinx.Decoder, samples: F32) -> Iterator[tuple[float, float, str]]:
    """What a decoder makes of samples, float32 [n] at 16 kHz: start and end in seconds, and the word."""
    decoder.start_utt()
    decoder.process_raw((np.clip(samples, -1, 1) * 32767).astype(np.int16).tobytes(), full_utt=True)
    decoder.end_utt()
    for segment in decoder.seg() or ():
        word = segment.word.partition("(")[0]  # "the(2)" is another way to say it
        yield segment.start_frame / FRAMES, (segment.end_frame + 1) / FRAMES, word


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder for the copies and their tracks")
    parser.add_argument("--model", help="whose words; default: the default model's")
    args = parser.parse_args()
    labels = KeywordModel.load(args.model).labels
    decoder = pocketsphinx.Decoder(samprate=SAMPLE_RATE, loglevel="FATAL")
    args.out.mkdir(parents=True, exist_ok=True)
    recordings = sorted(filter(is_audio, args.folder.rglob("*")))
    for path in track(recordings, "transcribing"):
        found = [f"{start:.2f}\t{end:.2f}\t{label}\n" for start, end, label in words_in(decoder, path, labels)]
        copy = args.out / path.relative_to(args.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        labelled = copy.with_suffix(".labels.txt")
        labelled.unlink(missing_ok=True)  # of a run before, for another model
        if found:
            labelled.write_text("".join(found), encoding="utf-8")
        shutil.copyfile(path, copy)  # last, so that what has no track has no words


if __name__ == "__main__":
    main()

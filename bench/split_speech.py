"""Share recordings of speech out, by speaker, into what trains, what calibrates and what evaluates a stream's model.

    pip install pocketsphinx==5.1.1
    python bench/split_speech.py ../shared/data --out sets

Writes OUT/train, OUT/calibration and OUT/evaluation, each with a folder per corpus that holds links to the recordings
and, where a word of the model is said, a label track (NAME.labels.txt), which `kws-edge calibrate`, `kws-edge
evaluate-stream` and `kws-export train` read. No speaker is in two of the three. A corpus of one reader goes to one of
them whole; so does one that does not name its speakers. Elsewhere a hash of the speaker's name decides, as in Speech
Commands.

Words are located by aligning the transcript with the sound (pocketsphinx), or where there is no transcript by
transcribing (find_words.py). Words that sound the same count. A recording whose transcript holds a word, and cannot be
aligned, is left out; so is one whose transcript has digits, and an order of coffee whose intent says a number, since
the words that were said are not known.
"""

import argparse
import csv
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pocketsphinx
from find_words import SOUNDS_LIKE, decoded, words_in
from rich.progress import track

from kws_edge import KeywordModel
from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import is_audio, load

SPOKEN_ALIKE = SOUNDS_LIKE | {"to": "two"}
"""As find_words, and "to": a slow reader says it as "two"."""

SHARES: dict[str, tuple[float, float]] = {
    "libri_speech/train-clean-100": (0.0, 1 / 3),
    "libri_speech/test-other": (1.0, 0.0),
    "speech/coffee_commands": (0.0, 0.0),
    "speech/kathleen_en": (0.0, 0.0),
    "speech/kerstin_de": (0.0, 1.0),
    "speech/librispeech_26_en": (1.0, 0.0),
    "speech/ljspeech_en": (0.0, 1.0),
    "speech/nathalie_nl": (1.0, 0.0),
    "speech/precise_other": (0.0, 0.0),
    "speech/speechocean_en": (1 / 3, 1 / 6),
    "speech/vctk_en": (0.0, 1 / 2),
}
"""Corpus → the shares of its speakers that evaluate and that calibrate; the rest trains."""

LONGEST = 1.2
"""Seconds; where a word seems to last longer, the text was not what is said."""

NUMBERS = ("eight ounce", "numberOfShots")
"""In the intent of an order of coffee: a word of the model may have been said."""


def part_of(corpus: str, speaker: str) -> str:
    """`train`, `calibration` or `evaluation`, by the SHA-1 of corpus and speaker."""
    digest = hashlib.sha1(f"{corpus}/{speaker}".encode(), usedforsecurity=False).digest()
    at = int.from_bytes(digest[:4], "big") / 2**32
    evaluation, calibration = SHARES[corpus]
    return "evaluation" if at < evaluation else "calibration" if at < evaluation + calibration else "train"


def speaker_of(corpus: str, path: Path) -> str:
    """Who speaks, as the name of the file or of its folder says it; the corpus where nothing does."""
    if corpus.startswith("libri_speech") or corpus.endswith(("speechocean_en", "librispeech_26_en")):
        return path.name.partition("-")[0]
    return path.parent.name if corpus.endswith("vctk_en") else corpus


def transcripts(folder: Path) -> dict[str, str]:
    """File name → what is said, or what is meant by it; nothing where the corpus has no table of texts."""
    tables = list(folder.glob("*.tsv"))
    if not tables:
        return {}
    with tables[0].open(encoding="utf-8", newline="") as file:
        return {row[0]: row[1] for row in list(csv.reader(file, delimiter="\t"))[1:]}


def aligned_words(
    decoder: pocketsphinx.Decoder, samples: F32, text: list[str]
) -> list[tuple[float, float, str]] | None:
    """Where each word of a text lies in its recording, float32 [n]: start, end, word. None where they do not fit."""
    try:
        decoder.set_align_text(" ".join(text))
        return list(decoded(decoder, samples))
    except RuntimeError:
        return None


def aligned(
    decoder: pocketsphinx.Decoder, path: Path, text: list[str], labels: tuple[str, ...]
) -> list[tuple[float, float, str]] | None:
    """Where the labels of a text lie in its recording: start, end, label. None where text and sound do not fit."""
    if any(decoder.lookup_word(word) is None for word in text):
        return None
    words = aligned_words(decoder, load(path).samples, text)
    if words is None:
        return None
    found = [(start, end, label) for start, end, word in words if (label := SPOKEN_ALIKE.get(word, word)) in labels]
    said = sum(SPOKEN_ALIKE.get(word, word) in labels for word in text)
    fits = len(found) == said and all(end - start < LONGEST for start, end, _ in found)
    return found if fits else None


def labelled(
    recordings: list[Path], texts: dict[str, str], labels: tuple[str, ...], corpus: str
) -> Iterator[tuple[Path, list[tuple[float, float, str]]]]:
    """The recordings that can be used, each with the words in it."""
    transcriber = None if texts else pocketsphinx.Decoder(samprate=SAMPLE_RATE, loglevel="FATAL")
    aligner = pocketsphinx.Decoder(samprate=SAMPLE_RATE, loglevel="FATAL", lm=None)
    for path in track(recordings, corpus):
        if transcriber:
            yield path, list(words_in(transcriber, path, labels))
            continue
        text = texts.get(path.name, "")
        if corpus.endswith("coffee_commands"):
            if not any(number in text for number in NUMBERS):
                yield path, []
            continue
        if re.search(r"\d", text):
            continue
        words = re.findall(r"[a-z']+", text.lower())
        if not any(SPOKEN_ALIKE.get(word, word) in labels for word in words):
            yield path, []
        elif (found := aligned(aligner, path, words, labels)) is not None:
            yield path, found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder that holds speech/ and libri_speech/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpus", choices=sorted(SHARES), action="append", help="only this one; repeatable")
    parser.add_argument("--model", help="whose words; default: the default model's")
    args = parser.parse_args()
    labels = KeywordModel.load(args.model).labels
    for corpus in args.corpus or SHARES:
        folder, kept = args.data / corpus, 0
        recordings = sorted(filter(is_audio, folder.rglob("*")))
        for path, found in labelled(recordings, transcripts(folder), labels, corpus):
            link = args.out / part_of(corpus, speaker_of(corpus, path)) / Path(corpus).name / path.name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.with_suffix(".labels.txt").unlink(missing_ok=True)  # of a run before, for another model
            if found:
                lines = "".join(f"{start:.2f}\t{end:.2f}\t{label}\n" for start, end, label in found)
                link.with_suffix(".labels.txt").write_text(lines, encoding="utf-8")
            link.unlink(missing_ok=True)
            link.symlink_to(path.resolve())
            kept += 1
        print(f"{corpus}: {kept} of {len(recordings)} recordings")


if __name__ == "__main__":
    main()

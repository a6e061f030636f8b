"""Make recordings of single words to train a stream's model with: its own, in many voices, and others, which are none.

    python bench/single_words.py voices --out single
    pip install pocketsphinx==5.1.1
    python bench/single_words.py people ../shared/data --out single

`voices` has the installed synthesisers say the model's words (OUT/words/WORD/*.wav, to lie beside people's clips in a
data folder of `kws-export train`) and other words (OUT/voices/ENGINE/*.wav, for its --negatives): those that sound
like the model's, the most frequent ones, and pairs of these. Most of Kokoro's takes have the intonation of another
voice or a foreign accent; one whose accent makes another word of it is left out.

`people` cuts other words, alone or two together, out of transcribed speech (OUT/people/PART/CORPUS/*.wav; PART is
where split_speech.py puts the speaker). Words in which one of the model's is heard are left out.
"""

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
from rich.progress import track

from kws_edge import KeywordModel
from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.model.metadata import is_word
from kws_export.phonemes import Dictionary, near_misses
from kws_export.phonemes.distance import distances, symbols
from kws_export.voices import Engine, Rendition, Utterance, get_engines
from kws_export.voices.accents import perhaps_accented
from kws_export.voices.casting import cast
from kws_export.voices.espeak import transcribe
from kws_export.voices.files import write_renditions

LANGUAGE = "en-us"
TAKES = {"kokoro": 18, "festival": 10, "flite": 40, "espeak": 40}
"""Of each of the model's words."""
OTHER_TAKES = {"kokoro": 1, "festival": 1, "flite": 2, "espeak": 2}
VARIED = 0.7
"""Of Kokoro's takes: those with another intonation, and in half of the cases an accent."""
NEAR, FREQUENT, PAIRS = 30, 900, 300
"""Near-misses of each word; the most frequent words; and pairs of the first `IN_PAIRS` of these."""
IN_PAIRS = 400
KNOWN = 3_000
"""The most frequent words, for none of which an accent may make one be taken."""
CONFUSED, HOMOPHONE, OTHER, SURELY_OTHER = 0.1, 0.12, 0.15, 0.2
"""Distances between pronunciations. Below `HOMOPHONE` two are one word; with an accent, one is another word below
`CONFUSED`, and surely none of the model's from `OTHER` on; people have accents that nobody wrote down, so a word cut
out of their speech keeps to `SURELY_OTHER`."""
CORPORA = ("libri_speech/train-clean-100", "speech/kathleen_en", "speech/ljspeech_en", "speech/speechocean_en")
SHORTEST, LONGEST = 0.12, 1.0
"""Seconds of what is cut out."""
TOGETHER = 0.4
"""How often a word is cut out with the next."""
FADE = 0.015
"""Seconds."""


def holds(words: Sequence[str], pronounced: Sequence[str]) -> npt.NDArray[np.float64]:
    """The distance of each pronunciation to one that holds the nearest of the words, [n]: 0 where that is heard."""
    found: npt.NDArray[np.float64] = np.min([distances(word, pronounced, within=True) for word in words], axis=0)
    return found


def as_said(rendition: Rendition, ipa: str) -> str:
    """The pronunciation of a take, with its accent if it has one."""
    return perhaps_accented(ipa, np.random.default_rng(rendition.manner)) if rendition.manner else ipa


def other_words(own: dict[str, str], dictionary: Dictionary) -> dict[str, str]:
    """Text → pronunciation of words and pairs in which none of the model's is heard, in mixed order."""
    said = tuple(own.values())
    found: dict[str, str] = {}
    for ipa in said:
        others = tuple(x for x in said if x != ipa)
        found |= {miss.text: miss.ipa for miss in near_misses(ipa, dictionary, NEAR, others)}
    frequent = list(zip(dictionary.words[:FREQUENT], dictionary.pronunciations[:FREQUENT], strict=True))
    far = holds(said, [ipa for _, ipa in frequent]) >= HOMOPHONE
    alone = [pair for pair, ok in zip(frequent, far, strict=True) if ok and len(symbols(pair[1])) > 1]
    found |= {word: ipa for word, ipa in alone if word not in found}
    rng = np.random.default_rng(5)
    few = [word for word, _ in alone[:IN_PAIRS]]
    pairs = [" ".join(rng.choice(few, 2, replace=False)) for _ in range(PAIRS)]
    spoken = transcribe(pairs, LANGUAGE)
    far = holds(said, spoken) >= HOMOPHONE
    found |= {pair: ipa for pair, ipa, ok in zip(pairs, spoken, far, strict=True) if ok}
    texts = list(found)
    return {texts[i]: found[texts[i]] for i in rng.permutation(len(texts))}


def say(words: Sequence[str], out: Path) -> None:
    """`voices`: the model's words and others, by every engine."""
    own = dict(zip(words, transcribe(words, LANGUAGE), strict=True))
    dictionary = Dictionary.load(LANGUAGE)
    known, others = dictionary.pronunciations[:KNOWN], other_words(own, dictionary)
    for engine in reversed(get_engines(["auto"], language=LANGUAGE)):  # the fastest first
        for i, (word, ipa) in enumerate(own.items()):
            another = distances(ipa, known) >= HOMOPHONE
            takes = cast(engine, [Utterance(word, "", LANGUAGE)], TAKES[engine.name], [77, i], varied=VARIED)
            said = [as_said(take, ipa) for take in takes]
            clear = [x == ipa or not (another & (distances(x, known) < CONFUSED)).any() for x in said]
            write(engine, compress(takes, clear), out / "words" / word)
        utterances = [Utterance(text, "", LANGUAGE) for text in others]
        takes = cast(engine, utterances, OTHER_TAKES[engine.name], [78], varied=VARIED)
        far = holds(tuple(own.values()), [as_said(take, others[take.utterance.text]) for take in takes])
        write(engine, compress(takes, far >= OTHER), out / "voices" / engine.name)


def write(engine: Engine, takes: Iterable[Rendition], folder: Path) -> None:
    """The takes as files, with a progress bar."""
    kept = list(takes)
    for _ in track(write_renditions(engine, kept, folder), f"{engine.name}: {folder.name}", len(kept)):
        pass


def single_words(words: Sequence[str], data: Path) -> Iterator[tuple[Path, F32]]:
    """`people`: PART/CORPUS/NAME.wav and the samples of each word that is cut out, float32 [n] at 16 kHz."""
    import pocketsphinx
    from split_speech import SPOKEN_ALIKE, aligned_words, part_of, speaker_of, transcripts

    aligner = pocketsphinx.Decoder(samprate=SAMPLE_RATE, loglevel="FATAL", lm=None)
    texts = {
        (corpus, data / corpus / name): re.findall(r"[a-z']+", text.lower())
        for corpus in CORPORA
        for name, text in transcripts(data / corpus).items()
        if not re.search(r"\d", text) and (data / corpus / name).is_file()
    }
    vocabulary = sorted({word for text in texts.values() for word in text})
    far = holds(transcribe(words, LANGUAGE), transcribe(vocabulary, LANGUAGE)) >= SURELY_OTHER
    other = {w for w, ok in zip(vocabulary, far, strict=True) if ok} - set(words) - set(SPOKEN_ALIKE)
    rng = np.random.default_rng(3)
    for (corpus, path), text in track(texts.items(), "people"):
        if not text or any(aligner.lookup_word(word) is None for word in text):
            continue
        samples = load(path).samples
        spans = aligned_words(aligner, samples, text) or []
        folder = Path(part_of(corpus, speaker_of(corpus, path)), corpus.rpartition("/")[2])
        for n, (start, end) in enumerate(_spans(spans, other, rng)):
            if SHORTEST <= end - start <= LONGEST:
                yield folder / f"{path.stem}_{n}.wav", _faded(samples, start - 0.01, end + 0.02)


def _spans(
    spans: Sequence[tuple[float, float, str]], other: set[str], rng: np.random.Generator
) -> Iterator[tuple[float, float]]:
    """Where other words lie, alone or two together: start and end, s."""
    i = 0
    while i < len(spans):
        start, end, word = spans[i]
        i += 1
        if word not in other:
            continue
        if rng.random() < TOGETHER and i < len(spans) and spans[i][2] in other and spans[i][1] - start < LONGEST:
            end = spans[i][1]
            i += 1
        yield start, end


def _faded(samples: F32, start: float, end: float) -> F32:
    piece = samples[max(0, round(start * SAMPLE_RATE)) : round(end * SAMPLE_RATE)].copy()
    n = min(round(FADE * SAMPLE_RATE), len(piece) // 4)
    ramp = np.linspace(0, 1, n, dtype=np.float32)
    piece[:n] *= ramp
    piece[len(piece) - n :] *= ramp[::-1]
    return piece


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    voices, people = kinds.add_parser("voices"), kinds.add_parser("people")
    people.add_argument("data", type=Path, help="the folder that holds speech/ and libri_speech/")
    for sub in (voices, people):
        sub.add_argument("--out", type=Path, required=True)
        sub.add_argument("--model", help="whose words; default: the default model's")
    args = parser.parse_args()
    words = [label for label in KeywordModel.load(args.model).labels if is_word(label)]
    if args.kind == "voices":
        say(words, args.out)
        return
    for name, samples in single_words(words, args.data):
        path = args.out / "people" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, np.clip(samples, -1, 1), SAMPLE_RATE, subtype="PCM_16")


if __name__ == "__main__":
    main()

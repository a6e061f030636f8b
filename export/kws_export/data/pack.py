"""A pack: hours of recordings in one file that loads in seconds, with what was said in them, and whose they are.

An .npz of one array a source, int16 samples at 16 kHz or, ten times smaller, an Ogg Opus stream, and a manifest: for
every source its licence and attribution, for every recording its speaker and text. The texts stay, so that whoever
trains a word can leave out the recordings in which it is said.
"""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kws_edge.arrays import I16
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import is_audio, load
from kws_edge.audio.pcm import as_float, as_int16
from kws_edge.errors import AudioError, SettingError
from kws_edge.files import PARTIAL, read_arrays
from kws_edge.text import one_line, shortened, shown, words_of
from kws_edge.tuning.soundscape import words_beside
from kws_export.data.negatives import between
from kws_export.data.repeats import warn_of_repeats
from kws_export.data.sources import Source
from kws_export.data.transcripts import transcript, transcripts
from kws_export.texts import check_texts

Codec = Literal["int16", "opus"]

FORMAT = 1
OPUS_LEVEL = 0.93
"""libsndfile's compression level, 0 to 1: about 20 kbit/s."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A recording, or what is left of one without the words that its label track names."""

    source: Source
    speaker: str
    text: str
    samples: I16


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Recordings, in the order of their sources."""

    pieces: tuple[Piece, ...]

    @property
    def hours(self) -> float:
        """How long they are together."""
        return sum(len(piece.samples) for piece in self.pieces) / SAMPLE_RATE / 3600

    @property
    def sources(self) -> tuple[Source, ...]:
        """Each once."""
        return tuple(dict.fromkeys(piece.source for piece in self.pieces))

    def without(self, phrases: Iterable[str]) -> "Pack":
        """Without the recordings in whose text one of the phrases is said, also as the beginning of a longer word.

        Raises SettingError for a phrase that is no text of words.
        """
        wanted = []
        for phrase in phrases:
            check_texts([phrase])
            wanted.append(" " + " ".join(words_of(phrase)).casefold())
        said = (" " + " ".join(words_of(piece.text)).casefold() for piece in self.pieces)
        return Pack(tuple(p for p, text in zip(self.pieces, said, strict=True) if not any(w in text for w in wanted)))

    def save(self, path: Path, codec: Codec = "int16") -> None:
        """Write the file, atomically. Raises SettingError where its name does not end in .npz, or nothing is in it."""
        check_name(path)
        if not self.pieces:
            raise SettingError("a pack without recordings; expected at least one")
        sources = self.sources
        manifest = {
            "format": FORMAT,
            "codec": codec,
            "sources": [asdict(source) for source in sources],
            "pieces": [[sources.index(p.source), p.speaker, p.text, len(p.samples)] for p in self.pieces],
        }
        arrays = {"manifest": np.frombuffer(json.dumps(manifest).encode(), np.uint8)}
        for i, source in enumerate(sources):
            samples = np.concatenate([p.samples for p in self.pieces if p.source == source])
            arrays[f"audio{i}"] = samples if codec == "int16" else _encoded(samples)
        path = Path(os.path.realpath(path))  # a link stays
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
        try:
            with partial.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> "Pack":
        """Read `save`'s file. Raises SettingError where it is missing, damaged or of another version."""
        try:
            file = read_arrays(path)
            manifest: dict[str, Any] = json.loads(file["manifest"].tobytes())
            if manifest["format"] != FORMAT:
                raise SettingError(f"{path} is a pack of format {shown(manifest['format'])}; expected {FORMAT}")
            sources = [Source(**source) for source in manifest["sources"]]
            audio = [file[f"audio{i}"] for i in range(len(sources))]
            if manifest["codec"] == "opus":
                audio = [_decoded(coded) for coded in audio]
            return cls(tuple(_pieces(sources, audio, manifest["pieces"])))
        except FileNotFoundError:
            raise SettingError(f"no such pack: {path}; expected a file of kws-export pack") from None
        except SettingError:
            raise
        except (OSError, LookupError, ValueError, TypeError, RecursionError, AudioError) as error:
            said = shortened(one_line(error), 200)
            raise SettingError(f"{path} is not a pack: {said}; expected a file of kws-export pack") from None


def check_name(path: Path) -> None:
    """Raise SettingError where a pack cannot be called so."""
    if path.suffix != ".npz":
        raise SettingError(f"cannot write {path}; expected a name that ends in .npz")


def each_once(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Recordings, of those that are alike to the last sample only one: its hours would count twice."""
    found: dict[bytes, Piece] = {}
    again: list[Piece] = []
    for piece in pieces:
        key = hashlib.sha256(piece.samples.tobytes()).digest()
        if (kept := found.setdefault(key, piece)) is not piece:
            again.append(piece)
            if not kept.text:
                found[key] = piece  # which may say what is to be left out
    warn_of_repeats("recording", [f"{piece.source.name}/{piece.speaker}" for piece in again])
    return tuple(found.values())


def _pieces(sources: Sequence[Source], audio: Sequence[Any], listed: Any) -> Iterator[Piece]:
    """The recordings that a manifest lists, of each source's samples. Raises ValueError or TypeError where it lies."""
    at = [0] * len(sources)
    for i, speaker, text, n in listed:
        whole = all(isinstance(number, int) for number in (i, n)) and 0 <= i < len(sources) and n >= 0
        if not whole or not isinstance(speaker, str) or not isinstance(text, str):
            raise ValueError(f"a recording {shown([i, speaker, text, n])}")
        samples = audio[i][at[i] : at[i] + n]
        if samples.dtype != np.int16 or samples.shape != (n,):
            raise ValueError(f"{samples.dtype} {list(samples.shape)} for {n} samples")
        yield Piece(sources[i], speaker, text, samples)
        at[i] += n


def collect(root: Path, source: Source, step: Callable[[], None] = lambda: None) -> list[Piece]:
    """Decode a source's recordings; words that label tracks name are cut out.

    Raises
    ------
    SettingError : there is no recording, or `transcripts` refuses a table of texts.
    AudioError : one cannot be decoded.
    """
    folder = root / source.folder
    paths = sorted(path for path in folder.glob(source.pattern) if is_audio(path))
    if not paths:
        raise SettingError(f"no recording below {folder} that matches {source.pattern}; expected audio files")
    texts = transcripts(folder, paths)
    if source.minutes:
        paths = [paths[i] for i in np.random.default_rng(0).permutation(len(paths))]
    pieces: list[Piece] = []
    left = source.minutes * 60 * SAMPLE_RATE or float("inf")
    for path in paths:
        speaker = source.speaker_of(path.relative_to(folder))
        if left > 0 and source.holds(speaker):
            for samples in between(load(path).samples, words_beside(path)):
                said = path.parent.name if source.kind == "words" or _is_clip(path) else ""
                pieces.append(Piece(source, speaker, texts.get(path, said), samples))
                left -= len(samples)
        step()
    return pieces


def _is_clip(path: Path) -> bool:
    """Whether a recording lies as in Speech Commands, WORD/SPEAKER_nohash_N: there, a folder's name is what is said."""
    return "_nohash_" in path.name and not path.parent.name.startswith("_")


def manifest_lines(pack: Pack) -> list[str]:
    """A line for every source: how much of it there is, its licence and whom to name."""
    lines = []
    for source in pack.sources:
        minutes = sum(len(p.samples) for p in pack.pieces if p.source == source) / SAMPLE_RATE / 60
        lines.append(f"{source.name}: {minutes:.1f} min; licence: {source.licence}; attribution: {source.attribution}")
    return lines


def _encoded(samples: I16) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    import soundfile

    file = io.BytesIO()
    with soundfile.SoundFile(
        file, "w", SAMPLE_RATE, 1, format="OGG", subtype="OPUS", compression_level=OPUS_LEVEL
    ) as stream:
        for start in range(0, len(samples), 1 << 20):
            stream.write(as_float(samples[start : start + (1 << 20)]))
    return np.frombuffer(file.getvalue(), np.uint8)


def _decoded(coded: "np.ndarray[Any, np.dtype[np.uint8]]") -> I16:
    import soundfile

    try:
        samples, rate = soundfile.read(io.BytesIO(coded.tobytes()), dtype="float32")
    except soundfile.LibsndfileError as error:
        raise AudioError(f"a pack's Opus stream: {error}") from None
    if rate != SAMPLE_RATE:
        raise AudioError(f"a pack's Opus stream at {rate} Hz; expected {SAMPLE_RATE}")
    return as_int16(samples)


def open_packs(names: Sequence[str]) -> Pack:
    """Packs, folders and single recordings together, as they are given at the command line; each recording once."""
    pieces: list[Piece] = []
    for name in names:
        path = Path(name)
        if path.suffix == ".npz":
            pieces += Pack.load(path).pieces
        elif path.is_dir():
            pieces += collect(path.parent, Source.of(path))
        elif is_audio(path):
            pieces += [
                Piece(Source(path.name), path.name, transcript(path), part)
                for part in between(load(path).samples, words_beside(path))
            ]
        else:
            raise SettingError(f"no recordings at {name}; expected a pack (.npz), a folder or an audio file")
    return Pack(each_once(pieces))

"""Find recordings to tune a stream on, and run the network over them."""

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.files import audio_in, recordings_at
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.lists import check_found, read_list
from kws_edge.audio.load import EXTENSIONS, MAX_SECONDS, load, read_blocks
from kws_edge.errors import SettingError, TooMuchAudioError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.stream.framing import DEFAULT_HOP
from kws_edge.stream.settings import label_of
from kws_edge.text import one_line
from kws_edge.tuning.soundscape import Word, compose, faded, words_beside
from kws_edge.tuning.traced import Traced, trace_stream

BLOCK: Final = 10.0
"""Seconds of a recording without words that are decoded at a time."""


class Recordings(Sequence[F32]):
    """Files that are decoded when they are asked for: float32 [n], mono at 16 kHz."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Nothing is read yet."""
        self.paths = paths

    def __len__(self) -> int:
        """Count the files."""
        return len(self.paths)

    def __getitem__(self, i: Any) -> Any:
        """Decode one. Raises AudioError."""
        return load(self.paths[i]).samples


class Backgrounds(Recordings):
    """The same to be mixed with words, over and over. One too long for a `load` is given in parts, each in its turn."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Nothing is read yet."""
        super().__init__(paths)
        self._rest: dict[Path, Iterator[F32]] = {}

    def __getitem__(self, i: Any) -> Any:
        """Decode one, or the next part of it. Raises AudioError."""
        path = self.paths[i]
        if path not in self._rest:
            try:
                return load(path).samples
            except TooMuchAudioError:
                self._rest[path] = read_blocks(path, MAX_SECONDS)
        if (part := next(self._rest[path], None)) is not None:
            return part
        del self._rest[path]  # it starts again
        return self[i]


def recordings(patterns: Sequence[str]) -> Recordings:
    """The recordings of files, folders (to their depths) and patterns, in order of name.

    Raises
    ------
    SettingError : one of them stands for no recording.
    AudioError : a folder, or one below it, cannot be read.
    """
    found: set[Path] = set()
    for pattern in patterns:
        files = recordings_at(pattern)
        if not files:
            raise SettingError(f"no recording at {pattern}; expected files that end in {', '.join(EXTENSIONS)}")
        found.update(files)
    return Recordings(sorted(found))


def check_apart(patterns: Sequence[str]) -> None:
    """Raise SettingError where two of them stand for the same recording, whose time would count twice."""
    seen: dict[str, str] = {}
    for pattern in patterns:
        for path in recordings([pattern]).paths:
            other = seen.setdefault(os.path.realpath(path), pattern)
            if other != pattern:
                raise SettingError(
                    f"{one_line(path)} is given twice, by {one_line(other)} and {one_line(pattern)}; expected each "
                    "recording once"
                )


def spoken(folder: Path, listed: Path | None, labels: Sequence[str] = ()) -> list[tuple[str, Path]]:
    """The clips of a folder in the layout of Speech Commands, WORD/clip, as (word, file), in order of name.

    Folders that begin with an underscore hold no word.

    Parameters
    ----------
    labels : those of a model; a word that is one of them but for capitals is given as it.
    listed : a list of clips, `WORD/file` a line, beyond which nothing is taken; the extensions need not agree. None
        for all.

    Raises
    ------
    SettingError : there are none, or the list is no list of them.
    AudioError : the folder of a word cannot be read.
    """
    words = [path for path in sorted(folder.glob("*/")) if not path.name.startswith("_")]
    clips = [(word.name, path) for word in words for path in audio_in(word)]
    if listed:
        names = read_list(listed)
        check_found(listed, names, {f"{word}/{path.stem}" for word, path in clips}, {word for word, _ in clips})
        clips = [(word, path) for word, path in clips if f"{word}/{path.stem}" in names]
    if not clips:
        within = f" that {listed} names" if listed else ""
        raise SettingError(f"no clips in {folder}{within}; expected folders named for the words that their clips say")
    return [(label_of(word, labels) or word, path) for word, path in clips]


def draw(clips: Sequence[tuple[str, Path]], count: int, seed: int) -> list[tuple[str, Path]]:
    """So many of the clips, or all where there are fewer, in an order that the seed decides."""
    order = np.random.default_rng(seed).permutation(len(clips))[:count]
    return [clips[i] for i in order]


def decoded(clips: Sequence[tuple[str, Path]], step: Callable[[], None]) -> Iterator[tuple[str, F32]]:
    """(word, samples) of each clip; `step` is called after each. Raises AudioError."""
    files = Recordings([path for _, path in clips])
    for (word, _), samples in zip(clips, files, strict=True):
        yield word, samples
        step()


def trace_negatives(
    model: KeywordModel,
    pattern: str,
    hop: float = DEFAULT_HOP,
    step: Callable[[], None] = lambda: None,
    *,
    name: str | None = None,
) -> Traced:
    """Run the network over recordings without the words, joined.

    Words that a label track beside a recording names are kept: an event at one of them is no false accept.

    Parameters
    ----------
    pattern : a file, a folder, or a pattern such as `"esc10/*/3-*"`.
    hop : seconds between the windows that the network sees.
    step : called after each recording.
    name : name of the stream; None for the end of the pattern. Each of several streams needs its own.

    Raises
    ------
    SettingError : no such recording exists.
    AudioError : one cannot be read.

    Examples
    --------
    >>> from kws_edge import KeywordModel
    >>> from kws_edge.tuning import trace_negatives
    >>> trace_negatives(KeywordModel.load(), "kws_edge/samples/noise.flac").name
    'samples/noise.flac'
    """
    files = recordings([pattern])

    def stretches() -> Iterator[tuple[F32, list[Word]]]:
        seconds = 0.0
        for path in files.paths:
            words = [replace(w, start=w.start + seconds, end=w.end + seconds) for w in words_beside(path)]
            for samples in faded(read_blocks(path, BLOCK)):
                yield samples, words
                words = []
                seconds += len(samples) / SAMPLE_RATE
            step()

    return trace_stream(model, stretches(), short_name(pattern) if name is None else name, hop)


def trace_words(
    model: KeywordModel,
    clips: Sequence[tuple[str, Path]],
    name: str = "words",
    hop: float = DEFAULT_HOP,
    seed: int = 1,
    step: Callable[[], None] = lambda: None,
    *,
    background: Recordings | None = None,
    snr: float = 0.0,
    gap: tuple[float, float] = (1.0, 3.0),
) -> Traced:
    """Run the network over a stream composed of clips, with pauses between them.

    Parameters
    ----------
    clips : (word, file) pairs.
    name : name of the stream.
    hop : seconds between the windows that the network sees.
    seed : seed for the pauses and the noise.
    step : called after each clip.
    background, snr : recordings to mix with the words, and how many dB below them; long recordings are read
        ten minutes at a time.
    gap : the shortest and longest pause, s.

    Raises
    ------
    AudioError : a clip cannot be read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kws_edge import KeywordModel
    >>> from kws_edge.tuning import trace_words
    >>> model = KeywordModel.load()
    >>> said = [trace_words(model, [("yes", Path("kws_edge/samples/yes.flac"))])]
    >>> [word.label for word in said[0].words]
    ['yes']
    """
    behind = None if background is None else Backgrounds(background.paths)
    stream = compose(decoded(clips, step), seed=seed, gap=gap, background=behind, snr=snr)
    return trace_stream(model, ((samples, [word] if word else []) for samples, word in stream), name, hop)


def short_name(pattern: str, folders: int = 1) -> str:
    """The end of a path or pattern, which says what it holds and not where on this machine it lies.

    It has so many folders before the file, or before what a pattern leaves open.
    """
    parts = Path(pattern).parts
    last = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return one_line("/".join(parts[max(0, last - folders) :])) or pattern


def short_names(patterns: Sequence[str]) -> dict[str, str]:
    """Each with its short name, in their order, with as many folders as it takes for all names to differ.

    Raises
    ------
    SettingError : one is given twice; its hours would count twice.

    Examples
    --------
    >>> from kws_edge.tuning.recordings import short_names
    >>> list(short_names(["recorded/kitchen/radio.wav", "recorded/office/talk.wav"]).values())
    ['kitchen/radio.wav', 'office/talk.wav']
    >>> list(short_names(["monday/kitchen/radio.wav", "friday/kitchen/radio.wav"]).values())
    ['monday/kitchen/radio.wav', 'friday/kitchen/radio.wav']
    """
    paths = [Path(pattern) for pattern in patterns]
    if twice := next((path for i, path in enumerate(paths) if path in paths[:i]), None):
        raise SettingError(f"{one_line(str(twice))} is given twice; expected each recording once")
    folders, names = 1, [short_name(pattern) for pattern in patterns]
    while len(set(names)) < len(names) and folders < max(len(path.parts) for path in paths):
        folders += 1
        names = [short_name(pattern, folders) for pattern in patterns]
    return dict(zip(patterns, names, strict=True))

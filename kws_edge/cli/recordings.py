"""Recordings at the command line, for the commands that measure streams: which there are, and a bar while they run."""

import glob
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.lists import check_found, read_list
from kws_edge.audio.load import EXTENSIONS, is_audio
from kws_edge.errors import SettingError

if TYPE_CHECKING:
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.tuning.calibration import Traced
    from kws_edge.tuning.soundscape import Word


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
        from kws_edge.audio.load import load

        return load(self.paths[i]).samples


def recordings(patterns: Sequence[str]) -> Recordings:
    """The recordings of files, folders (to their depths) and patterns, in order of name.

    Raises
    ------
    SettingError : one of them stands for no recording.
    """
    found: set[Path] = set()
    for pattern in patterns:
        paths = [Path(pattern)] if Path(pattern).exists() else [Path(p) for p in glob.glob(pattern, recursive=True)]
        files = {f for path in paths for f in ([path] if path.is_file() else path.rglob("*")) if is_audio(f)}
        if not files:
            raise SettingError(f"no recording at {pattern}; expected files that end in {', '.join(EXTENSIONS)}")
        found |= files
    return Recordings(sorted(found))


def spoken(folder: Path, listed: Path | None) -> list[tuple[str, Path]]:
    """The clips of a folder in the layout of Speech Commands, WORD/clip, as (word, file), in order of name.

    Folders that begin with an underscore hold no word.

    Parameters
    ----------
    listed : a list of clips, `WORD/file` a line, beyond which nothing is taken; the extensions need not agree. None
        for all.

    Raises
    ------
    SettingError : there are none, or the list is no list of them.
    """
    clips = [
        (path.parent.name, path)
        for path in sorted(folder.glob("*/*"))
        if is_audio(path) and not path.parent.name.startswith("_")
    ]
    if listed:
        names = read_list(listed)
        check_found(listed, names, {f"{word}/{path.stem}" for word, path in clips}, {word for word, _ in clips})
        clips = [(word, path) for word, path in clips if f"{word}/{path.stem}" in names]
    if not clips:
        within = f" that {listed} names" if listed else ""
        raise SettingError(f"no clips in {folder}{within}; expected folders named for the words that their clips say")
    return clips


def word_list(words: str | None) -> list[str] | None:
    """The words of `--words yes,no`; None for all."""
    return None if words is None else [word.strip() for word in words.split(",")]


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


def trace_negatives(model: "KeywordModel", pattern: str, hop: float, step: Callable[[], None]) -> "Traced":
    """Run the network over the recordings of one `--negatives`, joined; `step` is called after each.

    Its words are those of the label tracks beside the recordings: where one is said, an event is no false accept.
    """
    from kws_edge.audio.level import SAMPLE_RATE
    from kws_edge.tuning.calibration import trace_stream
    from kws_edge.tuning.soundscape import joined, words_beside

    files = recordings([pattern])

    def stretches() -> Iterator[tuple[F32, list["Word"]]]:
        seconds = 0.0
        for path, samples in zip(files.paths, joined(files), strict=True):
            yield samples, [replace(w, start=w.start + seconds, end=w.end + seconds) for w in words_beside(path)]
            seconds += len(samples) / SAMPLE_RATE
            step()

    return trace_stream(model, stretches(), short_name(pattern), hop)


def trace_words(
    model: "KeywordModel",
    clips: Sequence[tuple[str, Path]],
    name: str,
    hop: float,
    seed: int,
    step: Callable[[], None],
    *,
    background: Recordings | None = None,
    snr: float = 0.0,
) -> "Traced":
    """Run the network over a stream composed of clips; `step` is called after each."""
    from kws_edge.tuning.calibration import trace_stream
    from kws_edge.tuning.soundscape import compose

    stream = compose(decoded(clips, step), seed=seed, background=background, snr=snr)
    return trace_stream(model, ((samples, [word] if word else []) for samples, word in stream), name, hop)


def short_name(pattern: str) -> str:
    """The end of a path or pattern, which says what it holds and not where on this machine it lies."""
    parts = Path(pattern).parts
    last = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return "/".join(parts[max(0, last - 1) :])


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """How far long work is, on a terminal: call what it gives after each step of `total`."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)

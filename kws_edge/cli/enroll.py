"""`kws-edge enroll`: a model for a word from a few takes of one voice."""

import os
import shlex
import sys
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_edge.cli.options import force_option
from kws_edge.errors import AudioError, SettingError
from kws_edge.text import collapsed, is_one_line, one_line, shown

if TYPE_CHECKING:
    from kws_edge.arrays import F32


@click.command()
@click.argument("word", metavar="WORD")
@click.argument("files", nargs=-1, required=True, metavar="TAKE...")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE.onnx",
    help="Model file to write.",
)
@force_option
def enroll(word: str, files: tuple[str, ...], out: Path, force: bool) -> None:
    """Make a model for WORD from 3 to 10 takes of one voice.

    Each TAKE is a recording that holds the word and nothing else, as `kws-edge record` leaves it; one that it would
    not have kept is warned of. Nothing is trained, so it takes seconds and needs no other software: the takes become a
    template, and the similarity of what is heard to it is the evidence. The threshold was measured on other speech to
    give about one false accept an hour.

    \b
    kws-edge record "open sesame" --out mine --takes 5
    kws-edge enroll "open sesame" mine/open_sesame/*.wav --out open.onnx
    kws-edge listen --model open.onnx

    The model works in streams, for the voice and microphone of the takes, in a room that is not loud. For other voices,
    for noisy rooms or for fewer false accepts, train a model on a workstation with `kws-export wake`.

    Exit status: 0 the model was written; 1 most takes are too unlike the others for a model, as those of several voices
    often are, and none was written; 2 wrong usage, or takes or a file that cannot be used.
    """
    import numpy as np

    from kws_edge.model.metadata import LONGEST_NAME
    from kws_edge.model.onnx_file import model_name, write_whole
    from kws_edge.tuning.embedding import Background, Embedding
    from kws_edge.tuning.enrolled_model import build, describe
    from kws_edge.tuning.enrolment import enrol
    from kws_edge.tuning.record import check_targets, remove_forms

    word = collapsed(word)  # as options read it
    if not word or word.startswith("_") or "," in word:
        raise SettingError(f"word {word!r}; expected a word or phrase without commas, not beginning with an underscore")
    if not is_one_line(word) or len(word) > LONGEST_NAME:
        raise SettingError(f"word {shown(word)}; expected what can be shown on a line, up to {LONGEST_NAME} characters")
    name = model_name(out)
    for file in files:
        check_targets(Path(file), out, overwrite=force)
    if len(set(map(os.path.realpath, files))) < len(files):
        raise SettingError("one take is given twice; expected different recordings")
    takes = [_take(file) for file in files]
    for (file, take), (other, another) in combinations(zip(files, takes, strict=True), 2):
        if np.array_equal(take, another):
            raise SettingError(f"{file} and {other} hold the same sound; expected different recordings")
    embedding, background = Embedding(), Background.load()
    enrolled = enrol(takes, embedding, background)
    needed = f", {enrolled.threshold:.2f} needed" if enrolled.threshold < 1 else ""  # no similarity is above 1
    for file, cosine, missed in zip(files, enrolled.cosines, enrolled.missed, strict=True):
        said = "  unlike the others; it would be missed: leave it out, or record it again" if missed else ""
        click.echo(f"{one_line(file)}: similarity {cosine:.2f} to the others{needed}{said}")
    written = one_line(out)
    if not enrolled.hears:
        click.echo(
            f"Error: most takes are unlike the others, so {written} would not hear {word!r} and was not written; "
            "expected one voice in all takes, and in each the word alone, said alike: record them again, or cut them "
            "to the word with kws-edge record --from",
            err=True,
        )
        sys.exit(1)
    remove_forms(out)  # of a model that is written over: this one has none
    write_whole(out, build(enrolled, background, describe(name, word, enrolled, background, embedding.model.metadata)))
    click.echo(f"{written} hears {word!r}, from {len(files)} takes: kws-edge listen --model {shlex.quote(written)}")


def _take(file: str) -> "F32":
    """The samples of a take. Raises AudioError where there is nothing in it."""
    from kws_edge.audio.level import measure
    from kws_edge.audio.load import load

    audio = load(file)
    for warning in audio.warnings:
        click.echo(f"Warning: {one_line(file)}: {warning}", err=True)
    if measure(audio.samples).is_silent:
        raise AudioError(f"{file}: silence; expected one word in each take: record it again")
    if bad := _refused(audio.samples):
        click.echo(f"Warning: {one_line(file)}: {bad}", err=True)
    return audio.samples


def _refused(samples: "F32") -> str | None:
    """Why `kws-edge record` would not have kept a take, or None."""
    import numpy as np

    from kws_edge.audio.level import SAMPLE_RATE
    from kws_edge.audio.takes import TakeCutter

    cutter, quiet = TakeCutter(), np.zeros(SAMPLE_RATE, np.float32)
    heard = [*cutter.push(np.concatenate([quiet, samples, quiet])), *cutter.finish()]
    if not heard:
        return "nothing as loud as speech; expected one word or phrase"
    if (longest := max(heard, key=lambda take: len(take.samples))).refused or len(heard) == 1:
        return longest.refused
    return f"{len(heard)} sounds with pauses between them; expected the word or phrase alone"

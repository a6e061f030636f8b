"""Decode sound files with libsndfile, including files with common errors in their headers.

WAV and its relatives, FLAC, Ogg Vorbis, Opus, MP3, AIFF, AU, CAF; what else a file may be is told by its first bytes.
"""

import bisect
import contextlib
import io
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, BinaryIO, NamedTuple

from kws_edge.arrays import F32
from kws_edge.audio import caf, joined, mp3, ogg, riff
from kws_edge.audio.riff import NO_SIZE
from kws_edge.errors import AudioError

PIECE = 16_384  # frames decoded at a time
_HEAD = 4_096  # bytes in which a header is looked at
_LONGEST = 8  # bytes of a correction
_FORMATS = "WAV, FLAC, Ogg Vorbis, Opus, MP3, AIFF, AU or CAF"
_OTHER_DECODER = " Other programs may read it: ffmpeg -i FILE file.wav converts it"
_FOREIGN = (  # offset, magic, what it is
    (4, b"ftyp", "AAC or ALAC in MP4"),
    (0, b"\xff\xf1", "AAC"),
    (0, b"\xff\xf9", "AAC"),
    (0, b"ADIF", "AAC"),
    (0, b"\x1a\x45\xdf\xa3", "WebM or Matroska"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "WMA"),
    (0, b"#!AMR", "AMR"),
    (0, b"\x0b\x77", "AC-3"),
    (0, b"wvpk", "WavPack"),
    (0, b"MAC ", "Monkey's Audio"),
    (28, b"Speex   ", "Speex"),
)
_HEADS = (  # format as libsndfile names it, offset, magic: what is handed to libsndfile at all
    ("WAV", 0, (b"RIFF", b"RIFX", b"RF64")),
    ("W64", 0, (b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb",)),
    ("FLAC", 0, (b"fLaC",)),
    ("OGG", 0, (b"OggS",)),
    ("AIFF", 0, (b"FORM",)),
    ("AU", 0, (b".snd", b"dns.")),
    ("CAF", 0, (b"caff",)),
)
_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_FORM_KINDS = (b"AIFF", b"AIFC")  # what else is in a FORM, as 8SVX, is not read


class Decoded(NamedTuple):
    """A file whose header was read, to be decoded from its start as often as needed.

    Attributes
    ----------
    rate, channels : Hz, and how many.
    frames : how many samples a channel has as far as the header says; 0 where it does not.
    pieces : float32 [m, channels] each, m from 1 to `PIECE`, as the file scales them.
    warnings : a line for each thing wrong that does not stop it; grows while the pieces are decoded.
    """

    rate: int
    channels: int
    frames: int
    pieces: Callable[[], Iterator[F32]]
    warnings: list[str]


class _View:
    """What libsndfile sees of a file.

    It has no name, since the extension would sway how the content is read. It keeps an error of the file for later,
    since an exception inside a callback from C is printed and taken for the end of the data. `corrections` stand in
    for what the file has there: (position, bytes), in order, for headers at which libsndfile would stop short.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        file.seek(0, io.SEEK_END)
        self.size = self.announced = file.tell()
        self.corrections: list[tuple[int, bytes]] = []
        self.warnings: list[str] = []
        self.counted = True  # whether libsndfile can know the length
        self.error: Exception | None = None

    def read(self, n: int) -> bytes:
        try:
            start = self.file.tell()
            if start > self.size:
                return bytes(n)  # where libsndfile looks for a tag at the end announced
            data = bytearray(self.file.read(min(n, self.size - start)))
        except Exception as e:
            self.error = e
            return b""
        for at, right in self.corrections[bisect.bisect_left(self.corrections, (start - _LONGEST,)) :]:
            if at >= start + len(data):
                break
            for i, byte in enumerate(right, at - start):
                if 0 <= i < len(data):
                    data[i] = byte
        return bytes(data)

    def correct(self, kind: str, head: bytes) -> None:
        """Find what is to be corrected in a file of a kind that begins so."""
        if second := joined.second(kind, self.read_at):
            self.size = self.announced = second
            self.warnings.append(_first_alone(kind))
        if kind == "MP3":
            self._correct_mp3()
        elif kind == "WAV":
            self.corrections = riff.unfinished_sizes(self.read_at, self.size)
        elif kind == "CAF":
            self._correct_caf()
        elif ogg.is_opus(head):
            self.corrections, end = ogg.corrections(self.read_at)
            self.size = self.announced = int(min(end, self.size))

    def _correct_caf(self) -> None:
        at, claimed, present = caf.data_size(self.read_at, self.size)
        if claimed == -1 or claimed > present:  # which libsndfile takes for damage
            self.corrections = [(at, present.to_bytes(8, "big"))]
        if claimed > present:
            self.warnings.append(_missing(claimed, present))

    def _correct_mp3(self) -> None:
        found = mp3.survey(self.read_at)
        if found.mark is not None and found.longer:
            self.corrections = [(found.mark, bytes(4))]
        if found.mark is None or found.longer:
            # libsndfile would estimate the length from the file's size and the first frame's bit rate, and stop there,
            # which crops a variable bit rate. The bit rates of MP3 span a factor of 40: make the estimate too long.
            self.announced = 40 * self.size
            self.counted = False
        if found.changes is not None:
            self.warnings.append(
                f"another sample rate or number of channels from {found.changes:.1f} s on, up to which it is read."
                f"{_OTHER_DECODER}"
            )

    def read_at(self, position: int, n: int) -> bytes:
        """So many bytes from a position on, fewer at the end, wherever reading was."""
        self.seek(position)
        return self.read(n) if position < self.size else b""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> None:
        if whence == io.SEEK_END:
            offset, whence = self.announced + offset, io.SEEK_SET
        with contextlib.suppress(OSError, ValueError, OverflowError):  # to where a nonsense header points
            self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


def open_file(file: BinaryIO, name: str) -> Decoded:
    """Look at a file's header.

    Parameters
    ----------
    file : binary and seekable; read from its start, left open.
    name : of the file, for messages.

    Raises
    ------
    AudioError : it cannot be read, or is not audio in a supported format. Damage further on is raised by the pieces.
    """
    import soundfile  # 3 MB, which a microphone does not need

    try:
        view = _View(file)
        view.seek(0)
        head = view.read(_HEAD)
        kind = _format(head)
        if kind:
            view.correct(kind, head)
    except (OSError, ValueError) as e:
        raise AudioError(f"{name}: {e}; expected a seekable binary file, or its bytes") from None
    if view.error:
        raise AudioError(f"{name}: {view.error}; expected a binary file") from None
    if kind is None:
        raise AudioError(f"{name}: {_explain(view, head)}")

    def open_sound() -> Any:
        view.seek(0)
        try:
            with _calling(kind):
                sound = soundfile.SoundFile(view)
        except soundfile.LibsndfileError as e:
            raise AudioError(f"{name}: {_explain(view, head, e.error_string)}") from None
        # soundfile otherwise seeks after each read, which fails on FLAC of unknown length and costs time.
        sound.seekable = lambda: False
        return sound

    sound = open_sound()
    rate, channels, announced = sound.samplerate, sound.channels, sound.frames if view.counted else 0
    warnings = view.warnings + _shortfalls(sound.extra_info)
    unread = [sound]
    known = 0 < announced < NO_SIZE

    def pieces() -> Iterator[F32]:
        count = 0
        with unread.pop() if unread else open_sound() as sound:
            # No more is asked for than there should be: behind that may be a tag, at which FLAC and Opus stumble.
            while size := min(PIECE, announced - count) if known else PIECE:
                try:
                    with _calling(kind):
                        piece = sound.read(size, dtype="float32", always_2d=True)
                except soundfile.LibsndfileError as e:
                    hint = _OTHER_DECODER if sound.format == "OGG" else ""
                    raise AudioError(f"{name}: damaged after {count / rate:.3f} s: {e.error_string}{hint}") from None
                if view.error:
                    raise AudioError(f"{name}: {view.error} after {count / rate:.3f} s") from view.error
                if not len(piece):
                    break
                count += len(piece)
                yield piece
        if kind == "FLAC" and known and not warnings and joined.after_flac(view.read_at, view.tell()):
            warnings.append(_first_alone(kind))
        if known and count < announced and not warnings:
            warnings.append(f"the header announces {announced} samples, {count} are present: the end is missing")

    return Decoded(rate, channels, announced if known else 0, pieces, warnings)


def _first_alone(kind: str) -> str:
    """The warning of several files in one."""
    if kind == "OGG":
        return f"several Ogg streams one after the other, of which the first is read.{_OTHER_DECODER}"
    return f"several {kind} files one after the other, of which the first is read"


def _format(head: bytes) -> str | None:
    """The format of a file by its first bytes; None for one that is not promised.

    libsndfile tries many more, by weak signs, and some of their parsers print, or take hours for a few bytes.
    """
    for kind, offset, magics in _HEADS:
        if any(head.startswith(magic, offset) for magic in magics):
            return None if kind == "AIFF" and head[8:12] not in _FORM_KINDS else kind
    if head[:3] == b"ID3" or (head[:1] == b"\xff" and head[1:2] >= b"\xe0" and not _foreign(head)):
        return "MP3"
    return None


@contextlib.contextmanager
def _calling(kind: str) -> Iterator[None]:
    """Around a call of libsndfile: not interrupted, and, where its decoder would print, not heard."""
    with _uninterrupted(), _muted() if kind == "MP3" else contextlib.nullcontext():
        yield


_muting = threading.Lock()


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    """Send what is written to standard error nowhere: the MP3 decoder in libsndfile complains there of damage.

    It holds for the process, so that only one thread at a time decodes MP3, and a line that another logs meanwhile, for
    some milliseconds, is lost. The server decodes in a process of its own.
    """
    with _muting:
        try:
            kept = os.dup(2)
        except OSError:  # it is closed: nothing is heard anyway
            yield
            return
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 2)
            os.close(nowhere)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Keep Ctrl-C, and what else a program takes for a wish to end, for the end of a call of libsndfile.

    It calls back for the file's bytes, and what is raised there is printed, and taken for the end of the file.
    """
    handlers: dict[int, Any] = {n: h for n in _ENDING if callable(h := signal.getsignal(n))}
    if threading.current_thread() is not threading.main_thread() or not handlers:
        yield  # only the main thread is interrupted
        return
    came: list[tuple[int, FrameType | None]] = []
    for number in handlers:
        signal.signal(number, lambda *given: came.append(given))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            handlers[came[0][0]](*came[0])


def _shortfalls(info: str) -> list[str]:
    """What libsndfile's notes on a file say of sizes that are larger than what is there."""
    notes = re.findall(r"^\s*(\w[\w ]*?)\s*: (\d+) \(should be (\d+)\)", info, re.MULTILINE)
    return [
        _missing(claimed, present)
        for chunk, claimed, present in notes
        # The outermost size is often wrong by some bytes, where nothing is missing from the data.
        if chunk not in ("RIFF", "FORM") and int(present) < int(claimed) < NO_SIZE
    ]


def _missing(claimed: int | str, present: int | str) -> str:
    return f"the header announces {claimed} bytes, {present} are present: the end is missing"


def _foreign(head: bytes) -> str | None:
    """What a file is that is not read, by its first bytes."""
    return next((codec for offset, magic, codec in _FOREIGN if head.startswith(magic, offset)), None)


def _explain(view: _View, head: bytes, said: str = "Format not recognised") -> str:
    """Why a file is refused: the codec that is not read, the value that is wrong, or what libsndfile said."""
    codec = _foreign(head)
    if codec:
        return f"{codec} is not supported; expected {_FORMATS}"
    if riff.is_wav(head) and (problem := riff.explain(view.read_at)):
        return problem
    if _format(head) == "MP3":
        return f"an MP3 file without a valid frame; expected {_FORMATS}"
    reason = said.strip().rstrip(".") if head else "no bytes"
    return f"not readable as audio ({reason}); expected {_FORMATS}"

"""Sound in: a file, bytes or an array becomes mono float32 at 16 kHz, with typed errors and measured levels.

libsndfile decodes (WAV and its relatives, FLAC, Ogg Vorbis, Opus, MP3, AIFF, AU, CAF) and soxr resamples. Everything
is decoded in pieces until the data end, so no length that a header claims is ever allocated, and `load` and
`read_blocks` give the same samples.

Policies
--------
Full scale is ±1. Integers are divided by 2**(bits - 1); unsigned 8-bit has its zero at 128. Floating-point samples
beyond ±1 are kept as they are (`Level.clipped` counts them), up to `MAX_PEAK`, above which they are taken for integers
that somebody forgot to scale, and refused.

Channels are averaged, leaving out those that are silent from start to end by the rule of `Level.is_silent`: a word
that is in one of two channels keeps its level. A noisy second channel is averaged in, and channels of opposite
polarity cancel.

n samples at rate r become n * 16000 / r samples, rounded to the nearest, with the first at time 0. The filter of soxr's
HQ setting passes up to 0.9 of the lower Nyquist frequency and removes what would alias.
"""

import contextlib
import io
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kws_edge.errors import AudioError, SettingError

if TYPE_CHECKING:
    import soundfile

F32 = npt.NDArray[np.float32]
Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | npt.NDArray[Any]

SAMPLE_RATE = 16_000
MIN_RATE, MAX_RATE = 4_000, 192_000  # Hz, of a source
MAX_CHANNELS = 16
MAX_PEAK = 16.0  # 24 dB over full scale
MAX_SECONDS = 600  # of one `load`: 38 MB of samples, however few compressed bytes they came from

SILENCE_PEAK = 10 ** (-70 / 20)
"""A peak below this (-70 dBFS, ten steps of a 16-bit sample), mean removed, is silence."""
CLIP_LEVEL, CLIP_RUN = 0.98, 3
"""A sample is clipped where it is one of at least so many in a row at or beyond this level.

Not 1.0, since resampling makes the flat top of a clipped wave ripple by some percent."""
CLIP_FRACTION = 0.01
"""More clipped samples than this spoil a clip. Speech driven 12 dB into clipping has 7 % of them; of the public Speech
Commands recordings, many of which touch full scale, fewer than one in a hundred is over it."""

_PIECE = 16_384  # frames decoded at a time
_HEAD = 4_096  # bytes in which a header is looked at
_NO_SIZE = 0x7FFF_0000  # sizes from here on are what writers to a pipe put where they cannot know the size
_FORMATS = "WAV, FLAC, Ogg Vorbis, Opus, MP3, AIFF, AU or CAF"
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
_WAVE_TAGS = {0x0042: "G.723.1", 0x0050: "MPEG layer 1 or 2", 0x00FF: "AAC", 0x0161: "WMA"}
_WAVE_TAGS |= {0x0270: "ATRAC3", 0x2000: "AC-3", 0x2001: "DTS"}
_WAVE_READABLE = {0x01, 0x02, 0x03, 0x06, 0x07, 0x11, 0x31, 0x55}
"""PCM, Microsoft ADPCM, float, A-law, µ-law, IMA ADPCM, GSM, MP3."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Level:
    """How loud a clip or block is, relative to a full scale of 1.0.

    Attributes
    ----------
    peak : largest deviation from the mean.
    rms : root mean square of the deviation from the mean.
    dc : the mean.
    clipped : fraction of samples, 0 to 1, in runs of `CLIP_RUN` or more at or beyond `CLIP_LEVEL`.
    """

    peak: float
    rms: float
    dc: float
    clipped: float

    @property
    def is_silent(self) -> bool:
        """Nothing but a constant, to within `SILENCE_PEAK`."""
        return self.peak < SILENCE_PEAK

    @property
    def is_clipped(self) -> bool:
        """Clipped badly enough to be a reason for a wrong answer: over `CLIP_FRACTION`."""
        return self.clipped > CLIP_FRACTION


@dataclass(frozen=True, slots=True)
class Audio:
    """A decoded clip.

    Attributes
    ----------
    samples : float32 [n], mono at 16 kHz, full scale ±1, n ≥ 1.
    source_rate : sample rate before resampling, Hz.
    source_channels : channels before the down-mix.
    warnings : one line each for what was wrong with the source and did not stop it from being decoded.
    """

    samples: F32
    source_rate: int
    source_channels: int
    warnings: tuple[str, ...] = ()


def measure(samples: npt.ArrayLike) -> Level:
    """Measure the level of samples [n], floating point, full scale ±1.

    Raises
    ------
    AudioError : no samples, more than one dimension, integers, or a sample that is NaN or infinite.
    """
    x = np.asarray(samples)
    if x.ndim != 1 or not x.size or x.dtype.kind != "f":
        raise AudioError(f"samples of shape {x.shape}, {x.dtype}; expected floating point [n], n at least 1")
    with np.errstate(invalid="ignore"):
        dc = float(np.mean(x, dtype=np.float64))
    if not np.isfinite(dc):
        raise AudioError("samples that are NaN or infinite; expected finite numbers, full scale ±1")
    ac = x.astype(np.float64) - dc
    return Level(
        peak=float(np.abs(ac).max()),
        rms=float(np.sqrt(np.mean(np.square(ac)))),
        dc=dc,
        clipped=_fraction_in_runs(np.abs(x) >= CLIP_LEVEL, CLIP_RUN),
    )


def load(source: Source, rate: int | None = None) -> Audio:
    """Decode a whole clip.

    Parameters
    ----------
    source : a path, the bytes of a file, a seekable binary file (read from its start, left open), or an array [n] or
        [n, channels] of int16, int32, uint8 or floating point.
    rate : sample rate of an array in Hz; a file says its own.

    Returns
    -------
    Audio : for its length, down-mix and scaling see the policies of this module. A file whose data end before its
        header says is decoded as far as it goes, with a warning, unless its codec notices (FLAC) and it is refused.

    Raises
    ------
    AudioError : the source cannot be read or is not audio in a supported format; it has no samples, NaN or infinite
        samples, a rate outside `MIN_RATE` to `MAX_RATE`, more than `MAX_CHANNELS` channels, or more than
        `MAX_SECONDS` (for which there is `read_blocks`).
    SettingError : an array without a rate, or a file with one.
    """
    with _open(source, rate, MAX_SECONDS) as opened:
        samples = np.concatenate(list(_mono(opened)))
        return Audio(samples, opened.rate, opened.channels, tuple(opened.warnings))


def read_blocks(source: Source, seconds: float = 10.0, rate: int | None = None) -> Iterator[F32]:
    """Decode a source of any length in bounded memory: the samples of `load`, a block at a time.

    A source of several channels is decoded twice, first to find the silent ones. Warnings go to the log.

    Parameters
    ----------
    source, rate : as for `load`.
    seconds : length of a block; its number of samples is rounded.

    Yields
    ------
    float32 [round(seconds * 16000)], the last block shorter where the samples do not divide evenly.

    Raises
    ------
    AudioError, SettingError : as `load` does, except that no length is too long; and for a `seconds` that is less than
        one sample. Where it is the data that are bad, blocks may have been given before.
    """
    if not seconds * SAMPLE_RATE >= 1:
        raise SettingError(f"blocks of {seconds} s; expected at least one sample, {1 / SAMPLE_RATE} s")
    return _read_blocks(source, round(seconds * SAMPLE_RATE), rate)


def _read_blocks(source: Source, size: int, rate: int | None) -> Iterator[F32]:
    with _open(source, rate) as opened:
        pending, ready = [], 0
        for piece in _mono(opened):
            pending.append(piece)
            ready += len(piece)
            if ready >= size:
                joined = np.concatenate(pending)
                ready %= size
                yield from joined[: len(joined) - ready].reshape(-1, size)
                pending = [joined[len(joined) - ready :]]
        if ready:
            yield np.concatenate(pending)
        for warning in opened.warnings:
            _log.warning("%s: %s", opened.name, warning)


@dataclass(slots=True)
class _Opened:
    """A source that is ready to be decoded, from the start, as often as needed."""

    name: str
    rate: int
    channels: int
    pieces: Callable[[], Iterator[F32]]  # each [m, channels], m ≥ 1
    warnings: list[str]
    max_seconds: float

    def __post_init__(self) -> None:
        if not MIN_RATE <= self.rate <= MAX_RATE:
            raise AudioError(f"{self.name}: sample rate of {self.rate} Hz; expected {MIN_RATE} to {MAX_RATE} Hz")
        if not 1 <= self.channels <= MAX_CHANNELS:
            raise AudioError(f"{self.name}: {self.channels} channels; expected 1 to {MAX_CHANNELS}")

    def frames(self) -> Iterator[F32]:
        """The pieces, checked: finite, of a plausible scale, no more than wanted, and some."""
        count = 0
        for piece in self.pieces():
            peak = max(piece.max(), -piece.min())
            if not np.isfinite(peak):
                raise AudioError(f"{self.name}: samples that are NaN or infinite; expected finite numbers")
            if peak > MAX_PEAK:
                raise AudioError(
                    f"{self.name}: floating-point samples of up to {peak:g}; expected a full scale of ±1 (at most "
                    f"{MAX_PEAK:g}): divide integers by 2**(bits - 1)"
                )
            count += len(piece)
            if count > self.max_seconds * self.rate:
                raise AudioError(
                    f"{self.name}: longer than {self.max_seconds:g} s, the most for one clip; use read_blocks"
                )
            yield piece
        if not count:
            raise AudioError(f"{self.name}: no samples; expected at least one")


def _mono(opened: _Opened) -> Iterator[F32]:
    """Down-mix and resample."""
    keep = _sounding_channels(opened) if opened.channels > 1 else [0]
    stream = None
    if opened.rate != SAMPLE_RATE:
        import soxr

        stream = soxr.ResampleStream(opened.rate, SAMPLE_RATE, 1)
    count = 0
    for frames in opened.frames():
        mono = frames[:, keep].mean(axis=1)
        if stream:
            mono = stream.resample_chunk(mono)
        count += len(mono)
        yield mono
    if stream:
        rest = stream.resample_chunk(np.empty(0, np.float32), last=True)
        count += len(rest)
        yield rest
    if not count:
        raise AudioError(f"{opened.name}: too short to be resampled from {opened.rate} Hz; nothing is left at 16 kHz")


def _sounding_channels(opened: _Opened) -> list[int]:
    """The channels that are not silent from start to end; all where all are silent."""
    low, high = np.full(opened.channels, np.inf), np.full(opened.channels, -np.inf)
    for frames in opened.frames():
        low, high = np.minimum(low, frames.min(axis=0)), np.maximum(high, frames.max(axis=0))
    sounding = np.flatnonzero((high - low) / 2 >= SILENCE_PEAK)
    return list(sounding) if len(sounding) else list(range(opened.channels))


@contextlib.contextmanager
def _open(source: Source, rate: int | None, max_seconds: float = np.inf) -> Iterator[_Opened]:
    if isinstance(source, np.ndarray):
        yield _open_array(source, rate, max_seconds)
        return
    if rate is not None:
        raise SettingError(f"rate={rate} for a file, which says its own; expected a rate with an array only")
    if isinstance(source, bytes | bytearray | memoryview):
        yield _open_file(io.BytesIO(source), "bytes", max_seconds)
    elif isinstance(source, str | os.PathLike):
        with _open_path(source) as file:
            yield _open_file(file, os.fspath(source), max_seconds)
    elif hasattr(source, "read") and hasattr(source, "seek"):
        name = getattr(source, "name", None)
        yield _open_file(source, name if isinstance(name, str) else "file object", max_seconds)
    else:
        raise AudioError(f"audio of type {type(source).__name__}; expected a path, bytes, a binary file or an array")


_SCALES = {"uint8": (128, 2**7), "int16": (0, 2**15), "int32": (0, 2**31)}  # dtype: zero, full scale
_SCALES |= {"float16": (0, 1), "float32": (0, 1), "float64": (0, 1)}


def _open_array(samples: npt.NDArray[Any], rate: int | None, max_seconds: float) -> _Opened:
    if rate is None:
        raise SettingError("an array of samples without its rate; expected rate= in Hz")
    if samples.ndim not in (1, 2):
        raise AudioError(f"array of shape {samples.shape}; expected [n] or [n, channels]")
    if samples.dtype.name not in _SCALES:
        raise AudioError(f"array of {samples.dtype}; expected one of {', '.join(_SCALES)}")
    zero, scale = _SCALES[samples.dtype.name]
    frames = samples[:, np.newaxis] if samples.ndim == 1 else samples

    def pieces() -> Iterator[F32]:
        for i in range(0, len(frames), _PIECE):
            piece = frames[i : i + _PIECE]
            with np.errstate(over="ignore"):  # a float64 too large becomes infinite, and is refused as such
                yield ((piece.astype(np.float64) - zero) / scale).astype(np.float32)

    return _Opened("array", rate, frames.shape[1], pieces, [], max_seconds)


def _open_path(path: str | os.PathLike[str]) -> BinaryIO:
    try:
        if stat.S_ISREG(os.stat(path).st_mode):  # opening a named pipe would wait for its writer
            return open(path, "rb")
        problem = "a directory, pipe or device"
    except (OSError, ValueError) as e:
        problem = getattr(e, "strerror", None) or str(e)
    raise AudioError(f"{os.fspath(path)}: {problem}; expected a readable file")


class _View:
    """What libsndfile sees of a file.

    It has no name, since the extension would sway how the content is read. It keeps an error of the file for later,
    since an exception inside a callback from C is printed and taken for the end of the data. It corrects a header of
    the kinds that libsndfile would stop short at; see `_open_file`.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        file.seek(0, io.SEEK_END)
        self.size = self.announced = file.tell()
        self.patch_at, self.patch = 0, b""
        self.error: Exception | None = None

    def read(self, n: int) -> bytes:
        try:
            start = self.file.tell()
            if start > self.size:
                return bytes(n)  # where libsndfile looks for a tag at the end announced
            data = bytearray(self.file.read(n))
        except Exception as e:
            self.error = e
            return b""
        for i, byte in enumerate(self.patch, self.patch_at - start):
            if 0 <= i < len(data):
                data[i] = byte
        return bytes(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> None:
        if whence == io.SEEK_END:
            offset, whence = self.announced + offset, io.SEEK_SET
        with contextlib.suppress(OSError, ValueError, OverflowError):  # to where a nonsense header points
            self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


def _open_file(file: BinaryIO, name: str, max_seconds: float) -> _Opened:
    import soundfile  # 3 MB, which a microphone does not need

    try:
        view = _View(file)
        view.seek(0)
        head = view.read(_HEAD)
    except (OSError, ValueError) as e:
        raise AudioError(f"{name}: {e}; expected a seekable binary file, or its bytes") from None
    if view.error:
        raise AudioError(f"{name}: {view.error}; expected a binary file") from None
    data_size = _unfinished_data_size(head, view.size)
    if data_size:
        view.patch_at, view.patch = data_size, b"\xff\xff\xff\xff"

    def open_sound() -> Any:
        view.seek(0)
        try:
            sound = soundfile.SoundFile(view)
        except soundfile.LibsndfileError as e:
            raise AudioError(f"{name}: {_explain(head, e)}") from None
        # soundfile otherwise seeks after each read, which fails on FLAC of unknown length and costs time.
        sound.seekable = lambda: False
        return sound

    sound = open_sound()
    rate, channels, announced = sound.samplerate, sound.channels, sound.frames
    warnings = _shortfalls(sound.extra_info)
    unread = [sound]
    if sound.format == "MP3" and not _has_frame_count(view):
        # libsndfile would estimate the length from the file's size and the first frame's bit rate, and stop there,
        # which crops a variable bit rate. The bit rates of MP3 span a factor of 40: make the estimate too long.
        view.announced *= 40
        announced = 0
        unread.clear()

    def pieces() -> Iterator[F32]:
        count = 0
        with unread.pop() if unread else open_sound() as sound:
            while True:
                try:
                    piece = sound.read(_PIECE, dtype="float32", always_2d=True)
                except soundfile.LibsndfileError as e:
                    raise AudioError(f"{name}: damaged after {count / rate:.3f} s: {e.error_string}") from None
                if view.error:
                    raise AudioError(f"{name}: {view.error} after {count / rate:.3f} s") from view.error
                if not len(piece):
                    break
                count += len(piece)
                yield piece
        if count < announced < _NO_SIZE and not warnings:
            warnings.append(f"the header announces {announced} samples, {count} are present: the end is missing")

    return _Opened(name, rate, channels, pieces, warnings, max_seconds)


def _unfinished_data_size(head: bytes, size: int) -> int:
    """Where a WAV header has a data size of 0 that its writer never came back to fill in; 0 where it has none.

    In a finished file without samples, what follows are chunks, and the RIFF size covers them.
    """
    at = head.find(b"data\0\0\0\0")
    riff_end = 8 + int.from_bytes(head[4:8], "little")
    is_wav = head[:4] == b"RIFF" and head[8:12] == b"WAVE"
    unfinished = is_wav and at > 0 and at + 8 < size and not at + 8 < riff_end < _NO_SIZE
    return at + 4 if unfinished else 0


def _shortfalls(info: str) -> list[str]:
    """What libsndfile's notes on a file say of sizes that are larger than what is there."""
    notes = re.findall(r"^\s*(\w[\w ]*?)\s*: (\d+) \(should be (\d+)\)", info, re.MULTILINE)
    return [
        f"the header announces {claimed} bytes, {present} are present: the end is missing"
        for chunk, claimed, present in notes
        # The outermost size is often wrong by some bytes, where nothing is missing from the data.
        if chunk not in ("RIFF", "FORM") and int(present) < int(claimed) < _NO_SIZE
    ]


def _has_frame_count(view: _View) -> bool:
    """Whether an MP3 file says how long it is, in a Xing, Info or VBRI header in its first frame."""
    back = view.tell()
    view.seek(0)
    tag = view.read(10)
    # An ID3 tag before it gives its own size in four bytes of seven bits.
    size = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(tag[6:], (21, 14, 7, 0), strict=True))
    view.seek(size if tag[:3] == b"ID3" else 0)
    frame = view.read(_HEAD)
    view.seek(back)
    return any(mark in frame for mark in (b"Xing", b"Info", b"VBRI"))


def _explain(head: bytes, error: "soundfile.LibsndfileError") -> str:
    """Why libsndfile refused a file: the codec that it cannot read, the value that is wrong, or its own words."""
    for offset, magic, codec in _FOREIGN:
        if head.startswith(magic, offset):
            return f"{codec} is not supported; expected {_FORMATS}"
    if head[:4] in (b"RIFF", b"RIFX", b"RF64") and b"fmt " in head:
        problem = _explain_wave(head[head.index(b"fmt ") :], "big" if head[:4] == b"RIFX" else "little")
        if problem:
            return problem
    if head[:3] == b"ID3" or (head[:1] == b"\xff" and head[1:2] >= b"\xe0"):
        return f"an MP3 file without a valid frame; expected {_FORMATS}"
    reason = error.error_string.strip().rstrip(".") if head else "no bytes"
    return f"not readable as audio ({reason}); expected {_FORMATS}"


def _explain_wave(chunk: bytes, order: Literal["little", "big"]) -> str | None:
    """What is wrong with a WAV 'fmt ' chunk, as far as it shows there."""
    size, fmt = int.from_bytes(chunk[4:8], order), chunk[8:48]
    if min(size, len(fmt)) < 16:
        return f"'fmt ' chunk of {min(size, len(fmt))} bytes; expected at least 16"
    tag, channels, bits = (int.from_bytes(fmt[i : i + 2], order) for i in (0, 2, 14))
    rate = int.from_bytes(fmt[4:8], order)
    if tag == 0xFFFE:  # extensible: the tag is the start of the sub-format
        tag = int.from_bytes(fmt[24:26], order)
    widths = {1: (8, 16, 24, 32), 3: (32, 64)}.get(tag, (bits,))
    if tag not in _WAVE_READABLE:
        codec = _WAVE_TAGS.get(tag, "an unknown codec")
        problem = f"{codec} (WAVE format 0x{tag:04X}) is not supported; expected PCM, float, A-law, µ-law, ADPCM or GSM"
    elif not 1 <= channels <= MAX_CHANNELS:
        problem = f"{channels} channels; expected 1 to {MAX_CHANNELS}"
    elif not MIN_RATE <= rate <= MAX_RATE:
        problem = f"sample rate of {rate} Hz; expected {MIN_RATE} to {MAX_RATE} Hz"
    elif bits not in widths:
        problem = f"{bits} bits per sample; expected {', '.join(map(str, widths))}"
    else:
        return None
    return problem


def _fraction_in_runs(mask: npt.NDArray[np.bool_], run: int) -> float:
    """The fraction of a mask [n] that is in runs of at least so many True."""
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    lengths = edges[1::2] - edges[::2]
    return float(lengths[lengths >= run].sum() / len(mask))

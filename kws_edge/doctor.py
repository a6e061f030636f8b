"""Is this machine fit for kws-edge? A finding for each thing that it stands on, with what to do where it does not hold.

Each check runs on its own: one that breaks is a finding, and the others still run. What can end the process, as a wheel
for another processor does, is tried in a process of its own.
"""

import errno
import io
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias

from kws_edge.errors import DeviceError, KwsEdgeError, ModelError, ProviderError, lacking

SAMPLES: Final = Path(__file__).parent / "samples"
WORD: Final = "yes"
"""A word that the shipped models know; the sample of that name says it."""

_ENOUGH_MB = 150  # for one program that listens, and the system beside it
_QUIET, _LOUD = -60.0, -3.0  # dBFS
_IR_VERSION, _GRAPH, _OPSET_IMPORT, _VERSION = 1, 7, 8, 2  # fields of ModelProto and OperatorSetIdProto
_FUTURE = 999
_NOT_WRITABLE = (errno.EROFS, errno.ENOSPC, errno.EDQUOT)
_TEMPORARY = "give it a folder that can be written and has room: TMPDIR=FOLDER kws-edge doctor; to listen needs none"


class Status(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """Something is slower, less or other than it could be; words are still recognised."""
    PROBLEM = "problem"
    """Words cannot be recognised, or not from what was asked about."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: `message` in a line, and in `advice` what to do about it, None where nothing is."""

    check: str
    status: Status
    message: str
    advice: str | None = None

    def to_dict(self) -> dict[str, str | None]:
        """Plain JSON types."""
        return asdict(self)


Found: TypeAlias = Iterator[Finding]


def examine(
    model: str | None = None,
    *,
    listen: float | None = None,
    device: int | str | None = None,
    sound: Any = None,
) -> Iterator[Finding]:
    """Look at everything; the findings come as they are made. Raises nothing.

    Parameters
    ----------
    model : the model to try, as `KeywordModel.load` takes it.
    listen : seconds to listen to the microphone for; None to leave it closed.
    device : which microphone, as `Microphone` takes it.
    sound : a module like sounddevice, instead of it.
    """
    yield from _guarded("software", _software)
    yield from _guarded("onnxruntime wheels", _wheels)
    runtime = list(_guarded("onnxruntime", _runtime))
    yield from runtime
    if all(finding.status != Status.PROBLEM for finding in runtime):
        yield from _guarded("versions of models", _limits)
        yield from _guarded("model", partial(_model, model))
        yield from _guarded("providers", partial(_providers, model))
    yield from _guarded("processor", _processor)
    yield from _guarded("memory", _memory)
    yield from _guarded("audio files", _audio_files)
    yield from _guarded("microphone", partial(_microphone, sound))
    if listen is not None:
        yield from _guarded("listening", partial(_listen, listen, device, sound))
    yield from _guarded("server", _server)


def _guarded(check: str, look: Callable[[], Found]) -> Found:
    """The findings of a check; where it breaks, that is one."""
    try:
        yield from look()
    except KwsEdgeError as error:
        yield Finding(check, Status.PROBLEM, _one_line(error))
    except Exception as error:  # a broken part may raise anything
        message = f"cannot be checked: {type(error).__name__}: {_one_line(error)}"
        yield Finding(check, Status.PROBLEM, message, _advice(error))


def _advice(error: Exception) -> str:
    """What to do about an error that no check expects."""
    if isinstance(error, subprocess.TimeoutExpired):
        return "the machine is too busy, or a library hangs as it loads: try again with nothing else running"
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return f"free some memory: kws-edge needs about {_ENOUGH_MB} MB"
    if isinstance(error, OSError) and (error.errno in _NOT_WRITABLE or "temporary directory" in str(error)):
        return _TEMPORARY
    if isinstance(error, PermissionError):
        return "give this user the right to read it"
    return "reinstall kws-edge and what it needs in a new virtual environment"


def _cannot_probe(check: str, error: OSError) -> Finding:
    """A provider is tried in a process that needs a place for its files; listening needs none."""
    message = f"what runs where cannot be measured: {_one_line(error)}"
    return Finding(check, Status.WARNING, message, _advice(error))


def _software() -> Found:
    import platform

    from kws_edge.bench.machine import versions

    found = ", ".join(f"{name} {number}" for name, number in versions().items())
    yield Finding("software", Status.OK, f"{found}; {platform.platform()}")


def _wheels() -> Found:
    check = "onnxruntime wheels"
    found = {
        dist.metadata["Name"]: dist.version
        for dist in distributions()
        if (dist.metadata["Name"] or "").lower().startswith(("onnxruntime", "ort-"))
        and "onnxruntime" in (dist.read_text("top_level.txt") or "").split()
    }
    names = ", ".join(f"{name} {number}" for name, number in sorted(found.items()))
    if len(found) > 1:
        advice = f"pip uninstall -y {' '.join(sorted(found))}; then pip install the one that you need"
        message = f"{names} are all installed, and write over each other's files: which providers there are is chance"
        yield Finding(check, Status.WARNING, message, advice)
    elif found:
        yield Finding(check, Status.OK, names)
    else:
        yield Finding(check, Status.WARNING, "no distribution of it is known to pip", "pip install onnxruntime")


def _runtime() -> Found:
    check = "onnxruntime"
    code = "import onnxruntime; print(onnxruntime.__version__, *onnxruntime.get_available_providers())"
    result = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    if result.returncode < 0:
        advice = "install an older or another build of it: this one may need instructions that this processor lacks"
        yield Finding(check, Status.PROBLEM, f"importing it ends the process with signal {-result.returncode}", advice)
    elif result.returncode:
        said = (result.stderr.strip().splitlines() or ["no message"])[-1]
        yield Finding(check, Status.PROBLEM, f"cannot be imported: {said}", "pip install --force-reinstall onnxruntime")
    else:
        number, *providers = result.stdout.split()
        yield Finding(check, Status.OK, f"{number} loads, with {', '.join(providers)}")


def _limits() -> Found:
    from kws_edge.model.protobuf import bytes_field, read_varint, values, varint_field
    from kws_edge.model.shipped import shipped_models

    check = "versions of models"
    opset = bytes_field(_OPSET_IMPORT, varint_field(_VERSION, _FUTURE))
    graph = bytes_field(_GRAPH, bytes_field(2, b"empty"))
    most_opset = _limit(varint_field(_IR_VERSION, 8) + opset + graph, r"till opset (\d+)")
    opset = bytes_field(_OPSET_IMPORT, varint_field(_VERSION, 17))
    most_ir = _limit(varint_field(_IR_VERSION, _FUTURE) + opset + graph, r"max supported IR version: (\d+)")
    limits = f"IR version up to {most_ir or 'unknown'}, opset up to {most_opset or 'unknown'}"
    needs = {}
    for name, path in shipped_models().items():
        with suppress(ModelError, IndexError, ValueError):  # of a damaged file; loading it says so
            data = path.read_bytes()
            opsets = [read_varint(values(opset, _VERSION)[0])[0] for opset in values(data, _OPSET_IMPORT)]
            needs[name] = read_varint(values(data, _IR_VERSION)[0])[0], max(opsets)
    for name, (ir_version, version) in needs.items():
        if (most_ir and ir_version > most_ir) or (most_opset and version > most_opset):
            message = f"{name} has IR version {ir_version} and opset {version}; this onnxruntime takes {limits}"
            yield Finding(check, Status.PROBLEM, message, "pip install --upgrade onnxruntime")
            return
    found = ", ".join(sorted({f"{ir_version} and {version}" for ir_version, version in needs.values()}))
    yield Finding(check, Status.OK, f"{limits}; the shipped models have {found or 'none that can be read'}")


def _limit(data: bytes, pattern: str) -> int | None:
    """What onnxruntime says it supports when it refuses a file from the future."""
    from kws_edge.model.runtime import CPU, open_session

    try:
        open_session(data, CPU, 1)
    except Exception as error:  # onnxruntime's errors have no class in common
        if found := re.search(pattern, str(error)):
            return int(found[1])
    return None


def _model(name: str | None) -> Found:
    from kws_edge.bench.runner import probe
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.model.shipped import DEFAULT_MODEL, shipped_models

    check = "model"
    try:
        probe(name or DEFAULT_MODEL, "cpu")
    except ProviderError as error:
        yield Finding(check, Status.PROBLEM, f"running it on the CPU: {error}", "try another build of onnxruntime")
        return
    except OSError as error:
        yield _cannot_probe(check, error)
    for other in shipped_models():
        try:
            KeywordModel.load(other)
        except KwsEdgeError as error:
            yield Finding(check, Status.PROBLEM, _one_line(error), "pip install --force-reinstall kws-edge")
    start = time.perf_counter()
    model = KeywordModel.load(name)
    answer = model.classify(SAMPLES / f"{WORD}.flac")
    took = time.perf_counter() - start
    silence = model.classify(SAMPLES / "silence.flac")
    said = f"{model.name} hears {answer.label or f'{answer.guess}, not sure'} in the sample of {WORD!r}"
    if silence.label is not None:
        yield Finding(check, Status.PROBLEM, f"{model.name} hears {silence.label} in silence", "report it, with --json")
    elif WORD not in model.labels:
        yield Finding(check, Status.OK, f"{said}, a word that it does not know; {1e3 * took:.0f} ms with loading")
    elif answer.guess != WORD:
        yield Finding(check, Status.PROBLEM, said, "this onnxruntime computes wrongly here, or the model is damaged")
    elif answer.label is None:
        yield Finding(check, Status.WARNING, said, "thresholds may be too strict: kws-edge calibrate")
    else:
        yield Finding(check, Status.OK, f"{said}, and nothing in silence; {1e3 * took:.0f} ms with loading")


def _providers(model: str | None) -> Found:
    from kws_edge.bench.runner import probe
    from kws_edge.model.runtime import REMOTE, available_providers
    from kws_edge.model.shipped import DEFAULT_MODEL

    check = "providers"
    for provider in available_providers():
        if provider == "cpu" or provider in REMOTE:
            continue
        try:
            nodes = probe(model or DEFAULT_MODEL, provider)
            total = sum(nodes.values())
            yield Finding(check, Status.OK, f"{provider} runs {nodes[provider]} of {total} nodes of the model")
        except ProviderError as error:
            message = f"{provider} is in this onnxruntime and does not run here: {_one_line(error)}"
            yield Finding(check, Status.WARNING, message, "install its driver and libraries, or stay with the CPU")
        except OSError as error:
            yield _cannot_probe(check, error)
    yield Finding(check, Status.OK, f"what there is: {', '.join(available_providers())}; the CPU is the default")


def _processor() -> Found:
    from kws_edge.bench.machine import describe

    check, machine = "processor", describe()
    numbers = f"{len(machine.usable)} of {machine.cpus} processors usable"
    quota = "" if machine.quota is None else f", for {machine.quota:g} of their time"
    governor = f", governor {', '.join(machine.governors)}" if machine.governors else ""
    load = "" if machine.load is None else f", load {machine.load:.1f}"
    yield Finding(check, Status.OK, f"{machine.cpu}: {numbers}{quota}{governor}{load}")
    if machine.quota is not None and machine.quota < 0.5:
        advice = "give the container more, such as docker run --cpus 1"
        yield Finding(check, Status.WARNING, f"its control group gets {machine.quota:g} of a processor", advice)
    if "powersave" in machine.governors:
        advice = "cpupower frequency-set -g schedutil, where the answers come too late"
        yield Finding(check, Status.WARNING, "the governor powersave may keep the clock rate low", advice)
    if machine.load is not None and machine.load > len(machine.usable):
        message = f"busy: load {machine.load:.1f} on {len(machine.usable)} processors"
        yield Finding(check, Status.WARNING, message, "measure with nothing else running; streams may drop samples")


def _memory() -> Found:
    from kws_edge.bench.machine import describe

    machine = describe()
    if machine.available_mb is None:
        yield Finding("memory", Status.OK, "the system does not tell")
        return
    message = f"{machine.available_mb:.0f} MB available of {machine.memory_mb or 0:.0f}"
    if machine.available_mb < _ENOUGH_MB:
        yield Finding("memory", Status.WARNING, message, f"free some: kws-edge needs about {_ENOUGH_MB} MB")
    else:
        yield Finding("memory", Status.OK, message)


def _audio_files() -> Found:
    import numpy as np
    import soundfile

    check, version = "audio files", f"libsndfile {soundfile.__libsndfile_version__}"
    tone = np.sin(np.arange(16_000) / 5).astype(np.float32) / 4
    formats = {"WAV": ("WAV", "PCM_16"), "FLAC": ("FLAC", "PCM_16"), "Ogg Vorbis": ("OGG", "VORBIS")}
    formats |= {"Opus": ("OGG", "OPUS"), "MP3": ("MP3", "MPEG_LAYER_III")}
    missing = []
    for name, (container, subtype) in formats.items():
        file = io.BytesIO()
        try:
            soundfile.write(file, tone, 16_000, format=container, subtype=subtype)
            file.seek(0)
            soundfile.read(file)
        except (soundfile.LibsndfileError, ValueError):  # the second where this soundfile does not know the format
            missing.append(name)
    if missing:
        status = Status.PROBLEM if {"WAV", "FLAC"} & set(missing) else Status.WARNING
        advice = "pip install --upgrade soundfile, or the system's libsndfile 1.1 or newer"
        yield Finding(check, status, f"{version} cannot read {', '.join(missing)}", advice)
    else:
        yield Finding(check, Status.OK, f"{version} reads {', '.join(formats)}")


def _microphone(sound: Any) -> Found:
    from kws_edge.audio.devices import input_devices

    check = "microphone"
    elsewhere = "files, pipes and the server work without"
    try:
        devices = input_devices(sound)
    except Exception as error:  # PortAudio's own errors have a class of sounddevice's, which may be missing
        yield Finding(check, Status.WARNING, _one_line(error), f"needed for kws-edge listen alone: {elsewhere}")
        return
    for device in devices:
        name = f"{device.index} {device.name}{', the default' if device.default else ''}"
        yield Finding(check, Status.OK, f"{name}: {device.channels} channels, {device.rate} Hz, {device.api}")
    if not devices:
        yield Finding(check, Status.WARNING, "no device that can record", f"plug one in; {elsewhere}")


def _listen(seconds: float, device: int | str | None, sound: Any) -> Found:
    import numpy as np

    from kws_edge.audio.level import SAMPLE_RATE, measure
    from kws_edge.audio.microphone import Microphone
    from kws_edge.stream.losses import Losses

    check = "listening"
    blocks, heard, losses = [], 0, Losses()
    try:
        with closing(Microphone(device, retries=0, backend=sound)) as microphone:
            for block in microphone:
                if block.dropped:
                    losses.add(heard / SAMPLE_RATE, 0.0)
                blocks.append(block.samples)
                heard += len(block.samples)
                if heard >= seconds * SAMPLE_RATE:
                    break
    except DeviceError as error:
        yield Finding(check, Status.PROBLEM, _one_line(error), "kws-edge devices lists what there is")
        return
    level = measure(np.concatenate(blocks))
    rms, peak = (20 * float(np.log10(max(value, 1e-6))) for value in (level.rms, level.peak))
    message = f"{heard / SAMPLE_RATE:.1f} s heard: {rms:.0f} dBFS on average, {peak:.0f} at most"
    if microphone.overflows or microphone.dropped:
        message += f", {microphone.overflows} overflows, {microphone.dropped} samples dropped"
    if microphone.problem and not level.is_silent:
        advice = "crossed wires, or a balanced line: well as it is, or name a channel, as kws-edge listen --channel 2"
        yield Finding(check, Status.WARNING, f"{message}; {microphone.problem}", advice)
    elif level.is_silent:
        yield Finding(check, Status.PROBLEM, message, "nothing comes: unmute it, or allow this program to use it")
    elif losses.too_many(heard / SAMPLE_RATE):
        advice = "too many losses to hear words: end other programs, or use a faster machine or another microphone"
        yield Finding(check, Status.PROBLEM, message, advice)
    elif microphone.overflows or microphone.dropped:
        yield Finding(check, Status.WARNING, message, "words are lost where samples are: end other programs")
    elif level.is_clipped or peak > _LOUD:
        yield Finding(check, Status.WARNING, message, "too loud: lower the input's gain")
    elif rms < _QUIET:
        yield Finding(check, Status.WARNING, message, "very quiet: raise the input's gain, or speak while it listens")
    else:
        yield Finding(check, Status.OK, message)


def _server() -> Found:
    missing = [name for name in ("fastapi", "uvicorn", "pydantic_settings", "prometheus_client") if not find_spec(name)]
    if missing:
        yield Finding("server", Status.OK, str(lacking("kws-edge serve", ", ".join(missing), "server")))
    else:
        yield Finding("server", Status.OK, "what kws-edge serve needs is installed")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

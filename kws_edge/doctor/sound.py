"""Sound: the formats of files that can be read, and microphones."""

import io
from contextlib import closing
from typing import Any

from kws_edge.doctor.findings import Finding, Found, Status
from kws_edge.errors import DependencyError, DeviceError
from kws_edge.text import collapsed

_QUIET, _LOUD = -60.0, -3.0  # dBFS


def audio_files() -> Found:
    """Which formats can be read, by writing and reading each."""
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


def microphone(sound: Any) -> Found:
    """Which devices can record."""
    from kws_edge.audio.devices import input_devices

    check = "microphone"
    elsewhere = "files, pipes and the server work without"
    try:
        devices = input_devices(sound)
    except DependencyError as error:
        advice = f"{collapsed(error)}; {elsewhere}"
        yield Finding(check, Status.WARNING, "no microphone can be used", advice)
        return
    except Exception as error:  # PortAudio's own errors have a class of sounddevice's, which may be missing
        yield Finding(check, Status.WARNING, collapsed(error), f"needed for kws-edge listen alone: {elsewhere}")
        return
    for device in devices:
        name = f"{device.index} {device.name}{', the default' if device.default else ''}"
        yield Finding(check, Status.OK, f"{name}: {device.channels} channels, {device.rate} Hz, {device.api}")
    if not devices:
        yield Finding(check, Status.WARNING, "no device that can record", f"plug one in; {elsewhere}")


def listen(seconds: float, device: int | str | None, sound: Any) -> Found:
    """What a moment of listening hears."""
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
        yield Finding(check, Status.PROBLEM, collapsed(error), "kws-edge devices lists what there is")
        return
    level = measure(np.concatenate(blocks))
    rms, peak = (20 * float(np.log10(max(value, 1e-6))) for value in (level.rms, level.peak))
    message = f"{heard / SAMPLE_RATE:.1f} s heard: {rms:.0f} dBFS on average, {peak:.0f} at most"
    if microphone.overflows or microphone.dropped:
        message += f", {microphone.overflows} overflows, {microphone.dropped} samples dropped"
    unmute = "no sound arrives: unmute it, or allow this program to use it"
    if level.is_silent or microphone.is_mute:
        yield Finding(check, Status.PROBLEM, message, unmute)
    elif microphone.problem:
        advice = (
            "normal for a balanced line or crossed wires; to choose a channel yourself: kws-edge listen --channel 2"
        )
        yield Finding(check, Status.WARNING, f"{message}; {microphone.problem}", advice)
    elif losses.too_many(heard / SAMPLE_RATE):
        advice = "too many samples are lost: end other programs, or use a faster machine or another microphone"
        yield Finding(check, Status.PROBLEM, message, advice)
    elif microphone.overflows or microphone.dropped:
        yield Finding(check, Status.WARNING, message, "words are lost where samples are: end other programs")
    elif level.is_clipped or peak > _LOUD:
        yield Finding(check, Status.WARNING, message, "too loud: lower the input's gain")
    elif rms < _QUIET:
        yield Finding(check, Status.WARNING, message, "very quiet: raise the input's gain, or speak while it listens")
    else:
        yield Finding(check, Status.OK, message)

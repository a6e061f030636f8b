"""Check that kws-edge works on a machine, and say what to do if it does not.

Each check runs on its own: one that fails unexpectedly is a finding, and the others still run.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from kws_edge.doctor import machine, software
from kws_edge.doctor import sound as sound_checks
from kws_edge.doctor.findings import Finding, Status, guarded

__all__ = ["Finding", "Status", "examine"]


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
    yield from guarded("system", machine.kind)
    yield from guarded("software", software.software)
    yield from guarded("onnxruntime wheels", software.wheels)
    runtime = list(guarded("onnxruntime", software.runtime))
    yield from runtime
    if all(finding.status != Status.PROBLEM for finding in runtime):
        yield from guarded("versions of models", software.limits)
        yield from guarded("model", partial(software.model, model))
        yield from guarded("providers", partial(software.providers, model))
    yield from guarded("processor", machine.processor)
    yield from guarded("memory", machine.memory)
    yield from guarded("temporary files", machine.places)
    yield from guarded("audio files", sound_checks.audio_files)
    yield from guarded("microphone", partial(sound_checks.microphone, sound))
    if listen is not None:
        yield from guarded("listening", partial(sound_checks.listen, listen, device, sound))
    yield from guarded("server", software.server)

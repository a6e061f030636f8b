"""Keyword spotting on the device that can say "I am not sure".

    from kws_edge import KeywordModel

    model = KeywordModel.load()
    p = model.classify("clip.wav")
    print(f"not sure: {p.reason}" if p.abstained else p.label)

The names below are the public API. They are loaded when they are first used, so that importing the package costs
nothing.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before anything that an older Python cannot read
    _found = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(
        f"kws-edge needs Python 3.11 or newer; this is {_found}: install a newer one, and kws-edge in a venv of it"
    )

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kws_edge.errors import (
    AudioError,
    DependencyError,
    DeviceError,
    KwsEdgeError,
    ModelError,
    ProviderError,
    SettingError,
)

if TYPE_CHECKING:
    from kws_edge.audio.devices import InputDevice, input_devices
    from kws_edge.audio.microphone import Microphone
    from kws_edge.audio.sources import Block, StandardInput, WavFile
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.model.metadata import Metadata
    from kws_edge.model.prediction import Prediction, Reason
    from kws_edge.model.runtime import available_providers
    from kws_edge.model.session import Outputs
    from kws_edge.model.shipped import shipped_models
    from kws_edge.stream.events import Event
    from kws_edge.stream.settings import StreamSettings
    from kws_edge.stream.spotter import Spotter
    from kws_edge.stream.state import State
    from kws_edge.stream.wake import Wake

__all__ = [
    "AudioError",
    "Block",
    "DependencyError",
    "DeviceError",
    "Event",
    "InputDevice",
    "KeywordModel",
    "KwsEdgeError",
    "Metadata",
    "Microphone",
    "ModelError",
    "Outputs",
    "Prediction",
    "ProviderError",
    "Reason",
    "SettingError",
    "Spotter",
    "StandardInput",
    "State",
    "StreamSettings",
    "Wake",
    "WavFile",
    "available_providers",
    "input_devices",
    "shipped_models",
]

# From 1.29 on, onnxruntime's own builds report their use to its maker over the network, from a thread that also keeps
# forked processes from exiting. What listens to people reports to nobody. This must be set before onnxruntime is first
# imported; whoever wants the reports sets it to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_HOMES = {
    "Block": "kws_edge.audio.sources",
    "Event": "kws_edge.stream.events",
    "InputDevice": "kws_edge.audio.devices",
    "KeywordModel": "kws_edge.model.keyword_model",
    "Metadata": "kws_edge.model.metadata",
    "Microphone": "kws_edge.audio.microphone",
    "Outputs": "kws_edge.model.session",
    "Prediction": "kws_edge.model.prediction",
    "Reason": "kws_edge.model.prediction",
    "Spotter": "kws_edge.stream.spotter",
    "StandardInput": "kws_edge.audio.sources",
    "State": "kws_edge.stream.state",
    "StreamSettings": "kws_edge.stream.settings",
    "Wake": "kws_edge.stream.wake",
    "WavFile": "kws_edge.audio.sources",
    "available_providers": "kws_edge.model.runtime",
    "input_devices": "kws_edge.audio.devices",
    "shipped_models": "kws_edge.model.shipped",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(__all__))

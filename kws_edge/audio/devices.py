"""List recording devices through sounddevice and PortAudio, and find one again after it was unplugged."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kws_edge.errors import DependencyError, DeviceError, missing_package
from kws_edge.text import collapsed


@dataclass(frozen=True, slots=True)
class InputDevice:
    """A device that can record.

    Attributes
    ----------
    index : number of the device; `Microphone(device=...)` takes it, or a part of the name.
    name, api : name of the device, and of the system's sound interface.
    channels : how many channels it can record.
    rate : its native sample rate, Hz.
    default : whether `Microphone()` opens it.

    Examples
    --------
    >>> from kws_edge import input_devices
    >>> default = next(device for device in input_devices() if device.default)  # doctest: +SKIP
    >>> default.name, default.rate  # doctest: +SKIP
    ('USB Audio: - (hw:1,0)', 48000)
    """

    index: int
    name: str
    api: str
    channels: int
    rate: int
    default: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


def input_devices(backend: Any = None) -> list[InputDevice]:
    """The devices that can record.

    Raises
    ------
    DependencyError : sounddevice or PortAudio is not installed.

    Examples
    --------
    >>> from kws_edge import input_devices
    >>> [device.name for device in input_devices()]  # doctest: +SKIP
    ['USB Audio: - (hw:1,0)', 'default']
    """
    sd = backend or sounddevice()
    default = sd.default.device[0]
    apis = [api["name"] for api in sd.query_hostapis()]
    return [
        InputDevice(
            index=index,
            name=device["name"],
            api=apis[device["hostapi"]],
            channels=device["max_input_channels"],
            rate=round(device["default_samplerate"]),
            default=index == default,
        )
        for index, device in enumerate(sd.query_devices())
        if device["max_input_channels"] > 0
    ]


@dataclass(frozen=True, slots=True)
class Identity:
    """What stays of a device when it is plugged in again.

    Its index may change, and with ALSA the place in its name: "USB Mic: Audio (hw:1,0)" comes back as hw:2. Its host
    API and the rest of its name stay. Where several devices share those, the index is a hint.

    Attributes
    ----------
    api, name : of the device, the name without its place.
    index : that it had.
    twins : the indices of all devices of this API and name at that time, rising.
    """

    api: str
    name: str
    index: int
    twins: tuple[int, ...]

    @classmethod
    def of(cls, index: int, devices: Sequence[InputDevice]) -> "Identity | None":
        """The identity of the device with an index; None where there is none."""
        found = next((device for device in devices if device.index == index), None)
        if found is None:
            return None
        twins = tuple(d.index for d in devices if (d.api, _placeless(d.name)) == (found.api, _placeless(found.name)))
        return cls(found.api, _placeless(found.name), index, twins)

    def find(self, devices: Sequence[InputDevice]) -> int | None:
        """The index of this device now; None where it is not there.

        Of several candidates it is the one at the old index, or at the same rank where all are there again. Where fewer
        are there, those at the places of its twins are taken for the twins.
        """
        now = [d.index for d in devices if (d.api, _placeless(d.name)) == (self.api, self.name)]
        if len(now) >= len(self.twins):
            return self.index if self.index in now else now[self.twins.index(self.index)]
        if self.index in now:
            return self.index
        others = [index for index in now if index not in self.twins]
        return min(others, key=lambda index: abs(index - self.index)) if others else None


def _placeless(name: str) -> str:
    """A device's name without ALSA's "(hw:1,0)"."""
    start = name.find("(hw:")
    return name[:start].strip() if start > 0 else name


def sounddevice() -> Any:
    """The module sounddevice.

    Raises DependencyError where it, or PortAudio, is not installed, DeviceError where PortAudio does not start.
    """
    try:
        import sounddevice as module
    except ImportError:
        raise missing_package("the microphone", "sounddevice", "mic") from None
    except OSError:
        raise DependencyError(
            "the microphone needs PortAudio: on Debian, Ubuntu and Raspberry Pi OS, apt install libportaudio2"
        ) from None
    except Exception as error:  # its own, whose class is in the module that cannot be imported
        raise DeviceError(f"PortAudio cannot start: {collapsed(error)}; expected a running sound system") from None
    return module

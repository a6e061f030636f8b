"""Every error that kws_edge raises on purpose: one small tree, so that callers can catch as widely as they like.

Each message says what was given, what was expected and what to do about it, in one line.
"""


class KwsEdgeError(Exception):
    """The root: catching it catches every deliberate error of the package."""


class AudioError(KwsEdgeError, ValueError):
    """The audio cannot be used: unreadable, empty, too short, NaN, an impossible header, an unsupported codec."""


class ModelError(KwsEdgeError, ValueError):
    """The model file cannot be used: missing, corrupt, too new, or its metadata disagree with its graph."""


class SettingError(KwsEdgeError, ValueError):
    """A parameter is outside its range or names something that does not exist."""


class ProviderError(KwsEdgeError, RuntimeError):
    """An execution provider was required and is not the one that runs."""


class DeviceError(KwsEdgeError, OSError):
    """A sound device refused, went silent or went away."""


class DependencyError(KwsEdgeError, ImportError):
    """An optional package or system library is not installed; the message names it."""


def lacking(what: str, package: str | None, extra: str) -> DependencyError:
    """The error that a part of kws-edge needs a package of one of its extras, such as "mic"."""
    return DependencyError(
        f"{what} needs {package}, which is not installed; in a checkout of kws-edge, pip install '.[{extra}]'"
    )

"""All deliberate errors of kws_edge, in one small hierarchy.

Each message says what was given, what was expected and what to do about it, in one line.
"""

from collections.abc import Collection

from kws_edge.text import shown


class KwsEdgeError(Exception):
    """Base class of every deliberate error of the package.

    Examples
    --------
    >>> from kws_edge import KeywordModel, KwsEdgeError
    >>> try:
    ...     KeywordModel.load().classify("no_such.wav")
    ... except KwsEdgeError as error:
    ...     print(type(error).__name__)
    AudioError
    """


class AudioError(KwsEdgeError, ValueError):
    """The audio cannot be used: unreadable, empty, too short, NaN, an impossible header, an unsupported codec.

    Examples
    --------
    >>> from kws_edge import KeywordModel
    >>> KeywordModel.load().classify("README.md")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    kws_edge.errors.AudioError: README.md: not readable as audio ...
    """


class TooMuchAudioError(AudioError):
    """A clip is longer, or has more samples, than the caller wanted to be decoded."""


class ModelError(KwsEdgeError, ValueError):
    """The model file cannot be used: missing, corrupt, too new, or its metadata disagree with its graph.

    Examples
    --------
    >>> from kws_edge import KeywordModel
    >>> KeywordModel.load("kws_edge/samples/yes.flac.onnx")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    kws_edge.errors.ModelError: kws_edge/samples/yes.flac.onnx: ...
    """


class SettingError(KwsEdgeError, ValueError):
    """A parameter is outside its range or names something that does not exist.

    Examples
    --------
    >>> from kws_edge import KeywordModel, Spotter
    >>> Spotter(KeywordModel.load(), words={"maybe"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    kws_edge.errors.SettingError: words: maybe; expected one or more of ...
    """


class ProviderError(KwsEdgeError, RuntimeError):
    """The required execution provider does not run here.

    Examples
    --------
    >>> from kws_edge import KeywordModel, ProviderError, available_providers
    >>> if "cuda" not in available_providers():
    ...     try:
    ...         KeywordModel.load(provider="cuda", strict=True)
    ...     except ProviderError:
    ...         print("this machine has no CUDA")
    this machine has no CUDA
    """


class DeviceError(KwsEdgeError, OSError):
    """A sound device refused to open, stopped delivering sound, or was unplugged.

    Examples
    --------
    >>> from kws_edge import DeviceError, KeywordModel, Microphone, Spotter
    >>> try:  # doctest: +SKIP
    ...     next(Spotter(KeywordModel.load()).listen(Microphone("USB")))
    ... except DeviceError as error:
    ...     print(error)
    """


class WorkerError(KwsEdgeError, RuntimeError):
    """A process that does a part of the work ended, or stopped answering."""


class DependencyError(KwsEdgeError, ImportError):
    """An optional package or system library is not installed; the message names it.

    Examples
    --------
    >>> from kws_edge import DependencyError, input_devices
    >>> try:
    ...     devices = input_devices()
    ... except DependencyError:  # without the extra mic, or without PortAudio
    ...     devices = []
    """


def missing_package(what: str, package: str | None, extra: str, project: str = ".") -> DependencyError:
    """The error that a part of kws-edge needs a package of one of its extras, such as "mic"."""
    return DependencyError(
        f"{what} needs {package}, which is not installed; in a checkout of kws-edge, pip install '{project}[{extra}]'"
    )


def check_names(what: str, given: Collection[str], expected: Collection[str]) -> None:
    """Raise a SettingError unless the names of some settings are just those that are expected."""
    missing, unknown = sorted(set(expected) - set(given)), sorted(set(given) - set(expected))
    if missing or unknown:
        raise SettingError(f"{what}: missing {missing}, unknown {shown(unknown, 200)}; expected {sorted(expected)}")

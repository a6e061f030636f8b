"""Open an ONNX file, check its graph against its metadata, and run batches."""

import ctypes
import math
import os
import re
import warnings
import weakref
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime as ort

from kws_edge.arrays import F32, I64
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.errors import ModelError, ProviderError, SettingError
from kws_edge.files import read_model
from kws_edge.model.evidence import LOGIT_LIMIT
from kws_edge.model.metadata import KEY, Metadata
from kws_edge.model.runtime import OUTPUTS, available_providers, full_name, open_session, short_name
from kws_edge.text import collapsed, one_line, shortened, shown

MAX_BATCH: Final = 16
"""Clips or windows per run, at most: its memory grows with more, its speed hardly does."""

MAX_THREADS: Final = 1024

_ROUNDING: Final = 1e-5
"""By how much float32 may miss the ends of a range."""
_LEAST_VACUITY: Final = math.exp(-LOGIT_LIMIT) / 2
"""Of logits at their limit; below it, the strength of the evidence would be infinite."""

_OTHER_FORMS = {
    ".audio.step.onnx": "for streams, with the front end in its graph",
    ".step.onnx": "for streams",
    ".audio.onnx": "with the front end in its graph",
}
"""Files beside a model's own, which kws-edge finds or leaves to other runtimes."""

_TOO_NEW = {
    "IR version": r"IR version: (\d+), max supported IR version: (\d+)",
    "opset": r"Opset (\d+) .* till opset (\d+)",
}
"""What onnxruntime says of a file from the future: the version found and the last one supported."""


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """What the network gives for a batch of b windows, K labels.

    Attributes
    ----------
    labels : int64 [b], index of the most probable label.
    alpha : float32 [b, K], finite and above 0.
    vacuity, entropy : float32 [b], in (0, 1] and [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from kws_edge import KeywordModel
    >>> outputs = KeywordModel.load().run(np.zeros((1, 64, 128), np.float32))
    >>> probability = outputs.alpha / outputs.alpha.sum(axis=1, keepdims=True)
    >>> bool(abs(probability.sum() - 1) < 1e-6)
    True
    """

    labels: I64
    alpha: F32
    vacuity: F32
    entropy: F32


class Session:
    """A model's file, opened. It can be shared between threads, and goes on working after a fork.

    Attributes
    ----------
    path : the file.
    file, asked : the same as an absolute path, and the other parameters, to open it again.
    metadata : what it says of itself.
    provider : the execution provider that runs, such as "cpu".
    """

    def __init__(self, path: Path, *, provider: str, strict: bool, threads: int) -> None:
        """Open a file; the parameters and errors are those of `KeywordModel.load`."""
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
            raise SettingError(f"threads={shown(threads)}; expected a whole number from 1 to {MAX_THREADS}")
        self.path, self._threads = path, threads
        self.file, self.asked = path.absolute(), {"provider": provider, "strict": strict, "threads": threads}
        self._provider = full_name(provider)
        data = _read(path)
        self._data = data if threads > 1 else b""  # for `_after_fork`
        self._session = self._open(data)
        active = self._session.get_providers()[0]
        self.provider = short_name(active)
        if active != self._provider:
            available = ", ".join(available_providers())
            problem = f"execution provider {provider}: {self.provider} is what runs; this machine has {available}"
            if strict:
                raise ProviderError(f"{problem}; expected the one asked for, or strict off")
            warnings.warn(problem, RuntimeWarning, stacklevel=3)
        self.metadata = self._read_metadata()
        self._check_graph()
        _opened.add(self)

    def run(self, features: F32) -> Outputs:
        """One forward pass over float32 [b, n_mfcc, frames]; `KeywordModel.run` says what is expected and raised."""
        fe = self.metadata.front_end
        x = np.asarray(features)
        if x.dtype != np.float32 or x.ndim != 3 or not len(x) or x.shape[1:] != (fe.n_mfcc, fe.frames):
            raise SettingError(
                f"features {x.dtype} {list(x.shape)}; expected float32 [batch, {fe.n_mfcc}, {fe.frames}], batch >= 1"
            )
        if not np.isfinite(x).all():  # integer arithmetic would make something of them
            raise SettingError("features that are NaN or infinite; expected finite numbers")
        try:
            outputs = Outputs(*self._session.run(OUTPUTS, {"mfcc": x}))
        except Exception as e:  # onnxruntime's errors have no class in common
            raise ModelError(f"{self.path}: the network fails: {reason(e)}; expected an undamaged model") from None
        b, K = len(x), len(self.metadata.labels)
        shapes = [np.shape(output) for output in (outputs.labels, outputs.alpha, outputs.vacuity, outputs.entropy)]
        if shapes != [(b,), (b, K), (b,), (b,)]:  # which the graph leaves open, or says wrongly
            raise ModelError(f"{self.path}: outputs of shapes {shapes} for {b} windows; expected one answer for each")
        check_numbers(self.path, outputs)
        return outputs

    def _open(self, data: bytes) -> ort.InferenceSession:
        try:
            return open_session(data, self._provider, self._threads)
        except Exception as e:  # its errors have no class in common
            raise ModelError(
                f"{self.path}: onnxruntime {ort.__version__} cannot load it: {reason(e)}; expected an ONNX file of "
                "kws-export, or a newer onnxruntime"
            ) from None

    def _after_fork(self) -> None:
        """In the child: the threads of the session stayed in the parent, and freeing it would wait for them forever."""
        if self._threads > 1:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))  # so that it is never freed
            self._session = self._open(self._data)

    def _read_metadata(self) -> Metadata:
        try:
            text = self._session.get_modelmeta().custom_metadata_map.get(KEY)
        except UnicodeDecodeError:
            raise ModelError(f"{self.path}: its metadata are not UTF-8; expected an undamaged model") from None
        if text is None:
            raise ModelError(f"{self.path}: no metadata under {KEY!r}; expected a model exported by kws-export")
        try:
            return Metadata.from_json(text)
        except ModelError as e:
            raise ModelError(f"{self.path}: {e}") from None

    def _check_graph(self) -> None:
        """Refuse metadata that disagree with the graph, or a graph that does not keep the contract."""
        fe, K = self.metadata.front_end, len(self.metadata.labels)
        if fe.sample_rate != SAMPLE_RATE:
            raise ModelError(f"{self.path}: made for {fe.sample_rate} Hz; expected {SAMPLE_RATE} Hz")
        found = [_describe(node) for node in self._session.get_inputs()]
        expected = [f"mfcc tensor(float) [*, {fe.n_mfcc}, {fe.frames}]"]
        if found != expected:
            for suffix, what in _OTHER_FORMS.items():
                if self.path.name.endswith(suffix):
                    own = f"{self.path.name.removesuffix(suffix)}.onnx"
                    raise ModelError(f"{self.path}: the form of {own} {what}; expected {self.path.with_name(own)}")
            self._refuse("inputs", found, expected)
        found = [_describe(node) for node in self._session.get_outputs()]
        expected = ["class tensor(int64) [*]", f"alpha tensor(float) [*, {K}]"]
        expected += ["vacuity tensor(float) [*]", "entropy tensor(float) [*]"]
        if sorted(found) != sorted(expected):
            self._refuse(f"outputs for {K} labels", found, expected)

    def _refuse(self, what: str, found: object, expected: object) -> None:
        given = shortened(one_line(found), 500)
        raise ModelError(f"{self.path}: {what}: the graph has {given}; expected {expected} by its metadata")


_opened: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _after_fork() -> None:
    for session in _opened:
        session._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _read(path: Path) -> bytes:
    try:
        data = read_model(path)
    except (OSError, ValueError) as e:
        raise ModelError(f"{path}: {getattr(e, 'strerror', None) or e}; expected an ONNX file") from None
    if not data:
        raise ModelError(f"{path}: 0 bytes; expected an ONNX file")
    return data


def check_numbers(path: Path, outputs: Outputs) -> None:
    """Refuse what no Dirichlet distribution has, of a graph that is damaged or was made to give it.

    Raises
    ------
    ModelError : a number that is NaN, infinite or out of its range, or the index of no label.
    """
    low, high = ranges(outputs.alpha.shape[1])
    numbers = np.column_stack((outputs.alpha, outputs.vacuity, outputs.entropy))
    in_range = bool(((low <= numbers) & (numbers <= high)).all())
    if in_range and outputs.labels.min() >= 0 and outputs.labels.max() < outputs.alpha.shape[1]:
        return
    if not np.isfinite(numbers).all():
        raise ModelError(f"{path}: an output is not finite; expected finite features and an undamaged model")
    raise ModelError(f"{path}: an alpha, vacuity, entropy or class out of its range; expected an undamaged model")


@cache
def ranges(K: int) -> tuple[F32, F32]:
    """The least and the greatest that a window's K alphas, vacuity and entropy can be: two of float32 [K + 2]."""
    low, high = np.empty(K + 2, np.float32), np.empty(K + 2, np.float32)
    info = np.finfo(np.float32)
    low[:K], high[:K] = info.smallest_subnormal, info.max
    low[K:], high[K:] = (_LEAST_VACUITY, -_ROUNDING), 1 + _ROUNDING
    return low, high


def reason(error: Exception) -> str:
    """Why onnxruntime refuses a file, in one line of reasonable length."""
    for what, pattern in _TOO_NEW.items():
        if numbers := re.search(pattern, str(error)):
            return f"found {what} {numbers[1]}, supported up to {numbers[2]}"
    said = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error))
    return shortened(one_line(collapsed(said)).rstrip("."), 500)  # it repeats names that the file gives


def _describe(node: Any) -> str:
    """An input or output in words, with * for a dimension that is free."""
    return f"{node.name} {node.type} [{', '.join(str(d) if isinstance(d, int) else '*' for d in node.shape)}]"

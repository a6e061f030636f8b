"""A stream's network, computed from its new frames: the model's step form with the states of one stream.

A model whose padding is "valid" has a second file beside it, NAME.step.onnx: the same network as a graph that takes a
stream's next frames and, as states, what it still needs of the frames before. Its answers are those of the model on the
window that ends with the last frame; it computes only what is new.
"""

import weakref
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from kws_edge.arrays import F32
from kws_edge.errors import ModelError
from kws_edge.files import read_model
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import KEY, Metadata
from kws_edge.model.runtime import OUTPUTS, full_name, open_session, zero_states
from kws_edge.model.session import Outputs, check_numbers, ranges, reason

SUFFIX: Final = ".step.onnx"

_TOLERANCE = 1e-3

_sessions: "weakref.WeakKeyDictionary[KeywordModel, ort.InferenceSession]" = weakref.WeakKeyDictionary()
_files: "weakref.WeakKeyDictionary[KeywordModel, bytes]" = weakref.WeakKeyDictionary()


class Steps:
    """One stream through a model's step form. Not for use by several threads at once."""

    def __init__(self, model: KeywordModel, frames: int) -> None:
        """Start a stream that mostly brings `frames` frames at a time.

        Raises ModelError where the step file is missing, damaged, or not of this model.
        """
        if model not in _sessions:
            _sessions[model] = _open(model)
        self._session = _sessions[model]
        self._path, self._usual = step_file(model), frames
        fe, K = model.metadata.front_end, len(model.labels)
        self._features = np.zeros((1, fe.n_mfcc, frames), np.float32)
        self._numbers = np.zeros(K + 2, np.float32)  # of three outputs side by side, to be checked in one go
        alpha, vacuity, entropy = self._numbers[np.newaxis, :K], self._numbers[K : K + 1], self._numbers[K + 1 :]
        self._outputs = Outputs(np.zeros(1, np.int64), alpha, vacuity, entropy)
        self._low, self._high = ranges(K)
        named: tuple[npt.NDArray[Any], ...] = (self._outputs.labels, alpha, vacuity, entropy)
        self._named = dict(zip(OUTPUTS, named, strict=True))
        # Two sets of states, each in turn the one that is read and the one that is written. They and all else that a
        # step reads and writes stay where they are, and are made known to onnxruntime once: it saves half of the time.
        self._states = [zero_states(self._session) for _ in range(2)]
        self._bindings = [self._bind(*self._states), self._bind(*self._states[::-1])]
        self._now = 0

    def push(self, frames: F32) -> Outputs:
        """Take the stream's next frames, float32 [n, n_mfcc], n at least 1; what the window says that ends with them.

        The outputs are right from the moment that a whole window of frames was given, be it in one push or in many;
        a push of a whole window also forgets all that was before it. The arrays are the same each time, and hold these
        numbers until the next push. Raises ModelError as `KeywordModel.run`.
        """
        try:
            if len(frames) == self._usual:
                self._features[0] = frames.T
                self._session.run_with_iobinding(self._bindings[self._now])
            else:
                self._run(np.ascontiguousarray(frames.T[np.newaxis]))
        except Exception as e:  # onnxruntime's errors have no class in common
            raise ModelError(f"{self._path}: the network fails: {reason(e)}; expected an undamaged model") from None
        self._now ^= 1
        numbers, label = self._numbers, self._outputs.labels.item()
        if not ((self._low <= numbers) & (numbers <= self._high)).all() or not 0 <= label < len(numbers) - 2:
            check_numbers(self._path, self._outputs)  # tells what is wrong
        return self._outputs

    def _run(self, features: F32) -> None:
        before, after = self._states[self._now], self._states[self._now ^ 1]
        names = [*OUTPUTS, *(_next(name) for name in before)]
        results = self._session.run(names, {"mfcc": features, **before})
        for target, result in zip([*self._named.values(), *after.values()], results, strict=True):
            np.copyto(target, result)

    def _bind(self, before: dict[str, F32], after: dict[str, F32]) -> ort.IOBinding:
        binding = self._session.io_binding()
        for name, array in {"mfcc": self._features, **before}.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        for name, array in {**self._named, **{_next(name): state for name, state in after.items()}}.items():
            binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(array))
        return binding


def step_file(model: KeywordModel) -> Path:
    """Where a model's step form is, if it has one."""
    return model.path.with_suffix(SUFFIX)


def keep_steps(model: KeywordModel) -> None:
    """Read a model's step form, if it has one, for streams that begin when other files may have taken its place.

    Raises ModelError where the file cannot be read.
    """
    if has_steps(model):
        _files[model] = _read(model)


def has_steps(model: KeywordModel) -> bool:
    """Whether a stream through this model can be computed step by step."""
    is_here = model in _sessions or model in _files
    return is_here or (model.metadata.padding == "valid" and step_file(model).exists())


def _read(model: KeywordModel) -> bytes:
    path = step_file(model)
    try:
        return read_model(path)
    except OSError as e:
        raise ModelError(f"{path}: {e.strerror}; expected the step form of {model.path.name}") from None


def _open(model: KeywordModel) -> ort.InferenceSession:
    path, data = step_file(model), _files.pop(model, None) or _read(model)
    try:
        session = open_session(data, full_name(model.provider), 1)
        metadata = Metadata.from_json(session.get_modelmeta().custom_metadata_map.get(KEY, ""))
    except ModelError as e:
        raise ModelError(f"{path}: {e}") from None
    except Exception as e:
        raise ModelError(
            f"{path}: onnxruntime cannot load it: {reason(e)}; expected an ONNX file of kws-export"
        ) from None
    if (metadata.labels, metadata.front_end) != (model.labels, model.metadata.front_end):
        raise ModelError(f"{path}: has other words or features than {model.path.name}; expected its step form")
    _compare(model, session, path)
    return session


def _compare(model: KeywordModel, session: ort.InferenceSession, path: Path) -> None:
    """Refuse a step form whose weights are not the model's: a window of made-up sound must get the same answer."""
    fe = model.metadata.front_end
    window = 4 * np.sin(np.arange(fe.n_mfcc * fe.frames, dtype=np.float32) ** 1.2).reshape(1, fe.n_mfcc, fe.frames)
    expected = model.run(window).alpha
    try:
        (alpha,) = session.run(["alpha"], {"mfcc": window, **zero_states(session)})
    except Exception as e:
        raise ModelError(
            f"{path}: the network fails: {reason(e)}; expected the step form of {model.path.name}"
        ) from None
    if alpha.shape != expected.shape or not np.allclose(alpha, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
        raise ModelError(
            f"{path}: answers differently from {model.path.name}; expected its step form, exported with it"
        )


def _next(state: str) -> str:
    return state.replace("state_", "next_", 1)

"""One ONNX file: open it, check it against what it says of itself, run batches, classify clips.

model = KeywordModel.load()
p = model.classify("clip.wav")
print(f"not sure: {p.reason}" if p.abstained else p.label)
"""

import ctypes
import os
import re
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from kws_edge.arrays import F32, I64
from kws_edge.audio.channels import Channel
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load, read_blocks
from kws_edge.audio.opened import Source
from kws_edge.errors import AudioError, ModelError, ProviderError, SettingError
from kws_edge.model import evidence
from kws_edge.model.clips import Window, cut, whole
from kws_edge.model.features import mfcc, pad
from kws_edge.model.metadata import KEY, SILENCE_CLASS, Metadata, Score, is_word
from kws_edge.model.prediction import Prediction, Reason
from kws_edge.model.runtime import OUTPUTS, available_providers, full_name, open_session, short_name
from kws_edge.model.selection import OperatingPoint, withheld
from kws_edge.model.variants import get_variant

DEFAULT_MODEL: Final = "stream"
DEFAULT_TARGET: Final = 0.995

_package = Path(__file__).parent.parent
MODELS: Final = _package / "models" if (_package / "models").is_dir() else _package.parent / "models"
"""The folder of the shipped models: inside an installed package, or at the top of a checkout."""

MAX_BATCH: Final = 16
"""Clips or windows per run, at most: its memory grows with more, its speed hardly does."""

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


def shipped_models(folder: Path | None = None) -> dict[str, Path]:
    """The models that come with the package, or those of another folder, name → file.

    Other forms of a model beside it are not listed: NAME.step.onnx, for streams, and NAME.audio.onnx and
    NAME.audio.step.onnx, with the front end in the graph, for runtimes that have none.

    Examples
    --------
    >>> from kws_edge import shipped_models
    >>> "stream" in shipped_models(), shipped_models()["softmax"].name
    (True, 'softmax.onnx')
    """
    files = (path for path in (folder or MODELS).glob("*.onnx") if "." not in path.stem)
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


class KeywordModel:
    """A loaded model; `load` makes one. It can be shared between threads, and goes on working after a fork.

    Fork while no other thread decodes a file: a lock that libsndfile's wrapper holds at that moment stays taken.

    Attributes
    ----------
    metadata : what the file says of itself.
    provider : the execution provider that runs, such as "cpu".

    Examples
    --------
    >>> from kws_edge import KeywordModel
    >>> model = KeywordModel.load()
    >>> model.name, model.provider, len(model.labels)
    ('stream', 'cpu', 20)
    """

    def __init__(self, path: Path, *, provider: str, strict: bool, threads: int) -> None:
        """Open a file; the parameters and errors are those of `load`."""
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise SettingError(f"threads={threads!r}; expected a whole number of at least 1")
        self._path, self._threads = path, threads
        self._provider = full_name(provider)
        self._data = _read(path)
        self._session = self._open()
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
        _models.add(self)

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        provider: str = "cpu",
        strict: bool = False,
        threads: int = 1,
    ) -> "KeywordModel":
        """Load a model and check that its graph is what its metadata say.

        Parameters
        ----------
        model : None for `DEFAULT_MODEL`, the name of a shipped model, or a path: a text that ends in .onnx or has a
            separator in it. The file is read whole, and not needed afterwards.
        provider : the execution provider to run on: "cpu", or one that another build of onnxruntime has, as "cuda".
        strict : refuse to run on another provider than that, instead of warning once and running on the CPU.
        threads : of one run. The networks are so small that more than one seldom pays; none of them spins in waiting.

        Raises
        ------
        ModelError : the file is missing, empty, not ONNX, too new for this onnxruntime or without metadata, or its
            metadata are malformed or disagree with its graph. The message gives what was found and what is supported.
        ProviderError : strict, and another provider is what runs.
        SettingError : there is no shipped model or provider of that name, or threads are below 1.

        Examples
        --------
        >>> from kws_edge import KeywordModel
        >>> KeywordModel.load("softmax").metadata.variant
        'softmax'
        >>> KeywordModel.load("models/stream.onnx").name
        'stream'
        """
        return cls(_find(model), provider=provider, strict=strict, threads=threads)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.metadata.name

    @property
    def path(self) -> Path:
        """The file that it was loaded from."""
        return self._path

    @property
    def labels(self) -> tuple[str, ...]:
        """The words that the model knows, in the order of α."""
        return self.metadata.labels

    def run(self, features: F32) -> Outputs:
        """One forward pass.

        Parameters
        ----------
        features : float32 [b, n_mfcc, frames], b at least 1: windows as `features.pad` gives them.

        Raises
        ------
        SettingError : another shape or type, or features that are NaN or infinite.
        ModelError : the network fails, or what it gives is not finite.

        Examples
        --------
        >>> import numpy as np
        >>> from kws_edge import KeywordModel
        >>> outputs = KeywordModel.load().run(np.zeros((2, 64, 128), np.float32))
        >>> outputs.alpha.shape, outputs.entropy.dtype
        ((2, 20), dtype('float32'))
        """
        fe = self.metadata.front_end
        x = np.asarray(features)
        if x.dtype != np.float32 or x.ndim != 3 or not len(x) or x.shape[1:] != (fe.n_mfcc, fe.frames):
            raise SettingError(
                f"features {x.dtype} {list(x.shape)}; expected float32 [batch, {fe.n_mfcc}, {fe.frames}], batch >= 1"
            )
        if not np.isfinite(x).all():  # integer arithmetic would make something of them
            raise SettingError("features that are NaN or infinite; expected finite numbers")
        try:
            labels, alpha, vacuity, entropy = self._session.run(OUTPUTS, {"mfcc": x})
        except Exception as e:  # onnxruntime's errors have no class in common
            raise ModelError(f"{self._path}: the network fails: {_reason(e)}; expected a sound model") from None
        if not all(np.isfinite(output).all() for output in (alpha, vacuity, entropy)):
            raise ModelError(f"{self._path}: an output is not finite; expected finite features and a sound model")
        if not ((vacuity > 0) & (vacuity <= 1)).all() or not (alpha > 0).all():
            raise ModelError(f"{self._path}: an alpha or vacuity that cannot be; expected a sound model")
        return Outputs(labels, alpha, vacuity, entropy)

    def classify(
        self,
        source: Source,
        rate: int | None = None,
        *,
        target: float = DEFAULT_TARGET,
        score: Score | None = None,
        channel: Channel | None = None,
        progress: Callable[[float], None] = lambda seconds: None,
    ) -> Prediction:
        """Name the word in a clip, or abstain.

        A clip of up to 1.3 s, which the network's input holds, is centred in it and seen in one pass. A longer one is
        searched in windows of a second, a tenth apart, in bounded memory whatever its length: the answer is that of
        the least uncertain window, and says where it lies. A silent window is never asked about.

        Parameters
        ----------
        source, rate : a path, the bytes of a file, a binary file, or samples with their rate, as for `load.load`.
        target : the accuracy of accepted clips for which the threshold was calibrated, a fraction.
        score : "entropy" or "vacuity"; None for the one that the model was calibrated to use.
        channel : of a source with several: its number from 1, "mix" for their average, or None as for `load.load`.
        progress : called now and then with the seconds of audio that are done.

        Raises
        ------
        AudioError : the audio cannot be read, or is shorter than one frame (25 ms).
        SettingError : the model has no threshold for this score and target, samples come without their rate, or the
            channel is an impossible one.

        Examples
        --------
        >>> from kws_edge import KeywordModel
        >>> model = KeywordModel.load()
        >>> model.classify("kws_edge/samples/yes.flac", target=0.99).label
        'yes'
        >>> model.classify("kws_edge/samples/silence.flac").reason.value
        'silence'
        """
        score = score or self.metadata.score
        point = self.metadata.threshold(score, target)
        windows = cut(read_blocks(source, rate=rate, channel=channel), self.metadata.front_end)
        best: Prediction | None = None
        while batch := list(islice(windows, MAX_BATCH)):
            for p in self._decide(batch, score, point):
                if best is None or _rank(p) < _rank(best):
                    best = p
            progress(batch[-1].end)
        if best is None:
            name = os.fspath(source) if isinstance(source, str | os.PathLike) else "audio"
            raise AudioError(f"{name}: too short; expected {self.metadata.front_end.window} samples at 16 kHz or more")
        return best

    def classify_batch(
        self, samples: npt.ArrayLike, *, target: float = DEFAULT_TARGET, score: Score | None = None
    ) -> list[Prediction]:
        """Classify clips of equal length together.

        Parameters
        ----------
        samples : floating point [n, length], mono at 16 kHz, full scale ±1; a length of 1 s is 16,000, and 400 to
            20,879 are possible. Unlike a file, a clip with samples that are NaN, infinite or far beyond full scale
            does not stop the others: its answer is an abstention, with the reason "invalid_audio".
        target, score : as for `classify`.

        Returns
        -------
        One prediction per clip, in order; each is what `classify` says of that clip alone.

        Raises
        ------
        AudioError : another shape or type.
        SettingError : the model has no threshold for this score and target.

        Examples
        --------
        >>> import numpy as np
        >>> from kws_edge import KeywordModel
        >>> clips = np.zeros((3, 16000), np.float32)  # three seconds of silence, as three clips
        >>> [p.reason.value for p in KeywordModel.load().classify_batch(clips)]
        ['silence', 'silence', 'silence']
        """
        fe = self.metadata.front_end
        clips = np.asarray(samples)
        if clips.ndim != 2 or clips.dtype.kind != "f" or not fe.window <= clips.shape[1] <= fe.max_samples:
            raise AudioError(
                f"samples {clips.dtype} {list(clips.shape)}; expected floating point [n, {fe.window} to "
                f"{fe.max_samples}], mono at 16 kHz"
            )
        score = score or self.metadata.score
        point = self.metadata.threshold(score, target)
        predictions = []
        for i in range(0, len(clips), MAX_BATCH):
            predictions += self._decide([self._window(clip) for clip in clips[i : i + MAX_BATCH]], score, point)
        return predictions

    def _window(self, clip: npt.NDArray[Any]) -> Window:
        fe = self.metadata.front_end
        try:
            samples = load(clip, SAMPLE_RATE).samples
        except AudioError:
            return Window(0.0, len(clip) / SAMPLE_RATE, np.empty((0, fe.n_mfcc), np.float32), None)
        return whole(samples, mfcc(samples, fe))

    def _decide(self, windows: Sequence[Window], score: Score, point: OperatingPoint) -> list[Prediction]:
        """Run the windows that there is something to hear in; accept or withhold each answer."""
        n, K = len(windows), len(self.labels)
        no_evidence = evidence.alpha(np.full(K, -evidence.LOGIT_LIMIT, np.float32), get_variant(self.metadata.variant))
        labels, alpha = np.zeros(n, np.int64), np.tile(no_evidence, (n, 1))
        uncertainty: dict[Score, F32] = {"entropy": np.ones(n, np.float32), "vacuity": np.ones(n, np.float32)}
        unheard = [_why_unheard(window) for window in windows]
        heard = [i for i in range(n) if unheard[i] is None]
        if heard:
            outputs = self.run(np.stack([pad(windows[i].frames, self.metadata.front_end) for i in heard]))
            labels[heard], alpha[heard] = outputs.labels, outputs.alpha
            uncertainty["entropy"][heard], uncertainty["vacuity"][heard] = outputs.entropy, outputs.vacuity
        probability = evidence.probability(alpha)
        uncertain = withheld(uncertainty[score], point.threshold)
        predictions = []
        for i, window in enumerate(windows):
            guess = self.labels[labels[i]] if unheard[i] is None else None
            reason = unheard[i]
            if reason is None and uncertain[i]:
                reason = Reason.CLIPPED if window.level and window.level.is_clipped else Reason.UNCERTAIN
            elif guess is not None and not is_word(guess):
                reason = Reason.SILENCE if guess == SILENCE_CLASS else Reason.UNKNOWN_WORD
            predictions.append(
                Prediction(
                    label=guess if reason is None else None,
                    guess=guess,
                    probability=float(probability[i, labels[i]]),
                    alpha=alpha[i],
                    vacuity=float(uncertainty["vacuity"][i]),
                    entropy=float(uncertainty["entropy"][i]),
                    reason=reason,
                    start=window.start,
                    end=window.end,
                    score=score,
                    threshold=point.threshold,
                    target=point.target,
                    model=self.name,
                )
            )
        return predictions

    def _open(self) -> ort.InferenceSession:
        try:
            return open_session(self._data, self._provider, self._threads)
        except Exception as e:  # its errors have no class in common
            raise ModelError(
                f"{self._path}: onnxruntime {ort.__version__} cannot load it: {_reason(e)}; expected an ONNX file of "
                "kws-export, or a newer onnxruntime"
            ) from None

    def _after_fork(self) -> None:
        """In the child: the threads of the session stayed in the parent, and freeing it would wait for them forever."""
        if self._threads > 1:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))  # so that it is never freed
            self._session = self._open()

    def _read_metadata(self) -> Metadata:
        try:
            text = self._session.get_modelmeta().custom_metadata_map.get(KEY)
        except UnicodeDecodeError:
            raise ModelError(f"{self._path}: its metadata are not UTF-8; expected a sound model") from None
        if text is None:
            raise ModelError(f"{self._path}: no metadata under {KEY!r}; expected a model exported by kws-export")
        try:
            return Metadata.from_json(text)
        except ModelError as e:
            raise ModelError(f"{self._path}: {e}") from None

    def _check_graph(self) -> None:
        """Refuse metadata that disagree with the graph, or a graph that does not keep the contract."""
        fe, K = self.metadata.front_end, len(self.labels)
        if fe.sample_rate != SAMPLE_RATE:
            raise ModelError(f"{self._path}: made for {fe.sample_rate} Hz; expected {SAMPLE_RATE} Hz")
        found = [_describe(node) for node in self._session.get_inputs()]
        expected = [f"mfcc tensor(float) [*, {fe.n_mfcc}, {fe.frames}]"]
        if found != expected:
            for suffix, what in _OTHER_FORMS.items():
                if self._path.name.endswith(suffix):
                    own = f"{self._path.name.removesuffix(suffix)}.onnx"
                    raise ModelError(f"{self._path}: the form of {own} {what}; expected {self._path.with_name(own)}")
            self._refuse("inputs", found, expected)
        found = [_describe(node) for node in self._session.get_outputs()]
        expected = ["class tensor(int64) [*]", f"alpha tensor(float) [*, {K}]"]
        expected += ["vacuity tensor(float) [*]", "entropy tensor(float) [*]"]
        if sorted(found) != sorted(expected):
            self._refuse(f"outputs for {K} labels", found, expected)

    def _refuse(self, what: str, found: object, expected: object) -> None:
        raise ModelError(f"{self._path}: {what}: the graph has {found}; expected {expected} by its metadata")


_models: "weakref.WeakSet[KeywordModel]" = weakref.WeakSet()


def _after_fork() -> None:
    for model in _models:
        model._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _rank(p: Prediction) -> tuple[bool, bool, float]:
    """The order in which a long recording's windows answer for it: a word, what the network heard, the rest."""
    return p.label is None, p.guess is None, p.uncertainty


def _why_unheard(window: Window) -> Reason | None:
    if window.level is None:
        return Reason.INVALID_AUDIO
    return Reason.SILENCE if window.level.is_silent else None


def _find(model: str | os.PathLike[str] | None) -> Path:
    """The file that `KeywordModel.load` means."""
    name = DEFAULT_MODEL if model is None else model
    if not isinstance(name, str) or name.endswith(".onnx") or Path(name).name != name:
        return Path(name)
    shipped = shipped_models()
    if name not in shipped:
        names = ", ".join(shipped) or f"none in {MODELS}"
        raise SettingError(f"no shipped model {name!r}; expected one of: {names}; or a path to an .onnx file")
    return shipped[name]


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as e:
        raise ModelError(f"{path}: {getattr(e, 'strerror', None) or e}; expected an ONNX file") from None
    if not data:
        raise ModelError(f"{path}: 0 bytes; expected an ONNX file")
    return data


def _reason(error: Exception) -> str:
    """Why onnxruntime refuses a file, in one line."""
    for what, pattern in _TOO_NEW.items():
        if numbers := re.search(pattern, str(error)):
            return f"found {what} {numbers[1]}, supported up to {numbers[2]}"
    return " ".join(re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error)).split()).rstrip(".")


def _describe(node: Any) -> str:
    """An input or output in words, with * for a dimension that is free."""
    return f"{node.name} {node.type} [{', '.join(str(d) if isinstance(d, int) else '*' for d in node.shape)}]"

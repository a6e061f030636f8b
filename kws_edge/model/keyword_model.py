"""A model as users have it: load it, classify clips, run features.

model = KeywordModel.load()
p = model.classify("clip.wav")
print(f"not sure: {p.reason}" if p.abstained else p.label)
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32
from kws_edge.audio.channels import Channel
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load, read_blocks
from kws_edge.audio.opened import Source
from kws_edge.errors import AudioError, ModelError, SettingError
from kws_edge.model.answers import answers
from kws_edge.model.clips import Window, cut, whole
from kws_edge.model.features import mfcc
from kws_edge.model.metadata import Metadata, is_searched
from kws_edge.model.prediction import Prediction
from kws_edge.model.score import Score
from kws_edge.model.search import beginning, search, whole_of
from kws_edge.model.selection import DEFAULT_TARGET, OperatingPoint
from kws_edge.model.session import MAX_BATCH, Outputs, Session
from kws_edge.model.shipped import find_model
from kws_edge.model.target import Target
from kws_edge.text import shown


class KeywordModel:
    """A loaded model, made by `load`. It can be shared between threads, and still works after a fork.

    Pickled, as for a process that is not forked, it is loaded again from its file, which must still be the same. Do not
    fork while another thread decodes a file: a lock that libsndfile's wrapper holds then is never released.

    Attributes
    ----------
    metadata : the model's description, from its file.
    provider : the execution provider that runs, such as "cpu".

    Examples
    --------
    >>> from kws_edge import KeywordModel
    >>> model = KeywordModel.load()
    >>> model
    <KeywordModel stream: 20 labels, belief_ce, on cpu>
    >>> model.name, model.provider, len(model.labels)
    ('stream', 'cpu', 20)
    """

    def __init__(self, session: Session) -> None:
        """`load` makes one."""
        if not isinstance(session, Session):
            raise SettingError(f"a KeywordModel of {shown(session)}; expected KeywordModel.load(name or path)")
        self._session = session

    def __repr__(self) -> str:
        """Its name, how many labels it has, its variant and what runs it."""
        about = f"{len(self.labels)} labels, {self.metadata.variant}, on {self.provider}"
        return f"<KeywordModel {self.name}: {about}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """What loads it again."""
        return _load_again, (self._session.file, self._session.asked, self.metadata)

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        provider: str = "cpu",
        strict: bool = False,
        threads: int = 1,
    ) -> "KeywordModel":
        """Load a model, and check that its graph agrees with its metadata.

        Parameters
        ----------
        model : None for "stream", the name of another shipped model, or a path: a text that ends in .onnx or has a
            separator in it. The file is not needed after loading, except to pickle the model; the step form beside
            it, NAME.step.onnx, is read when the first stream begins.
        provider : the execution provider: "cpu", or one that another build of onnxruntime has, such as "cuda".
        strict : fail if the provider is unavailable, instead of warning and falling back to the CPU.
        threads : threads of one inference. The networks are so small that more than one seldom helps.

        Raises
        ------
        ModelError : the file is missing, empty, not ONNX, too new for this onnxruntime or without metadata, or its
            metadata are malformed or disagree with its graph. The message gives what was found and what is supported.
        ProviderError : strict, and the provider is unavailable.
        SettingError : no shipped model or provider has that name, or threads are below 1 or above 1024.

        Examples
        --------
        >>> from kws_edge import KeywordModel
        >>> KeywordModel.load("softmax").metadata.variant
        'softmax'
        >>> KeywordModel.load("models/stream.onnx").name
        'stream'
        """
        return cls(Session(find_model(model), provider=provider, strict=strict, threads=threads))

    @property
    def metadata(self) -> Metadata:
        """The model's description, from its file."""
        return self._session.metadata

    @property
    def provider(self) -> str:
        """The execution provider that runs, such as "cpu"."""
        return self._session.provider

    @property
    def name(self) -> str:
        """The model's name."""
        return self.metadata.name

    @property
    def path(self) -> Path:
        """The file that it was loaded from."""
        return self._session.path

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of α."""
        return self.metadata.labels

    def run(self, features: F32) -> Outputs:
        """One forward pass.

        Parameters
        ----------
        features : float32 [b, n_mfcc, frames], b at least 1: MFCC of windows, such as [2, 64, 128].

        Raises
        ------
        SettingError : another shape or type, or features that are NaN or infinite.
        ModelError : the network fails, or its outputs are not finite.

        Examples
        --------
        >>> import numpy as np
        >>> from kws_edge import KeywordModel
        >>> outputs = KeywordModel.load().run(np.zeros((2, 64, 128), np.float32))
        >>> outputs.alpha.shape, outputs.entropy.dtype
        ((2, 20), dtype('float32'))
        """
        return self._session.run(features)

    def classify(
        self,
        source: Source,
        rate: int | None = None,
        *,
        target: Target = DEFAULT_TARGET,
        score: Score | None = None,
        channel: Channel | None = None,
        progress: Callable[[float], None] = lambda seconds: None,
    ) -> Prediction:
        """Name the word in a clip, or abstain.

        A clip of up to 1.3 s fits the network's input, is centred in it, and takes one pass. A longer one is searched
        in windows a tenth of a second apart, in bounded memory whatever its length, and decided on as in a stream: by
        the mean of several consecutive windows and, for targets from 0.995 on, also by the model's threshold for
        streams, if it has one. The answer is that of the least uncertain mean, and says where it is. The network is not
        run on silent windows. A model of `kws-edge enroll` searches clips of any length.

        Parameters
        ----------
        source, rate : a path, the bytes of a file, a seekable binary file, or an array [n] or [n, channels] of int16,
            int32, uint8 or floating point with its rate in Hz; a file says its own rate.
        target : accepted accuracy for which the threshold was chosen: 0.995, 99.5 or "99.5 %".
        score : "entropy" or "vacuity"; None for the model's choice.
        channel : one of several channels, from 1; "mix" for their average; None for the average where the channels do
            not cancel each other, else the strongest.
        progress : called now and then with the seconds of audio processed so far.

        Raises
        ------
        AudioError : the audio cannot be read, or is shorter than one frame (25 ms).
        SettingError : the model has no threshold for this score and target, samples have no rate, or the channel is
            impossible.

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
        fe = self.metadata.front_end
        blocks = iter(read_blocks(source, rate=rate, channel=channel))
        head, is_long = beginning(blocks, fe.max_samples)
        if sum(map(len, head)) < fe.window:
            name = os.fspath(source) if isinstance(source, str | os.PathLike) else "audio"
            raise AudioError(f"{name}: too short; expected {fe.window} samples at 16 kHz or more")
        if is_long or is_searched(self.metadata):
            return search(self.run, self.metadata, whole_of(head, blocks), score, point, progress)
        windows = list(cut(head, fe, fe.frames))
        progress(windows[0].end)
        return answers(self.run, self.metadata, windows, score, point)[0]

    def classify_batch(
        self, samples: npt.ArrayLike, *, target: Target = DEFAULT_TARGET, score: Score | None = None
    ) -> list[Prediction]:
        """Classify clips of equal length together.

        Parameters
        ----------
        samples : floating point [n, length], mono at 16 kHz, full scale ±1, with a length of 400 to 20,879. A clip with
            samples that are NaN, infinite or far beyond full scale does not stop the others: its answer is an
            abstention with the reason "invalid_audio".
        target, score : as for `classify`.

        Returns
        -------
        One prediction per clip, in order, the same as `classify` gives for that clip alone.

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
        try:
            clips = np.asarray(samples)
        except ValueError as e:
            raise AudioError(f"{e}; expected clips of equal length") from None
        if clips.ndim != 2 or clips.dtype.kind != "f" or not fe.fits(clips.shape[1]):
            raise AudioError(
                f"samples {clips.dtype} {list(clips.shape)}; expected floating point [n, {fe.window} to "
                f"{fe.max_samples}], mono at 16 kHz"
            )
        score = score or self.metadata.score
        point = self.metadata.threshold(score, target)
        if is_searched(self.metadata):
            return [self._searched(clip, score, point) for clip in clips]
        predictions = []
        for i in range(0, len(clips), MAX_BATCH):
            predictions += answers(
                self.run, self.metadata, [self._window(clip) for clip in clips[i : i + MAX_BATCH]], score, point
            )
        return predictions

    def _searched(self, clip: npt.NDArray[Any], score: Score, point: OperatingPoint) -> Prediction:
        try:
            samples = load(clip, SAMPLE_RATE).samples
        except AudioError:
            return answers(self.run, self.metadata, [self._window(clip)], score, point)[0]
        return search(self.run, self.metadata, [samples], score, point)

    def _window(self, clip: npt.NDArray[Any]) -> Window:
        fe = self.metadata.front_end
        try:
            samples = load(clip, SAMPLE_RATE).samples
        except AudioError:
            return Window(0.0, len(clip) / SAMPLE_RATE, np.empty((0, fe.n_mfcc), np.float32), None)
        return whole(samples, mfcc(samples, fe))


def _load_again(file: Path, asked: dict[str, Any], metadata: Metadata) -> KeywordModel:
    """A model that was pickled. Raises ModelError where its file is another by now, and what `load` does."""
    model = KeywordModel.load(file, **asked)
    if model.metadata != metadata:
        raise ModelError(f"{file}: another model than the one that was pickled; expected the file unchanged")
    return model

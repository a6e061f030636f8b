"""openWakeWord: one embedding network for all words and a small one for each, on ONNX Runtime or TensorFlow Lite.

As its README advises: 80 ms at a time, one thread, no noise suppression, no voice detector, the threshold of 0.5. Of
the models that come with it, those of one word are used; for more words they are loaded again under other names.
"""

import tempfile
from itertools import cycle, islice
from pathlib import Path

from harness import serve

WORDS = ("hey_jarvis", "alexa", "hey_mycroft", "hey_rhasspy")


class OpenWakeWord:
    chunk = 1280
    rested = 0
    threshold = 0.5
    score = 0.0

    def __init__(self, words: int, framework: str) -> None:
        import numpy as np
        import openwakeword
        from openwakeword.model import Model

        self._np = np
        folder = Path(openwakeword.__file__).parent / "resources" / "models"
        with tempfile.TemporaryDirectory() as names:
            paths = []
            for i, word in enumerate(islice(cycle(WORDS), words)):
                path = Path(names, f"{word}_{i}.{framework}")  # models are told apart by their files' names
                path.symlink_to(folder / f"{word}_v0.1.{framework}")
                paths.append(str(path))
            self._model = Model(wakeword_models=paths, inference_framework=framework)

    def step(self, pcm: bytes) -> bool:
        scores = self._model.predict(self._np.frombuffer(pcm, self._np.int16))
        self.score = float(max(scores.values()))
        return self.score > self.threshold


if __name__ == "__main__":
    serve(OpenWakeWord)

"""pyopen-wakeword: openWakeWord's networks on TensorFlow Lite, without its dependencies.

It works in steps of 80 ms, and moves its buffers at every call: 80 ms at a time is the cheapest. For more words than
come with it, models are loaded again.
"""

from itertools import cycle, islice

from harness import serve


class PyOpen:
    chunk = 1280
    rested = 0

    def __init__(self, words: int) -> None:
        from pyopen_wakeword import Model, OpenWakeWord, OpenWakeWordFeatures

        names = (Model.HEY_JARVIS, Model.ALEXA, Model.HEY_MYCROFT, Model.HEY_RHASSPY)
        self._features = OpenWakeWordFeatures.from_builtin()
        self._models = [OpenWakeWord.from_builtin(name) for name in islice(cycle(names), words)]

    def step(self, pcm: bytes) -> bool:
        found = False
        for features in self._features.process_streaming(pcm):
            for model in self._models:
                for probability in model.process_streaming(features):
                    found |= probability > 0.5
        return found


if __name__ == "__main__":
    serve(PyOpen)

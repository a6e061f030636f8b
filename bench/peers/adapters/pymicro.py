"""pymicro-wakeword: int8 models on TensorFlow Lite, one for each word, which share the features.

As its README shows it: 10 ms at a time (the network runs on every third). Four models come with it; for more words they
are loaded again, each with an interpreter and a state of its own, since a model that is not there would cost the same.
"""

from itertools import cycle, islice

from harness import serve


class PyMicro:
    chunk = 160
    rested = 0
    score = 0.0

    def __init__(self, words: int) -> None:
        from pymicro_wakeword import MicroWakeWord, MicroWakeWordFeatures, Model

        names = (Model.HEY_JARVIS, Model.OKAY_NABU, Model.ALEXA, Model.HEY_MYCROFT)
        self._features = MicroWakeWordFeatures()
        self._models = [MicroWakeWord.from_builtin(name) for name in islice(cycle(names), words)]
        self.threshold = self._models[0].probability_cutoff

    def step(self, pcm: bytes) -> bool:
        found, self.score = False, 0.0
        for features in self._features.process_streaming(pcm):
            for model in self._models:
                score = model.process_streaming_prob(features) or 0.0
                found |= score > model.probability_cutoff
                self.score = max(self.score, score)
        return found


if __name__ == "__main__":
    serve(PyMicro)

"""kws-edge: a Spotter, with its own settings and every word of its model."""

from harness import serve


class KwsEdge:
    def __init__(self, model: str, hop: float) -> None:
        from kws_edge import KeywordModel, Spotter, State

        self._spotter = Spotter(KeywordModel.load(model), hop=hop)
        self._listening = State.LISTENING
        self.chunk = round(hop * 16_000)
        self.rested = 0

    def step(self, pcm: bytes) -> bool:
        events = self._spotter.push(pcm)
        self.rested += self._spotter.state is not self._listening
        return any(event.label for event in events)


if __name__ == "__main__":
    serve(KwsEdge)

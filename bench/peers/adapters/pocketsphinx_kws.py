"""pocketsphinx in keyword mode: an HMM, whose cost is nearly all in its acoustic model and the same for any words.

As its README shows it: 2048 bytes at a time, no language model. `downsample` and `top_n` trade accuracy for speed by
its own settings ds (every how manieth frame is scored) and topn (Gaussians for each): 1 and 4 unless set.
"""

import tempfile

from harness import serve


class PocketSphinx:
    chunk = 1024
    rested = 0

    def __init__(self, words: dict[str, float], downsample: int = 1, top_n: int = 4) -> None:
        from pocketsphinx import Decoder

        with tempfile.NamedTemporaryFile("w", suffix=".list") as phrases:
            phrases.writelines(f"{word} /{threshold:g}/\n" for word, threshold in words.items())
            phrases.flush()
            self._decoder = Decoder(lm=None, kws=phrases.name, ds=downsample, topn=top_n, loglevel="FATAL")
        self._decoder.start_utt()

    def step(self, pcm: bytes) -> bool:
        self._decoder.process_raw(pcm, False, False)
        if self._decoder.hyp() is None:
            return False
        self._decoder.end_utt()  # what was found stays found until the search is started again
        self._decoder.start_utt()
        return True


if __name__ == "__main__":
    serve(PocketSphinx)

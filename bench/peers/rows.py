"""What is compared: each row a peer, how it is set up, and a word of its own by which to check that it works."""

from dataclasses import dataclass, field
from typing import Any

from environments import KWS_EDGE

TWENTY = (
    *("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go"),
    *("zero", "one", "two", "three", "four", "five", "eight", "bed", "cat", "happy"),
)


@dataclass(frozen=True, slots=True)
class PeerRow:
    """A line of the table.

    Attributes
    ----------
    name : of the row.
    environment : where it runs, a name in `environments.REQUIREMENTS`.
    adapter : the script, in adapters/.
    words : how many it listens for.
    word : one of them that there are recordings of.
    recordings : how many it is checked with, of that word and of another.
    options : what the adapter's class takes.
    """

    name: str
    environment: str
    adapter: str
    words: int
    word: str
    options: dict[str, Any] = field(default_factory=dict)
    recordings: int = 20


def kws_edge(model: str, hop: float) -> PeerRow:
    """A Spotter with a model, by its name or path, at a hop in seconds."""
    options = {"model": model, "hop": hop}
    return PeerRow(f"{KWS_EDGE} {model}, hop {hop:g} s", KWS_EDGE, "kws_edge_spotter", 20, "happy", options)


def _peer(
    name: str, adapter: str, words: int, environment: str | None = None, recordings: int = 20, **options: Any
) -> PeerRow:
    title = f"{name}, {words} word{'s' * (words > 1)}"
    return PeerRow(
        title, environment or name.partition(" ")[0], adapter, words, "jarvis", {"words": words, **options}, recordings
    )


def _pocketsphinx(note: str = "", **options: Any) -> PeerRow:
    # Thresholds by the rule of its tutorial: 1e-1 for a short phrase, less the longer it is.
    return PeerRow(
        f"pocketsphinx{note}, 1 word",
        "pocketsphinx",
        "pocketsphinx_kws",
        1,
        "jarvis",
        {"words": {"jarvis": 1e-20}, **options},
    )


PEERS = (
    # It hears "hey jarvis" in a few of a hundred recordings of "jarvis".
    _peer("pymicro-wakeword", "pymicro", 1, recordings=200),
    _peer("pymicro-wakeword", "pymicro", 20, recordings=50),
    _peer("openwakeword (ONNX)", "openwakeword_model", 1, framework="onnx"),
    _peer("openwakeword (ONNX)", "openwakeword_model", 20, framework="onnx"),
    _peer("openwakeword (TFLite)", "openwakeword_model", 1, "openwakeword-tflite", framework="tflite"),
    _peer("pyopen-wakeword", "pyopen", 1),
    _peer("pyopen-wakeword", "pyopen", 20),
    _pocketsphinx(),
    _pocketsphinx(", ds 2, topn 2", downsample=2, top_n=2),
    PeerRow(
        "pocketsphinx, 20 words",
        "pocketsphinx",
        "pocketsphinx_kws",
        20,
        "happy",
        {"words": dict.fromkeys(TWENTY, 1e-1)},
    ),
)

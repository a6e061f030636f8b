"""Build and read the messages of a stream; sending is up to the two clients."""

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Final

from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.sources import Block
from kws_edge.client.checked import from_json, number, printable
from kws_edge.client.errors import another_version, error_of
from kws_edge.errors import SettingError
from kws_edge.model.target import Target
from kws_edge.stream.events import Event
from kws_edge.stream.framing import check_gap
from kws_edge.stream.spotter import as_samples
from kws_edge.stream.state import Snapshot
from kws_edge.stream.wake import Wake
from kws_edge.text import shown

FINISH: Final = json.dumps({"type": "finish"})
END: Final = object()
_MOST_LOST: Final = 3600 * SAMPLE_RATE
_SOURCE: Final = "one that gives Block, as WavFile(path) or Microphone()"

_log = logging.getLogger("kws_edge.client")


@dataclass(frozen=True, slots=True)
class Hello:
    """What a server says of a stream before it begins.

    Attributes
    ----------
    version : of kws-edge there.
    model, labels, words : its name, all that it knows, and those that give events.
    hop : seconds from one to the next.
    thresholds : score → the highest uncertainty that is accepted.
    max_message : bytes that one message to the server may have.

    Examples
    --------
    >>> from kws_edge import WavFile
    >>> from kws_edge.client import Client
    >>> seen = []
    >>> with Client("http://127.0.0.1:8765") as client:
    ...     events = list(client.listen(WavFile("kws_edge/samples/yes.flac"), watch=seen.append))
    >>> seen[0].model, seen[0].hop
    ('stream', 0.1)
    """

    version: str
    model: str
    labels: tuple[str, ...]
    words: tuple[str, ...]
    hop: float
    thresholds: Mapping[str, float]
    max_message: int


def parameters(
    model: str | None,
    words: Collection[str] | None,
    hop: float | None,
    score: str | None,
    target: Target | None,
    abstentions: str | None,
    wake: Collection[str] | Wake | None,
    wake_model: str | None,
    wake_seconds: float | None,
    *,
    posteriors: bool,
) -> dict[str, Any]:
    """The query of a stream; what is None is left to the server. Raises SettingError for what no query can say."""
    wake, wake_seconds = _waking(wake, wake_model, wake_seconds)
    return {
        "model": model,
        "words": _listed("words", words),
        "hop": hop,
        "score": score,
        "target": target,
        "abstentions": abstentions,
        "wake": _listed("wake", wake),
        "wake_model": wake_model,
        "wake_seconds": wake_seconds,
        "posteriors": "true" if posteriors else None,
        "rate": SAMPLE_RATE,
    }


def check_source(source: object, *kinds: type) -> None:
    """Raise a SettingError where a source is of no kind that can be iterated."""
    if not isinstance(source, kinds):
        raise SettingError(f"a source of type {type(source).__name__}; expected {_SOURCE}")


def messages(block: Block, hello: Hello) -> Iterator[bytes | str]:
    """What a block is on the wire, in messages of up to a second that the server takes.

    Raises SettingError where a source gave something else, or an impossible loss; AudioError as `Spotter.push`.
    """
    if not isinstance(block, Block):
        raise SettingError(f"a source that gives {type(block).__name__}; expected {_SOURCE}")
    yield from _gaps(block.dropped)
    samples = as_samples(block.samples)
    size = max(1, min(SAMPLE_RATE, hello.max_message // 4))
    for i in range(0, len(samples), size):
        yield samples[i : i + size].astype("<f4").tobytes()


def _gaps(samples: int) -> Iterator[str]:
    """A loss of so many samples, in messages of the most that a server takes for one."""
    check_gap(samples)
    for start in range(0, int(samples), _MOST_LOST):
        yield json.dumps({"type": "gap", "samples": min(_MOST_LOST, int(samples) - start)})


def event_of(message: object, watch: Callable[[Hello | Snapshot], None] | None) -> Event | None:
    """What a message of a running stream gives whoever listens; a hop goes to whoever watches."""
    if watch and isinstance(message, Snapshot):
        watch(message)
    return message if isinstance(message, Event) else None


def close(source: object) -> None:
    """Close a source that can be, in the thread that reads it, too, where that is done.

    While a thread is inside of a generator nobody else can close it: then it is left to that thread.
    """
    close = getattr(source, "close", None)
    try:
        if close:
            close()
    except ValueError as error:
        if not (isinstance(source, GeneratorType) and str(error) == "generator already executing"):
            raise


async def aclose(source: object) -> None:
    """The same for one that may be asynchronous; another task that is inside of a generator has to close it."""
    close_it = getattr(source, "aclose", None)
    if close_it is None:
        close(source)
        return
    try:
        await close_it()
    except RuntimeError as error:
        if not (isinstance(source, AsyncGeneratorType) and str(error).endswith("is already running")):
            raise


def leave(source: object) -> None:
    """Close a generator, in the thread that was inside of it; any other source is closed by who listens, even then."""
    if isinstance(source, GeneratorType):
        close(source)


def read(sent: str | bytes, labels: int | None = None) -> Any:
    """A message of a stream: a Hello, a Snapshot, an Event or `END`; None for what a later version may send.

    Its model has so many labels, where that is known.

    Raises
    ------
    AudioError, SettingError, ServerError : it is an error, or cannot be understood.
    """
    try:
        message = printable(json.loads(sent))
        match message["type"]:
            case "hello":
                return from_json(Hello, message)
            case "hop":
                snapshot = from_json(Snapshot, message)
                if labels is not None and len(snapshot.probability) != labels:
                    raise ValueError(f"{len(snapshot.probability)} probabilities of {labels} labels")
                return snapshot
            case "event":
                return from_json(Event, message)
            case "end":
                return END
            case "slow":
                _log.warning("the server is %.1f s behind", number(message["lag"]))
                return None
            case "error":
                after = message.get("retry_after")
                error = error_of(message["problem"], None if after is None else number(after))
            case _:
                return None
    except (KeyError, TypeError, ValueError, RecursionError) as e:
        raise another_version(e) from None
    raise error


def hello(sent: str | bytes) -> Hello:
    """The first message of a stream; errors are those of `read`."""
    message = read(sent)
    if not isinstance(message, Hello):
        raise another_version(ValueError("no hello"))
    return message


def _waking(
    wake: Collection[str] | Wake | None, model: str | None, seconds: float | None
) -> tuple[Collection[str] | None, float | None]:
    """The wake words and their seconds, where they are given as for a Spotter too.

    Raises SettingError for a Wake with what is not sent, or without what only a local model could say.
    """
    if wake is None and model is None and seconds is not None:
        raise SettingError("wake_seconds without a wake word; expected wake or wake_model beside it")
    if not isinstance(wake, Wake):
        return wake, seconds
    if wake.model is not None:
        raise SettingError("a Wake with a model of its own; expected the name of a served one, as wake_model")
    if wake.settings is not None:
        raise SettingError("a Wake with settings; expected none: on a server the model's own count")
    if seconds is not None:
        raise SettingError("wake_seconds beside a Wake; expected Wake(words, seconds) alone")
    if wake.words is None and model is None:
        raise SettingError("a Wake without words; expected some, or the model that knows them, as wake_model")
    return wake.words, wake.seconds


def _listed(name: str, words: Collection[str] | None) -> str | None:
    if words is None:
        return None
    if isinstance(words, str) or not isinstance(words, Collection) or not all(isinstance(word, str) for word in words):
        example = shown(words if isinstance(words, str) else "yes")
        raise SettingError(f"{name}={shown(words)}; expected a set or a list of words, such as {{{example}}}")
    if joined := [word for word in words if "," in word]:
        raise SettingError(f"{name}: {shown(joined[0])}; expected words one by one, without a comma")
    return ",".join(words)

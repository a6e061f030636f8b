"""Fair scheduling: the client that has used least of the threads' time is next."""

from collections import deque
from typing import Generic, Protocol, TypeVar


class Owned(Protocol):
    """What is done for somebody."""

    @property
    def client(self) -> str:
        """For whom."""
        ...


T = TypeVar("T", bound=Owned)


class FairQueue(Generic[T]):
    """A queue for each client; of those that have something waiting, the one that had least time so far is next.

    Start-time fair queueing (Goyal, Vin and Cheng, 1996): a client that comes anew begins where the others are, and so
    can neither save up time nor has to pay for what it had long ago.
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        self._queues: dict[str, deque[T]] = {}
        self._spent: dict[str, float] = {}
        self._clock = 0.0

    def __len__(self) -> int:
        """How much waits."""
        return sum(map(len, self._queues.values()))

    def of(self, client: str) -> int:
        """How much of one client waits."""
        return len(self._queues.get(client, ()))

    def append(self, item: T) -> None:
        """Let something wait behind all else of its client."""
        if item.client not in self._queues:
            self._queues[item.client] = deque()
            self._spent[item.client] = max(self._spent.get(item.client, 0.0), self._clock)
        self._queues[item.client].append(item)

    def put_back(self, item: T) -> None:
        """Let something that was taken, and was not begun, wait again before all else of its client."""
        self.append(item)
        self._queues[item.client].rotate(1)

    def pop(self, expected: float) -> T:
        """Take what is next; it will take about so many seconds, which `charge` corrects."""
        client = min(self._queues, key=self._spent.__getitem__)
        self._clock = self._spent[client]
        item = self._queues[client].popleft()
        self._spent[client] += expected
        if not self._queues[client]:
            del self._queues[client]
        return item

    def charge(self, client: str, seconds: float) -> None:
        """A client had so much more than was expected, or less where it is below 0."""
        self._spent[client] = self._spent.get(client, self._clock) + seconds
        for other in [c for c, spent in self._spent.items() if c not in self._queues and spent <= self._clock]:
            del self._spent[other]

"""A sweep on the machines of a Ray cluster: one actor a run, and its files back in the run's folder at every epoch.

The leading process keeps all that lasts. An actor gets the run's files as they are, trains one epoch at a call, and
gives the files back; they are in the run's folder before the next epoch starts. So a lost machine costs the epoch
that it was in, a killed leader too, and no machine needs a folder in common with another.

What each machine must hold: Python, Ray and PyTorch in the leader's versions, with the packages that kws-export needs;
and the data, under the leader's absolute path. The code of kws_edge and kws_export goes along.

Actors and not generator tasks, which would stream the epochs, because those do not work through ray:// addresses.
"""

import hashlib
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from kws_edge.errors import KwsEdgeError, SettingError, missing_package
from kws_edge.files import PARTIAL, replace_file
from kws_export.training.recipe import Recipe
from kws_export.training.sweep import SweepRun, SweepSettings, Watcher, claim, in_one_line, trainer_of

if TYPE_CHECKING:
    from kws_export.training.run_folder import EpochResult

MAX_LOSSES = 3
"""So many times in a row may a run lose its machine without an epoch between; one more, and it has failed."""

Files = dict[str, bytes]
"""A run's folder: file name → content."""


def train_on_ray(
    runs: Sequence[SweepRun], settings: SweepSettings, address: str, workers: int | None, watcher: Watcher
) -> None:
    """Train on a Ray cluster; Ray decides how many runs at once, by `settings.threads` CPUs each.

    Parameters
    ----------
    settings : its paths are taken as absolute ones, on every machine. Device cuda takes a GPU for each run, auto none.
    address : what ray.init takes, such as auto or ray://HOST:10001; or local for a cluster of this machine that ends
        with the call.
    workers : runs at once, for the address local; None for as many as the processors allow.

    Raises
    ------
    DependencyError : Ray is not installed.
    SettingError : there is no such cluster; the recipe starts or learns from a file that only this machine has.
    """
    if not runs:
        return
    recipe = runs[0].recipe
    for what, name in (("starts", recipe.start), *(("learns", name) for name in recipe.distillation.teachers)):
        if name and not Path(name).is_absolute():
            raise SettingError(
                f"the recipe {what} from {name}; through Ray, name an absolute path that all machines hold"
            )
    device = "cuda" if settings.device == "cuda" else "cpu"
    negatives = tuple(os.path.abspath(pattern) for pattern in settings.negatives)
    settings = replace(
        settings,
        data=settings.data.absolute(), cache=settings.cache.absolute(), device=device, negatives=negatives,
    )  # fmt: skip
    with redirect_stdout(sys.stderr):  # Ray says on standard output what happens to its machines
        _train(runs, settings, address, None if workers is None else workers * settings.threads, watcher)


def _train(runs: Sequence[SweepRun], settings: SweepSettings, address: str, cpus: int | None, watcher: Watcher) -> None:
    ray = _connected(address, cpus)
    try:
        kind = ray.remote(num_cpus=settings.threads, num_gpus=1 if settings.device == "cuda" else 0)(Trainee)
        Leader(ray, kind, settings, watcher).lead(runs)
    finally:
        ray.shutdown()  # ends the actors, and a local cluster


def _connected(address: str, cpus: int | None) -> ModuleType:
    """Ray, connected to the cluster or with one started here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a local cluster would report its use to Ray's makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else a warning about a default to come
    try:
        import ray
    except ImportError:
        raise missing_package("a sweep on several machines", "ray", "ray", project="./export") from None
    import kws_edge
    import kws_export

    code = [str(Path(str(package.__file__)).parent) for package in (kws_edge, kws_export)]
    new: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False} if address == "local" else {}
    try:
        ray.init(
            address, runtime_env={"py_modules": code}, log_to_driver=False, logging_level=logging.ERROR, **new
        )  # fmt: skip
    except Exception as error:  # Ray raises many kinds: ConnectionError, RuntimeError, ValueError, AssertionError
        raise SettingError(f"cannot use the Ray cluster {address!r}: {in_one_line(error)}") from None
    return ray


@dataclass(slots=True)
class _Seat:
    """A run and the actor that trains it."""

    run: SweepRun
    log: IO[str]
    actor: Any = None
    losses: int = 0


@dataclass(slots=True)
class Leader:
    """Keeps the actors at work and what they make.

    Attributes
    ----------
    ray : the module, connected to a cluster.
    kind : Trainee as an actor class of Ray's.
    """

    ray: Any
    kind: Any
    settings: SweepSettings
    watcher: Watcher
    clips: dict[str, str] = field(default_factory=dict)  # the first actor's digest, and where it was

    def lead(self, runs: Sequence[SweepRun]) -> None:
        """Train them all, as train_on_ray says."""
        pending: dict[Any, _Seat] = {}  # what each actor is at now
        for run in runs:  # all at once: Ray starts them in this order, and a cluster that grows sees what is asked
            try:
                seat = _Seat(run, claim(run))
            except SettingError as error:
                self.watcher.failed(run, str(error))
            else:
                pending[self._seated(seat)] = seat
        while pending:
            (reference,), _ = self.ray.wait(list(pending), num_returns=1)
            seat = pending.pop(reference)
            if (following := self._after(reference, seat)) is None:
                seat.actor = None  # Ray ends an actor that nobody holds
                seat.log.close()
            else:
                pending[following] = seat

    def _seated(self, seat: _Seat) -> Any:
        """Ask for an actor; what it is at from the time it has a machine."""
        seat.actor = self.kind.remote()
        return seat.actor.begin.remote(seat.run.recipe, self.settings, _read(seat.run.folder))

    def _after(self, reference: Any, seat: _Seat) -> Any:
        """Take in what an actor has done, and set it to work again: what it is at, or None where the run has ended."""
        ray, run = self.ray, seat.run
        try:
            answer = ray.get(reference)
            if isinstance(answer, Begun):
                self.check(answer)
                self.watcher.started(run, answer.epoch, answer.where)
            else:
                result, files = answer
                _write(run.folder, files)
                if result is None:
                    self.watcher.finished(run)
                    return None
                seat.losses = 0
                self.watcher.trained(run, result)
            return seat.actor.train_epoch.remote()
        except ray.exceptions.RayTaskError as error:
            seat.log.write(f"{error}\n")
            self.watcher.failed(run, in_one_line(error.cause))
        except ray.exceptions.RayError as error:  # the machine, the process or the object has gone
            seat.losses += 1
            seat.log.write(f"{in_one_line(error)}\n")
            if seat.losses <= MAX_LOSSES:
                return self._seated(seat)
            self.watcher.failed(run, f"lost its machine {seat.losses} times in a row: {in_one_line(error)}")
        except (KwsEdgeError, OSError) as error:
            self.watcher.failed(run, in_one_line(error))
        return None

    def check(self, begun: "Begun") -> None:
        """Raise SettingError where a run would be on other clips than the first: the two could not be compared."""
        if not self.clips:
            self.clips[begun.clips] = begun.where
        elif begun.clips not in self.clips:
            first = next(iter(self.clips.values()))
            raise SettingError(f"other training clips in {self.settings.data} for {begun.where} than for {first}")


@dataclass(frozen=True, slots=True)
class Begun:
    """What an actor says before its first epoch.

    Attributes
    ----------
    epoch : the whole epochs that it starts from.
    where : process and machine.
    clips : a digest of the training clips' names.
    """

    epoch: int
    where: str
    clips: str


class Trainee:
    """The actor: one run on one machine of the cluster."""

    def begin(self, recipe: Recipe, settings: SweepSettings, files: Files) -> Begun:
        """Take a run up from its files. Raises SettingError where the run or this machine's data cannot be used."""
        self.scratch = tempfile.TemporaryDirectory(prefix="kws-export-")
        folder = Path(self.scratch.name)
        _write(folder, files)
        host = socket.gethostname()
        try:
            self.trainer = trainer_of(SweepRun(recipe, folder), settings)
        except (KwsEdgeError, OSError) as error:
            raise SettingError(f"on {host}: {in_one_line(error)}") from error
        names = "\n".join(self.trainer.data.train.names)
        where = f"process {os.getpid()} on {host}"
        return Begun(self.trainer.epoch, where, hashlib.sha256(names.encode()).hexdigest())

    def train_epoch(self) -> tuple["EpochResult | None", Files]:
        """One epoch's result, None where there was none left to train, and the run's files after it."""
        results: list[EpochResult] = []

        def pause(result: "EpochResult") -> None:
            results.append(result)
            raise _Pause

        try:
            self.trainer.run(lambda step, steps, loss: None, pause)
        except _Pause:
            return results[0], _read(self.trainer.run_folder.path)
        files = _read(self.trainer.run_folder.path)
        self.scratch.cleanup()
        return None, files


class _Pause(Exception):  # noqa: N818
    """An epoch's checkpoint is written; the next is for another call."""


def _read(folder: Path) -> Files:
    if not folder.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix != PARTIAL}


def _write(folder: Path, files: Files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == "last.pt"):  # last, as it tells that the others are there
        replace_file(folder / name, files[name])

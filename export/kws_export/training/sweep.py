"""A sweep: one recipe, trained for each of many variants and seeds, every run in a folder of its own.

Nothing about a sweep is stored but its runs: what is done, and where the rest goes on, is read from their
checkpoints. So the same call goes on after a kill, and takes up runs that `kws-export train` began.
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, Protocol

from kws_edge.cli.signals import tidied
from kws_edge.errors import KwsEdgeError, SettingError
from kws_export.training.lock import take_lock
from kws_export.training.recipe import Recipe

if TYPE_CHECKING:
    from kws_export.training.run_folder import EpochResult
    from kws_export.training.trainer import Trainer


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One variant and seed: the recipe with both put in, and the folder that its checkpoints go to."""

    recipe: Recipe
    folder: Path

    @property
    def name(self) -> str:
        """VARIANT-SEED, such as softmax-1, or VARIANT-klEND-SEED, such as edl_ce-kl0.1-1."""
        return self.folder.name

    @property
    def log(self) -> Path:
        """The text file, beside the folder, that says how the run went."""
        return self.folder.parent / f"{self.name}.log"


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """How to train: what is the same for every run and decides nothing but speed (and rounding: threads, device).

    Attributes
    ----------
    data : folder of Speech Commands, in its public layout.
    cache : where decoded clips are kept.
    device : auto, cpu or cuda.
    threads : of the CPU kernels, for each run.
    negatives : as in Trainer.
    """

    data: Path
    cache: Path
    device: str = "auto"
    threads: int = 1
    negatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run's folder holds.

    Attributes
    ----------
    state : unusable where the folder holds what the run cannot go on from, collapsed where it is through and never
        names one of its classes; `problem` says why.
    epochs : whole epochs trained, of the recipe's number.
    best : the best validation accuracy so far, a fraction; None before the first epoch.
    """

    state: Literal["not started", "unfinished", "done", "collapsed", "unusable"]
    epochs: int = 0
    best: float | None = None
    problem: str = ""


class Watcher(Protocol):
    """Who is told, in the process that leads the sweep, how its runs go."""

    def started(self, run: SweepRun, epoch: int, where: str) -> None:
        """Training goes on after `epoch` whole epochs; `where` names the process or machine."""

    def trained(self, run: SweepRun, result: "EpochResult") -> None:
        """An epoch's checkpoint is in the run's folder."""

    def finished(self, run: SweepRun) -> None:
        """The run is done."""

    def failed(self, run: SweepRun, reason: str) -> None:
        """The run has ended early, for a reason of one line; the others go on."""


def plan(
    recipe: Recipe, variants: Sequence[str], seeds: Sequence[int], out: Path, kl_ends: Sequence[float] = ()
) -> list[SweepRun]:
    """The runs in the order in which they start: every variant with the first seed, then with the second, and so on.

    Parameters
    ----------
    kl_ends : weights that the KL term is to climb to, a run each; none for the recipe as it is.

    Raises
    ------
    SettingError : there is no such variant, or the recipe cannot train it.
    """
    runs = []
    for seed in dict.fromkeys(seeds):
        for variant in dict.fromkeys(variants):
            own = replace(recipe, name=variant, variant=variant, seed=seed)
            if not kl_ends:
                runs.append(SweepRun(own, out / f"{variant}-{seed}"))
            for end in dict.fromkeys(kl_ends):
                runs.append(SweepRun(replace(own, kl_end=end), out / f"{variant}-kl{end:g}-{seed}"))
    return runs


def run_state(run: SweepRun) -> RunState:
    """Read how far a run is from its last checkpoint."""
    path = run.folder / "last.pt"
    if not path.exists():
        return RunState("not started")
    from kws_export.training.checkpoint import load_checkpoint
    from kws_export.training.run_folder import collapse

    try:
        last = load_checkpoint(path)
        changed = run.recipe.differences(Recipe.from_dict(last["recipe"]))
    except SettingError as error:
        return RunState("unusable", problem=str(error))
    if changed:
        return RunState(
            "unusable", problem=f"{run.folder} holds a run of another recipe, which differs in {', '.join(changed)}"
        )
    epochs, best = last.get("epoch", 0), last.get("best")
    if problem := collapse(run.recipe, epochs, last.get("lost") or ()):
        return RunState("collapsed", epochs, best, problem)
    return RunState("done" if epochs >= run.recipe.epochs else "unfinished", epochs, best)


def trainer_of(run: SweepRun, settings: SweepSettings) -> "Trainer":
    """The run's trainer, for a process that does nothing else. Raises as Trainer does."""
    import torch

    from kws_export.kernels.compiled import tune_process
    from kws_export.training.distribution import pick_device
    from kws_export.training.prepared import prepare
    from kws_export.training.trainer import Trainer

    tune_process()
    torch.set_num_threads(settings.threads)
    device = pick_device(settings.device)
    data = prepare(run.recipe, settings.data, settings.cache, settings.negatives, folder=run.folder)
    return Trainer(run.recipe, data, run.folder, device=device)


def in_one_line(error: BaseException) -> str:
    """What an error says; with its type where it is none that the package raises on purpose."""
    text = " ".join(str(error).split())
    return text if isinstance(error, KwsEdgeError) else f"{type(error).__name__}: {text}"


def claim(run: SweepRun) -> IO[str]:
    """Become the run's only trainer among the sweeps on this file system, until the file given back is closed.

    Returns
    -------
    The run's log, open for appending.

    Raises
    ------
    SettingError : another sweep trains the run.
    """
    run.log.parent.mkdir(parents=True, exist_ok=True)
    log = run.log.open("a", encoding="utf-8")
    if not take_lock(log):
        log.close()
        raise SettingError(f"another sweep is training {run.folder}; wait for it, or stop it")
    return log


def train_in_processes(runs: Sequence[SweepRun], settings: SweepSettings, workers: int, watcher: Watcher) -> None:
    """Train on this machine, each run in a process of its own, up to `workers` of them at once.

    However the call ends, no process outlives it; nor does one outlive the calling process. A process may be killed
    at any time, as its checkpoints are replaced whole.
    """
    waiting = deque(runs)
    active: dict[Connection, _Active] = {}
    ready = False  # whether the clips are decoded: the first run does that alone, instead of each for itself
    try:
        while waiting or active:
            while waiting and len(active) < (workers if ready else 1):
                run = waiting.popleft()
                try:
                    connection, entry = _start(run, settings)
                except SettingError as error:
                    watcher.failed(run, str(error))
                else:
                    active[connection] = entry
            if not active:  # all that was left failed to start, and waiting for none would be waiting for ever
                break
            answered = wait(list(active))
            for connection in [c for c in active if c in answered]:
                entry = active[connection]
                if not entry.receive(connection, watcher):
                    del active[connection]
                ready = ready or entry.ready
    finally:
        for entry in active.values():
            entry.process.terminate()
        for entry in active.values():
            entry.process.join()
            entry.log.close()


@dataclass(slots=True)
class _Active:
    """A run and its process."""

    run: SweepRun
    log: IO[str]
    process: SpawnProcess
    ready: bool = False
    told_why: bool = False

    def receive(self, connection: Connection, watcher: Watcher) -> bool:
        """Pass on what the process says; False where it has said its last."""
        try:
            message = connection.recv()
        except (EOFError, OSError):
            self._end(watcher)
            return False
        match message:
            case int():
                self.ready = True
                watcher.started(self.run, message, f"process {self.process.pid}")
            case str():
                self.told_why = True
                watcher.failed(self.run, message)
            case result:
                watcher.trained(self.run, result)
        return True

    def _end(self, watcher: Watcher) -> None:
        self.process.join()
        if not self.told_why and self.process.exitcode:
            reason = f"its process ended with status {self.process.exitcode}, a negative one being a signal's number"
            self.log.write(f"{reason}\n")
            watcher.failed(self.run, reason)
        elif not self.told_why:
            watcher.finished(self.run)
        self.log.close()


def _start(run: SweepRun, settings: SweepSettings) -> tuple[Connection, _Active]:
    log = claim(run)
    context = multiprocessing.get_context("spawn")
    connection, childs_end = context.Pipe(duplex=False)
    process = context.Process(target=_train, args=(run, settings, childs_end), name=run.name)
    # A terminal sends Ctrl-C to the children too. They are to ignore it from their first moment, as what becomes of
    # them is the parent's to say.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, handler)
    childs_end.close()
    return connection, _Active(run, log, process)


def _train(run: SweepRun, settings: SweepSettings, parent: Connection) -> None:
    """The child process. It sends the epoch that it starts from, then each epoch's result, or an error's line."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with run.log.open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    try:
        with tidied():  # since the parent ends it by a signal, perhaps while it decodes the clips
            trainer = trainer_of(run, settings)
            parent.send(trainer.epoch)
            trainer.run(lambda step, steps, loss: None, parent.send)
    except Exception as error:
        traceback.print_exc()
        parent.send(in_one_line(error))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)

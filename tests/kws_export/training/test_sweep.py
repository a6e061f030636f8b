"""A sweep: the runs and their order, what is skipped and gone on with, failures, kills, and a Ray cluster."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
import tone_words
import torch
from click.testing import CliRunner, Result
from paths import ROOT

from kws_edge.errors import DependencyError, SettingError
from kws_edge.model.variants import COMPARED, VARIANTS
from kws_export.cli import main
from kws_export.training.checkpoint import load_checkpoint
from kws_export.training.recipe import Recipe
from kws_export.training.run_folder import EpochResult
from kws_export.training.sweep import RunState, SweepRun, SweepSettings, claim, plan, run_state, train_in_processes


class Recorder:
    """Remembers what it is told, and does something at one of the calls."""

    def __init__(self, react: Callable[..., None] = lambda *event: None) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.react = react

    def _add(self, *event: Any) -> None:
        self.events.append(event)
        self.react(*event)

    def started(self, run: SweepRun, epoch: int, where: str) -> None:
        self._add("started", run.name, epoch, where)

    def trained(self, run: SweepRun, result: EpochResult) -> None:
        self._add("trained", run.name, result.epoch)

    def finished(self, run: SweepRun) -> None:
        self._add("finished", run.name)

    def failed(self, run: SweepRun, reason: str) -> None:
        self._add("failed", run.name, reason)

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [event[1:] for event in self.events if event[0] == kind]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tones.toml"
    path.write_text(tone_words.RECIPE)
    return path


@pytest.fixture
def settings(tones: Path) -> SweepSettings:
    return SweepSettings(tones, tones.parent / "cache", device="cpu")


def arguments(recipe: Path, tones: Path, out: Path, *options: object) -> list[str]:
    where = ["--data", tones, "--cache", tones.parent / "cache", "--device", "cpu", "--out", out]
    return [str(argument) for argument in ("sweep", "--recipe", recipe, *where, *options)]


def call(*given: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in given])


@contextlib.contextmanager
def command(given: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, with a process group of its own, as a shell would start it."""
    with subprocess.Popen(
        [sys.executable, "-m", "kws_export", *given], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process


def process_in(text: str) -> int:
    found = re.search(r"process (\d+)", text)
    assert found
    return int(found[1])


def lines_until(stream: IO[str] | None, pattern: str) -> str:
    """What the stream says up to the first line that the pattern matches."""
    assert stream
    said = ""
    for line in stream:
        said += line
        if re.search(pattern, line):
            return said
    raise AssertionError(f"no {pattern!r} in {said!r}")


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(0.02)


def running_in_session(leader: int) -> list[int]:
    """The processes that descend from the session's leader, and itself, as long as they run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _parent, _group, session = stat.read_text().rsplit(")", 1)[1].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(int(stat.parent.name))
    return found


def assert_same_training(folder: Path, expected: Path) -> None:
    """Two runs have equal weights, to the bit, in both checkpoints, and equal epochs but for their speed."""
    for name in ("last.pt", "best.pt"):
        a, b = load_checkpoint(folder / name), load_checkpoint(expected / name)
        assert a["epoch"] == b["epoch"]
        assert all(torch.equal(a["model"][key], weight) for key, weight in b["model"].items())
    epochs = [
        [{**json.loads(line), "samples_per_second": 0} for line in (run / "history.jsonl").read_text().splitlines()]
        for run in (folder, expected)
    ]
    assert epochs[0] == epochs[1]


def copy_run(source: Path, run: SweepRun, **changes: Any) -> None:
    """Put a finished run where `run` is to be, as if it were of the same recipe, but for changes to its last.pt."""
    shutil.copytree(source, run.folder)
    last = load_checkpoint(source / "last.pt")
    torch.save({**last, "recipe": run.recipe.to_dict(), **changes}, run.folder / "last.pt")


# --- the plan


def test_every_variant_gets_one_seed_before_one_gets_its_second(tmp_path: Path) -> None:
    runs = plan(tone_words.recipe(), ["softmax", "edl_ce"], [1, 5], tmp_path)
    assert [run.folder for run in runs] == [
        tmp_path / name for name in ("softmax-1", "edl_ce-1", "softmax-5", "edl_ce-5")
    ]


def test_only_name_variant_and_seed_of_the_recipe_differ(tmp_path: Path) -> None:
    base = tone_words.recipe()
    for run in plan(base, list(VARIANTS), [2], tmp_path):
        assert run.recipe == replace(base, name=run.recipe.variant, variant=run.recipe.variant, seed=2)


def test_a_variant_or_seed_named_twice_is_one_run(tmp_path: Path) -> None:
    assert len(plan(tone_words.recipe(), ["softmax", "softmax"], [1, 1], tmp_path)) == 1


def test_a_weight_of_the_kl_term_has_a_run_of_its_own(tmp_path: Path) -> None:
    runs = plan(tone_words.recipe(), ["edl_ce", "plugin_ce_kl"], [2], tmp_path, [0, 0.1])
    assert [run.name for run in runs] == [
        "edl_ce-kl0-2",
        "edl_ce-kl0.1-2",
        "plugin_ce_kl-kl0-2",
        "plugin_ce_kl-kl0.1-2",
    ]
    assert [run.recipe.kl_end for run in runs] == [0, 0.1] * 2
    assert {run.recipe.name for run in runs} == {"edl_ce", "plugin_ce_kl"}
    with pytest.raises(SettingError, match=r"kl_end=0.1 with softmax; expected a variant with a KL term"):
        plan(tone_words.recipe(), ["softmax"], [1], tmp_path, [0.1])


def test_a_variant_that_does_not_exist_or_cannot_take_the_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="unknown variant 'hardmax'; expected one of edl_ce"):
        plan(tone_words.recipe(), ["hardmax"], [1], tmp_path)
    with pytest.raises(SettingError, match=r"negatives with variant softmax, where φ\(e\) = e"):
        plan(tone_words.recipe(variant="edl_ce", negatives={"share": 0.3}), ["edl_ce", "softmax"], [1], tmp_path)


# --- states


def test_the_state_is_what_the_last_checkpoint_says(tone_run: Path, tmp_path: Path) -> None:
    one, two, three = plan(tone_words.recipe(), ["softmax"], [1, 2, 3], tmp_path)
    copy_run(tone_run, two, epoch=3, best=0.5)
    copy_run(tone_run, three)
    best = load_checkpoint(tone_run / "best.pt")["validation_accuracy"]
    assert [run_state(run) for run in (one, two, three)] == [
        RunState("not started"),
        RunState("unfinished", 3, 0.5),
        RunState("done", 4, best),
    ]


def test_a_run_of_another_recipe_or_a_damaged_one_is_unusable(tone_run: Path, tmp_path: Path) -> None:
    found = run_state(SweepRun(tone_words.recipe(epochs=5, seed=2), tone_run))
    assert found.state == "unusable"
    assert re.search(r"run of another recipe, which differs in epochs, seed", found.problem)
    (tmp_path / "last.pt").write_bytes(b"nothing")
    assert "is not a readable checkpoint" in run_state(SweepRun(tone_words.recipe(), tmp_path)).problem


def test_status_is_a_table_or_json_and_trains_nothing(recipe: Path, tone_run: Path, tmp_path: Path) -> None:
    runs = plan(Recipe.load(recipe), ["softmax", "edl_ce"], [1], tmp_path / "out")
    copy_run(tone_run, runs[0])
    given = ("sweep", "--recipe", recipe, "--out", tmp_path / "out", "--variants", "softmax,edl_ce", "--seeds", 1)
    table, lines = call(*given, "--status"), call(*given, "--status", "--json")
    assert table.exit_code == lines.exit_code == 0
    best = load_checkpoint(tone_run / "best.pt")["validation_accuracy"]
    assert re.search(rf"^softmax-1 +done +4/4 +{best:.4f}$", table.stdout, re.MULTILINE)
    assert re.search(r"^edl_ce-1 +not started +0/4 +-$", table.stdout, re.MULTILINE)
    assert table.stdout.endswith("1 of 2 runs done\n")
    rows = [json.loads(line) for line in lines.stdout.splitlines()]
    assert rows[0] == {
        "run": "softmax-1",
        "variant": "softmax",
        "seed": 1,
        "folder": str(runs[0].folder),
        "state": "done",
        "epochs_done": 4,
        "epochs": 4,
        "best_validation_accuracy": best,
        "problem": None,
    }
    assert (rows[1]["state"], rows[1]["best_validation_accuracy"]) == ("not started", None)
    assert os.listdir(tmp_path / "out") == ["softmax-1"]


def test_the_shipped_recipe_makes_three_runs_of_each_compared_variant_by_default() -> None:
    nine = ROOT / "export" / "recipes" / "nine.toml"
    rows = call("sweep", "--recipe", nine, "--out", "nowhere", "--status", "--json").stdout.splitlines()
    assert [json.loads(row)["run"] for row in rows] == [f"{name}-{seed}" for seed in (1, 2, 3) for name in COMPARED]


# --- on one machine


def test_a_killed_sweep_leaves_no_process_and_goes_on_to_the_same_weights(
    recipe: Path, tones: Path, tone_run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    given = arguments(recipe, tones, out, "--variants", "softmax", "--seeds", 1)
    with command(given) as sweep:
        training = process_in(lines_until(sweep.stderr, "softmax-1: training, process"))
        assert {sweep.pid, training} <= set(running_in_session(sweep.pid))

        def epoch_is_done_after_a_slice() -> bool:
            """Far shorter than an epoch: else a fast machine could be through with all four before the kill."""
            os.kill(training, signal.SIGCONT)
            time.sleep(0.005)
            os.kill(training, signal.SIGSTOP)
            return (out / "softmax-1" / "last.pt").exists()

        wait_for(epoch_is_done_after_a_slice)
        os.kill(training, signal.SIGCONT)
        sweep.kill()
        wait_for(lambda: not running_in_session(sweep.pid))
    assert load_checkpoint(out / "softmax-1" / "last.pt")["epoch"] < 4

    resumed = call(*given)
    assert resumed.exit_code == 0, resumed.output
    assert resumed.stdout.endswith("1 of 1 runs done\n")
    assert_same_training(out / "softmax-1", tone_run)
    log = (out / "softmax-1.log").read_text()
    assert re.search(r"training after \d of 4 epochs, process \d+\n", log)
    assert all(re.search(rf"^epoch   {epoch}/4  loss", log, re.MULTILINE) for epoch in range(2, 5))
    assert log.endswith("done\n")

    before = (out / "softmax-1" / "last.pt").read_bytes()
    skipped = call(*given)
    assert skipped.stderr == ""
    assert (out / "softmax-1" / "last.pt").read_bytes() == before


def test_ctrl_c_stops_every_process_and_is_status_130(recipe: Path, tones: Path, tmp_path: Path) -> None:
    with command(arguments(recipe, tones, tmp_path / "out", "--variants", "softmax", "--seeds", 1)) as sweep:
        lines_until(sweep.stderr, "training, process")
        os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does: to all of them
        assert sweep.stderr
        said = sweep.stderr.read()
        assert sweep.wait(timeout=60) == 130
    assert said.startswith("stopped; the same command continues from every run's last whole epoch\n")
    assert "Traceback" not in said + (tmp_path / "out" / "softmax-1.log").read_text()
    wait_for(lambda: not running_in_session(sweep.pid))  # the tracker of its resources ends right after it


@pytest.fixture(scope="module")
def mixed_sweep(tones: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorder, Path]:
    """Two workers and three runs: one that is killed once the second has started, that second, and a wrong one."""

    def kill_first_when_second_starts(kind: str, run: str, *more: Any) -> None:
        if (kind, run) == ("started", "softmax-1"):
            processes.append(process_in(more[1]))
            os.kill(processes[0], signal.SIGSTOP)
        if (kind, run) == ("started", "edl_ce-1"):
            os.kill(processes[0], signal.SIGKILL)

    processes: list[int] = []
    watcher, folder = Recorder(kill_first_when_second_starts), tmp_path_factory.mktemp("mixed")
    runs = plan(tone_words.recipe(epochs=1), ["softmax", "edl_ce", "edl_mse"], [1], folder)
    runs[2] = replace(runs[2], recipe=replace(runs[2].recipe, min_clips=1000))
    train_in_processes(runs, SweepSettings(tones, tones.parent / "cache", device="cpu"), 2, watcher)
    return watcher, folder


def test_two_workers_train_two_runs_at_once(mixed_sweep: tuple[Recorder, Path]) -> None:
    watcher, _ = mixed_sweep
    assert [event[:2] for event in watcher.events[:2]] == [("started", "softmax-1"), ("started", "edl_ce-1")]


def test_a_run_whose_process_dies_has_failed(mixed_sweep: tuple[Recorder, Path]) -> None:
    failed = dict(mixed_sweep[0].of("failed"))
    assert failed["softmax-1"].startswith("its process ended with status -9")


def test_an_error_in_a_run_is_told_in_one_line_and_in_full_in_its_log(mixed_sweep: tuple[Recorder, Path]) -> None:
    watcher, folder = mixed_sweep
    reason = dict(watcher.of("failed"))["edl_mse-1"]
    assert re.fullmatch(r"0 words in \S+ have more than min_clips=1000 training clips; [^\n]+", reason)
    assert "Traceback" in (folder / "edl_mse-1.log").read_text()


def test_when_runs_fail_the_others_go_on(mixed_sweep: tuple[Recorder, Path]) -> None:
    watcher, folder = mixed_sweep
    assert watcher.of("trained") == [("edl_ce-1", 1)]
    assert watcher.of("finished") == [("edl_ce-1",)]
    assert len(watcher.of("failed")) == 2
    assert load_checkpoint(folder / "edl_ce-1" / "last.pt")["epoch"] == 1


def test_what_cannot_be_trained_is_left_alone_and_is_status_1(
    recipe: Path, tones: Path, tone_run: Path, tmp_path: Path
) -> None:
    shutil.copytree(tone_run, tmp_path / "out" / "softmax-2")  # with seed 1 in it
    given = arguments(recipe, tones, tmp_path / "out", "--variants", "softmax", "--seeds", "2,3")
    with claim(plan(Recipe.load(recipe), ["softmax"], [3], tmp_path / "out")[0]):
        result = call(*given)
    assert result.exit_code == 1
    assert re.search(r"^softmax-2: failed: .* another recipe, which differs in name, seed", result.stderr, re.MULTILINE)
    assert re.search(r"^softmax-3: failed: another sweep is training .*; wait for it", result.stderr, re.MULTILINE)
    assert result.stderr.endswith("Error: 2 of 2 runs failed: softmax-2, softmax-3\n")
    assert re.search(r"^softmax-2 +failed", result.stdout, re.MULTILINE)
    assert (tmp_path / "out" / "softmax-2" / "last.pt").read_bytes() == (tone_run / "last.pt").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "1,x"], "'1,x'; expected whole numbers separated by commas, such as 1,2,3"),
        (["--data", "nowhere"], "nowhere is not a folder"),
        (["--ray", "auto", "--workers", "2"], "--workers is for one machine"),
    ],
)
def test_a_wrong_call_is_status_2(recipe: Path, tones: Path, tmp_path: Path, options: list[str], message: str) -> None:
    result = call(*arguments(recipe, tones, tmp_path, *options))
    assert result.exit_code == 2
    assert message in result.stderr


def test_training_needs_the_data(recipe: Path) -> None:
    result = call("sweep", "--recipe", recipe)
    assert (result.exit_code, "Missing option '--data'" in result.stderr) == (2, True)


# --- through Ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a Ray cluster of two machines with one CPU each, both of them processes here."""
    pytest.importorskip("ray", reason="needs ray: pip install './export[ray]'")
    from ray.cluster_utils import Cluster

    machine = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={**machine, "include_dashboard": False})
    made.add_node(**machine)
    yield made.address
    made.shutdown()


def test_two_machines_train_a_sweep_also_when_one_is_lost(
    cluster: str, settings: SweepSettings, tone_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kws_export.training.ray_sweep import train_on_ray

    def lose_a_machine(kind: str, run: str, *more: Any) -> None:
        if kind == "started":
            processes[run] = process_in(more[1])
            if len(processes) == 1:  # or it could be through before the other has come so far
                os.kill(processes[run], signal.SIGSTOP)
            elif len(watcher.of("started")) == 2:
                for process in processes.values():
                    os.kill(process, signal.SIGCONT)
        if (kind, run, *more) == ("trained", "softmax-1", 2):
            os.kill(processes[run], signal.SIGKILL)

    processes: dict[str, int] = {}
    watcher = Recorder(lose_a_machine)
    runs = plan(tone_words.recipe(), ["softmax", "plugin_ce"], [1], tmp_path)
    broken = replace(runs[0].recipe, seed=2, min_clips=1000)
    train_on_ray([*runs, SweepRun(broken, tmp_path / "softmax-2")], settings, cluster, None, watcher)

    assert_same_training(runs[0].folder, tone_run)
    assert sorted(watcher.of("finished")) == [("plugin_ce-1",), ("softmax-1",)]
    assert [epoch for run, epoch, _ in watcher.of("started") if run == "softmax-1"] == [0, 2]  # no epoch is lost
    assert {run for run, *_ in watcher.of("started")[:2]} == {"softmax-1", "plugin_ce-1"}  # at the same time
    first_end = next(i for i, event in enumerate(watcher.events) if event[0] == "finished")
    assert len({run for kind, run, *_ in watcher.events[:first_end] if kind == "started"}) == 2
    ((run, reason),) = watcher.of("failed")
    assert run == "softmax-2"
    assert re.match(r"on \S+: 0 words in \S+ have more than min_clips=1000 training clips; ", reason)
    assert "in begin\n" in (tmp_path / "softmax-2.log").read_text()  # the traceback
    assert capsys.readouterr().out == ""  # which is for the table


def test_without_ray_the_package_to_install_is_named(
    settings: SweepSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kws_export.training.ray_sweep import train_on_ray

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DependencyError, match=r"pip install '\./export\[ray\]'"):
        train_on_ray(plan(tone_words.recipe(), ["softmax"], [1], tmp_path), settings, "auto", None, Recorder())


def test_a_first_stage_that_other_machines_would_not_find_is_refused(settings: SweepSettings, tmp_path: Path) -> None:
    from kws_export.training.ray_sweep import train_on_ray

    runs = plan(tone_words.recipe(start="runs/first/best.pt"), ["softmax"], [1], tmp_path)
    with pytest.raises(SettingError, match=r"starts from runs/first/best\.pt; through Ray, name an absolute path"):
        train_on_ray(runs, settings, "auto", None, Recorder())


def test_a_run_that_no_machine_survives_is_given_up(settings: SweepSettings, tmp_path: Path) -> None:
    from kws_export.training.ray_sweep import MAX_LOSSES, Leader

    class LostError(Exception):
        pass

    class LosingRay:
        """A stand-in for Ray and its actors, every one of which is lost."""

        exceptions = SimpleNamespace(RayError=LostError, RayTaskError=type("RayTaskError", (LostError,), {}))
        asked = 0

        def remote(self) -> Any:
            return SimpleNamespace(begin=SimpleNamespace(remote=self.begin))

        def begin(self, *given: Any) -> int:
            self.asked += 1
            return self.asked

        def wait(self, references: list[int], num_returns: int) -> tuple[list[int], list[int]]:
            return references[:num_returns], references[num_returns:]

        def get(self, reference: int) -> None:
            raise LostError("the machine is gone")

    ray, watcher = LosingRay(), Recorder()
    Leader(ray, ray, settings, watcher).lead(plan(tone_words.recipe(), ["softmax"], [1], tmp_path))
    assert ray.asked == MAX_LOSSES + 1
    ((_, reason),) = watcher.of("failed")
    assert reason == "lost its machine 4 times in a row: LostError: the machine is gone"


def test_a_machine_with_other_clips_is_refused(settings: SweepSettings) -> None:
    from kws_export.training.ray_sweep import Begun, Leader

    leader = Leader(None, None, settings, Recorder())
    leader.check(Begun(0, "process 1 on a", clips="these"))
    leader.check(Begun(0, "process 2 on b", clips="these"))
    with pytest.raises(SettingError, match=r"other training clips in \S+ for process 3 on c than for process 1 on a"):
        leader.check(Begun(0, "process 3 on c", clips="others"))

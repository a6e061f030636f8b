"""`kws-edge bench`: what a row says, what is refused, and when a ratio is a change."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import tiny_model
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from paths import ROOT

from kws_edge.audio.load import load
from kws_edge.bench import process, runner
from kws_edge.bench.graph import BoundRun, count_nodes, nodes_by_provider, time_graph, without_head
from kws_edge.bench.machine import cpu_quota, describe
from kws_edge.bench.plot import plot
from kws_edge.bench.report import BenchReport, BenchRow, Case, Refusal
from kws_edge.bench.runner import Plan, bench, probe
from kws_edge.bench.statistics import ratio
from kws_edge.bench.tables import markdown, verdicts
from kws_edge.bench.workload import WORKLOADS, ClipWorkload, Stages, StreamWorkload, load_timed
from kws_edge.bench.yardstick import make_yardstick
from kws_edge.cli import main
from kws_edge.errors import ModelError, ProviderError, SettingError
from kws_edge.model.features import mfcc
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.prediction import Prediction
from kws_edge.model.runtime import CPU, open_session
from kws_edge.model.session import MAX_BATCH

FEATURES = np.random.default_rng(2).standard_normal((2, 64, 128), np.float32)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model in the working directory."""
    monkeypatch.chdir(tmp_path)
    return str(tiny_model.save(tmp_path))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *arguments])


def row(**changes: Any) -> BenchRow:
    values: dict[str, Any] = {
        "model": "tiny",
        "task": "clip",
        "provider": "cpu",
        "threads": 1,
        "batch": 1,
        "nodes": {"cpu": 42},
        "shape": (1, 64, 128),
        "decisions": 1000,
        "warm_up": 40,
        "p50_ms": 2.0,
        "p95_ms": 3.0,
        "p99_ms": 4.0,
        "mean_ms": 2.5,
        "round_p50_ms": (2.0, 2.1, 1.9, 2.0, 2.05),
        "round_yardstick_ms": (1.0, 1.1, 0.9, 1.0, 1.0),
        "per_second": 400.0,
        "real_time_factor": 0.0025,
        "core_share": 0.0024,
        "import_ms": 300.0,
        "load_ms": 15.0,
        "first_ms": 9.0,
        "memory_mb": 70.0,
        "file": "tiny.onnx",
        "size_kb": 309.0,
        "sha256": "00",
        "breakdown_ms": {"decode": 0.2, "features": 1.1, "model": 0.9, "head": 0.1, "decision": 0.2},
        "network_ms": {"p50": 0.9, "p95": 1.0, "p99": 1.1},
        "io_binding": "cpu",
        "versions": {"onnxruntime": "1.32.0"},
    }
    return BenchRow(**values | changes)


def report(*rows: BenchRow, **changes: Any) -> BenchReport:
    machine = {"cpu": "A", "cpus": 4, "usable": [0, 1], "quota": None, "governors": [], "mhz": None, "load": 0.1}
    values: dict[str, Any] = {"taken": "2026-01-01T00:00:00+00:00", "machine": machine, "refused": ()}
    values |= {"settings": {"seconds": 1.0, "rounds": 5, "hop": 0.1}, "rows": rows}
    return BenchReport(**values | changes)


# What is run


def test_the_stages_of_a_clip_lie_where_the_time_goes(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow: dict[str, float] = {}
    clock = 0.0

    def slowed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal clock
            clock += slow.get(name, 0.0)
            return function(*args, **kwargs)

        return wrapper

    monkeypatch.setattr("kws_edge.bench.workload.time", SimpleNamespace(perf_counter=lambda: clock))
    monkeypatch.setattr("kws_edge.bench.workload.load", slowed(load, "decode"))
    monkeypatch.setattr("kws_edge.model.keyword_model.mfcc", slowed(mfcc, "features"))
    monkeypatch.setattr(KeywordModel, "run", slowed(KeywordModel.run, "network"))
    monkeypatch.setattr("kws_edge.model.answers.Prediction", slowed(Prediction, "decision"))
    clips = ClipWorkload(load_timed(tiny, "cpu", 1), 1, 0.1)
    clips.step()
    for stage in Stages._fields:
        slow.clear()
        slow[stage] = 0.25
        assert clips.step()._asdict() == dict.fromkeys(Stages._fields, 0.0) | {stage: 0.25}


def test_the_largest_batch_is_the_most_that_a_model_runs_at_once(tiny: str) -> None:
    model = load_timed(tiny, "cpu", 1)
    ClipWorkload(model, MAX_BATCH, 0.1).step()
    assert model.network.count == 1
    ClipWorkload(model, MAX_BATCH + 1, 0.1).step()
    assert model.network.count == 3


def test_a_warm_stream_runs_the_network_at_every_hop(tiny: str) -> None:
    stream = StreamWorkload(load_timed(tiny, "cpu", 1), 1, 0.2)
    while not stream.is_warm():
        stream.step()
    assert all(stream.step().network > 0 for _ in range(20))


def step_form() -> bytes:
    """The tiny model for a stream's new frames: the 127 before them are its state."""
    model = onnx.load_from_string(tiny_model.build(replace(tiny_model.METADATA, padding="valid"), input_name="window"))
    graph = model.graph
    graph.input[0].CopyFrom(helper.make_tensor_value_info("mfcc", TensorProto.FLOAT, ["batch", 64, "new_frames"]))
    graph.input.append(helper.make_tensor_value_info("state_frames", TensorProto.FLOAT, ["batch", 64, 127]))
    graph.output.append(helper.make_tensor_value_info("next_frames", TensorProto.FLOAT, ["batch", 64, 127]))
    numbers = {"last_128": -128, "last_127": -127, "end": 2**62, "axis_2": 2}
    graph.initializer.extend(numpy_helper.from_array(np.array([n], np.int64), name) for name, n in numbers.items())
    cut = [
        helper.make_node("Concat", ["state_frames", "mfcc"], ["joined"], axis=2),
        helper.make_node("Slice", ["joined", "last_128", "end", "axis_2"], ["window"]),
        helper.make_node("Slice", ["joined", "last_127", "end", "axis_2"], ["next_frames"]),
    ]
    nodes = [*cut, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return model.SerializeToString()


def test_a_stream_is_measured_in_its_step_form_where_the_model_has_one(tmp_path: Path) -> None:
    path = tiny_model.save(tmp_path, metadata=replace(tiny_model.METADATA, padding="valid"))
    path.with_suffix(".step.onnx").write_bytes(step_form())
    stream = StreamWorkload(load_timed(path, "cpu", 1), 1, 0.1)
    assert (stream.file.name, stream.shape) == ("tiny.step.onnx", (1, 64, 10))
    while not stream.is_warm():
        stream.step()
    assert stream.step().network > 0


# The graph alone


def test_the_graph_without_its_head_gives_the_logits_and_nothing_else() -> None:
    data = without_head(tiny_model.build())
    assert data
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    session = open_session(data, CPU, 1)
    assert [output.name for output in session.get_outputs()] == ["logits"]
    (logits,) = session.run(None, {"mfcc": FEATURES})
    alpha = open_session(tiny_model.build(), CPU, 1).run(["alpha"], {"mfcc": FEATURES})[0]
    np.testing.assert_allclose(np.exp(logits), alpha, rtol=1e-5)  # this head's evidence is exp(logits)
    assert len(onnx.load_from_string(data).graph.node) == 3


def test_states_are_no_part_of_the_head() -> None:
    data = without_head(step_form())
    assert data
    assert [output.name for output in open_session(data, CPU, 1).get_outputs()] == ["next_frames", "logits"]
    features = FEATURES[:, :, :10]
    assert time_graph(step_form(), "cpu", 1, features, 0.0).head is not None
    assert nodes_by_provider(step_form(), "cpu", 1, features)["cpu"] > 3


def test_a_graph_without_logits_by_name_has_no_head_of_its_own() -> None:
    data = tiny_model.build().replace(b"logits", b"scores")
    assert without_head(data) is None
    assert time_graph(data, "cpu", 1, FEATURES, 0.0).head is None


def test_a_bound_run_gives_what_a_run_gives() -> None:
    session = open_session(tiny_model.build(), CPU, 1)
    bound = BoundRun(session, "cpu", FEATURES)
    assert bound() > 0
    for found, expected in zip(bound.outputs(), session.run(None, {"mfcc": FEATURES}), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_device_that_cannot_be_bound_to_is_not_named() -> None:
    assert BoundRun(open_session(tiny_model.build(), CPU, 1), "cuda", FEATURES).device == "cpu"


def test_nodes_are_counted_by_the_provider_that_ran_them() -> None:
    def node(name: str, provider: str) -> dict[str, Any]:
        return {"cat": "Node", "name": f"{name}_kernel_time", "args": {"provider": f"{provider}ExecutionProvider"}}

    events = [node("a", "CUDA"), node("b", "CUDA"), node("c", "CPU"), {"cat": "Session", "name": "model_run"}]
    assert count_nodes(json.dumps(events)) == {"cuda": 2, "cpu": 1}


@pytest.mark.parametrize("text", ["", "{", "3", '[{"cat": "Node", "name": "a_kernel_time"}]', "[3]"])
def test_a_profile_that_cannot_be_read_labels_nothing(text: str) -> None:
    with pytest.raises(ModelError, match="which provider runs is unknown"):
        count_nodes(text)


def test_a_provider_that_is_listed_and_runs_nothing_is_seen_through() -> None:
    if "AzureExecutionProvider" not in ort.get_available_providers():
        pytest.skip("this onnxruntime has no provider that is listed and runs nothing")
    session = open_session(tiny_model.build(), "AzureExecutionProvider", 1)
    assert session.get_providers()[0] == "AzureExecutionProvider"
    assert set(nodes_by_provider(tiny_model.build(), "azure", 1, FEATURES)) == {"cpu"}


# Figures


def answers(*rounds: list[tuple[float, float, float, float]]) -> BenchRow:
    """The row of these stages, round by round, in seconds."""
    started = {"import": 0.3, "load": 0.02, "first": 0.5, "warm_up": 7, "name": "tiny", "provider": "cpu", "audio": 1.0}
    finished = {
        "memory": 70.0,
        "file": "tiny.onnx",
        "size": 2000,
        "sha256": "00",
        "nodes": {"cpu": 4},
        "shape": [1, 64],
    }
    finished |= {"graph": [0.001, 0.003], "head": 0.0005, "device": "cpu", "versions": {"numpy": "2"}}
    measured = [{"stages": stages, "cpu": 0.5, "yardsticks": [0.002, 0.009, 0.001]} for stages in rounds]
    return runner._row(Case("tiny", "clip", "cpu", 1, 1), started, measured, finished)


def test_a_rows_figures_are_of_what_was_timed_and_not_of_the_warm_up() -> None:
    found = answers([(0.001, 0.002, 0.003, 0.004)] * 49 + [(0.1, 0.1, 0.1, 0.7)], [(0.002, 0.002, 0.002, 0.002)] * 50)
    times = [10.0] * 49 + [1000.0] + [8.0] * 50
    assert (found.decisions, found.warm_up, found.first_ms) == (100, 7, 500.0)
    expected = [float(value) for value in np.percentile(times, (50, 95, 99))]
    assert [found.p50_ms, found.p95_ms, found.p99_ms] == pytest.approx(expected)
    assert found.mean_ms == pytest.approx(np.mean(times))
    assert found.round_p50_ms == pytest.approx((10.0, 8.0))
    assert found.round_yardstick_ms == pytest.approx((2.0, 2.0))
    assert found.per_second == pytest.approx(1000 / np.mean(times))
    assert found.real_time_factor == pytest.approx(np.mean(times) / 1000)
    assert found.core_share == pytest.approx(1.0 / 100)  # a second of CPU time for 100 s of sound
    assert found.network_ms["p50"] == pytest.approx(2.0)


def test_the_breakdown_adds_up_to_the_mean() -> None:
    found = answers([(0.001, 0.002, 0.003, 0.004), (0.002, 0.001, 0.007, 0.001)])
    assert found.breakdown_ms["head"] == 0.5
    assert sum(value for value in found.breakdown_ms.values() if value) == pytest.approx(found.mean_ms)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.1, 10), min_size=3, max_size=12),
    st.lists(st.floats(0.1, 10), min_size=3, max_size=12),
    st.floats(0.1, 10),
)
def test_a_ratio_lies_in_its_interval_and_scales(new: list[float], old: list[float], factor: float) -> None:
    r = ratio(new, old)
    assert r.low <= r.value * (1 + 1e-9)
    assert r.value <= r.high * (1 + 1e-9)
    scaled = ratio([factor * value for value in new], old)
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx((factor * r.value, factor * r.low, factor * r.high))


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    pairs = rng.lognormal(sigma=0.2, size=(100, 2, 10))
    held = sum((r := ratio(list(a), list(b))).low <= 1 <= r.high for a, b in pairs)
    assert held >= 88


def test_what_the_machine_does_to_the_yardstick_too_is_no_change() -> None:
    busy = row(round_p50_ms=(4.0, 4.2, 3.8, 4.0, 4.1), round_yardstick_ms=(2.0, 2.2, 1.8, 2.0, 2.0))
    (change,) = report(busy).against(report(row()))
    assert change.time.low > 1.5
    assert change.verdict == "within noise"


@pytest.mark.parametrize(("factor", "verdict"), [(0.5, "faster"), (2.0, "slower"), (1.01, "within noise")])
def test_a_change_beyond_the_noise_is_told(factor: float, verdict: str) -> None:
    other = row(p50_ms=2 * factor, round_p50_ms=tuple(factor * ms for ms in row().round_p50_ms), sha256="11")
    (change,) = report(other).against(report(row()))
    assert (change.verdict, change.same_model) == (verdict, False)
    assert change.time.value == pytest.approx(factor)


def test_only_rows_of_the_same_case_are_compared() -> None:
    others = [row(threads=2), row(batch=4), row(task="stream"), row(provider="cuda"), row(model="other")]
    assert report(*others).against(report(row())) == []


def test_what_is_not_alike_beside_the_code_is_said() -> None:
    old = report(row(versions={"onnxruntime": "1.17.0"}), machine={**report().machine, "cpu": "B", "quota": 1.5})
    assert report(row()).differences(old) == [
        "processor: B, now A",
        "quota: 1.5, now None",
        "versions: onnxruntime 1.17.0, now onnxruntime 1.32.0",
    ]


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = report(row(), row(batch=4), refused=(Refusal(Case("tiny", "clip", "cuda", 1, 1), "no driver"),))
    path = tmp_path / "report.json"
    path.write_text(json.dumps(written.to_dict()))
    assert json.dumps(BenchReport.read(path).to_dict()) == path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": 9}',
        '{"schema": 1, "rows": [{}], "refused": []}',
        json.dumps(report(row(round_p50_ms=())).to_dict()),
        json.dumps(report(row(), machine={}).to_dict()),
        json.dumps(report(row(), settings={}).to_dict()),
        json.dumps(report(row(versions=5)).to_dict()),
        json.dumps(report(row(memory_mb="much")).to_dict()),
        json.dumps(report(row(round_p50_ms=("fast",))).to_dict()),
    ],
    ids=[
        "empty",
        "list",
        "schema",
        "empty row",
        "no rounds",
        "no numbers",
        "no machine",
        "no hop",
        "no versions",
        "memory in words",
    ],
)
def test_what_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(SettingError, match="expected a file that kws-edge bench --out wrote"):
        BenchReport.read(path)


def test_a_provider_that_runs_a_part_of_the_graph_is_labelled_with_its_share() -> None:
    found = row(provider="cuda", nodes={"cuda": 30, "cpu": 12})
    assert found.provider_and_share == "cuda (30 of 42 nodes)"
    assert "cuda (30 of 42 nodes)" in markdown(report(found))


def test_a_verdict_a_model_in_words() -> None:
    stream = row(task="stream", core_share=0.011)
    slower = row(threads=2, p50_ms=3.0)
    assert verdicts([slower, row(), stream]) == [
        "tiny: a clip of 1 s takes 2.0 ms, 1/500 of real time, on cpu with 1 thread; "
        "a live stream 1.1% of one core, on cpu with 1 thread"
    ]
    assert verdicts([row(batch=8)]) == ["tiny: 400 clips a second, on cpu with 1 thread"]


def test_the_drawing_has_a_bar_for_every_stage_of_every_row(tmp_path: Path) -> None:
    rows = [row(model="a<b"), row(breakdown_ms={**row().breakdown_ms, "head": None})]
    plot(rows, tmp_path / "bench.svg")
    root = ET.parse(tmp_path / "bench.svg").getroot()
    tag = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{tag}rect")) == 1 + 5 + 2 * 5
    assert any("a<b clip, cpu" in (text.text or "") for text in root.findall(f"{tag}text"))


# Measuring


def test_a_benchmark_of_two_tasks(tiny: str, tmp_path: Path) -> None:
    result = run("--model", tiny, "--provider", "cpu", "--seconds", "0.2", "--batch", "3", "--json",
                 "--out", "new.json", "--markdown", "new.md", "--plot", "new.svg")  # fmt: skip
    assert (result.exit_code, result.stderr) == (0, "")
    values = json.loads(result.stdout)
    assert json.loads(Path("new.json").read_text()) == values
    assert {"cpu", "usable", "governors", "quota", "load", "load_after", "clock"} <= values["machine"].keys()
    assert values["machine"]["clock"]["resolution_ns"] > 0
    found = [BenchRow(**r) for r in values["rows"]]
    assert [(r.task, r.batch) for r in found] == [("clip", 3), ("stream", 1)]
    for r in found:
        assert 0 < r.p50_ms <= r.p95_ms <= r.p99_ms
        assert r.nodes.keys() == {"cpu"}
        assert tuple(r.shape) == (r.batch, 64, 128)
        assert min(r.decisions, r.warm_up, r.first_ms, r.load_ms, r.core_share, r.network_ms["p99"]) > 0
        assert len(r.round_p50_ms) == len(r.round_yardstick_ms) == runner.ROUNDS
        assert r.versions["onnxruntime"] == ort.__version__
        assert r.size_kb == os.path.getsize(tiny) / 1e3
        assert r.memory_mb is None or r.memory_mb > 10
    assert "| tiny | clip | cpu | 1 | 3 |" in Path("new.md").read_text()
    assert Path("new.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("option", ["--out", "--markdown"])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    tiny: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "bench", None)
    result = run("--model", tiny, option, "nowhere/x")
    assert result.exit_code == 2
    assert "cannot write nowhere/x; expected a folder that is there" in result.stderr


def test_tables_verdict_and_comparison_for_people(tiny: str) -> None:
    old = report(row(model="tiny", round_p50_ms=(5000.0,) * 5, round_yardstick_ms=(0.1,) * 5))
    Path("old.json").write_text(json.dumps(old.to_dict()))
    result = run("--model", tiny, "--provider", "cpu", "--task", "clip", "--seconds", "0.1", "--compare", "old.json")
    assert result.exit_code == 0
    for text in ("A decision, front end included", "Where its time goes", "tiny: a clip of 1 s takes"):
        assert text in result.stdout
    (line,) = (line for line in result.stdout.splitlines() if line.lstrip().startswith("tiny clip on cpu"))
    assert re.search(r"faster, another model file\s*$", line)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--provider", "cuda"], "execution provider cuda: not in this onnxruntime, which has"),
        (["--provider", "gpu"], "unknown execution provider 'gpu'; expected one of"),
        (["--batch", "17"], "batch=17; expected 1 to 16"),
        (["--batch", ","], "no batches; expected at least one"),
        (["--threads", "0"], "threads=0; expected at least 1"),
        (["--threads", "1,x"], "expected whole numbers separated by commas"),
        (["--task", "train"], "task 'train'; expected one of clip, stream"),
        (["--seconds", "0"], "seconds=0.0; expected more than 0"),
        (["--provider", "cpu", "--task", "stream", "--hop", "0.015"], "hop=0.015 s; expected a multiple of 0.01 s"),
        (["--plot", "bench.png"], "expected a name that ends in .svg"),
        (["--compare", "gone.json"], "gone.json: No such file or directory; expected a file that kws-edge bench"),
        (["--provider", "cpu", "--task", "clip", "--model", "gone.onnx"], "gone.onnx: No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_measuring_impossible_is_one_line(tiny: str, arguments: list[str], problem: str) -> None:
    result = run("--model", tiny, *arguments)
    assert problem in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.output
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_provider_falls_back_with_a_warning_and_under_the_name_of_what_runs(tiny: str) -> None:
    result = run(
        "--model", tiny, "--provider", "cuda,cpu", "--fallback", "--task", "clip", "--seconds", "0.01", "--json"
    )
    (line,) = result.stderr.splitlines()
    assert line.startswith("Warning: execution provider cuda: not in this onnxruntime")
    assert result.exit_code == 0
    assert [r["provider"] for r in json.loads(result.stdout)["rows"]] == ["cpu"]


def test_each_model_that_falls_back_is_named(worker: Callable[..., None]) -> None:
    worker("if request.get('provider') == 'cuda' and request['model'] != 'a': sys.exit('no kernel')")
    warnings: list[str] = []
    models = ["a", "b", "c"]
    plan = Plan(models, tasks=["clip"], providers=["cuda"], seconds=0.01, fallback=True)
    bench(plan, warn=warnings.append)
    (warning,) = warnings
    assert warning.startswith("execution provider cuda: ")
    assert "no kernel" in warning
    assert warning.endswith("; the CPU is measured instead for b, c, and the rows say so")


def test_a_provider_that_runs_no_node_gets_no_row(tiny: str) -> None:
    if "AzureExecutionProvider" not in ort.get_available_providers():
        pytest.skip("this onnxruntime has no provider that is listed and runs nothing")
    with pytest.raises(ProviderError, match="execution provider azure: loads, but no node of the model runs on it"):
        bench(Plan([tiny], providers=["azure"], seconds=0.01))


FAKE = """
import json, os, signal, sys, time
for line in sys.stdin:
    request = json.loads(line)
    {behaviour}
    started = {{"import": 0, "load": 0, "first": 0, "warm_up": 5, "name": "tiny", "provider": "cuda", "audio": 1}}
    if "seconds" in request:
        print(json.dumps({{"stages": [[0, 0, 0.01, 0]], "cpu": 0.01, "yardsticks": [0.01]}}), flush=True)
    elif "finish" in request:
        print(json.dumps({{"memory": 1, "file": "f", "size": 1, "sha256": "0", "nodes": {nodes}, "shape": [1],
                           "graph": [1], "head": 0, "device": "cuda", "versions": {{}}}}), flush=True)
    else:
        task = request["task"]
        print(json.dumps(started), flush=True)
"""


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the process of a row by one that behaves as it is told to, on a machine with CUDA."""

    def behave(behaviour: str = "pass", nodes: str = '{"cuda": 4}') -> None:
        code = FAKE.format(behaviour=behaviour, nodes=nodes)
        monkeypatch.setattr(process, "_COMMAND", [sys.executable, "-c", code])

    monkeypatch.setattr(runner, "available_providers", lambda: ("cuda", "cpu"))
    return behave


def test_every_provider_that_runs_gets_its_rows(worker: Callable[..., None]) -> None:
    worker(nodes='{"cuda": 4, "cpu": 1}')
    rows = bench(Plan(["tiny"], tasks=["clip"], providers=["cuda"], seconds=0.01)).rows
    assert [r.provider_and_share for r in rows] == ["cuda (4 of 5 nodes)"]


def test_models_of_one_name_are_told_apart_by_their_files(worker: Callable[..., None]) -> None:
    worker()
    rows = bench(Plan(["fp32/tiny.onnx", "int8/tiny.onnx"], tasks=["clip"], providers=["cuda"], seconds=0.01)).rows
    assert [r.model for r in rows] == ["fp32/tiny.onnx", "int8/tiny.onnx"]


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process ended with SIGSEGV"),
        ("sys.exit('libcudart.so.12: cannot open shared object file')", "status 1: libcudart.so.12: cannot open"),
        ("time.sleep(60)", "no answer in 0.5 s"),
        ('print(\'{"error": "ProviderError", "message": "cpu is what runs"}\', flush=True)', "cpu is what runs"),
    ],
    ids=["crash", "exit", "hang", "fallback"],
)
def test_a_provider_that_breaks_is_reported_and_breaks_nothing_else(
    worker: Callable[..., None], monkeypatch: pytest.MonkeyPatch, behaviour: str, problem: str
) -> None:
    monkeypatch.setattr(process, "_PATIENCE", 0.5 if "sleep" in behaviour else 60.0)
    worker(behaviour)
    with pytest.raises(ProviderError, match=re.escape(problem)):
        probe("tiny", "cuda")


def test_a_row_that_breaks_while_it_is_timed_is_left_out_and_the_others_stay(worker: Callable[..., None]) -> None:
    worker("if 'seconds' in request and task == 'stream': sys.exit('out of memory')")
    found = bench(Plan(["tiny"], providers=["cuda"], seconds=0.01))
    assert [r.task for r in found.rows] == ["clip"]
    ((case, reason),) = found.refused
    assert case.task == "stream"
    assert "out of memory" in reason


def test_a_provider_that_nobody_asked_for_is_listed_with_its_reason(
    worker: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker("if request.get('provider') == 'cuda': sys.exit('no driver')", nodes='{"cuda": 4}')
    found = bench(Plan(["tiny"], tasks=["clip"], seconds=0.01))
    assert [r.provider for r in found.rows] == ["cpu"]
    assert [(refusal.case.provider, refusal.reason) for refusal in found.refused] == [
        ("cuda", "the process ended with status 1: no driver")
    ]


def test_the_plan_is_every_combination_once() -> None:
    plan = Plan(["a", "b"], threads=[1, 2], batches=[1, 8])
    cases = plan.cases({"a": ["cpu", "cuda"], "b": ["cpu"]})
    assert len(cases) == len(set(cases)) == 3 * (2 * 2 + 2)  # a stream has no batches
    assert set(plan.tasks) == set(WORKLOADS)


# The machine


def test_the_yardstick_takes_some_milliseconds() -> None:
    assert 1e-4 < min(make_yardstick()() for _ in range(5)) < 0.1


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "150000 100000"}, 1.5),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000",
                "sys/fs/cgroup/a/cpu.max": "50000 100000",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/docker/1\n1:memory:/docker/1",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            2.0,
        ),
        ({"proc/self/cgroup": "5:cpu:/", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, None),
        ({}, None),
    ],
    ids=["version 2", "no limit", "the tightest of the groups", "version 1", "version 1, no limit", "no groups"],
)
def test_the_quota_of_a_container_is_read(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_quota(tmp_path) == quota


def test_a_board_is_described(tmp_path: Path) -> None:
    files = {"proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0", "proc/cpuinfo": "processor : 0\n"}
    files["proc/meminfo"] = "MemTotal: 4096000 kB\nMemAvailable: 2048000 kB\nHugePages_Total: 0\n"
    files["proc/self/cgroup"], files["sys/fs/cgroup/memory.max"] = "0::/", str(512 * 2**20)
    files["sys/fs/cgroup/memory.current"] = str(112 * 2**20)
    for n in range(os.cpu_count() or 1):
        folder = f"sys/devices/system/cpu/cpu{n}/cpufreq"
        files |= {f"{folder}/scaling_governor": "ondemand", f"{folder}/scaling_cur_freq": "1500000"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    machine = describe(tmp_path)
    assert machine.cpu == "Raspberry Pi 5 Model B Rev 1.0"
    assert (machine.governors, machine.mhz, machine.max_mhz) == (("ondemand",), 1500.0, None)
    assert (machine.memory_mb, machine.available_mb) == (512, 400)
    assert json.loads(json.dumps(machine.to_dict()))["usable"] == list(machine.usable)


@pytest.mark.parametrize(
    ("group", "limit", "usage", "prefix"),
    [("0::/box", "memory.max", "memory.current", ""), ("4:memory:/box", "memory.limit_in_bytes",
      "memory.usage_in_bytes", "total_")], ids=["version 2", "version 1"],
)  # fmt: skip
def test_what_a_container_holds_of_files_is_available(
    tmp_path: Path, group: str, limit: str, usage: str, prefix: str
) -> None:
    folder = tmp_path / "sys/fs/cgroup" / ("memory/box" if prefix else "box")
    (tmp_path / "proc/self").mkdir(parents=True)
    folder.mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(group)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 4096000 kB\nMemAvailable: 2048000 kB\n")
    (folder / limit).write_text(str(512 * 2**20))
    (folder / usage).write_text(str(500 * 2**20))
    counted = {"anon": 60, f"{prefix}inactive_file": 400, f"{prefix}active_file": 40}
    (folder / "memory.stat").write_text("".join(f"{name} {mb * 2**20}\n" for name, mb in counted.items()))
    assert describe(tmp_path).available_mb == 452


def test_a_machine_that_tells_nothing_is_described(tmp_path: Path) -> None:
    machine = describe(tmp_path)
    assert machine.cpu
    assert (machine.quota, machine.governors, machine.mhz, machine.memory_mb) == (None, (), None, None)


def test_a_loop_at_20_hz_takes_under_15_percent_of_a_core(tiny: str) -> None:
    """With two threads, of which the one that waits must not spin.

    A machine that is too slow for that share, or too busy, may take what the decisions take that follow each other with
    one thread, and not much more.
    """
    program = """
import time, numpy as np
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.shipped import shipped_models
samples = np.random.default_rng(1).standard_normal((1, 16000)).astype("f4") / 20
def processor_seconds(threads, hertz):
    model = KeywordModel.load(next(iter(shipped_models()), "tiny.onnx"), threads=threads)
    model.classify_batch(samples)
    start, cpu = time.perf_counter(), time.process_time()
    for i in range(1, 31):
        model.classify_batch(samples)
        time.sleep(max(0, start + i / hertz - time.perf_counter()))
    return (time.process_time() - cpu) / 30
print(min(processor_seconds(2, 20) for _ in range(2)), processor_seconds(1, float("inf")))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment).stdout
    at_20_hz, at_once = map(float, output.split())
    assert at_20_hz < max(0.15 / 20, 4 * at_once)

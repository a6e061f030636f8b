"""`kws-edge doctor`: every part that can be missing or broken is a finding with advice, and never a traceback."""

import ast
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
import tiny_model
from click.testing import CliRunner, Result
from paths import ROOT

from kws_edge.bench.machine import describe, emulator
from kws_edge.cli import main
from kws_edge.doctor import Finding, Status, examine, machine, software
from kws_edge.doctor import sound as sound_checks
from kws_edge.errors import ModelError, ProviderError
from kws_edge.model.keyword_model import KeywordModel

RATE = 16_000
OK, WARNING, PROBLEM = Status.OK, Status.WARNING, Status.PROBLEM


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    return str(tiny_model.save(tmp_path))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the processes that a check starts: onnxruntime loads, and the CPU runs everything."""
    result = SimpleNamespace(returncode=0, stdout="1.32.0 CPUExecutionProvider\n", stderr="")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: result)
    monkeypatch.setattr("kws_edge.bench.runner.probe", lambda model, provider: {provider: 4})


def found(check: str, model: str | None = None, **settings: Any) -> list[Finding]:
    """The findings of a check, after all checks have run."""
    settings.setdefault("sound", Sound())
    findings = list(examine(model, **settings))
    assert {"software", "onnxruntime", "processor", "memory", "audio files", "server"} <= {f.check for f in findings}
    return [finding for finding in findings if finding.check == check]


class Sound:
    """A stand-in for sounddevice: microphones, and what they hear, int16."""

    class PortAudioError(Exception):
        """As sounddevice's."""

    def __init__(
        self,
        names: tuple[str, ...] = ("USB Mic",),
        hears: Any = 0,
        opposite: bool = False,
        overflows_every: int = 0,
    ) -> None:
        self.default = SimpleNamespace(device=[0, 0])
        self._names, self.hears, self._opposite, self._every = names, hears, opposite, overflows_every

    def query_hostapis(self) -> list[dict[str, str]]:
        return [{"name": "ALSA"}]

    def query_devices(self, device: Any = None, kind: str | None = None) -> Any:
        devices = [
            {"name": name, "index": i, "hostapi": 0, "max_input_channels": 2, "default_samplerate": 48000.0}
            for i, name in enumerate(self._names)
        ]
        if kind is None:
            return devices
        if not devices:
            raise self.PortAudioError("no default input device")
        return devices[0]

    def InputStream(self, *, samplerate: int, channels: int, blocksize: int, callback: Any, **_: Any) -> Any:  # noqa: N802
        if self._opposite and channels == 1:
            raise ValueError("two channels or nothing")
        sound = np.resize(np.asarray(self.hears, np.int16), (100 * blocksize, 1))
        if channels == 2:
            sound = np.concatenate([sound, -sound if self._opposite else sound], axis=1)

        def feed() -> None:
            for i, block in enumerate(np.split(sound, 100), 1):
                overflow = self._every > 0 and i % self._every == 0
                callback(block, blocksize, None, SimpleNamespace(input_overflow=overflow))
                time.sleep(0.005)  # no faster than the blocks are taken

        return SimpleNamespace(
            start=threading.Thread(target=feed, daemon=True).start, active=True, abort=lambda: None, close=lambda: None
        )


def tone(amplitude: float) -> Any:
    return 32767 * np.clip(amplitude * np.sin(np.arange(RATE) / 3), -1, 1)


# The command


def test_a_sound_machine_passes_with_a_word_on_each_thing(tiny: str) -> None:
    result = run("--model", tiny)
    assert result.exit_code == 0, result.output
    for text in ("software: python 3.", "IR version up to", "tiny hears", "processors usable", "libsndfile"):
        assert text in result.stdout
    assert "words can be recognised here: 0 problems, " in result.stdout.splitlines()[-1]


def test_the_default_model_hears_the_bundled_word(quick: None) -> None:
    (finding,) = found("model")
    assert finding.status == OK
    assert "hears yes in the sample of 'yes', and nothing in silence" in finding.message


@pytest.mark.usefixtures("quick")
def test_json_holds_the_findings(tiny: str) -> None:
    result = run("--model", tiny, "--json")
    values = json.loads(result.stdout)
    assert values["ok"] is True
    assert all(finding.keys() == {"check", "status", "message", "advice"} for finding in values["findings"])


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("content", [b"", b"no model", tiny_model.build()[:300]], ids=["empty", "text", "cut off"])
def test_a_broken_model_is_a_problem_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    result = run("--model", str(path))
    assert result.exit_code == 1
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("problem"))
    assert f"model: {path}" in line
    assert "Traceback" not in result.output
    assert result.stdout.splitlines()[-1].startswith("this machine is not ready: 1 problems")


@pytest.mark.usefixtures("quick")
def test_every_warning_and_problem_has_its_advice(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    starved = replace(describe(), quota=0.2, governors=("powersave",), load=99.0, available_mb=20.0)
    monkeypatch.setattr("kws_edge.bench.machine.describe", lambda: starved)
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    findings = list(examine(tiny))
    warnings = [finding for finding in findings if finding.status != OK]
    assert [finding.check for finding in warnings] == ["processor", "processor", "processor", "memory", "microphone"]
    assert all(finding.advice for finding in warnings)


# onnxruntime


def distribution(folder: Path, name: str, modules: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.20.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.20.0\n")
    (info / "top_level.txt").write_text(modules)


@pytest.mark.usefixtures("quick")
def test_two_builds_of_onnxruntime_clash(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path / "site", "onnxruntime-gpu", "onnxruntime\n")
    distribution(tmp_path / "site", "onnxruntime-genai", "onnxruntime_genai\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    (finding,) = found("onnxruntime wheels", tiny)
    assert finding.status == WARNING
    assert "onnxruntime-gpu 1.20.0" in finding.message
    assert "genai" not in finding.message
    assert finding.advice is not None
    assert finding.advice.startswith("pip uninstall -y onnxruntime onnxruntime-gpu; then pip install")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (
            "raise ImportError('libonnxruntime.so: cannot open shared object file')",
            "cannot be imported: ImportError: lib",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "importing it ends the process with signal 4"),
    ],
    ids=["import error", "illegal instruction"],
)
def test_an_onnxruntime_that_does_not_load_is_a_problem_and_the_rest_is_still_checked(
    tmp_path: Path, code: str, problem: str
) -> None:
    (tmp_path / "onnxruntime.py").write_text(code)
    program = "from kws_edge.cli import main; main(['doctor'])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == 1
    assert f"problem  onnxruntime: {problem}" in result.stdout
    assert "audio files: libsndfile" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_without_numpy_doctor_still_says_what_is_wrong() -> None:
    code = "import sys; sys.modules['numpy'] = None; from kws_edge.cli import main; main(['doctor'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "import of numpy halted" in result.stdout
    assert "reinstall kws-edge" in result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("quick")
def test_the_versions_that_are_said_to_load_do_and_the_next_do_not(tiny: str, tmp_path: Path) -> None:
    (finding,) = found("versions of models", tiny)
    words = finding.message.replace(",", "").replace(";", "").split()
    most_ir, most_opset = int(words[4]), int(words[8])
    for versions in ({"ir_version": most_ir}, {"ir_version": most_ir + 1}, {"opset": most_opset + 1}):
        path = tiny_model.save(tmp_path, **versions)
        if versions == {"ir_version": most_ir}:
            KeywordModel.load(path)
        else:
            with pytest.raises(ModelError, match="supported up to"):
                KeywordModel.load(path)


@pytest.mark.usefixtures("quick")
def test_a_shipped_model_that_is_too_new_is_a_problem(tiny: str, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "new").mkdir()
    path = tiny_model.save(tmp_path / "new", ir_version=99)
    monkeypatch.setattr("kws_edge.model.shipped.shipped_models", lambda: {"new": path})
    (finding,) = found("versions of models", tiny)
    assert (finding.status, finding.advice) == (PROBLEM, "pip install --upgrade onnxruntime")
    assert "new has IR version 99 and opset 17" in finding.message
    assert [f.status for f in found("model", tiny)] == [PROBLEM, OK]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("content", [b"", b"no model", tiny_model.build()[:300]], ids=["empty", "text", "cut off"])
def test_a_shipped_model_that_is_damaged_is_a_problem(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    path = tmp_path / "damaged.onnx"
    path.write_bytes(content)
    monkeypatch.setattr("kws_edge.model.shipped.shipped_models", lambda: {"damaged": path})
    (finding, _) = found("model", tiny)
    assert (finding.status, finding.advice) == (PROBLEM, "in a checkout of kws-edge, pip install --force-reinstall .")
    assert str(path) in finding.message
    assert [f.status for f in found("versions of models", tiny)] == [OK]


@pytest.mark.usefixtures("quick")
def test_a_provider_that_does_not_run_is_a_warning_and_one_that_does_says_how_much(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(model: str, provider: str) -> dict[str, int]:
        if provider == "cuda":
            raise ProviderError("the process ended with SIGSEGV")
        return {provider: 30, "cpu": 12}

    monkeypatch.setattr("kws_edge.model.runtime.available_providers", lambda: ("cuda", "openvino", "azure", "cpu"))
    monkeypatch.setattr("kws_edge.bench.runner.probe", probe)
    cuda, openvino, everything = found("providers", tiny)
    assert (cuda.status, openvino.status) == (WARNING, OK)
    assert "cuda is in this onnxruntime and does not run here: the process ended with SIGSEGV" in cuda.message
    assert openvino.message == "openvino runs 30 of 42 nodes of the model"
    assert "cuda, openvino, azure, cpu" in everything.message


@pytest.mark.usefixtures("quick")
def test_a_model_that_ends_the_process_is_never_loaded_in_this_one(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(model: str, provider: str) -> dict[str, int]:
        raise ProviderError("the process ended with SIGILL")

    monkeypatch.setattr("kws_edge.bench.runner.probe", probe)
    monkeypatch.setattr(KeywordModel, "load", lambda *_: pytest.fail("loaded"))
    (finding,) = found("model", tiny)
    assert (finding.status, finding.message) == (PROBLEM, "running it on the CPU: the process ended with SIGILL")


# The model on recordings with known answers


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("labels", "status"),
    [(("yes", "b", "c"), OK), (("a", "yes", "c"), PROBLEM), (("a", "b", "c"), OK)],
    ids=["right", "wrong", "another vocabulary"],
)
def test_the_answer_must_be_the_word_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: tuple[str, str, str], status: Status
) -> None:
    (tmp_path / "samples").mkdir()
    monkeypatch.setattr(software, "SAMPLES", tmp_path / "samples")
    low = 0.3 * np.sin(2 * np.pi * tiny_model.TONES["low"] * np.arange(RATE) / RATE)
    soundfile.write(tmp_path / "samples" / "yes.flac", low, RATE)
    soundfile.write(tmp_path / "samples" / "silence.flac", np.zeros(RATE), RATE)
    path = tiny_model.save(tmp_path, metadata=replace(tiny_model.METADATA, labels=labels))
    (finding,) = found("model", str(path))
    assert finding.status == status


# Sound


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise OSError('PortAudio library not found')", "apt install libportaudio2"),
        ("raise ImportError", "pip install '.[mic]'"),
        ("raise RuntimeError('anything')", "anything"),
    ],
    ids=["no PortAudio", "no sounddevice", "broken"],
)
def test_without_portaudio_words_can_still_be_recognised(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, problem: str
) -> None:
    (tmp_path / "sounddevice.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    (finding,) = found("microphone", tiny, sound=None)
    assert finding.status == WARNING
    assert problem in f"{finding.message} {finding.advice}"
    assert run("--model", tiny).exit_code == 0


@pytest.mark.usefixtures("quick")
def test_microphones_are_listed_with_their_rates(tiny: str) -> None:
    (finding,) = found("microphone", tiny)
    assert (finding.status, finding.message) == (OK, "0 USB Mic, the default: 2 channels, 48000 Hz, ALSA")
    (finding,) = found("microphone", tiny, sound=Sound(()))
    assert (finding.status, finding.message) == (WARNING, "no device that can record")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("sound", "status", "advice"),
    [
        (Sound(hears=tone(0.1)), OK, None),
        (Sound(hears=0), PROBLEM, "unmute"),
        (Sound(hears=tone(0.0008)), WARNING, "raise the input's gain"),
        (Sound(hears=tone(3)), WARNING, "lower the input's gain"),
        (Sound(()), PROBLEM, "kws-edge devices"),
        (Sound(hears=tone(0.1), opposite=True), WARNING, "crossed wires"),
    ],
    ids=["speech", "muted", "quiet", "clipped", "no device", "opposite polarity"],
)
def test_a_moment_of_listening_measures_the_level(tiny: str, sound: Sound, status: Status, advice: str | None) -> None:
    (finding,) = found("listening", tiny, listen=1.0, sound=sound)
    assert finding.status == status
    assert finding.advice is None if advice is None else advice in (finding.advice or "")


@pytest.mark.usefixtures("quick")
def test_a_microphone_that_falls_silent_after_a_pop_is_muted(tiny: str) -> None:
    pop = np.concatenate([tone(0.1)[:4_800], np.zeros(480_000, np.int16)])
    (finding,) = found("listening", tiny, listen=4.0, sound=Sound(hears=pop))
    assert finding.status == PROBLEM
    assert "unmute" in (finding.advice or "")


def test_names_of_devices_cannot_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [Finding("microphone", OK, "0 \x1b]0;mine\x07 Mic\nok       all is well", "\x1b[31m")]
    monkeypatch.setattr("kws_edge.doctor.examine", lambda *_, **__: findings)
    output = run().stdout
    assert "\x1b" not in output.replace("\x1b[32m", "").replace("\x1b[0m", "")
    assert len(output.splitlines()) == 3


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("every", "status", "advice"),
    [
        (20, PROBLEM, "too many samples are lost:"),
        (6, PROBLEM, "too many samples are lost:"),
        (60, WARNING, "words are lost where samples are"),
        (0, OK, None),
    ],
    ids=["1 s between overflows", "0.3 s", "3 s", "no overflows"],
)
def test_overflows_that_leave_no_room_for_a_word_are_a_problem(
    tiny: str, every: int, status: Status, advice: str | None
) -> None:
    (finding,) = found("listening", tiny, listen=4.0, sound=Sound(hears=tone(0.1), overflows_every=every))
    assert finding.status == status
    assert finding.advice is None if advice is None else advice in (finding.advice or "")
    assert finding.status == status
    assert finding.advice is None if advice is None else advice in (finding.advice or "")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("broken", "status"), [("OPUS", WARNING), ("PCM_16", PROBLEM)])
def test_a_codec_that_is_missing_is_named(
    tiny: str, monkeypatch: pytest.MonkeyPatch, broken: str, status: Status
) -> None:
    write = soundfile.write

    def picky(file: Any, samples: Any, rate: int, *, format: str, subtype: str) -> None:
        if subtype == broken:
            raise ValueError(f"no {subtype}")
        write(file, samples, rate, format=format, subtype=subtype)

    monkeypatch.setattr(soundfile, "write", picky)
    (finding,) = found("audio files", tiny)
    assert finding.status == status
    assert f"cannot read {'Opus' if broken == 'OPUS' else 'WAV, FLAC'}" in finding.message


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "check",
    [
        (machine, "kind"),
        (software, "software"),
        (software, "wheels"),
        (software, "limits"),
        (software, "server"),
        (machine, "processor"),
        (machine, "memory"),
        (machine, "places"),
        (sound_checks, "audio_files"),
    ],
    ids=lambda check: check[1],
)
def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(
    tiny: str, monkeypatch: pytest.MonkeyPatch, check: tuple[ModuleType, str]
) -> None:
    def broken() -> Any:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(*check, broken)
    broken_ones = [f for f in examine(tiny, sound=Sound()) if f.status == PROBLEM]
    assert [f.message for f in broken_ones] == ["cannot be checked: RuntimeError: two lines"]


@pytest.mark.usefixtures("quick")
def test_without_a_temporary_folder_words_are_still_recognised_and_the_advice_is_about_it(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(model: str, provider: str) -> Any:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("kws_edge.bench.runner.probe", nowhere)
    warning, answer = found("model", tiny)
    assert (warning.status, answer.status) == (WARNING, OK)
    assert "temporary" in warning.message
    assert "TMPDIR" in (warning.advice or "")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(30, "Read-only file system"), "TMPDIR"),
        (OSError(28, "No space left on device"), "TMPDIR"),
        (PermissionError(13, "Permission denied"), "let this user read"),
        (MemoryError(), "memory"),
        (OSError(12, "Cannot allocate memory"), "memory"),
        (subprocess.TimeoutExpired("python", 120), "busy"),
        (AttributeError("no such thing"), "reinstall"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_the_advice_is_about_what_went_wrong(
    tiny: str, monkeypatch: pytest.MonkeyPatch, error: Exception, advice: str
) -> None:
    def broken() -> Any:
        raise error

    monkeypatch.setattr(machine, "processor", broken)
    (finding,) = [f for f in examine(tiny, sound=Sound()) if f.status == PROBLEM]
    assert advice in (finding.advice or "")


# Foreign conditions


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("code", "advice"),
    [(8, "binfmt_misc"), (11, "ulimit -u"), (13, "noexec"), (1, "noexec"), (2, "full path"), (12, "free some memory")],
    ids=["emulated", "too many processes", "noexec", "sandbox", "no interpreter", "no memory"],
)
def test_where_no_process_can_be_started_the_rest_is_still_tried(
    tiny: str, monkeypatch: pytest.MonkeyPatch, code: int, advice: str
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("subprocess.run", fails)
    monkeypatch.setattr("kws_edge.bench.runner.probe", fails)
    warning, answer = found("onnxruntime", tiny)
    assert (warning.status, answer.status) == (WARNING, OK)
    assert os.strerror(code) in warning.message
    assert advice in (warning.advice or "")
    assert "reinstall" not in (warning.advice or "")
    assert [finding.status for finding in found("model", tiny)] == [WARNING, OK]


@pytest.mark.usefixtures("quick")
def test_an_emulated_processor_is_named_and_its_times_are_not_trusted(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kws_edge.bench.machine.emulator", lambda *_: "qemu-aarch64")
    warning, finding = found("processor", tiny)[:2]
    assert warning.status == WARNING
    assert "emulated by qemu-aarch64" in warning.message
    assert finding.message.startswith(f"{os.uname().machine} emulated by qemu-aarch64")


def test_an_emulator_is_seen_by_the_program_that_runs(tmp_path: Path) -> None:
    (tmp_path / "proc" / "thread-self").mkdir(parents=True)
    (tmp_path / "proc" / "thread-self" / "exe").symlink_to("/usr/bin/qemu-aarch64-static")
    assert emulator(tmp_path) == "qemu-aarch64-static"
    assert emulator() is None or "qemu" in str(emulator())


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        (lambda patch: patch.setattr("struct.calcsize", lambda _: 4), "64-bit system"),
        (lambda patch: patch.setattr("sysconfig.get_config_var", lambda _: "aarch64-linux-musl"), "slim"),
        (lambda patch: patch.setattr("sys.version_info", (3, 9, 2)), "Python 3.11 or newer"),
    ],
    ids=["32 bits", "musl", "old Python"],
)
def test_a_system_without_packages_is_a_problem_with_a_remedy_of_its_own(
    monkeypatch: pytest.MonkeyPatch, change: Any, advice: str
) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda _: None)
    change(monkeypatch)
    (finding,) = machine.kind()
    monkeypatch.undo()
    assert finding.status == PROBLEM
    assert advice in (finding.advice or "")


def test_a_32_bit_system_with_an_onnxruntime_of_its_own_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("struct.calcsize", lambda _: 4)
    (finding,) = machine.kind()
    monkeypatch.undo()
    assert (finding.status, "32 bits" in finding.message) == (OK, True)


def test_this_system_has_packages() -> None:
    assert [finding.status for finding in machine.kind()] == [OK]


def test_a_system_that_can_only_be_read_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: Any, **__: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    finding = next(machine.places())
    assert (finding.status, "TMPDIR" in (finding.advice or "")) == (WARNING, True)


def test_without_shared_memory_the_advice_is_to_mount_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path / "shm")
    monkeypatch.setattr("sys.platform", "linux")
    temporary, shared = machine.places()
    assert (temporary.status, shared.status) == (OK, WARNING)
    assert "--shm-size" in (shared.advice or "")


def test_an_old_python_is_told_so_before_anything_else() -> None:
    source = (ROOT / "kws_edge" / "__init__.py").read_text()
    ast.parse(source, feature_version=(3, 7))
    code = "import sys; sys.version_info = (3, 9, 2); import kws_edge"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "kws-edge needs Python 3.11 or newer; this is 3.9" in done.stderr.splitlines()[-1]

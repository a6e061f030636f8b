"""What the commands that run on a board load, and how bench/footprint.py reads Python's own figures."""

import subprocess
import sys

import footprint
import pytest
from paths import ROOT

HEAVY = {"fastapi", "httpx", "matplotlib", "onnx", "pydantic", "rich", "scipy", "sounddevice", "torch", "uvicorn"}
DEMO = ROOT / "kws_edge" / "samples" / "yes.flac"


def loaded_by(arguments: list[str], standard_input: bytes = b"") -> set[str]:
    """The top-level packages in memory at the end of a kws-edge command, in a process of its own."""
    code = (
        "import atexit, os, sys\n"
        "atexit.register(lambda: os.write(2, ' '.join({n.split('.')[0] for n in sys.modules}).encode()))\n"
        "from kws_edge.cli import main\nmain()"
    )
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, cwd=ROOT, input=standard_input, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()
    return set(result.stderr.decode().split())


@pytest.mark.parametrize(
    "arguments",
    [["classify", str(DEMO)], ["listen", "--fast", "--replay", str(DEMO)]],
    ids=["classify", "listen"],
)
def test_a_command_loads_nothing_heavy(arguments: list[str]) -> None:
    loaded = loaded_by(arguments)
    assert {"kws_edge", "onnxruntime"} <= loaded
    assert not loaded & HEAVY


def test_listening_to_a_pipe_loads_nothing_to_read_or_write_files() -> None:
    unneeded = {"hashlib", "soundfile", "subprocess", "tempfile", "zipfile"}
    assert not loaded_by(["listen", "-"], bytes(32_000)) & unneeded


def test_a_command_does_not_load_what_others_need() -> None:
    assert not loaded_by(["--help"]) & {"onnxruntime", "soundfile"}
    assert not loaded_by(["doctor", "--help"]) & {"numpy", "onnxruntime"}


def test_a_log_of_imports_is_read_by_own_time() -> None:
    log = "\n".join(
        [
            "import time: self [us] | cumulative | imported package",
            "import time:       100 |        100 |     numpy._core",
            "import time:      1500 |       1600 |   numpy",
            "a line of the program",
        ]
    )
    assert footprint.imports_of(log) == {"numpy._core": 0.1, "numpy": 1.5}


def test_memory_is_told_by_library_and_apart_from_what_a_program_wrote() -> None:
    mappings = {
        "[heap]": (16.0, 16.0),
        "": (12.0, 12.0),
        "/env/lib/python3.11/site-packages/numpy/_core/_umath.so": (2.0, 0.5),
        "/env/lib/python3.11/site-packages/numpy.libs/libblas.so": (1.0, 0.0),
        "/usr/lib/libc.so.6": (0.75, 0.0),
        "[vdso]": (0.0, 0.0),
    }
    assert footprint.by_library(mappings) == {
        "its own: heap": 16.0,
        "its own: elsewhere": 12.5,
        "numpy": 2.5,
        "libc": 0.75,
    }


def test_packages_count_the_least_time_of_each_module_most_first() -> None:
    runs = [{"json": 1.0, "numpy": 3.0, "numpy.linalg": 1.0}, {"json": 2.0, "numpy": 1.0, "numpy.linalg": 4.0}]
    sums = footprint.by_package(runs)
    assert sums == {"numpy": 2.0, "json": 1.0}
    assert list(sums) == ["numpy", "json"]

"""The arrows between the rooms: what may import what, and what importing the device side loads."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

HEAVY = {"fastapi", "matplotlib", "onnx", "rich", "scipy", "sklearn", "sounddevice", "torch", "uvicorn"}
"""What a board has no room, no driver or no time for: training, plots, server, tables, sound devices."""


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, check=False)


def loaded_by(statement: str) -> set[str]:
    """The top-level packages in memory after the statement, in a process of its own."""
    result = run(
        sys.executable, "-c", f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_the_public_api_loads_nothing_heavy() -> None:
    assert not loaded_by("import kws_edge") & HEAVY


def test_no_module_outside_the_server_loads_anything_heavy() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "kws_edge").rglob("*.py")
        if "server" not in path.parts and path.name != "__main__.py"
    ]
    assert "kws_edge.model.features" in modules
    assert not loaded_by(f"import {', '.join(modules)}") & HEAVY


def test_the_list_of_commands_loads_no_package_but_that_of_the_command_line() -> None:
    loaded = loaded_by("from kws_edge.cli import main\nmain(['--help'], standalone_mode=False)")
    assert not loaded & (HEAVY | {"numpy", "onnxruntime", "pydantic"})


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A copy of both packages and of the checker's settings, free to break."""
    source = shutil.ignore_patterns("__pycache__")  # where tests beside this one may be writing, and renaming
    shutil.copytree(ROOT / "kws_edge", tmp_path / "kws_edge", ignore=source)
    shutil.copytree(ROOT / "export" / "kws_export", tmp_path / "kws_export", ignore=source)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def check_arrows(packages: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the copy; its command puts the working directory first on the path."""
    lint = Path(sys.executable).with_name("lint-imports")
    return run(str(lint), "--no-cache", cwd=packages)


def test_the_arrows_hold(packages: Path) -> None:
    result = check_arrows(packages)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("kws_edge/model/features.py", "import kws_export", "never the reverse BROKEN"),
        ("kws_edge/model/evidence.py", "import kws_edge.stream.decision", "finds its place here BROKEN"),
        ("kws_edge/errors.py", "import kws_edge.model.variants", "finds its place here BROKEN"),
        ("kws_edge/model/features.py", "def late() -> None:\n    import torch", "no training or plotting stack BROKEN"),
        ("kws_edge/unplaced.py", "", "finds its place here BROKEN"),
        ("kws_export/network/head.py", "import kws_export.training.losses", "down to the kernels BROKEN"),
        ("kws_export/unplaced.py", "", "down to the kernels BROKEN"),
    ],
    ids=[
        "device to workstation",
        "model to stream",
        "errors to model",
        "torch inside a function",
        "new module",
        "network to training",
        "new module of the workstation",
    ],
)
def test_an_arrow_the_wrong_way_is_caught(packages: Path, module: str, line: str, broken: str) -> None:
    with (packages / module).open("a") as source:
        source.write(f"\n{line}\n")
    result = check_arrows(packages)
    assert result.returncode != 0
    assert broken in result.stdout

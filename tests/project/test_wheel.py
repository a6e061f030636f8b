"""The wheel: what it carries, that it works elsewhere, and that boards can install it without a compiler.

The tests marked `network` ask the package registry that pip is configured for: `pytest -m network` runs them.
"""

import json
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from paths import ROOT

PROJECTS = ("pyproject.toml", "export/pyproject.toml")

WORKSTATION = {"dev", "docs", "ray-serve"}
"""The extras for workstations and clusters, which need not install on a board; every other is of the device side."""

GLIBC = range(17, 29)
"""The minor versions of glibc 2 whose wheels a board takes: up to 2.28, that of Debian 10 and everything since."""


def run(*arguments: object, cwd: Path | None = None) -> str:
    result = subprocess.run([str(a) for a in arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{arguments}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def board(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and what it requires, and nothing else."""
    folder = tmp_path_factory.mktemp("board")
    venv.create(folder)
    run(sys.executable, "-m", "pip", "--python", folder, "install", "--quiet", wheel)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def workstation_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of kws-export."""
    folder = tmp_path_factory.mktemp("workstation")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT / "export")
    (built,) = folder.glob("*.whl")
    return built


def test_each_wheel_carries_its_package_with_its_types(wheel: Path, workstation_wheel: Path) -> None:
    assert {"kws_edge/model/features.py", "kws_edge/py.typed"} <= set(zipfile.ZipFile(wheel).namelist())
    names = set(zipfile.ZipFile(workstation_wheel).namelist())
    assert {"kws_export/training/trainer.py", "kws_export/kernels/kernels.c", "kws_export/py.typed"} <= names


def test_the_two_wheels_are_of_one_version_and_the_workstation_asks_for_it() -> None:
    device, workstation = (tomllib.loads((ROOT / f).read_text())["project"] for f in PROJECTS)
    assert device["version"] == workstation["version"]
    assert f"kws-edge=={device['version']}" in workstation["dependencies"]


def test_the_wheel_carries_nothing_but_its_package(wheel: Path) -> None:
    folders = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"kws_edge"}


def test_the_wheel_carries_the_shipped_models(wheel: Path) -> None:
    files = {f"kws_edge/models/{file.name}" for file in (ROOT / "models").iterdir()}
    carried = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("kws_edge/models/")}
    assert any(name.endswith(".onnx") for name in carried)
    assert files - carried == {"kws_edge/models/stream.audio.step.onnx"}  # which nothing that is installed opens
    assert carried <= files


@pytest.mark.network
def test_the_wheel_classifies_a_clip_outside_the_checkout(board: Path, tmp_path: Path) -> None:
    program = "import kws_edge, pathlib; print(pathlib.Path(kws_edge.__file__).parent)"
    package = Path(run(board, "-I", "-c", program, cwd=tmp_path).strip())
    assert package.is_relative_to(board.parent.parent)
    output = run(board.parent / "kws-edge", "classify", "--json", package / "samples" / "yes.flac", cwd=tmp_path)
    assert json.loads(output)["label"] == "yes"


@pytest.mark.network
def test_the_wheel_brings_no_training_stack(board: Path) -> None:
    program = "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"
    installed = set(run(board, "-I", "-c", program).split())
    assert "kws-edge" in installed
    assert not installed & {"torch", "scipy", "onnx", "scikit-learn", "matplotlib"}


@pytest.mark.network
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_everything_the_device_needs_is_a_wheel(python: str, machine: str, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = project["dependencies"] + [r for name in extras.keys() - WORKSTATION for r in extras[name]]
    target = ["--python-version", python, "--only-binary=:all:", "--target", tmp_path]
    target += [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC]
    run(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", *target, *requirements)


def test_the_package_index_takes_both_wheels_as_they_are(wheel: Path, workstation_wheel: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, workstation_wheel)

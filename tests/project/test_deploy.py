"""deploy/: systemd understands the units, and all packages are pinned. What the units do is in test_systemd.py."""

import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from paths import ROOT

UNITS = sorted((ROOT / "deploy").glob("*.service"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
    there = tmp_path / unit.name
    there.write_text(unit.read_text().replace("/opt/kws-edge/bin/kws-edge", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(there)], capture_output=True, text=True, check=False)
    assert unit.name not in done.stderr, done.stderr


def needed(texts: list[str], extras: set[str], found: dict[str, str]) -> dict[str, str]:
    """The packages of requirements, and those that they need in turn: name → version that is installed."""
    for requirement in map(Requirement, texts):
        environments = [{"extra": extra} for extra in extras or {""}]
        if requirement.marker and not any(requirement.marker.evaluate(e) for e in environments):
            continue
        key = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if key not in found:
            found[key] = distribution(requirement.name).version
            needed(requires(requirement.name) or [], requirement.extras, found)
    return found


def test_all_that_a_server_installs_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    pins = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    installed = needed([*project["dependencies"], *extras["server"], *extras["client"]], set(), {})
    assert {"uvloop", "httptools", "pydantic-core", "anyio", "h11", "starlette"} <= set(installed)
    assert {name for name in installed if name not in pins} == set()


def test_the_docs_fetch_the_runtime_of_the_page_that_is_pinned_by_hash() -> None:
    pinned = (ROOT / "deploy" / "onnxruntime-web.sha256").read_text()
    match = re.fullmatch(r"[0-9a-f]{64}  onnxruntime-web-([0-9.]+)\.tgz\n", pinned)
    assert match
    page = (ROOT / "docs" / "how-to" / "serve.md").read_text()
    assert f"npm pack onnxruntime-web@{match[1]} && sha256sum --check deploy/onnxruntime-web.sha256" in page


def test_the_image_installs_what_is_pinned_by_hash() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    assert "--require-hashes" in dockerfile
    text = (ROOT / "deploy" / "requirements.txt").read_text()
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
    constraints = (ROOT / "constraints.txt").read_text()
    for name, version in pins.items():
        assert re.search(rf"^{name.replace('-', '[-_.]')}=={re.escape(version)}$", constraints, re.M | re.I), name
    entries = re.split(r"\n(?=[a-z0-9-]+==)", text)[1:]
    assert len(entries) == len(pins) > 20
    assert all("--hash=sha256:" in entry for entry in entries)

"""The release script: what it refuses before anything is uploaded."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT


def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_that_names_the_version_names_the_same() -> None:
    assert len(set(release().versions().values())) == 1


def test_a_folder_with_old_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kws_edge-0.1.0.tar.gz").touch()
    monkeypatch.setattr("sys.argv", ["release.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="not empty"):
        release().main()


def test_a_file_with_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = release()
    monkeypatch.setattr("sys.argv", ["release.py", "--out", str(tmp_path / "dist")])
    monkeypatch.setattr(script, "versions", lambda: {"pyproject.toml": "1.0", "CITATION.cff": "0.9"})
    with pytest.raises(SystemExit, match=r"CITATION\.cff has 0\.9"):
        script.main()


def test_a_command_that_fails_ends_the_script_with_what_it_printed() -> None:
    with pytest.raises(SystemExit, match="exit status 3"):
        release().run("bash", "-c", "exit 3")


def test_only_interpreters_that_run_and_are_of_the_version_are_found() -> None:
    found = dict(release().interpreters())
    assert found
    for version, python in found.items():
        assert release().run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip() == version

"""Build what a release uploads, check it, and try it in fresh environments.

    python scripts/release.py [--out dist] [--with-export] [--only 3.12,3.13]

1. One version everywhere: both pyproject.toml, CITATION.cff, CHANGELOG.md.
2. An sdist of each distribution, and its wheel from that sdist (`python -m build`).
3. `twine check --strict`.
4. For each Python from 3.11 to 3.14 that can be found (on the path, and where pyenv keeps them): a fresh environment
   with the kws-edge wheel, outside the checkout; every public name is imported, the samples are classified, the demo is
   listened to. With --with-export the kws-export wheel is installed too, which brings torch; a model is inspected.

Exit status 1 where anything fails. A Python that cannot be found is named, and is no failure.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PUBLIC = """
import importlib, kws_edge, kws_edge.tuning
assert "site-packages" in kws_edge.__file__, kws_edge.__file__
for module in (kws_edge, kws_edge.tuning):
    for name in getattr(module, "__all__", ()):
        getattr(module, name)
print(kws_edge.__file__)
"""


def run(*command: object, cwd: Path | None = None) -> str:
    """Run a command to its end; its output, or the end of this script with what it printed."""
    words = [str(word) for word in command]
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}\nexit status {done.returncode}")
    return done.stdout


def versions() -> dict[str, str]:
    """The version as each file that names it has it."""
    device, export = (
        tomllib.loads((ROOT / file).read_text(encoding="utf-8"))["project"]
        for file in ("pyproject.toml", "export/pyproject.toml")
    )
    needs = next(r for r in export["dependencies"] if r.startswith("kws-edge"))
    citation = re.search(r"(?m)^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = re.findall(r"(?m)^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    return {
        "pyproject.toml": device["version"],
        "export/pyproject.toml": export["version"],
        "the kws-edge that kws-export needs": needs.removeprefix("kws-edge=="),
        "CITATION.cff": citation[1] if citation else "none",
        "CHANGELOG.md, its first version": changelog[0] if changelog else "none",
    }


def interpreters() -> Iterator[tuple[str, Path]]:
    """Each wanted version of Python that runs on this machine."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in PYTHONS:
        found = [Path(p) for p in (shutil.which(f"python{version}"),) if p]
        found += sorted(pyenv.glob(f"{version}.*/bin/python"))
        for python in found:
            program = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
            done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
            if done.returncode == 0 and done.stdout.strip() == version:
                yield version, python
                break


def build(out: Path) -> list[Path]:
    """The sdists and wheels of both distributions, checked by twine."""
    for project in (ROOT, ROOT / "export"):
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, project)
    files = sorted(out.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    return files


def attempt(python: Path, wheels: list[Path], folder: Path) -> None:
    """Install wheels into a fresh environment and use them, far from the checkout."""
    run(python, "-m", "venv", folder)
    programs, elsewhere = folder / "bin", folder / "elsewhere"
    elsewhere.mkdir()
    run(programs / "python", "-m", "pip", "install", "--quiet", *wheels)
    installed = Path(run(programs / "python", "-c", PUBLIC, cwd=elsewhere).strip()).parent
    heard = run(programs / "kws-edge", "classify", installed / "samples" / "yes.flac", cwd=elsewhere)
    if not re.search(r"(?m)^yes ", heard):
        sys.exit(f'classify does not name the "yes" of the samples:\n{heard}')
    run(programs / "kws-edge", "listen", "--fast", "--replay", installed / "samples" / "demo.flac", cwd=elsewhere)
    if any("kws_export" in wheel.name for wheel in wheels):
        run(programs / "kws-export", "inspect", installed / "models" / "stream.onnx", cwd=elsewhere)


def main() -> None:
    """Build, check, try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="an empty folder, or none yet  [dist]")
    parser.add_argument("--with-export", action="store_true", help="install kws-export too, with torch")
    parser.add_argument("--only", default=",".join(PYTHONS), help="versions of Python  [3.11,3.12,3.13,3.14]")
    given = parser.parse_args()
    if given.out.exists() and any(given.out.iterdir()):
        sys.exit(f"{given.out} is not empty; expected an empty folder, so that nothing old is uploaded")

    named = versions()
    if len(set(named.values())) != 1:
        sys.exit("versions differ: " + "; ".join(f"{file} has {version}" for file, version in named.items()))
    print(f"version {named['pyproject.toml']} everywhere")
    files = build(given.out)
    for file in files:
        print(f"built {file.name}, {file.stat().st_size / 1e6:.2f} MB")
    print("twine check --strict: passed")

    wheels = [file for file in files if file.suffix == ".whl" and (given.with_export or "kws_export" not in file.name)]
    wanted, found = given.only.split(","), dict(interpreters())
    for version in wanted:
        if version not in found:
            print(f"Python {version}: not found on this machine, not tried")
            continue
        with tempfile.TemporaryDirectory() as folder:
            attempt(found[version], wheels, Path(folder) / "environment")
        print(f"Python {version}: {', '.join(wheel.name for wheel in wheels)} installed and used")


if __name__ == "__main__":
    main()

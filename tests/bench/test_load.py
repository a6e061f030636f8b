"""bench/load.py, which takes minutes: what it says before it begins."""

import os
import subprocess
import sys
from pathlib import Path

from paths import ROOT


def run(*arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )


def test_without_wrk_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    done = run(str(ROOT / "bench" / "load.py"), path=str(tmp_path))
    assert done.returncode == 2
    assert "apt-get install wrk" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr

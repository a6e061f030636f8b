"""A command that is told to end leaves nothing half written, and ends by the signal that it was told by."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")

WRITING = """
import os, signal
from pathlib import Path
from kws_edge.files import replace_file
def stopped(_):
    os.kill(os.getpid(), {number})
os.fsync = stopped
"""
"""A command is told to end when a file is written and not yet in its place."""


def told_to_end(folder: Path, number: int, before: str = "") -> subprocess.CompletedProcess[str]:
    program = before + WRITING.format(number=number)
    program += """
import click
from kws_edge.cli import main
main.get_command = lambda *_: click.Command("write", callback=lambda: replace_file(Path("a.txt"), "new"))
main(["write"])
"""
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_is_half_written_is_removed(tmp_path: Path, number: int) -> None:
    as_at_login = f"import signal; signal.signal({number:d}, signal.SIG_DFL)"
    done = told_to_end(tmp_path, number, as_at_login)
    assert (done.returncode, done.stdout, done.stderr) == (-number, "", "")
    assert list(tmp_path.iterdir()) == []


def test_under_nohup_a_command_goes_on(tmp_path: Path) -> None:
    ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    done = told_to_end(tmp_path, signal.SIGHUP, ignored)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a.txt").read_text() == "new"

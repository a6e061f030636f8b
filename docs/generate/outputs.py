"""Run the commands that the docs show with their output, and write what they print now beside them.

    python docs/generate/outputs.py            rewrite README.md and the pages
    python docs/generate/outputs.py --check    only say where they differ; exit status 1 if they do

A block that begins with ```console holds commands, each on a line that starts with `$ `, and below each what it prints.
A command that asks http://127.0.0.1:8765 asks a server that is started for it, of the model `stream`, on another port.
Numbers may differ a little between processors: a difference of up to 0.02 is none.
"""

import argparse
import atexit
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOLERANCE = 0.02
ADDRESS = "http://127.0.0.1:8765"

_BLOCK = re.compile(r"(?ms)^(?P<open>```console\n)(?P<body>.*?)^(?P<close>```)$")
_NUMBER = re.compile(r"\d+\.\d+")


def pages() -> list[Path]:
    """README.md and the pages of the docs that show commands with their output."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [file for file in files if _BLOCK.search(file.read_text(encoding="utf-8"))]


def commands(body: str) -> Iterator[tuple[str, str]]:
    """Each command of a block with the output that the block shows."""
    for part in re.split(r"(?m)^\$ ", body)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


@cache
def server() -> str:
    """The address of a server, which ends with this program."""
    code = "from kws_edge.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--models", "stream", "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    assert process.stderr is not None
    return next(line["url"] for line in map(json.loads, process.stderr) if line["message"] == "listening")


def run(command: str) -> str:
    """What a command prints at the top of the checkout, with this Python's own `kws-edge`."""
    if ADDRESS in command:
        command = command.replace(ADDRESS, server())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"}
    shell = ["bash", "-euo", "pipefail", "-c", command]
    done = subprocess.run(shell, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout if not done.stdout or done.stdout.endswith("\n") else done.stdout + "\n"


def renewed(text: str) -> str:
    """A page's text with what its commands print now."""

    def block(match: re.Match[str]) -> str:
        body = "".join(f"$ {command}\n{run(command)}" for command, _ in commands(match["body"]))
        return match["open"] + body + match["close"]

    return _BLOCK.sub(block, text)


def same(shown: str, printed: str) -> bool:
    """Whether two outputs say the same, but for small differences of their decimal numbers."""
    if _NUMBER.sub("#", shown) != _NUMBER.sub("#", printed):
        return False
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(printed), strict=True)
    return all(abs(float(a) - float(b)) <= TOLERANCE for a, b in pairs)


def differences(page: Path) -> Iterator[str]:
    """The commands of a page that print something else than it shows, each with both."""
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        for command, shown in commands(match["body"]):
            if not same(shown, printed := run(command)):
                yield f"{page.relative_to(ROOT)}: $ {command}\nshown:\n{shown}printed:\n{printed}"


def main() -> int:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say where the pages differ")
    check = parser.parse_args().check
    found = False
    for page in pages():
        if check:
            for difference in differences(page):
                print(difference)
                found = True
            continue
        text = page.read_text(encoding="utf-8")
        if (new := renewed(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
    return int(found)


if __name__ == "__main__":
    sys.exit(main())

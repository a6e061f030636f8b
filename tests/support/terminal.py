"""What a terminal shows while `kws-edge listen` replays a recording in real time: frames of the live display as text.

    pip install pyte
    python tests/support/terminal.py kws_edge/samples/demo.flac 3.9 6.8 13

The command runs in a pseudo-terminal of 100 columns; after each of the given seconds of the recording, the screen as a
terminal emulator has it is printed, and at the end the last one.
"""

import os
import pty
import select
import struct
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pyte

COLUMNS, ROWS = 100, 24


def frames(recording: str, moments: list[float], options: list[str]) -> list[str]:
    """The screen at each of the moments, in seconds after the display appears, and at the end."""
    command = [str(Path(sys.executable).with_name("kws-edge")), "listen", "--replay", recording, *options]
    process, terminal = pty.fork()
    if process == 0:
        os.execve(command[0], command, {**os.environ, "TERM": "xterm-256color"})
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    taken: list[str] = []
    started = 0.0
    while True:
        ready, _, _ = select.select([terminal], [], [], 0.05)
        try:
            output = os.read(terminal, 65536) if ready else b""
        except OSError:  # how a pseudo-terminal says that the other side is gone
            break
        stream.feed(output)
        started = started or (time.monotonic() if output.strip() else 0.0)
        quiet = not ready  # in the middle of a drawing, half of the screen is old
        while quiet and started and len(taken) < len(moments) and time.monotonic() - started >= moments[len(taken)]:
            taken.append(text(screen))
    os.waitpid(process, 0)
    return [*taken, text(screen)]


def text(screen: pyte.Screen) -> str:
    """The screen's lines, without what is empty at their ends."""
    return "\n".join(line.rstrip() for line in screen.display).rstrip()


if __name__ == "__main__":
    recording, *rest = sys.argv[1:]
    moments = [float(word) for word in rest if not word.startswith("-")]
    for i, frame in enumerate(frames(recording, moments, [word for word in rest if word.startswith("-")])):
        print(f"--- {f'{moments[i]:g} s' if i < len(moments) else 'at the end'}\n{frame}\n")

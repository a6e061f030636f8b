"""Memory that only the start needed is given back, and everything works as before."""

import json
import subprocess
import sys

import pytest
from paths import ROOT

from kws_edge import memory

PROGRAM = """
import numpy as np
from kws_edge import KeywordModel
from kws_edge.bench.machine import resident_memory
from kws_edge.memory import release_start

model = KeywordModel.load()
clip = "kws_edge/samples/yes.flac"
before = model.classify(clip)
held = resident_memory()
assert release_start()
after = model.classify(clip)
print(held - resident_memory(), after.label, np.array_equal(before.alpha, after.alpha))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked for its pages back")
def test_a_loaded_model_takes_less_memory_and_gives_the_same_answer() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=ROOT)
    less, label, same = done.stdout.split()
    assert float(less) > 8  # MB
    assert (label, same) == ("yes", "True")


def test_without_docstrings_a_stream_hears_the_same() -> None:
    def events(*options: str) -> list[dict[str, object]]:
        listen = ["listen", "--fast", "--json", "--replay", "kws_edge/samples/yes.flac"]
        command = [sys.executable, *options, "-c", "from kws_edge.cli import main; main()", *listen]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        return [{**json.loads(line), "clock": None} for line in done.stdout.splitlines()]

    assert events("-OO") == events() != []


def test_code_that_was_written_to_is_told_apart() -> None:
    smaps = (
        b"00400000-00452000 r-xp 00000000 08:02 1  /usr/lib/a.so\nRss: 8 kB\nAnonymous:        0 kB\nVmFlags: rd ex\n"
        b"00500000-00501000 r-xp 00000000 08:02 2  /usr/lib/b.so\nAnonymous:        4 kB\n"
        b"00600000-00601000 rw-p 00000000 08:02 3  /usr/lib/b.so\nAnonymous:        4 kB\n"
        b"00700000-00701000 r-xp 00000000 00:00 0  [vdso]\nAnonymous:        0 kB\n"
        b"00800000-00801000 r--p 00000000 08:02 4  /usr/lib/a.so\nAnonymous:        0 kB\n"
    )
    assert list(memory._code(smaps, smaps)) == [(0x400000, 0x452000), (0x800000, 0x801000)]


def test_addresses_that_an_emulator_shifted_are_left_alone() -> None:
    maps = b"10000-44b000 r-xp 00000000 fe:00 1 /usr/bin/python3\n44b000-45f000 ---p 00000000 00:00 0\n"
    smaps = b"00011000-0044c000 r--p 00000000 fe:00 1  /usr/bin/python3\nRss: 8 kB\nAnonymous:        0 kB\n"
    assert not list(memory._code(maps, smaps))


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert not memory.release_start()

"""How far `kws-export wake` is, told where there is no terminal."""

import pytest

from kws_export.wake import progress
from kws_export.wake.progress import TerminalProgress


@pytest.mark.parametrize(
    ("every", "lines"), [(0.0, ["training", "training: 1 of 2", "training: 2 of 2"]), (60.0, ["training"])]
)
def test_a_log_gets_a_line_now_and_then(
    every: float, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", every)
    with TerminalProgress() as shown:
        shown.start("training", 2)
        shown.step()
        shown.step()
    assert capsys.readouterr().out.splitlines() == lines

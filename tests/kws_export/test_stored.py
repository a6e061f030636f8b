"""Where a command may write."""

from pathlib import Path

import pytest

from kws_edge.errors import SettingError
from kws_export.stored import check_card


def test_a_text_that_is_no_card_is_not_written_over_by_one(tmp_path: Path) -> None:
    (tmp_path / "lamp.md").write_text("# What to buy\n")
    with pytest.raises(SettingError, match=r"lamp\.md exists"):
        check_card(tmp_path / "lamp.onnx", overwrite=False)
    check_card(tmp_path / "lamp.onnx", overwrite=True)


@pytest.mark.parametrize("beside", ["lamp.onnx", "x.onnx"])
def test_a_card_is_written_anew_with_its_model_or_after_a_stopped_command(tmp_path: Path, beside: str) -> None:
    (tmp_path / "lamp.md").write_text("# lamp\n\nListens for **lamp**.\n" if beside == "x.onnx" else "")
    (tmp_path / beside).touch()
    check_card(tmp_path / "lamp.onnx", overwrite=False)

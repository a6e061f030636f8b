"""Where a command may write."""

from pathlib import Path

import pytest

from kws_edge.errors import SettingError
from kws_export.stored import check_card, check_new


def test_a_file_is_written_over_where_that_is_meant(tmp_path: Path) -> None:
    check_new(tmp_path / "mean.pt", overwrite=False)
    (tmp_path / "mean.pt").touch()
    check_new(tmp_path / "mean.pt", overwrite=True)
    with pytest.raises(SettingError, match=r"mean\.pt exists; expected a new name, or --force to write over it"):
        check_new(tmp_path / "mean.pt", overwrite=False)


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

"""A model's copy with other metadata, and the forms beside it."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_model import METADATA, build, save

from kws_edge.errors import ModelError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.tuning.record import write_forms

OTHER = replace(METADATA, licence="other")


def test_a_model_and_its_forms_are_copied_together(tmp_path: Path) -> None:
    source, out = save(tmp_path), tmp_path / "out.onnx"
    source.with_suffix(".step.onnx").write_bytes(build())
    write_forms(source, out, OTHER, overwrite=False)
    assert [KeywordModel.load(path).metadata.licence for path in (out, tmp_path / "out.step.onnx")] == ["other"] * 2


def test_the_model_is_written_last_so_that_one_that_is_there_has_its_forms(tmp_path: Path) -> None:
    source, out = save(tmp_path), tmp_path / "out.onnx"
    source.with_suffix(".step.onnx").write_bytes(b"damaged")
    with pytest.raises(ModelError):
        write_forms(source, out, OTHER, overwrite=False)
    assert not out.exists()

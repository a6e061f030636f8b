"""A model's copy with other metadata, and the forms beside it."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_model import METADATA, build, save

from kws_edge.errors import ModelError, SettingError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.tuning.record import FORMS, remove_forms, write_forms

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


@pytest.mark.parametrize("has_form", [True, False])
def test_a_form_that_exists_is_not_overwritten_unasked_and_nothing_is_written(tmp_path: Path, has_form: bool) -> None:
    source, out = save(tmp_path), tmp_path / "out.onnx"
    if has_form:
        source.with_suffix(".step.onnx").write_bytes(build())
    (tmp_path / "out.step.onnx").write_bytes(b"precious")
    with pytest.raises(SettingError, match=r"out\.step\.onnx exists; expected a new name, or --force"):
        write_forms(source, out, OTHER, overwrite=False)
    assert (tmp_path / "out.step.onnx").read_bytes() == b"precious"
    assert not out.exists()


def test_over_another_model_none_of_its_forms_stays(tmp_path: Path) -> None:
    source, out = save(tmp_path), tmp_path / "out.onnx"
    source.with_suffix(".audio.onnx").write_bytes(build())
    for form in (".onnx", *FORMS):
        out.with_suffix(form).write_bytes(b"of another network")
    write_forms(source, out, OTHER, overwrite=True)
    assert sorted(path.name for path in tmp_path.glob("out.*")) == ["out.audio.onnx", "out.onnx"]
    assert KeywordModel.load(out.with_suffix(".audio.onnx")).metadata.licence == "other"


def test_a_new_model_without_forms_leaves_none_of_the_one_before(tmp_path: Path) -> None:
    out = save(tmp_path)
    for form in FORMS:
        out.with_suffix(form).write_bytes(b"another network")
    out.with_suffix(".md").write_text("a card")
    remove_forms(out)
    remove_forms(out)  # there being none is fine
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([out.name, out.with_suffix(".md").name])


def test_a_form_that_cannot_be_removed_is_an_error_that_names_it(tmp_path: Path) -> None:
    out = save(tmp_path)
    out.with_suffix(FORMS[0]).mkdir()
    with pytest.raises(SettingError, match=rf"cannot remove .*{FORMS[0]}"):
        remove_forms(out)


def test_a_form_is_no_source_of_a_model_whose_form_it_is(tmp_path: Path) -> None:
    form = save(tmp_path).rename(tmp_path / "out.step.onnx")
    with pytest.raises(SettingError, match="is the model itself"):
        write_forms(form, tmp_path / "out.onnx", OTHER, overwrite=True)
    assert form.exists()

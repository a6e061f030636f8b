"""Metadata written into a copy of a model's file: onnx reads the same model, with the new text, and nothing else."""

import contextlib
import stat
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_edge.errors import ModelError, SettingError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import KEY
from kws_edge.model.onnx_file import check_target, with_metadata, write_copy

NEW = replace(tiny_model.METADATA, stream={"settings": {"smoothing": 0.25}, "note": "ö" * 300})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tiny_model.save(tmp_path)


def test_a_copy_loads_with_the_new_metadata_and_the_old_graph(source: Path, tmp_path: Path) -> None:
    write_copy(source, tmp_path / "deeper" / "copy.onnx", NEW)
    copy = KeywordModel.load(tmp_path / "deeper" / "copy.onnx")
    assert copy.metadata == NEW
    before, after = onnx.load(source), onnx.load(copy.path)
    assert after.graph == before.graph
    onnx.checker.check_model(after, full_check=True)


def test_the_source_is_never_touched(source: Path, tmp_path: Path) -> None:
    before = source.read_bytes()
    write_copy(source, tmp_path / "copy.onnx", NEW)
    assert source.read_bytes() == before


def test_writing_twice_changes_nothing_more() -> None:
    once = with_metadata(tiny_model.build(), NEW)
    assert with_metadata(once, NEW) == once


def test_metadata_that_were_absent_are_added() -> None:
    model = onnx.load_from_string(with_metadata(tiny_model.build(None), NEW))
    assert {p.key: p.value for p in model.metadata_props} == {KEY: NEW.to_json()}


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
properties = st.lists(st.tuples(texts | st.sampled_from([KEY, "author"]), texts), max_size=5)


@given(properties, texts, texts, st.integers(-(2**63), 2**63 - 1), st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_onnx_reads_what_it_would_have_read_with_the_text_replaced(
    props: list[tuple[str, str]], producer: str, doc: str, version: int, weights: bytes
) -> None:
    model = onnx.ModelProto(ir_version=8, producer_name=producer, doc_string=doc, model_version=version)
    model.opset_import.append(onnx.helper.make_opsetid("", 17))
    model.graph.initializer.append(onnx.TensorProto(name="w", raw_data=weights, dims=[-1, len(weights)]))
    for key, value in props:
        model.metadata_props.add(key=key, value=value)
    changed = onnx.load_from_string(with_metadata(model.SerializeToString(), NEW))
    found = [(p.key, p.value) for p in changed.metadata_props]
    assert found == [(key, value) for key, value in props if key != KEY] + [(KEY, NEW.to_json())]
    del model.metadata_props[:], changed.metadata_props[:]
    assert changed == model


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_either_kept_or_refused(data: bytes) -> None:
    with contextlib.suppress(ModelError):
        changed = with_metadata(data, NEW)
        assert with_metadata(changed, NEW) == changed


def test_a_file_that_ends_early_is_refused(source: Path, tmp_path: Path) -> None:
    source.write_bytes(source.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"tiny.onnx: ends within the field at byte \d+; expected a whole ONNX file"):
        write_copy(source, tmp_path / "copy.onnx", NEW)
    assert not (tmp_path / "copy.onnx").exists()


def test_a_missing_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent.onnx: .*expected an ONNX file"):
        write_copy(tmp_path / "absent.onnx", tmp_path / "copy.onnx", NEW)


def test_an_existing_file_is_kept_unless_it_may_be_overwritten(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.onnx"
    target.write_bytes(b"precious")
    with pytest.raises(SettingError, match=r"copy.onnx exists; expected a new name, or --force to write over it"):
        write_copy(source, target, NEW)
    assert target.read_bytes() == b"precious"
    write_copy(source, target, NEW, overwrite=True)
    assert KeywordModel.load(target).metadata == NEW


def test_the_model_itself_is_never_overwritten(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link.onnx").symlink_to(source)
    for target in (source, tmp_path / "link.onnx"):
        with pytest.raises(SettingError, match="is the model itself"):
            write_copy(source, target, NEW, overwrite=True)


def test_a_target_that_could_not_be_loaded_by_its_name_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"copy; expected a name that ends in .onnx"):
        check_target(source, tmp_path / "copy", overwrite=False)


def test_a_failure_leaves_nothing_behind(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(SettingError, match=r"cannot write .*copy.onnx: No space left on device"):
        write_copy(source, tmp_path / "copy.onnx", NEW)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.onnx"]


def test_a_copy_may_be_read_by_whom_the_model_may(source: Path, tmp_path: Path) -> None:
    source.chmod(0o644)
    write_copy(source, tmp_path / "copy.onnx", NEW)
    assert stat.S_IMODE((tmp_path / "copy.onnx").stat().st_mode) == 0o644

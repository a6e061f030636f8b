"""Shared by the tests of the device side: the small model of tiny_model.py as a file, and loaded."""

from pathlib import Path

import pytest
from tiny_model import save

from kws_edge import KeywordModel


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def model(path: Path) -> KeywordModel:
    return KeywordModel.load(path)

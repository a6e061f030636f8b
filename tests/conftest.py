"""Shared fixtures: where the real recordings are, and what to do without them."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real recordings (KWS_EDGE_DATA, or shared/data beside the checkout); skips where it is absent."""
    folder = Path(os.environ.get("KWS_EDGE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "speech_commands").is_dir():
        pytest.skip(f"needs the recordings: no speech_commands in {folder}; set KWS_EDGE_DATA to their folder")
    return folder

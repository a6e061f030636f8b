"""Shared fixtures: where the real recordings are, what to do without them, and a small data set made of tones."""

import os
import secrets
import signal
from pathlib import Path

import hypothesis
import pytest
from paths import ROOT

# Where the tests run in a shell's background, Ctrl-C is ignored, and every program that they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What decides whether a change lands may not depend on the machine's speed (a deadline for each example, a health check
# of how fast examples come) nor on what chance drew this time. `--hypothesis-profile=explore` draws anew.
SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("explore", deadline=None, suppress_health_check=SLOW)
hypothesis.settings.register_profile("gate", deadline=None, suppress_health_check=SLOW, derandomize=True)
hypothesis.settings.load_profile("gate")

# Ray reads these once in a process, so that they must be the same for all the clusters of the tests.
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",  # its machines listen to the network
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # else one is written to the home folder
    "RAY_worker_niceness": "0",  # by default its workers stand back behind every other process, at 15
}


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real recordings (KWS_EDGE_DATA, or shared/data beside the checkout); skips where it is absent."""
    folder = Path(os.environ.get("KWS_EDGE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "speech_commands").is_dir():
        pytest.skip(f"needs the recordings: no speech_commands in {folder}; set KWS_EDGE_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set of tone_words.py."""
    import tone_words

    return tone_words.write(tmp_path_factory.mktemp("tones") / "data")


@pytest.fixture(scope="session")
def tone_run(tones: Path) -> Path:
    """A finished run on it: tone_words.recipe() to the end, with one thread. Not to be written to."""
    import tone_words

    with tone_words.one_thread():
        tone_words.run(tone_words.trainer(tones, tones.parent / "run", tone_words.recipe()))
    return tones.parent / "run"

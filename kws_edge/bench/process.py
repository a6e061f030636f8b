"""A worker process (`kws_edge.bench.worker`) as the benchmark sees it: started, asked for rounds, ended."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import kws_edge.errors
from kws_edge.bench.report import Case
from kws_edge.errors import ProviderError

_PATIENCE = 300.0  # s in which a worker answers; some providers compile a model when they load it
_COMMAND = [sys.executable, "-P", "-m", "kws_edge.bench.worker"]


class WorkerProcess:
    """A process that measures one case.

    Attributes
    ----------
    started : what starting it took, and what runs.
    """

    def __init__(self, case: Case, hop: float, warm_up: float) -> None:
        """Start it, load and warm up the model.

        Raises
        ------
        ProviderError : the case's provider is not what runs, or the process ended or went silent.
        ModelError, SettingError : as the model and the stream raise them.
        """
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `_end` closes it
        path = os.pathsep.join(filter(None, (str(Path(kws_edge.__file__).parent.parent), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": path},
        )
        try:
            self.started = self._ask({**case._asdict(), "hop": hop, "warm_up": warm_up})
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        """Nothing more."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._end()

    def round(self, seconds: float) -> dict[str, Any]:
        """Time decisions for so long. Raises ProviderError where the process ended or went silent."""
        return self._ask({"seconds": seconds})

    def finish(self, seconds: float) -> dict[str, Any]:
        """Memory and the graph alone, which is timed for so long.

        Raises
        ------
        ProviderError : no node of the graph runs on the case's provider, or the process ended or went silent.
        """
        answer = self._ask({"finish": seconds})
        provider, nodes = self.started["provider"], answer["nodes"]
        if not nodes.get(provider):
            found = ", ".join(f"{name} {count}" for name, count in nodes.items())
            raise ProviderError(f"loads, but no node of the model runs on it (nodes: {found})")
        return answer

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(_PATIENCE, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            silent = not watch.is_alive()
            watch.cancel()
        if not line:
            raise ProviderError(f"no answer in {_PATIENCE:g} s" if silent else self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            kind = getattr(kws_edge.errors, answer["error"], ProviderError)
            raise kind(answer["message"])
        return answer

    def _last_words(self) -> str:
        """How the process ended."""
        status = self._process.wait()
        how = f"status {status}"
        if status < 0:
            with suppress(ValueError):  # a signal that has no name
                how = signal.Signals(-status).name
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return f"the process ended with {how}{f': {said[-1].strip()}' if said else ''}"

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

"""ONNX Runtime: the one way in which sessions are opened here, and the names of its execution providers."""

from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime as ort

from kws_edge.arrays import F32
from kws_edge.errors import SettingError

_SUFFIX = "ExecutionProvider"
CPU: Final = f"CPU{_SUFFIX}"
REMOTE: Final = frozenset({"azure"})
"""Providers that send to a server what its own operators ask for, and never run a model of this package."""

OUTPUTS: Final = ("class", "alpha", "vacuity", "entropy")
"""What every model file gives, by name."""


def available_providers() -> tuple[str, ...]:
    """The execution providers of this build of onnxruntime; their device or driver may still be missing.

    Examples
    --------
    >>> from kws_edge import available_providers
    >>> "cpu" in available_providers()
    True
    """
    return tuple(short_name(name) for name in ort.get_available_providers())


def full_name(provider: str) -> str:
    """Onnxruntime's name of a provider, such as "cuda". Raises SettingError where it knows none of that name."""
    known = {short_name(name): name for name in ort.get_all_providers()}
    try:
        return known[provider.lower()]
    except (KeyError, AttributeError):
        raise SettingError(f"unknown execution provider {provider!r}; expected one of {', '.join(known)}") from None


def short_name(provider: str) -> str:
    """The name that people type for onnxruntime's."""
    return provider.removesuffix(_SUFFIX).lower()


def open_session(
    data: bytes,
    provider: str,
    threads: int,
    *,
    profile: Path | None = None,
    optimised: Path | None = None,
    layouts: bool = True,
) -> ort.InferenceSession:
    """Open a model on a provider, or on the CPU where the provider is not there; `get_providers` says which it is.

    None of its threads spins in waiting. Onnxruntime's errors, which have no class in common, come as they are.

    Parameters
    ----------
    data : the ONNX file.
    provider : onnxruntime's name of it.
    threads : of one run.
    profile : onnxruntime writes a profile of each node here, with more to the name, until `end_profiling`.
    optimised : onnxruntime writes the graph here as it runs it, fused and for this processor.
    layouts : whether tensors may be laid out as this processor likes them, by operators that others do not need.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4  # what goes wrong is raised, and need not be printed too
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    if not layouts:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    if optimised:
        options.optimized_model_filepath = str(optimised)
    wanted = {provider: None, CPU: None}  # in this order, each once
    providers = [name for name in wanted if name in ort.get_available_providers()]
    session = ort.InferenceSession(data, options, providers=providers, enable_fallback=0)
    session.disable_fallback()  # to another provider, in silence
    session._model_bytes = None  # which it keeps for a fallback alone
    return session


def zero_states(session: ort.InferenceSession, batch: int = 1) -> dict[str, F32]:
    """The states of a step form at the start of a stream: float32 zeros [batch, ...]; nothing elsewhere."""
    states = (i for i in session.get_inputs() if i.name.startswith("state_"))
    return {i.name: np.zeros((batch, *i.shape[1:]), np.float32) for i in states}

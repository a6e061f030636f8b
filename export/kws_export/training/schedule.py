"""The learning-rate schedule: linear warm-up, hold at the peak, polynomial decay."""

from kws_edge.errors import SettingError


def warmup_hold_decay(
    step: int,
    total_steps: int,
    *,
    peak: float = 0.05,
    final: float = 0.001,
    warmup: float = 0.05,
    hold: float = 0.45,
    power: float = 2,
) -> float:
    """Learning rate of a step, counted from 0, in a run of `total_steps`.

    Rises linearly over the first `warmup` of the run (its last step is at `peak`, its first is already above 0), stays
    at `peak` for `hold` of the run, then falls as final + (peak − final)·(1 − x)^power, x the part of the decay done;
    the last step of the run is at `final`, unless there is no decay: then it is at `peak`. Any beyond it is at `final`.

    Parameters
    ----------
    peak, final : learning rates.
    warmup, hold : fractions of the run, each from 0, together at most 1.
    power : order of the decay; 2 is the original's.

    Raises
    ------
    SettingError : an empty run, a negative step, or fractions or a power outside their range.

    Examples
    --------
    >>> [round(warmup_hold_decay(step, total_steps=10, warmup=0.2, hold=0.3), 4) for step in range(10)]
    [0.025, 0.05, 0.05, 0.05, 0.05, 0.0324, 0.0186, 0.0088, 0.003, 0.001]
    """
    if total_steps < 1 or step < 0:
        raise SettingError(f"step {step} of {total_steps}; expected a step from 0 and a run of at least 1")
    if not (warmup >= 0 and hold >= 0 and warmup + hold <= 1):  # so that NaN is refused too
        raise SettingError(f"warmup={warmup}, hold={hold}; expected fractions from 0 that add up to at most 1")
    if not power > 0:
        raise SettingError(f"power={power}; expected a number above 0")
    hold_from = round(warmup * total_steps)
    decay_from = round((warmup + hold) * total_steps)
    if step >= total_steps:
        return final
    if step < hold_from:
        return peak * ((step + 1) / hold_from)  # in this order the last step is at `peak` to the bit
    if step < decay_from:
        return peak
    done = (step + 1 - decay_from) / (total_steps - decay_from)
    return final + (peak - final) * float((1 - done) ** power)

"""What each variant's loss costs to compute, as `python bench/losses.py --json` measures it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kws_edge.errors import SettingError
from kws_edge.files import read_text
from kws_edge.model.variants import COMPARED, VARIANTS
from kws_export.report.tables import Table


@dataclass(frozen=True, slots=True)
class LossTimes:
    """Microseconds for value and gradient of a batch.

    Attributes
    ----------
    batch : its clips.
    network : of the same batch through the network, forth and back.
    losses : by the variant's name.
    """

    batch: int
    network: float
    losses: Mapping[str, float]

    @classmethod
    def load(cls, path: Path) -> "LossTimes":
        """Read what the benchmark wrote. Raises SettingError where the file holds no such thing."""
        try:
            found = json.loads(read_text(path))
            losses = {name: float(found["loss_us"][name]) for name in COMPARED}
            return cls(int(found["batch"]), float(found["network_us"]), losses)
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise SettingError(
                f"{path} holds no times of the losses ({error!r}); expected what `python bench/losses.py --json` writes"
            ) from None


def loss_times_table(times: LossTimes) -> Table:
    """Time by variant, and its share of a training step."""
    rows = []
    for name, value in sorted(times.losses.items(), key=lambda item: item[1]):
        v = VARIANTS[name]
        share = f"{100 * value / (times.network + value):.2f}"
        rows.append([f"`{name}`", v.loss, "yes" if v.kl_ramp_epochs else "no", f"{value / 1000:.2f}", share])
    return Table(
        "loss-times",
        f"Value and gradient of each loss on a batch of {times.batch}, one core",
        "ms of CPU time, median over rounds in which the variants take turns (`python bench/losses.py`), and the share "
        f"of a training step in %, the network's {times.network / 1000:.0f} ms forth and back being the rest.",
        ["variant", "data loss", "KL term", "ms", "of a step"],
        rows,
    )

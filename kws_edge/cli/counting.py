"""`kws-edge bench --count`: what a decision takes, counted."""

import json
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kws_edge.bench.count import Work
    from kws_edge.model.keyword_model import KeywordModel


def show_counts(models: Sequence[str], hop: float, *, as_json: bool) -> None:
    """Print what each model takes, and what that would take on named boards."""
    from kws_edge.bench.count import count
    from kws_edge.model.keyword_model import KeywordModel

    results = []
    for name in models:
        model = KeywordModel.load(name)
        works = count(model, hop)
        results.append(_result(model, works, hop))
        if not as_json:
            _show(model, works, results[-1], hop)
    if as_json:
        click.echo(json.dumps({"hop": hop, "models": results}, allow_nan=False))


def _result(model: "KeywordModel", works: Sequence["Work"], hop: float) -> dict[str, Any]:
    from kws_edge.bench.boards import BOARDS
    from kws_edge.bench.counters import Counted, measure

    counted = measure(_steady_hop(model, hop))
    by_name = {work.what: work for work in works}
    estimates = [
        {
            "board": board.name,
            "core": board.core,
            **{f"{what}_ms": 1e3 * board.seconds(by_name[what]) for what in ("hop", "clip")},
            "hop_least_ms": 1e3 * board.least_seconds(by_name["hop"]),
            "core_share": board.seconds(by_name["hop"]) / hop,
        }
        for board in BOARDS
    ]
    return {
        "model": model.name,
        "work": [work.to_dict() for work in works],
        "hop_counters": counted._asdict() if isinstance(counted, Counted) else None,
        "hop_counters_missing": None if isinstance(counted, Counted) else counted,
        "estimates": estimates,
    }


def _steady_hop(model: "KeywordModel", hop: float) -> Callable[[], object]:
    """The next hop of a stream in which the network looks at every one; warm."""
    from kws_edge.bench.workload import WARM_UP, restless_noise
    from kws_edge.stream.spotter import Spotter

    spotter, chunks = Spotter(model, hop=hop), list(islice(restless_noise(hop), round(max(WARM_UP, 1.0) / hop)))
    for chunk in chunks:
        spotter.push(chunk)
    again = cycle(chunks)
    return lambda: spotter.push(next(again))


def _show(model: "KeywordModel", works: Sequence["Work"], result: dict[str, Any], hop: float) -> None:
    from kws_edge.cli.bench import print_table

    heading = ["", "multiply-adds", "front end", "network", "weights kB", "in, out, states kB", "between kB", "calls"]
    cells = [
        [
            work.what,
            f"{work.total / 1e6:.2f} M",
            f"{work.front_end / 1e6:.2f} M",
            f"{work.multiply_adds / 1e6:.2f} M",
            *(f"{size / 1e3:.0f}" for size in (work.weight_bytes, work.edge_bytes, work.inner_bytes)),
            str(work.calls),
        ]
        for work in works
    ]
    print_table(f"{model.name}: what a window, a hop of {hop:g} s and a clip of 1 s take", heading, cells, names=1)
    if result["hop_counters"]:
        numbers = result["hop_counters"]
        click.echo(f"a hop: {numbers['instructions']:.3g} instructions, {numbers['cycles']:.3g} cycles, on this core")
    else:
        click.echo(f"instructions and cycles: {result['hop_counters_missing']}")
    heading = ["board", "core", "hop ms", "at least", "clip ms", "of a core"]
    cells = [
        [
            e["board"],
            e["core"],
            f"{e['hop_ms']:.1f}",
            f"{e['hop_least_ms']:.2f}",
            f"{e['clip_ms']:.0f}",
            f"{e['core_share']:.1%}",
        ]
        for e in result["estimates"]
    ]
    print_table("Estimates, not measured: half to twice as much is to be expected", heading, cells, names=2)

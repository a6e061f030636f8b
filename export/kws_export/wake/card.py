"""The card of a wake word model: what it was made from, how well it works, under which licences."""

from collections.abc import Mapping

from kws_edge.model.metadata import Metadata
from kws_edge.tuning.evaluation import Rate, StreamReport
from kws_edge.tuning.false_accepts import SOUNDS, FalseAccepts, duration, interval
from kws_edge.tuning.points import Point
from kws_export.data.credit import licence_links
from kws_export.texts import cell
from kws_export.wake.provenance import Provenance
from kws_export.wake.settings import WakeSettings


def wake_card(
    metadata: Metadata,
    size: int,
    settings: WakeSettings,
    made_from: Provenance,
    point: Point,
    conditions: Mapping[str, StreamReport],
    apart: Mapping[str, StreamReport],
) -> str:
    """Write the card, as markdown."""
    rows = _measured(settings, point, conditions, apart)
    delay = point.words.delay(0.5)
    recordings = (
        []
        if made_from.recordings
        else [
            "It was trained and measured without recordings of people: only speech synthesisers say the word. "
            "Expect to miss people more often than the table says.",
            "",
        ]
    )
    sources = [
        f"| {cell(credit.name)} | {cell(credit.licence)} | {cell(credit.by)} | {use} |"
        for credit, use in made_from.credits.items()
    ]
    links = licence_links(made_from.credits)
    return "\n".join(
        [
            f"# {metadata.name}",
            "",
            f"Listens for {' and '.join(f'**{w}**' for w in settings.labels)} in a stream, and ignores "
            f"everything else. {metadata.training['parameters']:,} parameters, {size / 1000:.0f} kB.",
            "",
            *recordings,
            "Made by:",
            "",
            f"    {made_from.command}",
            "",
            "## What it does",
            "",
            f"Measured on {made_from.held_out}. The epoch and the threshold were chosen on them, so "
            "expect slightly less elsewhere: measure with `kws-edge evaluate-stream`.",
            "",
            "| | | |",
            "| --- | --- | --- |",
            *rows,
            f"| median delay after the word's end | {'–' if delay is None else f'{delay:.2f} s'} | |",
            "",
            f"The trade-off of misses and false accepts: {metadata.name}.svg.",
            "",
            "## Made from",
            "",
            f"- {made_from.data}",
            f"- {made_from.negatives}",
            f"- started from `{made_from.start_name}`; {settings.epochs} epochs of {settings.steps} steps, of which "
            f"{metadata.training['best_epoch']} is the best; seed {settings.seed}",
            "",
            f"The first network is `{made_from.start_name}`.",
            "",
            "| source | licence | by | used for |",
            "| --- | --- | --- | --- |",
            *sources,
            "",
            "## Limits",
            "",
            "Not for safety-critical use. People, rooms and microphones unlike those above may be missed more often.",
            "",
            "## Licence and attribution",
            "",
            f"Weights: {metadata.licence}. Attribution of each source: the table above"
            + (f" ({links})" if links else "")
            + ". The recordings were changed for training: resampled, cut, mixed and placed in simulated rooms.",
            "",
        ]
    )


def _measured(
    settings: WakeSettings, point: Point, conditions: Mapping[str, StreamReport], apart: Mapping[str, StreamReport]
) -> list[str]:
    """The rows of the table of what it does."""
    rows = [
        f"| found {condition} | {_percent(report.hit_rate)} | {report.words} words |"
        for condition, report in conditions.items()
    ]
    if len(settings.labels) > 1:
        counts = point.words
        rows += [f"| of these, {w} | {counts.hits_of[w] / max(1, counts.words_of[w]):.1%} | |" for w in settings.labels]
    verdict = FalseAccepts(point.negatives, [SOUNDS]).verdict(settings.limit)
    rows += [
        f"| false accepts, {name} | {interval(report)} | {report.false_accepts} in {duration(report.seconds)} |"
        for name, report in point.negatives.items()
    ]
    rows.append(f"| limit of {settings.limit:g} an hour on false accepts | {verdict} | |")
    rows += [
        f"| events on {name}, said in succession, for which there is no limit | {report.false_accepts} | "
        f"in {duration(report.seconds)} |"
        for name, report in apart.items()
    ]
    return rows


def _percent(rate: Rate | None) -> str:
    return "–" if rate is None else f"{rate.value:.1%} (95 %: {rate.low:.1%} to {rate.high:.1%})"

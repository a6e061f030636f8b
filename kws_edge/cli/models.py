"""`kws-edge models`: list models, and describe one."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kws_edge.errors import ModelError
from kws_edge.text import one_line

if TYPE_CHECKING:
    from kws_edge.model.metadata import Metadata
    from kws_edge.model.selection import OperatingPoint
    from kws_edge.stream.settings import StreamSettings


@click.command()
@click.argument("name", required=False, metavar="[NAME|PATH]")
@click.option("--operators", is_flag=True, help="Print the operators that a reduced build of onnxruntime needs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each model, for scripts.")
def models(name: str | None, operators: bool, as_json: bool) -> None:
    """List the models that come with kws-edge, or describe one.

    The description of a shipped model, or of a file of your own, gives the words, the accuracy, the thresholds and the
    licence; for a model calibrated on streams also the thresholds for streams and the recordings behind them, which
    --json has under "stream".

    \b
    kws-edge models
    kws-edge models softmax
    kws-edge models my_model.onnx --json | jq .thresholds
    kws-edge models --operators > operators.config

    Exit status: 0 success; 2 no such model, or one that cannot be used.
    """
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.model.shipped import DEFAULT_MODEL, shipped_models

    if operators:
        _show_operators(name)
        return
    described = {key: KeywordModel.load(key).metadata for key in ([name] if name else shipped_models())}
    if as_json:
        for key, metadata in described.items():
            click.echo(json.dumps({"default": key == DEFAULT_MODEL, **json.loads(metadata.to_json())}))
    elif name:
        click.echo(_describe(described[name]))
    else:
        click.echo(f"  {'NAME':20} {'VARIANT':15} {'WORDS':>5} {'TEST ACCURACY':>14}")
        for key, metadata in described.items():
            mark = "*" if key == DEFAULT_MODEL else " "
            words = len(_words(metadata))
            click.echo(f"{mark} {key:20} {metadata.variant:15} {words:5} {_accuracy(metadata, 'test'):>14}")
        click.echo("* is the default.")


def _show_operators(name: str | None) -> None:
    """Print the operators of a model in all of its forms, or of all shipped ones."""
    from kws_edge.model.operators import needed_operators, to_config
    from kws_edge.model.shipped import find_model, shipped_models
    from kws_edge.tuning.record import FORMS

    files = [find_model(name)] if name else list(shipped_models().values())
    forms = [path for file in files for form in FORMS if (path := file.with_suffix(form)).exists()]
    click.echo(to_config(needed_operators([*files, *forms])), nl=False)


def _words(metadata: "Metadata") -> list[str]:
    from kws_edge.model.metadata import is_word

    return list(filter(is_word, metadata.labels))


def _accuracy(metadata: "Metadata", split: str) -> str:
    result = metadata.accuracy.get(split)
    return f"{result['accuracy']:.2%}" if result else "-"


def _describe(metadata: "Metadata") -> str:
    words = _words(metadata)
    lines = [metadata.name, f"  variant      {metadata.variant}", f"  words        {', '.join(words)}"]
    if others := [label for label in metadata.labels if label not in words]:
        lines.append(f"  other labels {', '.join(others)}, never an answer")
    for split, r in metadata.accuracy.items():
        lines.append(f"  {split:12} {r['accuracy']:.2%} right ({r['low']:.2%} to {r['high']:.2%}), {r['clips']} clips")
    for score, points in metadata.thresholds.items():
        for p in points:
            reached = _promise(p) if p.accepted else "not reached"
            lines.append(f"  {p.target:<12.1%} {score}{' (default)' if score == metadata.score else ''}: {reached}")
    if metadata.stream:
        try:
            lines += _stream(metadata)
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:  # it is free text
            raise ModelError(f"model {metadata.name}: stream: calibration: {error}; calibrate it again") from None
    for title, values in (("calibration", metadata.calibration), ("training", metadata.training)):
        lines += [f"  {title:12} {_pairs(values)}"]
    lines += [f"  licence      {metadata.licence}", f"  attribution  {metadata.attribution}"]
    return "\n".join(map(one_line, lines))


def _promise(p: "OperatingPoint") -> str:
    """A threshold, what it gave on the clips that it was calibrated on, and whether these show the target."""
    text = f"up to {p.threshold:.4g}, {p.coverage:.1%} of the calibration's clips accepted"
    if p.low is None or p.high is None:
        return text
    right = f"{p.accepted_accuracy:.2%} of them right (95 % interval {p.low:.2%} to {p.high:.2%})"
    return f"{text}, {right}: {'shown' if p.is_shown else f'{p.accepted} clips do not show it'}"


def _stream(metadata: "Metadata") -> list[str]:
    """The settings that `kws-edge listen` uses, and what they were calibrated on, as far as the file says it."""
    from kws_edge.stream.settings import StreamSettings, calibrated_words

    stream = metadata.stream or {}
    lines = _point("stream", StreamSettings.of(metadata), stream)
    lines.append(_calibrated_for(calibrated_words(metadata)))
    if isinstance(after := stream.get("after_wake"), Mapping):
        lines += _point("after wake", StreamSettings.after_wake(metadata), after)
        lines.append(_calibrated_for(calibrated_words(metadata, after_wake=True)))
    return lines


def _calibrated_for(words: Sequence[str] | None) -> str:
    return f"               calibrated for {', '.join(words or ['all words'])}"


def _point(title: str, settings: "StreamSettings", point: Mapping[str, Any]) -> list[str]:
    """Settings, the limit that they were chosen for, and what the recordings without words show of it."""
    from kws_edge.tuning.false_accepts import FalseAccepts

    limits = " and ".join(f"{score} up to {threshold:.4g}" for score, threshold in settings.thresholds.items())
    own = f", {len(settings.labels)} words with thresholds of their own" if settings.labels else ""
    crowding = f", crowding {settings.crowding:g}" if settings.crowding else ""
    lines = [f"  {title:12} {limits}{own}, smoothing {settings.smoothing:g} s{crowding}"]
    about = point.get("calibration")
    negatives = FalseAccepts.of(about)
    if isinstance(about, Mapping) and isinstance(limit := about.get("limit"), int | float):
        verdict = negatives.verdict(limit)
        lines.append(f"               limit {limit:g} an hour{f', {verdict}' if verdict else ''}")
    return lines + [f"                 {line}" for line in negatives.lines()]


def _pairs(values: Any) -> str:
    """What can be said in a line; the rest, such as the recipe, is for --json."""
    return ", ".join(f"{key} {value}" for key, value in values.items() if value and not isinstance(value, dict))

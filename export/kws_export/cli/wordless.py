"""`kws-export wordless`."""

import json
from pathlib import Path

import click

from kws_export.cli.options import cache_option, data_option, existing_file


@click.command()
@data_option
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test"]),
    default="test",
    show_default=True,
    help="Which clips to examine; of the test split those that the model's recipe lists, if it does.",
)
@click.option("--model", "model_file", type=existing_file, required=True, metavar="FILE.onnx", help="Model to measure.")
@cache_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each clip, for scripts.")
def wordless(data: Path, split: str, model_file: Path, cache: Path, as_json: bool) -> None:
    """List clips that hold no word, judged by their energy.

    The model's accuracy with and without them is printed too. A clip is listed if its loudest tenth of a second is
    below -55 dB of full scale, or less than 5 dB above the median level of the clip. No model can name a word in such a
    clip, but the accuracy without them is shown beside that of all clips, never in its place.

    \b
    kws-export wordless --data speech_commands --model models/softmax.onnx
    """
    from typing import cast

    import numpy as np

    from kws_edge.model.keyword_model import KeywordModel
    from kws_export.data.batches import split_features
    from kws_export.data.speech_commands import Split
    from kws_export.data.splits import load_split
    from kws_export.evaluation.metrics import accuracy_interval
    from kws_export.evaluation.scoring import score_clips
    from kws_export.evaluation.wordless import energies
    from kws_export.training.recipe import Recipe

    model = KeywordModel.load(model_file)
    recipe = model.metadata.training.get("recipe")
    test_list = Recipe.from_dict(recipe).test_list if recipe else ""
    clips = load_split(data, cast("Split", split), model.labels, cache, test_list=test_list)
    features = split_features(clips, model.metadata.front_end).numpy()
    found = list(energies(clips))
    right = score_clips(model, features, np.asarray(clips.labels)).correct
    for name, e, correct in zip(clips.names, found, right, strict=True):
        if e.holds_no_word:
            row = {"clip": name, "loudest_db": round(e.loudest, 1), "contrast_db": round(e.contrast, 1)}
            text = f"{name}  loudest {e.loudest:.1f} dB, {e.contrast:.1f} dB above its usual level"
            click.echo(json.dumps({**row, "named_right": bool(correct)}) if as_json else text)
    empty = np.array([e.holds_no_word for e in found])
    for what, some in ((f"all {len(right):,} clips", right), (f"without these {int(empty.sum())}", right[~empty])):
        if not len(some):
            click.echo(f"{what}: none is left", err=as_json)
            continue
        low, high = accuracy_interval(int(some.sum()), len(some))
        click.echo(f"{what}: {some.mean():.2%} right ({low:.2%} to {high:.2%})", err=as_json)

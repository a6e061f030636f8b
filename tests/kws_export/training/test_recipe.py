"""Recipes: what a TOML file may say, and what it is refused for."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from kws_edge.errors import SettingError
from kws_edge.model.variants import VARIANTS
from kws_export.training.recipe import Distillation, Recipe

RECIPES = sorted((ROOT / "export" / "recipes").glob("*.toml"))


def load(tmp_path: Path, text: str) -> Recipe:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return Recipe.load(path)


def test_a_variant_is_all_that_a_file_must_say(tmp_path: Path) -> None:
    assert load(tmp_path, 'variant = "softmax"') == Recipe(name="mine", variant="softmax")


def test_the_defaults_are_the_designs() -> None:
    r = Recipe(name="x", variant="softmax")
    assert (r.epochs, r.batch, r.repeat, r.channels) == (200, 128, 1, 64)
    assert (r.peak_lr, r.final_lr, r.warmup, r.hold) == (0.05, 0.001, 0.05, 0.45)
    a = r.augmentation
    assert (a.time_masks, a.time_width, a.band_masks, a.band_width, a.cutouts) == (2, 25, 2, 15, 5)
    assert a.white_noise_db == (-90, -46)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_loads_under_its_files_name(path: Path) -> None:
    assert Recipe.load(path).name == path.stem


def test_tables_go_into_the_settings_that_they_name(tmp_path: Path) -> None:
    r = load(
        tmp_path,
        """
        name = "noisy"
        variant = "plugin_ce"
        labels = ["yes", "no"]
        weight_decay = 0
        [augmentation]
        white_noise_db = [-60, -30.5]
        [negatives]
        share = 0.25
        [distillation]
        teacher = "models/softmax.onnx"
        """,
    )
    assert r.name == "noisy"
    assert r.labels == ("yes", "no")
    assert r.weight_decay == 0
    assert r.augmentation.white_noise_db == (-60, -30.5)
    assert r.negatives.share == 0.25
    assert r.distillation == Distillation("models/softmax.onnx", share=0.5, temperature=2)


def test_a_recipe_names_one_teacher_or_several(tmp_path: Path) -> None:
    several = load(tmp_path, 'variant = "softmax"\n[distillation]\nteacher = ["a.onnx", "runs/b"]')
    assert several.distillation.teachers == ("a.onnx", "runs/b")
    assert Recipe.from_dict(json.loads(json.dumps(several.to_dict()))) == several
    assert Distillation("a.onnx").teachers == ("a.onnx",)
    assert Distillation().teachers == ()


def test_a_recipe_survives_json() -> None:
    r = Recipe(name="x", variant="edl_ce", labels=("yes", "no"), weight_decay=0.5)
    assert Recipe.from_dict(json.loads(json.dumps(r.to_dict()))) == r
    assert Recipe.from_dict(r.to_dict()) == r


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_decay_only_without_a_kl_term(variant: str) -> None:
    expected = 0.0 if variant in {"edl_ce", "edl_mse", "plugin_ce_kl", "plugin_mse_kl", "softmax_kl"} else 1e-3
    assert Recipe(name="x", variant=variant).decay == expected
    assert Recipe(name="x", variant=variant, weight_decay=0.25).decay == 0.25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "without variant"),
        ('variant = "sofmax"', r"unknown variant 'sofmax'; expected one of edl_ce, .*softmax"),
        ('variant = "softmax"\nepoch = 3', "unknown epoch; expected among .*epochs"),
        ('variant = "softmax"\n[augmentation]\nshift = 3', r"\[augmentation\]: unknown shift; .*shift_ms"),
        ('variant = "softmax"\nnegatives = 0.3', r"\[negatives\]: 0.3; expected a table"),
        ('variant = "softmax"\nepochs = "40"', "epochs='40'; expected a whole number"),
        ('variant = "softmax"\nepochs = 40.0', "epochs=40.0; expected a whole number"),
        ('variant = "softmax"\nepochs = true', "epochs=True; expected a whole number"),
        ('variant = "softmax"\nepochs = 0', "epochs=0; expected at least 1"),
        ('variant = "softmax"\nbatch = 0', "batch=0"),
        ('variant = "softmax"\naverage = 1.0', "average=1.0; expected 0 to below 1"),
        ('variant = "softmax"\nmixup = -0.1', "mixup=-0.1; expected 0 to 10"),
        ('variant = "softmax"\n[augmentation]\nspeed = [0, 1]', "speed=.*; expected above 0"),
        ('variant = "softmax"\nseed = -1', "seed=-1; expected 0 to 1e"),
        ('variant = "softmax"\npeak_lr = nan', "peak_lr=nan; expected a number"),
        ('variant = "softmax"\npeak_lr = 0', "peak_lr=0; expected above 0"),
        ('variant = "softmax"\nfinal_lr = -1.0', "final_lr"),
        ('variant = "softmax"\nweight_decay = -1.0', "weight_decay=-1.0"),
        ('variant = "softmax"\nkl_end = 0.1', "kl_end=0.1 with softmax; expected a variant with a KL term"),
        ('variant = "edl_ce"\nkl_end = -0.1', "kl_end=-0.1 with edl_ce; expected at least 0"),
        ('variant = "edl_ce"\nkl_end = inf', "kl_end=inf"),
        ('variant = "softmax"\nwarmup = 0.6\nhold = 0.6', "warmup=0.6, hold=0.6; expected .* together at most 1"),
        ('variant = "softmax"\nbalance = 2', "balance=2; expected 0 to 1"),
        ('variant = "softmax"\nlabels = "yes"', "labels='yes'; expected a list of texts"),
        ('variant = "softmax"\nlabels = ["yes"]', "kws-export wake"),
        ('variant = "softmax"\nlabels = ["yes", "yes"]', "all to be different"),
        ('variant = "softmax"\nname = "my model"', "'my model'; expected printable characters without spaces"),
        ('variant = "softmax"\nname = "a/b"', "path separators"),
        ('variant = "softmax"\nname = "a\\u0000b"', r"recipe name 'a\\x00b'; expected printable characters"),
        ('variant = "softmax"\n[augmentation]\ngain_db = 6', r"gain_db=6; expected a list of two numbers"),
        ('variant = "softmax"\n[augmentation]\ngain_db = [6]', r"gain_db=\(6,\); expected two numbers"),
        ('variant = "softmax"\n[augmentation]\nshift_ms = inf', "shift_ms=inf; expected a number"),
        ('variant = "softmax"\npadding = "causal"', "padding='causal'; expected one of same, valid"),
        ('variant = "softmax"\npadding = "valid"\nrepeat = 2', "expected repeat=1"),
        ('variant = "belief_ce"\npadding = "valid"\nwindows = 0', "windows=0; expected"),
        (
            'variant = "belief_ce"\nwindows = 3',
            'windows=3; expected variant "belief_ce", padding "valid" and no teacher',
        ),
        ('variant = "softmax"\npadding = "valid"\nwindows = 3', "windows=3; expected"),
        ('variant = "softmax"\n[augmentation]\nstream_probability = 2', "stream_probability=2; expected 0 to 1"),
        ('variant = "plugin_ce"\n[negatives]\nshare = 1.0', "share=1.0; expected 0 to below 1"),
        ('variant = "softmax"\nchannels = 40', "channels=40; expected a multiple of 16"),
        ('variant = "softmax"\nchannels = 0', "channels=0; expected a multiple of 16"),
        ('variant = "softmax"\n[distillation]\nteacher = "x"\nshare = 0', "share=0; expected above 0, at most 1"),
        ('variant = "softmax"\n[distillation]\nteacher = "x"\nshare = 1.5', "share=1.5; expected above 0, at most 1"),
        ('variant = "softmax"\n[distillation]\nteacher = "x"\ntemperature = 0.5', "temperature=0.5; expected 1 to 20"),
        ('variant = "softmax"\n[distillation]\nteacher = ["x", ""]', "expected no empty text among several"),
        ('variant = "softmax"\n[distillation]\nteacher = 3', "teacher=3; expected a text or a list of texts"),
        ('variant = "softmax"\n[distillation]\nshare = 0.5', "without a teacher; expected teacher = a file"),
        ("variant = softmax", "is not a TOML file"),
        ("\udcff", "is not a TOML file"),
    ],
)
def test_what_a_file_is_refused_for(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SettingError, match=message) as caught:
        Recipe.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("variant", [v.name for v in VARIANTS.values() if v.alpha_offset == 0])
def test_negatives_need_a_variant_whose_evidence_has_a_scale(tmp_path: Path, variant: str) -> None:
    with pytest.raises(SettingError, match="expected a variant with φ"):
        load(tmp_path, f'variant = "{variant}"\n[negatives]\nshare = 0.3')


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot read .*none\.toml: No such file"):
        Recipe.load(tmp_path / "none.toml")


def test_a_seed_that_torch_cannot_take_is_refused() -> None:
    with pytest.raises(SettingError, match=f"seed={2**64}; expected 0 to"):
        replace(Recipe(name="x", variant="softmax"), seed=2**64)


def test_a_change_is_checked_like_a_file() -> None:
    with pytest.raises(SettingError, match="epochs=0"):
        replace(Recipe(name="x", variant="softmax"), epochs=0)


def documented() -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables of docs/reference/recipes.md: a table's name, empty for the first, and its keys with their defaults.

    A default that is told in words is None.
    """
    text = (RECIPES[0].parents[2] / "docs" / "reference" / "recipes.md").read_text(encoding="utf-8")
    for part in text.partition("<!-- recipe:")[2].partition("<!-- end -->")[0].split("\n\n`["):
        keys: dict[str, Any] = {}
        for names, default in re.findall(r"^\| (`.*?) \| (.*?) \|", part, re.MULTILINE):
            found = re.findall(r"`(\w+)`", names)
            try:
                values = json.loads(f"[{default}]")
            except ValueError:
                values = [None] * len(found)
            keys |= dict(zip(found, values, strict=True))
        yield part.partition("]`")[0] if "]`" in part.partition("\n")[0] else "", keys


def test_the_documentation_has_every_key_with_its_default() -> None:
    recipe = Recipe(name="x", variant="softmax").to_dict()
    tables = {name: recipe.pop(name) for name in ("about", "augmentation", "distillation", "negatives")} | {"": recipe}
    found = dict(documented())
    assert found.keys() == tables.keys()
    for name, keys in found.items():
        assert keys.keys() == tables[name].keys()
        told = {key: value for key, value in keys.items() if value is not None}
        assert told == {key: json.loads(json.dumps(tables[name][key])) for key in told}


def test_a_recipe_as_notepad_saves_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("variant = 'softmax'\r\n", encoding="utf-8-sig")  # with a byte order mark
    assert Recipe.load(path).variant == "softmax"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="has no /dev/zero")
def test_a_recipe_without_end_is_refused() -> None:
    with pytest.raises(SettingError, match=r"cannot read /dev/zero: more than 64 MB of text; expected a recipe"):
        Recipe.load(Path("/dev/zero"))


def test_a_recipe_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("name = " + "[" * 100_000 + "]" * 100_000)
    with pytest.raises(SettingError, match="nested too deeply"):
        Recipe.load(path)


@pytest.mark.parametrize("value", ["0x" + "f" * 9999, "[" + "1," * 9999 + "]", "'" + "a" * 99_999 + "'"])
def test_an_error_about_a_recipe_is_not_as_long_as_the_file_makes_it(tmp_path: Path, value: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text(f"variant = 'softmax'\nseed = {value}\n")
    with pytest.raises(SettingError, match=r"seed=.*; expected a whole number") as refused:
        Recipe.load(path)
    assert len(str(refused.value)) < 200


def test_keys_within_keys_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("variant = 'softmax'\nseed" + ".a" * 9999 + " = 1\n")
    with pytest.raises(SettingError, match="expected"):
        Recipe.load(path)

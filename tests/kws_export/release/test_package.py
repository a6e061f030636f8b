"""`kws-export export` on a trained run: the file, its thresholds and its card say what recomputation says."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import soundfile as sf
import tiny_model
import tone_words
from click.testing import CliRunner
from paths import ROOT
from scipy.stats import beta

from kws_edge.errors import ModelError, SettingError
from kws_edge.model.features import mfcc, pad
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import Metadata
from kws_edge.model.onnx_file import write_copy
from kws_edge.model.selection import OperatingPoint
from kws_edge.model.session import Outputs
from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning.evaluation import StreamReport
from kws_edge.tuning.false_accepts import FalseAccepts
from kws_export.cli import main
from kws_export.data.speech_commands import split_rule
from kws_export.data.splits import UNKNOWN
from kws_export.evaluation.scoring import Scored, observe
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.release import runtimes
from kws_export.release.card import model_card
from kws_export.release.package import ExportSource, package, score_other_words, write_models
from kws_export.training.about import About, about_folder
from kws_export.training.checkpoint import Checkpoint, load_checkpoint
from kws_export.training.description import attributions
from kws_export.training.run_folder import write_checkpoint

WORDS = tuple(tone_words.SWEEPS)
OTHER = "chord"
LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}


@dataclass
class Exported:
    """What one export left behind."""

    run: Path
    file: Path
    card: str
    output: str

    @property
    def metadata(self) -> Metadata:
        return KeywordModel.load(self.file).metadata


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with tone_words.one_thread():
        yield


@pytest.fixture(scope="module")
def root(tones: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set with six clips of one more word, which the run was not trained on."""
    folder = Path(shutil.copytree(tones, tmp_path_factory.mktemp("data") / "data"))
    (folder / OTHER).mkdir()
    for i in range(6):
        mixed = tone_words.say("low", i) + tone_words.say("high", 10 + i)
        sf.write(folder / OTHER / f"{i:08x}_nohash_0.wav", mixed, tone_words.RATE)
    return folder


@pytest.fixture(scope="module")
def exported(root: Path, tones: Path, tone_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("exported")
    run = Path(shutil.copytree(tone_run, folder / "tones-1"))
    file = folder / "models" / "four-tones.onnx"
    arguments = ["export", run, "--data", root, "--out", file, "--cache", tones.parent / "cache"]
    result = CliRunner().invoke(
        main, [*map(str, arguments), "--with-front-end", "--score", "vacuity", "--negatives", "hiss, one recording"]
    )
    assert result.exit_code == 0, result.output
    return Exported(run, file, file.with_suffix(".md").read_text(encoding="utf-8"), result.output)


@dataclass
class Answers:
    """A split's truth and a file's answers, from the recordings themselves."""

    names: list[str]
    truth: np.ndarray
    predicted: np.ndarray
    vacuity: np.ndarray
    entropy: np.ndarray

    @property
    def right(self) -> np.ndarray:
        return self.truth == self.predicted


def run_on(file: Path, recordings: Sequence[Path]) -> Outputs:
    clips = [sf.read(path, dtype="float32")[0] for path in recordings]
    return KeywordModel.load(file).run(np.stack([pad(mfcc(x)) for x in clips]))


def answers(file: Path, tones: Path, split: str) -> Answers:
    names = sorted((tones / LISTS[split]).read_text().split())
    outputs = run_on(file, [tones / name for name in names])
    truth = np.array([WORDS.index(name.split("/")[0]) for name in names])
    return Answers(names, truth, outputs.labels, outputs.vacuity, outputs.entropy)


def read_scores(path: Path) -> Scored:
    with np.load(path) as arrays:
        return Scored(**arrays)


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2f} %"


# --- the file


def test_a_file_of_another_recipe_is_not_written_over_unless_asked(tone_run: Path, tones: Path, tmp_path: Path) -> None:
    file = shutil.copy(ROOT / "models" / "softmax.onnx", tmp_path / "mine.onnx")
    command = ["export", tone_run, "--data", tones, "--out", file, "--cache", tones.parent / "cache"]
    before = file.read_bytes()
    refused = CliRunner().invoke(main, [*map(str, command)])
    assert refused.exit_code == 1
    assert "mine.onnx exists and is of another recipe, which differs in name, " in refused.stderr
    assert "words; expected another --out, or --force to write over it" in refused.stderr
    assert file.read_bytes() == before
    assert CliRunner().invoke(main, [*map(str, command), "--force"]).exit_code == 0
    assert CliRunner().invoke(main, [*map(str, command)]).exit_code == 0  # of this recipe, so that it is rebuilt
    file.write_bytes(b"notes")
    assert "exists and is something else; " in CliRunner().invoke(main, [*map(str, command)]).stderr


def test_the_file_is_named_for_itself_and_described_by_its_run(exported: Exported) -> None:
    m = exported.metadata
    assert m.name == "four-tones"
    assert m.labels == WORDS
    assert (m.variant, m.score) == ("softmax", "vacuity")
    best = load_checkpoint(exported.run / "best.pt")
    assert m.training["best_epoch"] == best["epoch"]
    assert m.training["epochs"] == 4
    assert m.training["seed"] == 1
    assert m.training["clips"] == {split: 4 * n for split, n in tone_words.COUNTS.items()}
    assert m.training["recipe"] == json.loads(json.dumps(tone_words.recipe().to_dict()))
    assert m.calibration["split"] == "validation"
    assert m.calibration["clips"] == 24


@pytest.mark.parametrize("split", ["validation", "test"])
def test_accuracy_is_that_of_the_recordings_with_its_interval(exported: Exported, tones: Path, split: str) -> None:
    right = answers(exported.file, tones, split).right
    hits, n = int(right.sum()), len(right)
    stated = exported.metadata.accuracy[split]
    assert (stated["accuracy"], stated["clips"]) == (hits / n, n)
    assert stated["low"] == pytest.approx(beta.ppf(0.025, hits, n - hits + 1) if hits else 0.0)
    assert stated["high"] == pytest.approx(beta.ppf(0.975, hits + 1, n - hits) if hits < n else 1.0)


@pytest.mark.parametrize("score", ["entropy", "vacuity"])
def test_what_24_clips_cannot_show_is_the_largest_coverage_that_reaches_it_on_them_and_marked(
    exported: Exported, tones: Path, score: str
) -> None:
    found = answers(exported.file, tones, "validation")
    u = getattr(found, score)
    points = exported.metadata.thresholds[score]
    assert [point.target for point in points] == [0.99, 0.995, 0.999]
    for point in points:
        accepted = u <= np.float32(point.threshold)
        assert point.accepted == accepted.sum()
        assert point.coverage == pytest.approx(accepted.mean())
        reached = [k for k in range(1, len(u) + 1) if found.right[np.argsort(u)[:k]].mean() >= point.target - 1e-6]
        assert accepted.sum() == max(reached, default=0)
        assert not point.is_shown
        hits, n = int(found.right[accepted].sum()), int(accepted.sum())
        assert point.low == pytest.approx(beta.ppf(0.025, hits, n - hits + 1))
        assert point.high == pytest.approx(beta.ppf(0.975, hits + 1, n - hits) if hits < n else 1.0)


def test_the_file_with_the_front_end_gives_the_same_answers(exported: Exported, tones: Path) -> None:
    session = ort.InferenceSession(exported.file.with_suffix(".audio.onnx"), providers=["CPUExecutionProvider"])
    found = answers(exported.file, tones, "test")
    for i in range(0, len(found.names), 7):
        samples = sf.read(tones / found.names[i], dtype="float32")[0]
        label, _, vacuity, entropy = session.run(["class", "alpha", "vacuity", "entropy"], {"audio": samples[None]})
        assert label[0] == found.predicted[i]
        assert vacuity[0] == pytest.approx(found.vacuity[i], abs=1e-3)
        assert entropy[0] == pytest.approx(found.entropy[i], abs=1e-3)


def test_scores_are_kept_in_the_run_for_reports(exported: Exported, tones: Path) -> None:
    scored = read_scores(exported.run / "scores-test.npz")
    found = answers(exported.file, tones, "test")
    np.testing.assert_array_equal(scored.truth, found.truth)
    np.testing.assert_array_equal(scored.predicted, found.predicted)
    np.testing.assert_allclose(scored.entropy, found.entropy, atol=1e-5)
    np.testing.assert_allclose(scored.probability.sum(1), 1)


# --- the card


def test_the_card_has_the_accuracy_of_the_test_split(exported: Exported, tones: Path) -> None:
    right = answers(exported.file, tones, "test").right
    assert f"**Test accuracy:** {percent(right.mean())} (95 % interval " in exported.card
    assert "32 clips); validation " in exported.card


def test_the_card_says_what_the_thresholds_give_on_the_test_split_and_on_other_words(
    exported: Exported, root: Path
) -> None:
    found = answers(exported.file, root, "test")
    unknown = run_on(exported.file, sorted((root / OTHER).iterdir()))
    for score, points in exported.metadata.thresholds.items():
        for point in points:
            threshold = np.float32(point.threshold)
            accepted = getattr(found, score) <= threshold
            (row,) = re.findall(rf"^\| {score} \| {100 * point.target:.1f} % \|.*$", exported.card, re.MULTILINE)
            _, _, shown, *_, accuracy, coverage, total, withheld = (cell.strip() for cell in row.strip("|").split("|"))
            assert shown == "not shown"
            assert accuracy.partition(" (")[0] == (percent(found.right[accepted].mean()) if accepted.any() else "–")
            low = beta.ppf(0.025, *(hits := int(found.right[accepted].sum()), int(accepted.sum()) - hits + 1))
            assert f"({100 * low:.2f} to " in accuracy
            assert coverage == percent(accepted.mean())
            assert total == percent((found.right & accepted).mean())
            assert withheld == percent((getattr(unknown, score) > threshold).mean())


def test_the_card_of_a_model_that_heard_whole_words_alone_says_that_it_names_half_words(exported: Exported) -> None:
    sentence = "trained on whole words only"
    assert sentence in (ROOT / "models" / "softmax.md").read_text(encoding="utf-8")
    assert sentence not in exported.card  # its training had windows without a word


def test_other_words_are_measured_where_some_are_in_one_split_alone(
    exported: Exported, root: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(root, tmp_path / "data"))
    (folder / "click").mkdir()
    sf.write(folder / "click" / "0000abcd_nohash_0.wav", tone_words.say("low", 99), tone_words.RATE)
    with (folder / "testing_list.txt").open("a") as file:
        file.write("click/0000abcd_nohash_0.wav\n")
    checkpoint = Checkpoint.load(exported.run / "best.pt")
    scored = score_other_words(KeywordModel.load(exported.file), checkpoint, folder, tmp_path / "cache")
    assert scored is not None
    assert len(scored.entropy) == len(list((root / OTHER).iterdir())) + 1


def test_without_other_words_the_card_has_no_column_of_them(exported: Exported, tones: Path, tmp_path: Path) -> None:
    package(ExportSource.open(exported.run / "best.pt"), tones, tmp_path / "x.onnx", cache=tones.parent / "cache")
    card = (tmp_path / "x.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\| (?:entropy|vacuity) \|(?:[^|]+\|){8}$", card, re.MULTILINE)) == 6
    assert "ther words" not in card


def test_a_closed_task_is_measured_on_its_list_and_the_card_says_so(root: Path, tmp_path: Path) -> None:
    listed = [f"{word}/{path.name}" for word in ("low", "rise") for path in sorted((root / word).iterdir())]
    split = set((root / "testing_list.txt").read_text().split())
    (root / "official.txt").write_text("\n".join(name for name in listed if name in split))
    recipe = tone_words.recipe(labels=["low", UNKNOWN], test_list="official.txt", epochs=1)
    tone_words.run(tone_words.trainer(root, tmp_path / "run", recipe))
    metadata = package(
        ExportSource.open(tmp_path / "run" / "best.pt"), root, tmp_path / "closed.onnx", cache=root.parent / "cache"
    )
    card = (tmp_path / "closed.md").read_text(encoding="utf-8")
    assert metadata.accuracy["test"]["clips"] == 16
    assert metadata.training["clips"]["train"] == 4 * 20 + len(list((root / OTHER).iterdir()))
    assert "**Words (1):** low; classes besides: `_unknown_`" in card
    assert "test 16 (`official.txt`)" in card
    assert "`_unknown_` was learned from" in card
    assert "ther words withheld" not in card


def test_a_target_that_no_threshold_meets_is_not_reached_and_the_card_says_what_that_is(exported: Exported) -> None:
    scored = read_scores(exported.run / "scores-test.npz")
    nothing = OperatingPoint(0.999, float(np.finfo(np.float32).min), None, 0.0, 0.0, 0, 24)
    thresholds = {score: (*points[:2], nothing) for score, points in exported.metadata.thresholds.items()}
    metadata = replace(exported.metadata, thresholds=thresholds)
    card = model_card(metadata, 1000, scored, observe(thresholds, scored), {}, "a command", splits="by lists")
    rows = re.findall(r"^\| (?:entropy|vacuity) \| 99\.9 % \|.*$", card, re.MULTILINE)
    assert [row.split(" | ")[2:6] for row in rows] == [["not reached", "–", "–", "0.00 %"]] * 2
    assert "*Not reached*: " in card
    assert "e+38" not in card
    reached = all(p.accepted for points in exported.metadata.thresholds.values() for p in points)
    assert reached == ("*Not reached*" not in exported.card)


def test_the_cards_confusions_are_those_of_the_test_split(exported: Exported, tones: Path) -> None:
    found = answers(exported.file, tones, "test")
    for i, word in enumerate(WORDS):
        (row,) = re.findall(rf"^\| \*\*{word}\*\* \|.*$", exported.card, re.MULTILINE)
        _, *counts, recall = (cell.strip() for cell in row.strip("|").split("|"))
        expected = [int(((found.truth == i) & (found.predicted == j)).sum()) for j in range(4)]
        assert [int(count or 0) for count in counts] == expected
        assert recall == percent(expected[i] / sum(expected))


def test_the_card_names_epochs_seed_and_the_command(exported: Exported) -> None:
    for text in (
        "| epochs | 4 (",
        "| seed | 1 |",
        "| recordings without words | hiss, one recording |",
    ):
        assert text in exported.card
    assert (
        "    kws-export export runs/tones-1 --data data --out models/four-tones.onnx --checkpoint best.pt "
        "--score vacuity --with-front-end --negatives 'hiss, one recording'\n"
    ) in exported.card
    assert str(exported.run.parent) not in exported.card


def test_the_command_reports_parity_accuracy_and_operating_points(exported: Exported) -> None:
    assert "largest difference of torch, ONNX Runtime and numpy: class 0.0e+00, alpha" in exported.output
    assert "test accuracy" in exported.output
    interval = r"accuracy [01]\.\d{4} \([01]\.\d{4} to [01]\.\d{4}\)"
    assert re.search(rf"test at vacuity 0\.995: {interval}, coverage", exported.output)
    promise = rf"validation at entropy 0\.99: {interval} on \d+ accepted clips, not shown: it takes 528 accepted clips"
    assert re.search(promise, exported.output)
    assert f"wrote {exported.file}" in exported.output
    assert f"{exported.run / 'scores-test.npz'}" in exported.output


# --- whose recordings they were

SOMEONE = 'data = "four tones, swept"\nlicence = "CC0-1.0"\nattribution = "Tones by nobody."\n'


def packaged(run: Path, root: Path, out: Path, **options: Any) -> tuple[Metadata, str]:
    metadata = package(ExportSource.open(run / "best.pt"), root, out, cache=root.parent / "cache", **options)
    return metadata, out.with_suffix(".md").read_text(encoding="utf-8")


def test_a_model_of_recordings_that_say_nothing_of_themselves_names_nobody(exported: Exported) -> None:
    m = exported.metadata
    assert (m.training["data"], m.licence) == ("not stated", "not stated")
    assert m.attribution == "Source and licence of the recordings: not stated."
    for text in (exported.card, m.to_json()):
        assert "Speech Commands" not in text
        assert "Warden" not in text


def test_the_folder_of_the_recordings_says_what_they_are(exported: Exported, root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root, tmp_path / "data"))
    (folder / "about.toml").write_text(SOMEONE)
    m, card = packaged(exported.run, folder, tmp_path / "x.onnx")
    assert (m.training["data"], m.licence, m.attribution) == ("four tones, swept", "CC0-1.0", "Tones by nobody.")
    assert "| data | four tones, swept |" in card
    assert "Weights: CC0-1.0. Tones by nobody." in card


def test_the_recipe_says_it_before_the_folder_does(root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root, tmp_path / "data"))
    (folder / "about.toml").write_text(SOMEONE)
    recipe = tone_words.recipe(epochs=1, about={"attribution": "Tones by the recipe."})
    tone_words.run(tone_words.trainer(folder, tmp_path / "run", recipe))
    (folder / "about.toml").unlink()  # the run has kept what it said
    m, _ = packaged(tmp_path / "run", folder, tmp_path / "x.onnx")
    assert (m.training["data"], m.licence, m.attribution) == ("four tones, swept", "CC0-1.0", "Tones by the recipe.")


def test_a_start_from_a_shipped_model_names_its_recordings_too(root: Path, tmp_path: Path) -> None:
    start = str(ROOT / "models" / "softmax.onnx")
    recipe = tone_words.recipe(epochs=1, start=start, about={"attribution": "Tones by nobody."})
    tone_words.run(tone_words.trainer(root, tmp_path / "run", recipe))
    m, _ = packaged(tmp_path / "run", root, tmp_path / "x.onnx")
    assert m.attribution == f"Tones by nobody. {KeywordModel.load(start).metadata.attribution}"
    assert "Pete Warden" in m.attribution


def test_a_start_that_is_not_at_hand_is_said_to_be_unknown(root: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "models" / "softmax.onnx", start := tmp_path / "gone.onnx")
    recipe = tone_words.recipe(epochs=1, start=str(start))
    tone_words.run(tone_words.trainer(root, tmp_path / "run", recipe))
    start.unlink()
    m, _ = packaged(tmp_path / "run", root, tmp_path / "x.onnx")
    assert "the source and licence of whose recordings are not stated" in m.attribution


def test_runs_that_started_from_each_other_are_named_once_each(tone_run: Path, tmp_path: Path) -> None:
    saved = load_checkpoint(tone_run / "best.pt")
    paths = [tmp_path / "a.pt", tmp_path / "b.pt"]
    for path, start in zip(paths, reversed(paths), strict=True):  # as where one was written over since
        recipe = {**saved["recipe"], "start": str(start), "about": {"attribution": f"Tones of {path.stem}."}}
        write_checkpoint(path, {**saved, "recipe": recipe})
    assert attributions(Checkpoint.load(paths[0]).recipe) == ["Tones of b. Tones of a."]


def test_who_exports_can_say_it(exported: Exported, root: Path, tmp_path: Path) -> None:
    (tmp_path / "about.toml").write_text(SOMEONE)
    command = ["export", exported.run, "--data", root, "--out", tmp_path / "x.onnx", "--cache", root.parent / "cache"]
    result = CliRunner().invoke(main, [*map(str, command), "--about", str(tmp_path / "about.toml")])
    assert result.exit_code == 0, result.output
    assert KeywordModel.load(tmp_path / "x.onnx").metadata.attribution == "Tones by nobody."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("licence = 3", "expected texts for data, licence, attribution"),
        ("owner = 'me'", "expected texts"),
        ("=", "TOML"),
    ],
)
def test_what_says_it_badly_is_refused(root: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "about.toml").write_text(text)
    with pytest.raises(SettingError, match=message):
        about_folder(tmp_path)


# --- a file anew, from its own weights


def test_an_exported_file_is_calibrated_and_written_anew_from_its_own_weights(
    exported: Exported, root: Path, tmp_path: Path
) -> None:
    old = tmp_path / "models" / "four-tones.onnx"
    old.parent.mkdir()
    negatives = FalseAccepts({"radio": StreamReport(7200, false_accepts=1)})
    stream = {
        "settings": StreamSettings({"entropy": 0.25}).to_dict(),
        "calibration": {"limit": 2.0, **negatives.to_dict()},
    }
    stale = replace(exported.metadata, thresholds={}, calibration={}, accuracy={}, stream=stream)
    write_copy(exported.file, old, stale)
    result = CliRunner().invoke(
        main, ["export", str(old), "--data", str(root), "--cache", str(root.parent / "cache"), "--with-front-end"]
    )
    assert result.exit_code == 0, result.output
    anew = KeywordModel.load(old).metadata
    assert anew.stream == stream
    assert replace(anew, stream=None) == exported.metadata
    assert old.with_suffix(".audio.onnx").exists()
    card = old.with_suffix(".md").read_text(encoding="utf-8")
    assert "    kws-export export models/four-tones.onnx --data data --with-front-end\n" in card
    package(ExportSource.open(old), root, old, cache=root.parent / "cache", negatives="rain, two recordings")
    assert KeywordModel.load(old).metadata.training["negatives"] == "rain, two recordings"
    assert "calibrated for at most 2 false accepts an hour (not shown: 1 false accept in 2.0 hours of speech" in card
    assert "| speech | radio | 2.0 hours | 1 | 0.50 an hour (95 %: 0.01 to 2.79) |" in card
    clips = np.stack([pad(mfcc(tone_words.say("low", i))) for i in range(5)])
    before, after = (KeywordModel.load(path).run(clips) for path in (exported.file, old))
    np.testing.assert_allclose(before.alpha, after.alpha, rtol=1e-5)


# --- what is refused


@pytest.mark.parametrize(("by", "said"), [(2e-4, r"2\.\d+e-04"), (float("nan"), "nan")])
def test_a_difference_between_torch_and_the_file_stops_the_export(
    exported: Exported, tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: float, said: str
) -> None:
    from kws_export.network.head import evidential_head as head

    def off(*arguments: object) -> object:
        outputs = head(*arguments)  # type: ignore[arg-type]
        return outputs._replace(vacuity=outputs.vacuity + by)

    monkeypatch.setattr(runtimes, "evidential_head", off)
    out = tmp_path / "x.onnx"
    with pytest.raises(ModelError, match=f"differ by {said}; expected at most 1e-04"):
        package(ExportSource.open(exported.run / "best.pt"), tones, out, cache=tones.parent / "cache")
    assert not out.exists()


def test_a_checkpoint_alone_becomes_the_file_that_its_run_becomes(
    tone_run: Path, tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(shutil.copy(tone_run / "last.pt", "mean.pt"))
    command = ["export", file, "--data", tones, "--cache", tones.parent / "cache"]
    assert CliRunner().invoke(main, [*map(str, command)]).exit_code == 0
    made = KeywordModel.load(tmp_path / "models" / f"{ExportSource.open(file).checkpoint.recipe.name}.onnx")
    assert "kws-export export runs/mean.pt --data" in made.path.with_suffix(".md").read_text(encoding="utf-8")
    assert not list(tmp_path.glob("scores-*"))  # which are a run's


def test_a_name_that_is_no_onnx_file_is_refused(exported: Exported, tones: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"card\.md; expected a name that ends in \.onnx"):
        package(ExportSource.open(exported.run / "best.pt"), tones, tmp_path / "card.md", cache=tones.parent / "cache")


def test_a_network_without_padding_gets_every_form_of_the_file(tmp_path: Path) -> None:
    network = MatchboxNet(2, padding="valid")
    metadata = replace(tiny_model.METADATA, padding="valid", labels=("a", "b"))
    written = write_models(SimpleNamespace(network=network), metadata, tmp_path / "m.onnx", with_front_end=True)  # type: ignore[arg-type]
    assert [file.name for file in written] == ["m.onnx", "m.step.onnx", "m.audio.onnx", "m.audio.step.onnx"]
    forms = ["m.audio.onnx", "m.audio.step.onnx", "m.onnx", "m.step.onnx"]
    assert sorted(path.name for path in tmp_path.iterdir()) == forms


def test_a_form_of_an_earlier_model_is_written_anew(tmp_path: Path) -> None:
    out, metadata = tmp_path / "m.onnx", replace(tiny_model.METADATA, padding="valid", labels=("a", "b"))
    first, second = (SimpleNamespace(network=MatchboxNet(2, padding="valid")) for _ in range(2))
    write_models(first, metadata, out, with_front_end=True)  # type: ignore[arg-type]
    before = (tmp_path / "m.audio.onnx").read_bytes()
    assert len(write_models(second, metadata, out, with_front_end=False)) == 4  # type: ignore[arg-type]
    assert (tmp_path / "m.audio.onnx").read_bytes() != before


def test_forms_that_a_network_with_padding_has_not_are_removed(tmp_path: Path) -> None:
    out, metadata = tmp_path / "m.onnx", replace(tiny_model.METADATA, labels=("a", "b"))
    first, second = MatchboxNet(2, padding="valid"), MatchboxNet(2)
    write_models(SimpleNamespace(network=first), replace(metadata, padding="valid"), out, with_front_end=True)  # type: ignore[arg-type]
    write_models(SimpleNamespace(network=second), metadata, out, with_front_end=False)  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.audio.onnx", "m.onnx"]


def test_a_form_of_another_model_is_not_written_over_unless_asked(
    exported: Exported, root: Path, tmp_path: Path
) -> None:
    shutil.copy(ROOT / "models" / "stream.step.onnx", tmp_path / "mine.step.onnx")
    with pytest.raises(SettingError, match=r"mine\.step\.onnx exists and is of another recipe"):
        packaged(exported.run, root, tmp_path / "mine.onnx")
    assert not (tmp_path / "mine.onnx").exists()


def test_the_name_of_a_file_with_spaces_becomes_one_without(exported: Exported, root: Path, tmp_path: Path) -> None:
    metadata, card = packaged(exported.run, root, tmp_path / "my tones.onnx")
    assert metadata.name == "my_tones"
    assert card.startswith("# my_tones\n")


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        (["validation_list.txt", "testing_list.txt"], "by the recordings' own lists, validation_list.txt and testing"),
        (["testing_list.txt"], "by the recordings' own list, testing_list.txt, and what it does not name by a hash of"),
        ([], "by a hash of the speaker's name"),
    ],
)
def test_the_card_says_how_the_clips_were_parted(tones: Path, tmp_path: Path, lists: list[str], said: str) -> None:
    for word in ("low", "high"):
        shutil.copytree(tones / word, tmp_path / word)
    for name in lists:
        (tmp_path / name).touch()
    assert split_rule(tmp_path).startswith(said)


def test_the_card_knows_of_windows_without_a_word_whether_or_not_it_is_told_which(exported: Exported) -> None:
    scored = read_scores(exported.run / "scores-test.npz")
    recipe = {**exported.metadata.training["recipe"], "variant": "plugin_ce", "negatives": {"share": 0.3}}
    metadata = replace(exported.metadata, training={**exported.metadata.training, "recipe": recipe, "negatives": ""})
    card = model_card(metadata, 1000, scored, observe(metadata.thresholds, scored), {}, "a command", splits="by lists")
    assert "whole words only" not in card
    assert "| recordings without words | not stated |" in card


def test_recordings_without_words_are_listed_once_besides_the_command(exported: Exported) -> None:
    listed = "a radio (A. Talker, CC0); a kitchen (CC BY 4.0)"
    training = {**exported.metadata.training, "negatives": listed}
    metadata = replace(exported.metadata, training=training, attribution=f"Trained on tones, and on: {listed}.")
    scored = read_scores(exported.run / "scores-test.npz")
    card = model_card(metadata, 1000, scored, observe(metadata.thresholds, scored), {}, "a command", splits="by lists")
    assert card.count(listed) == 1
    assert 'Trained on tones, and on: the "recordings without words" of the table above.' in card
    other = replace(metadata, training={**training, "negatives": "radio"})
    card = model_card(other, 1000, scored, observe(other.thresholds, scored), {}, "a command", splits="by lists")
    assert other.attribution in card


def test_what_is_said_of_recordings_keeps_to_its_cell_of_the_card(
    exported: Exported, root: Path, tmp_path: Path
) -> None:
    said = About("tones | sweeps,\n  by hand", "MIT", "Somebody")
    metadata, card = packaged(exported.run, root, tmp_path / "t.onnx", about=said)
    assert metadata.training["data"] == "tones | sweeps, by hand"
    assert "| data | tones \\| sweeps, by hand |\n" in card


@pytest.mark.parametrize("name", ["m.step.onnx", "m.audio.onnx", "m.audio.step.onnx", "file/m.onnx"])
def test_a_place_that_no_model_can_have_is_refused_before_anything_is_decoded(
    exported: Exported, tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match=f"cannot write .*{name}"):
        package(ExportSource.open(exported.run / "best.pt"), tmp_path / "none", tmp_path / name, cache=tmp_path)

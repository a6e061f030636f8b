"""The network: its parameters, its operations against torch's own, and the compiled kernels against plain torch."""

import copy
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

from kws_edge.model.features import FrontEnd
from kws_edge.model.metadata import Padding
from kws_export.kernels import compiled as kernels
from kws_export.kernels import trunk
from kws_export.network.fast import FastMatchboxNet, stages
from kws_export.network.matchboxnet import BN_EPS, MatchboxNet, initialise_xavier, parameter_count
from kws_export.training.checkpoint import new_network
from kws_export.training.recipe import Recipe

needs_kernels = pytest.mark.skipif(kernels.library() is None, reason="needs a C compiler (cc)")


@pytest.fixture(autouse=True)
def _seed_and_one_thread() -> Iterator[None]:
    # torch's threads wait for each other busily, which takes long on a machine that does other things as well.
    torch.manual_seed(1)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> int:
    torch.set_num_threads(request.param)
    return request.param


def network(repeat: int = 1, classes: int = 12, padding: Padding = "same") -> FastMatchboxNet:
    """With normalisations that are not the identity, so that a scale or a shift in the wrong place shows."""
    model = FastMatchboxNet(classes, repeat, padding=padding)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.add_(0.3 * torch.randn_like(p))
    return model


def plain(model: MatchboxNet, mfcc: Tensor) -> Tensor:
    """The network written again in one function, independent of its modules and of the kernels."""

    def conv(layer: nn.Module, x: Tensor) -> Tensor:
        if layer.kernel > 1:
            padding = layer.kernel // 2 * layer.dilation
            taps = layer.depthwise[:, None]
            x = F.conv1d(x, taps, padding=padding, dilation=layer.dilation, groups=len(taps))
        x = F.conv1d(x, layer.pointwise[:, :, None])
        norm = layer.norm
        mean, var = norm.running_mean.clone(), norm.running_var.clone()  # the model itself keeps its statistics
        return F.batch_norm(x, mean, var, norm.weight, norm.bias, model.training, eps=BN_EPS)

    x = conv(model.prologue, mfcc).relu()
    for block in model.blocks:
        residual = conv(block.residual, x)
        for sub in block.convs[:-1]:
            x = conv(sub, x).relu()
        x = (conv(block.convs[-1], x) + residual).relu()
    for layer in model.epilogue:
        x = conv(layer, x).relu()
    if model.padding == "valid":
        x = x[:, :, 54:74]
    return model.classifier(x.mean(2))


def gradients(model: MatchboxNet, loss: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def assert_gradients_close(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    """Relative to the largest gradient of the tensor: single elements cancel to nothing."""
    for name, g in expected.items():
        error = (actual[name].double() - g.double()).abs().max() / g.abs().max()
        assert error < tolerance, f"{name}: {error:.1e}"


def is_compiled(result: Tensor) -> bool:
    """Whether the kernels are among what a result was computed by."""
    nodes = [result.grad_fn]
    while nodes:
        node = nodes.pop()
        if type(node).__name__ == "_TrunkBackward":
            return True
        nodes += [following for following, _ in node.next_functions if following]  # type: ignore[union-attr]
    return False


@pytest.mark.parametrize(("repeat", "count"), [(1, 77_214), (2, 92_766)])
def test_parameter_count_of_the_paper(repeat: int, count: int) -> None:
    assert parameter_count(MatchboxNet(30, repeat)) == count


def test_channels_are_those_of_the_blocks_and_half_of_the_ends() -> None:
    network = MatchboxNet(12, repeat=2, channels=128)
    assert parameter_count(network) == 319_436
    shapes = [tuple(conv.pointwise.shape) for conv in (network.prologue, network.epilogue[0], network.epilogue[1])]
    assert shapes == [(256, 64), (256, 128), (256, 256)]
    assert [tuple(block.residual.pointwise.shape) for block in network.blocks] == [(128, 256), (128, 128), (128, 128)]


forms = pytest.mark.parametrize(("repeat", "padding"), [(1, "same"), (2, "same"), (1, "valid")])


@forms
def test_torch_path_is_the_plain_network_with_its_gradients(repeat: int, padding: Padding) -> None:
    model, x = network(repeat, padding=padding).double(), torch.randn(3, 64, 128, dtype=torch.float64)
    expected, actual = plain(model, x), model(x)
    torch.testing.assert_close(actual, expected)
    weights = torch.randn_like(expected)
    assert_gradients_close(
        gradients(model, (actual * weights).sum()), gradients(model, (expected * weights).sum()), 1e-9
    )


@needs_kernels
@forms
# Among 128 clips some values lie so near to zero that float32 and float64 differ on the side of the ReLU, which changes
# a gradient by a percent; torch's own float32 layers do the same.
@pytest.mark.parametrize(("batch", "tolerance"), [(1, 1e-4), (2, 1e-4), (7, 1e-4), (128, 3e-2)])
def test_compiled_path_is_the_torch_path_with_its_gradients(
    batch: int, tolerance: float, repeat: int, padding: Padding, threads: int
) -> None:
    model, x = network(repeat, padding=padding), torch.randn(batch, 64, 128)
    actual = model(x)
    torch.set_num_threads(1)
    double = copy.deepcopy(model).double()
    expected = double(x.double())
    assert is_compiled(actual)
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=2e-5)
    weights = torch.randn(actual.shape)
    assert_gradients_close(
        gradients(model, (actual * weights).sum()), gradients(double, (expected * weights).sum()), tolerance
    )


@needs_kernels
@pytest.mark.parametrize(("batch", "windows"), [(1, 3), (5, 2), (7, 3)])
def test_compiled_windows_are_those_of_torch_with_their_gradients(batch: int, windows: int, threads: int) -> None:
    model, x = network(padding="valid"), torch.randn(batch, 64, 120 + 8 * windows)
    actual = model.window_logits(x, windows)
    torch.set_num_threads(1)
    double = copy.deepcopy(model).double()
    expected = double.window_logits(x.double(), windows)
    assert is_compiled(actual)
    assert actual.shape == (batch, windows, 12)
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=2e-5)
    weights = torch.randn(actual.shape)
    assert_gradients_close(
        gradients(model, (actual * weights).sum()), gradients(double, (expected * weights).sum()), 1e-4
    )


def test_windows_are_what_the_network_says_of_each_alone() -> None:
    model, x = network(padding="valid").eval(), torch.randn(2, 64, 144)
    with torch.no_grad():
        alone = torch.stack([model(x[:, :, start : start + 128]) for start in (0, 8, 16)], 1)
        torch.testing.assert_close(model.window_logits(x, 3), alone, rtol=0, atol=2e-5)


@needs_kernels
def test_compiled_path_keeps_the_same_running_statistics() -> None:
    compiled = network()
    torch_path = copy.deepcopy(compiled).double()
    x = 3 + 2 * torch.randn(4, 64, 128)
    compiled(x)
    torch_path(x.double())
    for (name, a), b in zip(compiled.named_buffers(), torch_path.buffers(), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_evaluation_is_the_same_formula_with_running_statistics(dtype: torch.dtype) -> None:
    model, x = network(2).to(dtype), torch.randn(4, 64, 128, dtype=dtype)
    for _ in range(3):
        model(x)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(x), plain(model, x), rtol=0, atol=1e-5)


def test_evaluation_does_not_touch_the_running_statistics() -> None:
    model = network().eval()
    before = [b.clone() for b in model.buffers()]
    with torch.no_grad():
        model(torch.randn(2, 64, 128))
    assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))


def test_evaluation_of_a_clip_does_not_depend_on_its_batch() -> None:
    model, x = network().eval(), torch.randn(5, 64, 128)
    with torch.no_grad():
        torch.testing.assert_close(model(x)[3:4], model(x[3:4]), rtol=0, atol=1e-6)


def test_gradients_in_evaluation_too() -> None:
    model = network().eval()
    x = torch.randn(2, 64, 128, requires_grad=True)
    (expected,) = torch.autograd.grad(plain(model, x).sum(), x)
    (actual,) = torch.autograd.grad(model(x).sum(), x)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-6)


def test_state_dict_round_trip(tmp_path: Path) -> None:
    model, other, x = network(2), network(2), torch.randn(3, 64, 128)
    model(x)
    torch.save(model.state_dict(), tmp_path / "checkpoint.pt")
    other.load_state_dict(torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    with torch.no_grad():
        assert torch.equal(model.eval()(x), other.eval()(x))


def test_a_shift_in_silence_does_not_change_the_logits() -> None:
    # Convolutions commute with a shift and the mean forgets it, as long as nothing reaches the zero padding: without
    # shifts in the normalisations silence stays silence, and 20 frames spread by 58 at most on each side.
    model = MatchboxNet(12).eval()
    clip = torch.zeros(1, 64, 256)
    clip[:, :, 90:110] = 1e3 * torch.randn(64, 20)
    with torch.no_grad():
        expected, shifted = model(clip), model(clip.roll(24, dims=2))
    torch.testing.assert_close(shifted, expected, rtol=0, atol=1e-5)
    assert (expected - model.classifier.bias).abs().max() > 0.1  # and the logits do come from the clip


@needs_kernels
def test_without_padding_nothing_beyond_the_window_is_seen() -> None:
    model, x = network(padding="valid").eval(), torch.randn(2, 64, 256)
    assert model.reach == 54
    with torch.inference_mode():
        # A longer input pools over more frames: the mean of windows whose pooled frames tile it.
        tiles = [model(x[:, :, start : start + 128]) for start in range(0, 121, 20)]
        torch.testing.assert_close(model(x[:, :, :248]), torch.stack(tiles).mean(0), rtol=1e-4, atol=1e-4)


def test_input_that_is_not_contiguous() -> None:
    model, x = network(), torch.randn(3, 128, 64)
    torch.testing.assert_close(model(x.transpose(1, 2)), model(x.transpose(1, 2).contiguous()))


def test_a_diverged_network_shows_as_nan() -> None:
    x = torch.randn(2, 64, 128)
    x[1, 5, 7] = torch.nan
    assert network()(x).isnan().any()


@needs_kernels
def test_a_step_repeats_exactly(threads: int) -> None:
    model, x = network(), torch.randn(7, 64, 128)
    first, second = (gradients(model, model(x).square().sum()) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_without_a_compiler_torch_takes_over_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "no-such-compiler"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels.library.cache_clear()
    try:
        model, x = network(), torch.randn(2, 64, 128)
        with caplog.at_level(logging.WARNING):
            actual = model(x)
            model(x)
        assert not trunk.available(x, list(stages(model)), trunk.Pool())
        assert [r.message for r in caplog.records if "without compiled kernels" in r.message] == [
            r.message for r in caplog.records
        ]
        assert len(caplog.records) == 1
        torch.testing.assert_close(actual, plain(model, x), rtol=0, atol=2e-5)
    finally:
        kernels.library.cache_clear()


@needs_kernels
def test_the_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = kernels.compiled()
    written = path.stat().st_mtime_ns
    assert kernels.compiled() == path
    assert path.stat().st_mtime_ns == written
    assert list(path.parent.iterdir()) == [path]  # and nothing half-written stays behind


def test_xavier_weights_reach_as_far_as_fan_in_and_fan_out_say() -> None:
    torch.manual_seed(0)
    network = MatchboxNet(20)
    initialise_xavier(network)
    widest = {"prologue.depthwise": 11 * 64 + 11, "prologue.pointwise": 64 + 128, "classifier.weight": 128 + 20}
    for name, fans in widest.items():
        reach = network.get_parameter(name).abs().max().item()
        assert reach == pytest.approx((6 / fans) ** 0.5, rel=0.02)


def test_a_recipe_chooses_how_weights_begin() -> None:
    spreads = {}
    for how in ("fan_in", "xavier"):
        torch.manual_seed(0)
        recipe = Recipe(name="x", variant="softmax", initialisation=how)
        spreads[how] = new_network(recipe, list("abc"), FrontEnd()).prologue.pointwise.std().item()
    assert spreads["fan_in"] == pytest.approx(1 / 64**0.5 / 3**0.5, rel=0.05)
    assert spreads["xavier"] == pytest.approx((6 / 192) ** 0.5 / 3**0.5, rel=0.05)


@needs_kernels
def test_no_clips_and_windows_without_a_frame_to_pool_are_left_to_torch() -> None:
    model = network(padding="valid").eval()
    with torch.inference_mode():
        assert model(torch.zeros(0, 64, 128)).shape == (0, 12)
        assert model(torch.zeros(1, 64, 104)).isnan().all()  # 54 frames at each end do not count

"""NovoGrad by the paper's formulas, and the learning-rate schedule by its shape."""

import io
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from kws_edge.errors import SettingError
from kws_export.training.novograd import NovoGrad
from kws_export.training.schedule import warmup_hold_decay

SHAPES = [(8, 1, 11), (4, 8, 1), (4,), ()]


def make_parameters(seed: int) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in SHAPES]


def make_gradients(steps: int, seed: int) -> list[list[Tensor]]:
    """Gradients for so many steps, of a size that differs by layer and by step."""
    generator = torch.Generator().manual_seed(seed)
    return [
        [
            10.0 ** (i - step % 3) * torch.randn(s, generator=generator, dtype=torch.float64)
            for i, s in enumerate(SHAPES)
        ]
        for step in range(steps)
    ]


def run(optimiser: NovoGrad, parameters: list[nn.Parameter], gradients: list[list[Tensor]]) -> None:
    for step in gradients:
        for p, g in zip(parameters, step, strict=True):
            p.grad = g.clone()
        optimiser.step()


def algorithm_1(
    w: Tensor, gradients: list[Tensor], *, lr: float, betas: tuple[float, float], eps: float, decay: float
) -> Tensor:
    """One layer, as the paper writes it: the first step sets the moments, the others average."""
    b1, b2 = betas
    v = (gradients[0] ** 2).sum()
    m = gradients[0] / v.sqrt() + decay * w
    w = w - lr * m
    for g in gradients[1:]:
        v = b2 * v + (1 - b2) * (g**2).sum()
        m = b1 * m + (g / (v.sqrt() + eps) + decay * w)
        w = w - lr * m
    return w


@pytest.mark.parametrize("decay", [0.0, 1e-3])
@pytest.mark.parametrize("betas", [(0.95, 0.5), (0.9, 0.25)])
def test_each_layer_follows_the_papers_algorithm(betas: tuple[float, float], decay: float) -> None:
    parameters, gradients = make_parameters(seed=0), make_gradients(steps=12, seed=1)
    start = [p.detach().clone() for p in parameters]
    run(NovoGrad(parameters, lr=0.05, betas=betas, weight_decay=decay), parameters, gradients)
    for i, p in enumerate(parameters):
        layer = [step[i] for step in gradients]
        expected = algorithm_1(start[i], layer, lr=0.05, betas=betas, eps=1e-8, decay=decay)
        # The paper has no ε in the first step; here it is there, and changes ~1e-8/‖g‖.
        torch.testing.assert_close(p.detach(), expected, rtol=1e-6, atol=1e-8)


def test_the_first_step_has_unit_length_whatever_the_gradients_scale() -> None:
    for scale in (1e-4, 1.0, 1e6):
        p = nn.Parameter(torch.zeros(5, dtype=torch.float64))
        p.grad = scale * torch.tensor([3.0, 0.0, -4.0, 0.0, 0.0], dtype=torch.float64)
        NovoGrad([p], lr=0.1).step()
        torch.testing.assert_close(
            p.detach(), torch.tensor([-0.06, 0, 0.08, 0, 0], dtype=torch.float64), rtol=1e-3, atol=0
        )


def test_weight_decay_is_not_divided_by_the_gradient_norm() -> None:
    p = nn.Parameter(torch.full((3,), 2.0))
    p.grad = torch.zeros(3)
    NovoGrad([p], lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close(p.detach(), torch.full((3,), 2.0 - 0.1 * 0.5 * 2.0))


def test_a_zero_gradient_leaves_the_weights_where_they_are() -> None:
    p = nn.Parameter(torch.ones(3))
    optimiser = NovoGrad([p], lr=0.1)
    for _ in range(3):
        p.grad = torch.zeros(3)
        optimiser.step()
    assert torch.equal(p.detach(), torch.ones(3))


def test_a_parameter_without_gradient_is_left_out_until_it_has_one() -> None:
    early, late = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimiser = NovoGrad([early, late], lr=0.1)
    early.grad = torch.ones(2)
    optimiser.step()
    assert torch.equal(late.detach(), torch.ones(2))
    late.grad = torch.tensor([0.0, 7.0])
    optimiser.step()
    torch.testing.assert_close(late.detach(), torch.tensor([1.0, 0.9]))  # its own first step


def test_parameter_groups_have_their_own_learning_rate() -> None:
    slow, fast = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimiser = NovoGrad([{"params": [slow], "lr": 0.01}, {"params": [fast]}], lr=0.1)
    slow.grad, fast.grad = torch.ones(1), torch.ones(1)
    optimiser.step()
    torch.testing.assert_close(torch.cat([slow, fast]).detach(), torch.tensor([-0.01, -0.1]))


def test_least_squares_converges_with_the_schedule() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 6, generator=generator)
    truth = torch.randn(6, 2, generator=generator)
    y = x @ truth + 0.5
    torch.manual_seed(0)  # for the layer's own first weights
    layer = nn.Linear(6, 2)
    optimiser = NovoGrad(layer.parameters())
    steps = 200
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = warmup_hold_decay(step, steps, peak=0.05, final=1e-5)
        loss = (layer(x) - y).square().mean()
        layer.weight.grad, layer.bias.grad = torch.autograd.grad(loss, [layer.weight, layer.bias])
        optimiser.step()
    torch.testing.assert_close(layer.weight.T.detach(), truth, rtol=0, atol=1e-2)
    torch.testing.assert_close(layer.bias.detach(), torch.full((2,), 0.5), rtol=0, atol=1e-2)


def test_a_saved_state_resumes_bit_for_bit() -> None:
    gradients = [[g.float() for g in step] for step in make_gradients(steps=10, seed=3)]
    whole = [nn.Parameter(p.detach().float()) for p in make_parameters(seed=2)]
    parts: list[nn.Parameter] = [nn.Parameter(p.detach().clone()) for p in whole]
    run(NovoGrad(whole, weight_decay=1e-3), whole, gradients)

    first = NovoGrad(parts, weight_decay=1e-3)
    run(first, parts, gradients[:4])
    file = io.BytesIO()
    torch.save({"weights": parts, "optimiser": first.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second = NovoGrad(saved["weights"], lr=9.0, betas=(0.1, 0.1))  # the state brings its settings along
    second.load_state_dict(saved["optimiser"])
    run(second, saved["weights"], gradients[4:])

    assert all(torch.equal(a, b) for a, b in zip(whole, saved["weights"], strict=True))


def test_a_closure_is_evaluated_with_gradients_and_its_loss_returned() -> None:
    p = nn.Parameter(torch.tensor([3.0]))

    def closure() -> float:
        loss = p.square().sum()
        (p.grad,) = torch.autograd.grad(loss, p)
        return loss.item()

    assert NovoGrad([p], lr=1.0).step(closure) == 9.0
    torch.testing.assert_close(p.detach(), torch.tensor([2.0]))


@pytest.mark.parametrize(
    "setting", [{"lr": -0.1}, {"betas": (1.0, 0.5)}, {"betas": (0.9, -0.1)}, {"eps": 0.0}, {"weight_decay": -1.0}]
)
def test_settings_out_of_range_are_refused_by_name(setting: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(setting))):
        NovoGrad([nn.Parameter(torch.zeros(1))], **setting)


# The schedule


def test_the_edges_of_warm_up_hold_and_decay() -> None:
    lr = [warmup_hold_decay(step, 1000) for step in range(1001)]
    assert lr[0] == pytest.approx(0.05 / 50)
    assert lr[48] < 0.05
    assert lr[49:500] == [0.05] * 451
    assert lr[500] < 0.05
    assert lr[749] == pytest.approx(0.001 + 0.049 / 4)  # half of the decay is done: (1/2)²
    assert lr[998] > 0.001
    assert lr[999] == lr[1000] == 0.001


@pytest.mark.parametrize("power", [1, 2, 3])
def test_the_power_is_the_order_of_the_decay(power: int) -> None:
    assert warmup_hold_decay(1, 4, peak=1.0, final=0.0, warmup=0, hold=0, power=power) == pytest.approx(0.5**power)


@given(
    total=st.integers(1, 200),
    warmup=st.floats(0, 0.5),
    hold=st.floats(0, 0.5),
    power=st.floats(0.5, 4),
)
def test_it_rises_holds_and_falls_within_its_bounds(total: int, warmup: float, hold: float, power: float) -> None:
    lr = [warmup_hold_decay(step, total, warmup=warmup, hold=hold, power=power) for step in range(total + 2)]
    top = lr.index(max(lr))
    assert lr[: top + 1] == sorted(lr[: top + 1])
    assert lr[top:] == sorted(lr[top:], reverse=True)
    assert all(0 < rate <= 0.05 for rate in lr)
    assert lr[-1] == 0.001


def test_it_drives_torchs_lambda_lr() -> None:
    optimiser = NovoGrad([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: warmup_hold_decay(step, 100))
    rates = []
    for _ in range(100):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    assert rates == [warmup_hold_decay(step, 100) for step in range(100)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"step": -1, "total_steps": 10},
        {"step": 0, "total_steps": 0},
        {"step": 0, "total_steps": 10, "warmup": 0.6, "hold": 0.6},
        {"step": 0, "total_steps": 10, "hold": -0.1},
        {"step": 0, "total_steps": 10, "power": 0},
        {"step": 0, "total_steps": 10, "warmup": math.nan},
    ],
)
def test_an_impossible_schedule_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="expected"):
        warmup_hold_decay(**arguments)

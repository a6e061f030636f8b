"""NovoGrad: momentum on gradients that are normalised layer by layer.

Source: Ginsburg et al., "Stochastic Gradient Methods with Layer-wise Adaptive Moments for Training of Deep Networks",
2019, algorithm 1. A layer is a parameter tensor.
"""

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from kws_edge.errors import SettingError


class NovoGrad(Optimizer):
    """The NovoGrad optimiser, with decoupled weight decay.

    For a tensor w with gradient g, at each step::

        v ← β₂·v + (1−β₂)·‖g‖²            first step: v = ‖g‖²
        m ← β₁·m + g/(√v + ε) + d·w        first step: m = g/(√v + ε) + d·w
        w ← w − lr·m

    A tensor's first step is the first that it has a gradient for. Gradients must be finite: a NaN or an overflow of
    ‖g‖² stays in v for good, so skip such a step, as torch's GradScaler does.

    Parameters
    ----------
    params : parameters or parameter groups, as for every torch optimiser.
    lr : learning rate.
    betas : (β₁, β₂), each in [0, 1).
    eps : ε, above 0; keeps a tensor whose gradient is all zero where it is.
    weight_decay : d, at least 0.

    Raises
    ------
    SettingError : a setting outside its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.05,
        betas: tuple[float, float] = (0.95, 0.5),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        """Take the parameters and check the settings; nothing is allocated before the first step."""
        if lr < 0 or weight_decay < 0:
            raise SettingError(f"lr={lr}, weight_decay={weight_decay}; expected numbers from 0")
        if not all(0 <= beta < 1 for beta in betas):
            raise SettingError(f"betas={betas}; expected two numbers in [0, 1)")
        if eps <= 0:
            raise SettingError(f"eps={eps}; expected a number above 0")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient; returns the closure's loss where there is a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._update(group)
        return loss

    def _update(self, group: dict[str, Any]) -> None:
        params: list[Tensor] = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        beta1, beta2 = group["betas"]
        grads = [p.grad for p in params if p.grad is not None]
        squares = torch._foreach_pow(torch._foreach_norm(grads), 2)
        states = [self.state[p] for p in params]
        for p, square, state in zip(params, squares, states, strict=True):
            if not state:
                # v starts at ‖g‖², so that averaging it with ‖g‖² below leaves it there.
                state.update(exp_avg=torch.zeros_like(p), exp_avg_sq=square.clone())
        m = [state["exp_avg"] for state in states]
        v = [state["exp_avg_sq"] for state in states]

        torch._foreach_lerp_(v, squares, 1 - beta2)
        norms = torch._foreach_sqrt(v)
        torch._foreach_add_(norms, group["eps"])
        torch._foreach_mul_(m, beta1)
        torch._foreach_addcdiv_(m, grads, norms)
        if group["weight_decay"]:
            torch._foreach_add_(m, params, alpha=group["weight_decay"])
        torch._foreach_add_(params, m, alpha=-group["lr"])

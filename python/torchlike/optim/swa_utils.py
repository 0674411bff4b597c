"""Averages of a model's parameters over training."""

from __future__ import annotations

import itertools
import math
import warnings
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.nn.modules.batchnorm import _BatchNorm
from torchlike.nn.modules.module import Module
from torchlike.optim._common import never_recorded
from torchlike.optim._lr_base import LRScheduler, _format_param
from torchlike.utils._foreach_utils import _get_foreach_kernels_supported_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def _floating(t: Any) -> bool:
    return bool(t.is_floating_point() or t.is_complex())


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """A function that moves lists of averages towards new values, by ``1 - decay`` of the way."""
    _check_decay(decay)

    @never_recorded
    def ema_update(averages: Any, values: Any, _: Any) -> None:
        for average, value in zip(averages, values, strict=True):
            if _floating(averages[0]):
                average.lerp_(value, 1 - decay)
            else:
                average.copy_(average * decay + value * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """A function that puts new values into lists of averages in which all count the same."""

    @never_recorded
    def swa_update(averages: Any, values: Any, num_averaged: Any) -> None:
        for average, value in zip(averages, values, strict=True):
            if _floating(averages[0]):
                weight = 1 / (num_averaged + 1)
                if isinstance(weight, torch.Tensor):
                    weight = weight.to(average.dtype) if weight.is_meta else weight.item()
                average.lerp_(value, weight)
            elif isinstance(num_averaged, torch.Tensor):
                average.addcdiv_(value - average, num_averaged + 1)
            else:
                average.add_(value - average, alpha=1.0 / (num_averaged + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """A function of an average and a value: the average moved by ``1 - decay`` of the way."""
    _check_decay(decay)

    @never_recorded
    def ema_update(ema_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[..., Any]:
    """A function of an average, a value and a count: the average in which all count the same."""

    @never_recorded
    def swa_update(averaged_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those the model had at each ``update_parameters``."""

    n_averaged: Any

    def __init__(
        self,
        model: Any,
        device: Any = None,
        avg_fn: Any = None,
        multi_avg_fn: Any = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", torch.tensor(0, dtype=torch.long, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged model gives."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Any) -> None:
        """Put the model's parameters into the averages; buffers too, or copy them."""
        if self.use_buffers:
            own: Any = itertools.chain(self.module.parameters(), self.module.buffers())
            other: Any = itertools.chain(model.parameters(), model.buffers())
        else:
            own, other = self.parameters(), model.parameters()
        pairs = [(a.detach(), b.detach().to(a.device)) for a, b in zip(own, other, strict=False)]
        if self.n_averaged == 0:
            for average, value in pairs:
                average.copy_(value)
        else:
            self._average(pairs)
        if not self.use_buffers:
            for average, value in zip(self.module.buffers(), model.buffers(), strict=True):
                average.detach().copy_(value.detach().to(average.device))
        self.n_averaged += 1

    def _average(self, pairs: list[tuple[Any, Any]]) -> None:
        if self.avg_fn is not None:
            for average, value in pairs:
                count = self.n_averaged.to(average.device)
                average.copy_(self.avg_fn(average, value, count))
            return
        groups: dict[Any, tuple[list[Any], list[Any]]] = {}
        for average, value in pairs:
            averages, values = groups.setdefault((average.device, average.dtype), ([], []))
            averages.append(average)
            values.append(value)
        for (device, _), (averages, values) in groups.items():
            count = self.n_averaged.to(device)
            if self.multi_avg_fn is not None:
                self.multi_avg_fn(averages, values, count)
            elif device.type in _get_foreach_kernels_supported_devices():
                get_swa_multi_avg_fn()(averages, values, count)
            else:
                one = get_swa_avg_fn()
                for average, value in zip(averages, values, strict=True):
                    average.copy_(one(average, value, count))


@never_recorded
def update_bn(loader: Iterable[Any], model: Any, device: Any = None) -> None:
    """Compute the statistics of batch norm layers anew, by running the model over the data."""
    momenta = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.reset_running_stats()
        module.momentum = None
    for batch in loader:
        first = batch[0] if isinstance(batch, list | tuple) else batch
        model(first if device is None else first.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """To a constant rate in ``anneal_epochs``, along a cosine or in equal steps."""

    def __init__(
        self,
        optimizer: Any,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = _format_param("swa_lr", optimizer, swa_lr)
        for rate, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._set_anneal_func(anneal_strategy)
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _linear_anneal(t: float) -> float:
        return t

    @staticmethod
    def _cosine_anneal(t: float) -> float:
        return (1 - math.cos(math.pi * t)) / 2

    @staticmethod
    def _get_initial_lr(lr: Any, swa_lr: Any, alpha: float) -> Any:
        """The rate from which the way began, by where it is now."""
        return swa_lr if alpha == 1 else (lr - alpha * swa_lr) / (1 - alpha)

    def _part(self, step: int) -> float:
        """How much of the way lies behind after a step."""
        return self.anneal_func(max(0, min(1, step / max(1, self.anneal_epochs))))

    def get_lr(self) -> list[Any]:
        """The rates of this epoch."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=2,
            )
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._part(step - 1), self._part(step)
        rates = []
        for group in self.optimizer.param_groups:
            first = self._get_initial_lr(group["lr"], group["swa_lr"], before)
            rates.append(group["swa_lr"] * now + first * (1 - now))
        return rates

    def _set_anneal_func(self, anneal_strategy: str) -> None:
        self._anneal_strategy = anneal_strategy
        cosine = anneal_strategy == "cos"
        self.anneal_func = self._cosine_anneal if cosine else self._linear_anneal

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer and the function."""
        return self._state_without("anneal_func")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict."""
        super().load_state_dict(state_dict)
        self._set_anneal_func(self._anneal_strategy)

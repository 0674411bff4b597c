"""What all schedulers of learning rates are."""

from __future__ import annotations

import contextlib
import functools
import types
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from torchlike.optim._common import Tensor, _to_scalar
from torchlike.optim.optimizer import Optimizer

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is used instead of the new chainable form, where available. Please open an issue if you are unable to "
    "replicate your use case: https://github.com/pytorch/pytorch/issues/new/choose."
)
_ORDER = (
    "See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
)


def check_optimizer(optimizer: Any) -> None:
    """Schedulers change optimizers and nothing else."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _own(value: Any) -> Any:
    """Tensors are copied, as they are written to in place."""
    return value.clone() if isinstance(value, Tensor) else value


def _format_param(name: str, optimizer: Any, param: Any) -> list[Any]:
    """One value for each group: those given, or one for all."""
    groups = optimizer.param_groups
    if not isinstance(param, list | tuple):
        param = [param] * len(groups)
    elif len(param) != len(groups):
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(param)} values, param_groups has {len(groups)}."
        )
    return [_own(value) for value in param]


def _param_groups_val_list(optimizer: Any, key: str) -> list[Any]:
    return [_own(group[key]) for group in optimizer.param_groups]


def _update_param_group_val(param_group: dict[str, Any], key: str, val: Any) -> None:
    if isinstance(param_group[key], Tensor):
        param_group[key].fill_(_to_scalar(val))
    else:
        param_group[key] = val


@contextlib.contextmanager
def flagged(scheduler: Any, name: str) -> Iterator[None]:
    """Within the block this attribute of the scheduler is true."""
    setattr(scheduler, name, True)
    try:
        yield
    finally:
        setattr(scheduler, name, False)


def warn_outside_step(scheduler: Any) -> None:
    """`get_lr` is part of a step; users mean `get_last_lr`."""
    if not scheduler._get_lr_called_within_step:
        warnings.warn(
            "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
            UserWarning,
            stacklevel=3,
        )


def kept_callable(fn: Any) -> Any:
    """What a state dict keeps of a function: nothing, or the attributes of a callable object."""
    return None if isinstance(fn, types.FunctionType) else fn.__dict__.copy()


def _note_steps(optimizer: Any) -> None:
    """The optimizer's step leaves a note that it was called, for the warning about the order."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    func, at = optimizer.step.__func__, weakref.ref(optimizer)

    @functools.wraps(func)
    def noted(*args: Any, **kwargs: Any) -> Any:
        own: Any = at()
        own._opt_called = True
        return func.__get__(own, type(own))(*args, **kwargs)

    noted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = noted


class LRScheduler:
    """Sets the learning rate of each group of an optimizer, epoch by epoch.

    Subclasses define ``get_lr``, the rates of the epoch ``last_epoch``, mostly by those of the one before.
    """

    _get_lr_called_within_step: bool = False
    _is_initial: bool = False

    def __init__(self, optimizer: Any, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _own(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    "last_epoch >= 0.\nThis typically happens when:\n1. You're trying to resume training from a "
                    "checkpoint but haven't properly loaded the optimizer state\n2. You're using last_epoch >= 0 for "
                    "a fresh training run (not recommended)"
                )
        self.base_lrs: list[Any] = _param_groups_val_list(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _note_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        with flagged(self, "_is_initial"):
            self.step()

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer."""
        return self._state_without()

    def _state_without(self, *names: str) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and k not in names}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates of the groups that were set last."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The rates of this epoch."""
        raise NotImplementedError

    def step(self, epoch: Any = None) -> None:
        """Go on to the next epoch, or to the one given."""
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _check_order(self) -> None:
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. "
                f"Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`. {_ORDER}",
                UserWarning,
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you "
                "should call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  Failure to "
                f"do this will result in PyTorch skipping the first value of the learning rate schedule. {_ORDER}",
                UserWarning,
                stacklevel=3,
            )

    def _update_lr(self, epoch: Any = None) -> None:
        closed = getattr(self, "_get_closed_form_lr", None)
        with flagged(self, "_get_lr_called_within_step"):
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            values = closed() if epoch is not None and closed is not None else self.get_lr()
        self._set_lrs(values)

    def _set_lrs(self, values: list[Any]) -> None:
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            _update_param_group_val(group, "lr", lr)
        self._note_lrs()

    def _note_lrs(self) -> None:
        self._last_lr = self._lrs()

    def _lrs(self) -> list[Any]:
        """The rates as they are."""
        return _param_groups_val_list(self.optimizer, "lr")

    def _scaled(self, factor: Any) -> list[Any]:
        """The rates as they are times a factor."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]


class _LRScheduler(LRScheduler):
    """The base under its older name."""

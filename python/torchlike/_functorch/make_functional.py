"""Modules as functions of their parameters and buffers."""

from __future__ import annotations

import copy
from typing import Any

import torchlike as torch
from torchlike.func._modules import check_alike


class FunctionalModuleWithBuffers(torch.nn.Module):
    """A module without parameters and buffers of its own: they are the first two arguments."""

    def __init__(
        self, stateless_model: Any, param_names: tuple[str, ...], buffer_names: tuple[str, ...]
    ) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = param_names, buffer_names

    @classmethod
    def _create_from(cls, model: Any, disable_autograd_tracking: bool = False) -> Any:
        hollow = copy.deepcopy(model)
        # What is given is the copy's, so that writing it leaves the model as it is.
        params, buffers = dict(hollow.named_parameters()), dict(hollow.named_buffers())
        if disable_autograd_tracking:
            for param in params.values():
                param.requires_grad_(False)
        made = cls(hollow.to("meta"), tuple(params), tuple(buffers))
        made.train(model.training)
        return made, tuple(params.values()), tuple(buffers.values())

    def forward(  # type: ignore[override]
        self, params: Any, buffers: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """The module's result with these parameters and buffers."""
        state = dict(zip(self.param_names, params, strict=True))
        state |= dict(zip(self.buffer_names, buffers, strict=True))
        return torch.func.functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module without parameters of its own: they are the first argument."""

    def forward(self, params: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """The module's result with these parameters."""
        return super().forward(params, (), *args, **kwargs)


def make_functional(model: Any, disable_autograd_tracking: bool = False) -> tuple[Any, Any]:
    """A function of a module's parameters, and these.

    Raises:
        RuntimeError: for modules with buffers.
    """
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    made, params, _ = FunctionalModule._create_from(model, disable_autograd_tracking)
    return made, params


def make_functional_with_buffers(
    model: Any, disable_autograd_tracking: bool = False
) -> tuple[Any, Any, Any]:
    """A function of a module's parameters and buffers, and these."""
    made: tuple[Any, Any, Any] = FunctionalModuleWithBuffers._create_from(
        model, disable_autograd_tracking
    )
    return made


def combine_state_for_ensemble(models: Any) -> tuple[Any, Any, Any]:
    """A function of parameters and buffers for `vmap`, and those of modules of one class, stacked, without history.

    Raises:
        RuntimeError: without modules, or if they are not alike.
    """
    models = list(models)
    check_alike("combine_state_for_ensemble", models)
    functions, params, buffers = zip(
        *(make_functional_with_buffers(m) for m in models), strict=True
    )
    return functions[0], _stacked(params), _stacked(buffers)


def _stacked(states: Any) -> tuple[Any, ...]:
    return tuple(torch.stack(several).detach() for several in zip(*states, strict=True))

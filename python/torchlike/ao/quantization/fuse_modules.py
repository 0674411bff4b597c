"""Sequences of layers put together into one."""

from __future__ import annotations

import copy
from typing import Any

from torchlike import nn
from torchlike.ao.quantization.fuser_method_mappings import (
    fuse_conv_bn as fuse_conv_bn,
)
from torchlike.ao.quantization.fuser_method_mappings import (
    fuse_conv_bn_relu as fuse_conv_bn_relu,
)
from torchlike.ao.quantization.fuser_method_mappings import get_fuser_method
from torchlike.nn.utils.parametrize import type_before_parametrizations

layers: Any = nn


__all__ = ["fuse_known_modules", "fuse_modules", "fuse_modules_qat"]


def fuse_known_modules(
    mod_list: list[Any], is_qat: bool, additional_fuser_method_mapping: Any = None
) -> list[Any]:
    """The layers as one, and identities in place of the others."""
    kinds = tuple(type_before_parametrizations(m) for m in mod_list)
    fused = get_fuser_method(kinds, additional_fuser_method_mapping)(is_qat, *mod_list)
    first, last = mod_list[0], mod_list[-1]
    for hook in first._forward_pre_hooks.values():
        fused.register_forward_pre_hook(hook)
    first._forward_pre_hooks.clear()
    for hook in last._forward_hooks.values():
        fused.register_forward_hook(hook)
    last._forward_hooks.clear()
    rest: list[Any] = [layers.Identity() for _ in mod_list[1:]]
    for identity in rest:
        identity.training = first.training
    return [fused, *rest]


def _fused(
    model: Any,
    modules_to_fuse: Any,
    is_qat: bool,
    inplace: bool,
    fuser_func: Any,
    config: Any,
) -> Any:
    if not inplace:
        model = copy.deepcopy(model)
    further = (config or {}).get("additional_fuser_method_mapping", {})
    one = all(isinstance(name, str) for name in modules_to_fuse)
    for names in [modules_to_fuse] if one else modules_to_fuse:
        made = fuser_func([model.get_submodule(name) for name in names], is_qat, further)
        for name, module in zip(names, made, strict=True):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, module)
    return model


def fuse_modules(
    model: Any,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Any:
    """The model with layers of these names put together: a list of names, or several."""
    return _fused(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: Any,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Any:
    """The same for training: batch norm stays."""
    return _fused(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)

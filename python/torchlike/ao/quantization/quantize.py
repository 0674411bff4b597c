"""Models of real numbers that become quantised ones: prepared, observed or trained, and converted."""

from __future__ import annotations

import copy
import inspect
import warnings
from typing import Any

import torchlike as torch
from torchlike import nn
from torchlike.ao.nn.intrinsic import _FusedModule
from torchlike.ao.nn.quantized import FloatFunctional, QFunctional
from torchlike.ao.quantization import qconfig as configs
from torchlike.ao.quantization.observer import _is_activation_post_process
from torchlike.ao.quantization.quantization_mappings import (
    _get_special_act_post_process,
    _has_special_act_post_process,
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
    no_observer_set,
)
from torchlike.ao.quantization.stubs import DeQuantStub, QuantWrapper
from torchlike.ao.quantization.utils import (
    DEPRECATION_WARNING,
    has_no_children_ignoring_parametrizations,
)
from torchlike.nn.utils.parametrize import type_before_parametrizations

layers: Any = nn


__all__ = [
    "add_quant_dequant",
    "convert",
    "get_default_custom_config_dict",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "swap_module",
]

is_activation_post_process = _is_activation_post_process


def _deprecated() -> None:
    warnings.warn(DEPRECATION_WARNING, DeprecationWarning, stacklevel=3)


def get_default_custom_config_dict() -> dict[str, dict[Any, Any]]:
    """The layers that are observed, and converted, in a way of their own: none."""
    return {
        "float_to_observed_custom_module_class": {},
        "observed_to_quantized_custom_module_class": {},
    }


def propagate_qconfig_(
    module: Any, qconfig_dict: Any = None, prepare_custom_config_dict: Any = None
) -> None:
    """Gives every part of a model a configuration: its own, that for its name or class, or that around it."""
    _propagate(module, qconfig_dict or {}, None, "", prepare_custom_config_dict or {})


def _propagate(module: Any, by: Any, around: Any, prefix: str, custom: Any) -> None:
    qconfig = by.get(type_before_parametrizations(module), around)
    qconfig = getattr(module, "qconfig", by.get(prefix, qconfig))
    configs._assert_valid_qconfig(qconfig, module)
    module.qconfig = qconfig
    names = custom.get("non_traceable_module_name", [])
    kinds = custom.get("non_traceable_module_class", [])
    for name, child in module.named_children():
        if name not in names and type(child) not in kinds:
            _propagate(child, by, qconfig, f"{prefix}.{name}" if prefix else name, custom)


def _observer_forward_hook(self: Any, input: Any, output: Any) -> Any:
    """Shows a layer's result to its observer."""
    return self.activation_post_process(output)


def _observer_forward_pre_hook(self: Any, input: Any) -> Any:
    """Shows a layer's input to its observer."""
    return self.activation_post_process(input[0])


def _configured(module: Any) -> bool:
    return getattr(module, "qconfig", None) is not None


class _Observers:
    """Puts observers into a model."""

    def __init__(self, model: Any, listed: Any, whole: Any, custom: Any) -> None:
        self.listed = listed
        self.whole = whole or ()
        self.custom = custom
        devices = _devices(model)
        if len(devices) > 1:
            raise AssertionError(
                f"_add_observer_ only works with cpu or single-device CUDA modules, but got devices {devices}"
            )
        self.device = next(iter(devices), None)

    def made(self, qconfig: Any, special: Any = None) -> Any:
        """A new observer."""
        observer = qconfig.activation() if special is None else special()
        return observer if self.device is None else observer.to(self.device)

    def insert(self, module: Any, special: Any = None) -> None:
        """Has a layer's results observed, or its inputs where they are quantised by their own range."""
        if not _configured(module) or isinstance(module, DeQuantStub):
            return
        module.add_module("activation_post_process", self.made(module.qconfig, special))
        if configs._activation_is_memoryless(module.qconfig):
            module.register_forward_pre_hook(_observer_forward_pre_hook, prepend=True)
        else:
            module.register_forward_hook(_observer_forward_hook, prepend=True)

    def add(self, module: Any) -> None:
        """Observers for the parts of a model."""
        for name, child in list(module.named_children()):
            self._add_to_child(module, name, child)
        kind = type_before_parametrizations(module)
        if isinstance(module, layers.Sequential) or kind not in self.listed:
            return
        if has_no_children_ignoring_parametrizations(module):
            self.insert(module)
        if hasattr(module, "weight_fake_quant"):
            self.insert(module)

    def _add_to_child(self, module: Any, name: str, child: Any) -> None:
        kind = type_before_parametrizations(child)
        if kind is layers.Dropout:
            return
        if issubclass(kind, FloatFunctional | QFunctional):
            if _configured(child):
                child.activation_post_process = self.made(child.qconfig)
        elif isinstance(child, _FusedModule) or kind in self.whole:
            self.insert(child)
        elif _has_special_act_post_process(child):
            self.insert(child, _get_special_act_post_process(child))
        elif _configured(child) and kind in self.custom:
            observed = self.custom[kind].from_float(child)
            setattr(module, name, observed)
            if not issubclass(self.custom[kind], tuple(no_observer_set())):
                self.insert(observed)
        else:
            self.add(child)


def _devices(module: Any) -> set[Any]:
    found = [*module.parameters(), *module.buffers()]
    return {t.device for t in found if t.device.type != "meta"}


def add_quant_dequant(module: Any) -> Any:
    """The model with every configured layer between stubs; a layer alone becomes such a wrapper."""
    if has_no_children_ignoring_parametrizations(module) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in list(module.named_children()):
        module._modules[name] = add_quant_dequant(child)
    return module


def prepare(
    model: Any,
    inplace: bool = False,
    allow_list: Any = None,
    observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: Any = None,
) -> Any:
    """The model, or a copy of it, with observers at all layers that will be quantised."""
    _deprecated()
    return _prepared(
        model, inplace, allow_list, observer_non_leaf_module_list, prepare_custom_config_dict
    )


def _prepared(
    model: Any, inplace: bool, allow_list: Any = None, whole: Any = None, custom: Any = None
) -> Any:
    custom = get_default_custom_config_dict() if custom is None else custom
    if not inplace:
        model = copy.deepcopy(model)
    listed = get_default_qconfig_propagation_list() if allow_list is None else allow_list
    propagate_qconfig_(model)
    if not any(getattr(m, "qconfig", None) for m in model.modules()):
        warnings.warn(
            "None of the submodule got qconfig applied. Make sure you passed correct configuration through "
            "`qconfig_dict` or by assigning the `.qconfig` attribute directly on submodules",
            stacklevel=3,
        )
    kinds = custom.get("float_to_observed_custom_module_class", {})
    _Observers(model, listed, whole, kinds).add(model)
    return model


def _remove_qconfig(module: Any) -> None:
    """Takes configurations, observers and their hooks out of a model."""
    for child in module.children():
        _remove_qconfig(child)
    if hasattr(module, "qconfig"):
        del module.qconfig
    if _is_activation_post_process(getattr(module, "activation_post_process", None)):
        del module.activation_post_process
    for hooks, own in (
        (module._forward_pre_hooks, _observer_forward_pre_hook),
        (module._forward_hooks, _observer_forward_hook),
    ):
        for key in [key for key, hook in hooks.items() if hook is own]:
            hooks.pop(key)


def quantize(
    model: Any, run_fn: Any, run_args: Any, mapping: Any = None, inplace: bool = False
) -> Any:
    """The model, quantised by what is observed while a function runs it."""
    _deprecated()
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    _prepared(model, True)
    run_fn(model, *run_args)
    return _converted(model, mapping)


_WHOLE_WEIGHTS = (
    layers.Linear,
    layers.LSTM,
    layers.GRU,
    layers.LSTMCell,
    layers.RNNCell,
    layers.GRUCell,
)


def _dynamic_default(dtype: Any, spec: Any) -> Any:
    """The configuration for a type, and what has it if nothing is said."""
    known: dict[Any, Any] = {
        torch.qint8: (configs.default_dynamic_qconfig, _WHOLE_WEIGHTS),
        torch.float16: (configs.float16_dynamic_qconfig, _WHOLE_WEIGHTS),
        torch.quint8: (
            configs.float_qparams_weight_only_qconfig,
            (layers.EmbeddingBag, layers.Embedding),
        ),
        torch.quint4x2: (configs.float_qparams_weight_only_qconfig_4bit, (layers.EmbeddingBag,)),
    }
    if dtype not in known:
        if spec is None:
            raise ValueError(
                f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig please"
            )
        raise RuntimeError("Unknown dtype specified for quantize_dynamic: ", str(dtype))
    qconfig, kinds = known[dtype]
    return dict.fromkeys(kinds if spec is None else spec, qconfig)


def quantize_dynamic(
    model: Any,
    qconfig_spec: Any = None,
    dtype: Any = torch.qint8,
    mapping: Any = None,
    inplace: bool = False,
) -> Any:
    """The model with quantised weights; inputs are quantised by their own range when they are met.

    Args:
        model: a model of real numbers.
        qconfig_spec: configurations by names or classes of parts, or a set of these.
        dtype: the type of weights, unless configurations say it.
        mapping: which class takes the place of which.
        inplace: whether the model itself is changed.
    """
    _deprecated()
    if qconfig_spec is None or isinstance(qconfig_spec, set):
        qconfig_spec = _dynamic_default(dtype, qconfig_spec)
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, qconfig_spec)
    return _converted(
        model, get_default_dynamic_quant_module_mappings() if mapping is None else mapping
    )


def prepare_qat(model: Any, mapping: Any = None, inplace: bool = False) -> Any:
    """The model, or a copy of it, with layers that round as quantised ones will.

    Raises:
        AssertionError: if it is not in training mode.
    """
    _deprecated()
    return _prepared_for_training(model, mapping, inplace)


def _prepared_for_training(model: Any, mapping: Any, inplace: bool) -> Any:
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    mapping = get_default_qat_module_mappings() if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model)
    _converted(model, mapping, remove_qconfig=False)
    return _prepared(model, True, whole=set(mapping.values()))


def quantize_qat(model: Any, run_fn: Any, run_args: Any, inplace: bool = False) -> Any:
    """The model, quantised after a function trained it with rounding."""
    _deprecated()
    if not inplace:
        model = copy.deepcopy(model)
    model.train()
    _prepared_for_training(model, None, True)
    run_fn(model, *run_args)
    return _converted(model, None)


def convert(
    module: Any,
    mapping: Any = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: Any = None,
    use_precomputed_fake_quant: bool = False,
) -> Any:
    """The model, or a copy of it, with quantised layers in place of those that were observed.

    Raises:
        NotImplementedError: if reference layers are asked for.
    """
    _deprecated()
    if is_reference:
        raise NotImplementedError("reference layers are not supported by torchlike")
    if not inplace:
        module = copy.deepcopy(module)
    return _converted(
        module, mapping, remove_qconfig, convert_custom_config_dict, use_precomputed_fake_quant
    )


def _converted(
    module: Any,
    mapping: Any,
    remove_qconfig: bool = True,
    custom: Any = None,
    precomputed: bool = False,
) -> Any:
    mapping = get_default_static_quant_module_mappings() if mapping is None else mapping
    custom = get_default_custom_config_dict() if custom is None else custom
    kinds = custom.get("observed_to_quantized_custom_module_class", {})
    _swap_parts(module, mapping, kinds, precomputed)
    if remove_qconfig:
        _remove_qconfig(module)
    return module


def _swap_parts(module: Any, mapping: Any, custom: Any, precomputed: bool) -> None:
    swapped = {}
    for name, child in module.named_children():
        kind = type_before_parametrizations(child)
        if not isinstance(child, _FusedModule) and kind not in custom:
            _swap_parts(child, mapping, custom, precomputed)
        swapped[name] = swap_module(child, mapping, custom, precomputed)
    for name, child in swapped.items():
        module._modules[name] = child


def swap_module(
    mod: Any,
    mapping: Any,
    custom_module_class_mapping: Any,
    use_precomputed_fake_quant: bool = False,
) -> Any:
    """What takes the place of a layer: itself if it is not configured, or nothing does."""
    kind = type_before_parametrizations(mod)
    if not _configured(mod):
        return mod
    if kind in custom_module_class_mapping:
        made = custom_module_class_mapping[kind].from_observed(mod)
    elif kind in mapping:
        make = mapping[kind].from_float
        told = "use_precomputed_fake_quant" in inspect.signature(make).parameters
        options = {"use_precomputed_fake_quant": use_precomputed_fake_quant} if told else {}
        made = make(mod, **options)
    else:
        return mod
    for hook in mod._forward_pre_hooks.values():
        made.register_forward_pre_hook(hook)
    for hook in mod._forward_hooks.values():
        if hook is not _observer_forward_hook:
            made.register_forward_hook(hook)
    devices = _devices(mod)
    if len(devices) > 1:
        raise AssertionError(
            f"swap_module only works with cpu or single-device CUDA modules, but got devices {devices}"
        )
    for device in devices:
        made.to(device)
    return made


def _get_observer_dict(mod: Any, target_dict: dict[str, Any], prefix: str = "") -> None:
    """Puts a model's observers into a dictionary, by their names."""
    for name, part in mod.named_modules(prefix=prefix):
        if hasattr(part, "activation_post_process"):
            key = f"{name}.activation_post_process" if name else "activation_post_process"
            target_dict[key] = part.activation_post_process

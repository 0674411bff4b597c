"""How modules take converted parameters: switches of PyTorch, for the whole process."""

from __future__ import annotations

_overwrite_module_params_on_conversion: bool = False
_swap_module_params_on_conversion: bool = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """With True, `Module.to` and its kin make new parameters; otherwise parameters get other data."""
    global _overwrite_module_params_on_conversion
    _overwrite_module_params_on_conversion = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether `Module.to` and its kin make new parameters."""
    return _overwrite_module_params_on_conversion


def set_swap_module_params_on_conversion(value: bool) -> None:
    """With True, `Module.to`, its kin and `load_state_dict` exchange parameters by `utils.swap_tensors`."""
    global _swap_module_params_on_conversion
    _swap_module_params_on_conversion = value


def get_swap_module_params_on_conversion() -> bool:
    """Whether `Module.to`, its kin and `load_state_dict` exchange parameters by `utils.swap_tensors`."""
    return _swap_module_params_on_conversion

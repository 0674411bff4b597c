"""Tensors and modules of a module by their full names: had, put in, exchanged and taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlike import nn

#: What there is in place of a tensor where a name is new.
MISSING: Any = object()


def _checked(module: Any, name: str, tensor: Any) -> None:
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not MISSING and tensor is not None and not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if name == "":
        raise KeyError('tensor name can\'t be empty string ""')


def set_tensor(module: nn.Module, name: str, tensor: Any) -> None:
    """Puts a tensor where a module has a parameter, a buffer or an attribute of this name."""
    _checked(module, name, tensor)
    for table in (module._parameters, module._buffers):
        if name in table:
            table[name] = tensor
            return
    setattr(module, name, tensor)


def swap_tensor(module: nn.Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """As `set_tensor`; gives what was there.

    Raises:
        AttributeError: if nothing was, unless that is allowed.
    """
    _checked(module, name, tensor)
    state = module._state_
    if state.get("_kinds", {}).get(name) in ("parameter", "buffer"):
        before = state[name]
        if tensor is MISSING:
            delattr(module, name)
        else:
            state[name] = tensor
        return before
    before = getattr(module, name, MISSING)
    if before is MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if before is not MISSING and before is not None and not isinstance(before, torch.Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is not MISSING:
        setattr(module, name, tensor)
    elif before is not MISSING:
        delattr(module, name)
    return before


def swap_submodule(module: nn.Module, name: str, submodule: nn.Module) -> Any:
    """Puts a module in the place of another, which it gives.

    Raises:
        KeyError: if there is none of this name.
    """
    if name not in module._modules:
        raise KeyError(f"submodule {name} does not exist")
    before = module._modules[name]
    module._modules[name] = submodule
    return before


class NamedMemberAccessor:
    """The tensors of a module by their full names, as `layer.weight`."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def _place(self, name: str) -> tuple[Any, str]:
        path, _, last = name.rpartition(".")
        return self.get_submodule(path), last

    def get_submodule(self, name: str) -> Any:
        """A module; itself for an empty name."""
        return self.module.get_submodule(name)

    def swap_submodule(self, path: str, value: nn.Module) -> Any:
        """Puts a module in the place of another, which it gives."""
        return swap_submodule(*self._place(path), value)

    def get_tensor(self, name: str) -> Any:
        """A tensor."""
        where, last = self._place(name)
        found = getattr(where, last)
        if found is not None and not isinstance(found, torch.Tensor):
            raise TypeError(f"{found} is not an instance of torch.Tensor")
        return found

    def set_tensor(self, name: str, value: Any) -> None:
        """Puts a tensor in its place."""
        set_tensor(*self._place(name), value)

    def del_tensor(self, name: str) -> None:
        """Takes a tensor out."""
        swap_tensor(*self._place(name), MISSING)

    def swap_tensor(self, name: str, value: Any, allow_missing: bool = False) -> Any:
        """Puts a tensor in the place of another, which it gives."""
        return swap_tensor(*self._place(name), value, allow_missing)

    def get_tensors(self, names: Iterable[str]) -> list[Any]:
        """Tensors."""
        return [self.get_tensor(name) for name in names]

    def set_tensors_dict(self, named_tensors: dict[str, Any]) -> None:
        """Puts tensors in their places."""
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def swap_tensors_dict(
        self, named_tensors: dict[str, Any], allow_missing: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """Puts tensors in the places of others, which it gives, with the names of those that were not there.

        Raises:
            RuntimeError: if some were not there, unless that is allowed; all is then as it was.
        """
        before: dict[str, Any] = {}
        try:
            for name, value in named_tensors.items():
                before[name] = self.swap_tensor(name, value, allow_missing=True)
            missing = [name for name, value in before.items() if value is MISSING]
            if missing and not allow_missing:
                raise RuntimeError(f"Missing key(s): {', '.join(map(repr, missing))}.")
        except Exception:
            for name, value in before.items():
                self.swap_tensor(name, value, allow_missing=True)
            raise
        return before, missing

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """The names of tensors that are not among some, and of those what is no tensor."""
        given = set(keys)
        own = {n for n, _ in self.module.named_parameters(remove_duplicate=False)}
        own |= {n for n, _ in self.module.named_buffers(remove_duplicate=False)}
        return sorted(own - given), sorted(given - own)

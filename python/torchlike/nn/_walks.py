"""The methods of a module that walk over what is registered in it and below, and those that change all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike._C import _ModuleWalk
from torchlike.nn._registry import module_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

    from torchlike.nn.modules import module as whole


class Module:  # named as the class it is a part of, for messages name methods by it
    """Walking over parameters, buffers and modules."""

    _state_: dict[str, Any]
    training: bool

    def _named_members(
        self,
        get_members_fn: Any,
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """All parameters, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """All parameters with their dotted names."""
        return _ModuleWalk(
            "parameter", self, module_types[0], None, prefix, remove_duplicate, recurse
        )

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """All buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """All buffers with their dotted names."""
        return _ModuleWalk("buffer", self, module_types[0], None, prefix, remove_duplicate, recurse)

    def children(self) -> Iterator[whole.Module]:
        """The modules directly below this one, each once."""
        state = self._state_
        kinds = state["_kinds"]
        if "module" in kinds.values():
            found = dict.fromkeys(state[name] for name, kind in kinds.items() if kind == "module")
            found.pop(None, None)
            yield from found

    def named_children(self) -> Iterator[tuple[str, whole.Module]]:
        """The modules directly below this one with their names."""
        state = self._state_
        kinds = state["_kinds"]
        if "module" not in kinds.values():
            return
        seen = set()
        for name, kind in list(kinds.items()):
            if kind == "module":
                module = state[name]
                if module is not None and module not in seen:
                    seen.add(module)
                    yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[whole.Module]:
        """This module and all below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set[whole.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, whole.Module]]:
        """This module and all below it with their dotted names, parents first."""
        return _ModuleWalk("module", self, module_types[0], memo, prefix, remove_duplicate, True)

    def apply(self, fn: Callable[[whole.Module], Any]) -> Self:
        """Call ``fn`` on every module below, then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)  # type: ignore[arg-type]  # whose class is the whole one
        return self

    def train(self, mode: bool = True) -> Self:
        """Switch training behaviour on or off, here and below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """The same as ``train(False)``."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Let all parameters record gradients, or not."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros."""
        for param in self.parameters():
            if param.grad is not None:
                if set_to_none:
                    param.grad = None
                else:
                    if param.grad.grad_fn is not None:
                        param.grad.detach_()
                    else:
                        param.grad.requires_grad_(False)
                    param.grad.zero_()

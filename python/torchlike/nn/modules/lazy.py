"""Layers that find out their sizes from the first input."""

from __future__ import annotations

from typing import Any

from torchlike.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Mixin of layers whose parameters get their shapes in the first call."""

    cls_to_become: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(_LazyLoad(self))  # type: ignore[attr-defined]
        self._initialize_hook = self.register_forward_pre_hook(  # type: ignore[attr-defined]
            _infer_parameters, with_kwargs=True
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, value in self._own_tensors():
            keep = is_lazy(value) or keep_vars
            destination[prefix + name] = value if keep else value.detach()

    def _own_tensors(self) -> list[tuple[str, Any]]:
        transient = self._non_persistent_buffers_set  # type: ignore[attr-defined]
        both = [*self._parameters.items(), *self._buffers.items()]  # type: ignore[attr-defined]
        return [(n, v) for n, v in both if v is not None and n not in transient]

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the parameters their shapes, from the arguments of the call."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer has no shape yet."""
        params = self._parameters.values()  # type: ignore[attr-defined]
        buffers = self._buffers.values()  # type: ignore[attr-defined]
        return any(is_lazy(value) for value in (*params, *buffers))


class _LazyLoad:
    """Gives the parameters the shapes of the state dict that is being loaded."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, state_dict: Any, prefix: str, *unused: Any) -> None:
        import torchlike as torch

        for name, value in self.module._own_tensors():
            given = state_dict.get(prefix + name)
            if given is not None and is_lazy(value) and not is_lazy(given):
                with torch.no_grad():
                    value.materialize(given.shape)


def _infer_parameters(module: Any, args: Any, kwargs: Any = None) -> None:
    module.initialize_parameters(*args, **(kwargs or {}))
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
    module._initialize_hook.remove()
    module._load_hook.remove()
    del module._initialize_hook, module._load_hook
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become

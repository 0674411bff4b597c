"""The methods of a module that register hooks."""

from __future__ import annotations

import weakref
from typing import Any

from torchlike.nn._hooks import RemovableHandle, add_hook


class _Bound:
    """A hook that is handed its module first, and keeps it no longer alive; copies of the module get their own."""

    def __init__(self, hook: Any, module: Any) -> None:
        self.hook = hook
        self.module = weakref.ref(module)

    def __call__(self, *args: Any) -> Any:
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args)

    def __reduce__(self) -> Any:
        # The module's state holds this hook: what is read or copied has to be there before the module is.
        return _Bound.__new__, (_Bound,), (self.hook, self.module())

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        hook, module = state
        if module is None:
            raise RuntimeError("You are trying to revive the hook of a dead Module!")
        self.__init__(hook, module)  # type: ignore[misc]


class Module:  # named as the class it is a part of, for messages name methods by it
    """Registering hooks; the tables are made when they are first needed."""

    def register_forward_pre_hook(
        self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Run ``hook(module, args)`` before forward; what it returns replaces the arguments."""
        also = ("_forward_pre_hooks_with_kwargs",) if with_kwargs else ()
        return add_hook(self, "_forward_pre_hooks", hook, *also, prepend=prepend)

    def register_forward_hook(
        self,
        hook: Any,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Run ``hook(module, args, output)`` after forward; what it returns is the output."""
        also = []
        if with_kwargs:
            also.append("_forward_hooks_with_kwargs")
        if always_call:
            also.append("_forward_hooks_always_called")
        return add_hook(self, "_forward_hooks", hook, *also, prepend=prepend)

    def register_full_backward_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Run ``hook(module, grad_output)`` before the module's backward."""
        return add_hook(self, "_backward_pre_hooks", hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Run ``hook(module, grad_input, grad_output)`` after the module's backward."""
        self._set_hook_kind(True)
        return add_hook(self, "_backward_hooks", hook, prepend=prepend)

    def register_backward_hook(self, hook: Any) -> RemovableHandle:
        """The older kind, which sees the gradients of the module's last call alone."""
        self._set_hook_kind(False)
        return add_hook(self, "_backward_hooks", hook)

    def _set_hook_kind(self, full: bool) -> None:
        state: dict[str, Any] = self._state_  # type: ignore[attr-defined]
        if state.get("_is_full_backward_hook") is (not full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a "
                "single Module. Please use only one of them."
            )
        state["_is_full_backward_hook"] = full

    def register_state_dict_post_hook(self, hook: Any) -> RemovableHandle:
        """Run ``hook(module, state_dict, prefix, local_metadata)`` after state_dict."""
        hook._from_public_api = True
        return add_hook(self, "_state_dict_hooks", hook)

    def _register_state_dict_hook(self, hook: Any) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was "
                "previously registered via register_state_dict_post_hook"
            )
        return add_hook(self, "_state_dict_hooks", hook)

    def register_state_dict_pre_hook(self, hook: Any) -> RemovableHandle:
        """Run ``hook(module, prefix, keep_vars)`` before state_dict."""
        return add_hook(self, "_state_dict_pre_hooks", hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Any, with_module: bool = False
    ) -> RemovableHandle:
        if with_module:
            return add_hook(self, "_load_state_dict_pre_hooks", _Bound(hook, self))
        return add_hook(self, "_load_state_dict_pre_hooks", hook)

    def register_load_state_dict_pre_hook(self, hook: Any) -> RemovableHandle:
        """Run ``hook(module, state_dict, prefix, ...)`` before load_state_dict."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Any) -> RemovableHandle:
        """Run ``hook(module, incompatible_keys)`` after load_state_dict."""
        return add_hook(self, "_load_state_dict_post_hooks", hook)

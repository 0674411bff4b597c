"""A module of TorchScript as a graph of `torchlike.fx`."""

from __future__ import annotations

from typing import Any

from torchlike.fx import GraphModule
from torchlike.fx._symbolic_trace import Tracer


class _Whole(Tracer):
    """Follows the code of all modules down to operators."""

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        return False

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        root: Any = self.root
        forward = root._spec.methods["forward"]
        names = forward.arguments()[1:]
        needed = len(names) - len(forward.tree.args.defaults)
        inputs = [self.create_proxy("placeholder", n, (), {}) for n in names[:needed]]
        return lambda module, *given: module._run("forward", given, {}), [root, *inputs]


def to_fx(module: Any) -> GraphModule:
    """The module as a graph; control flow that depends on values raises `TraceError`."""
    return GraphModule(module, _Whole().trace(module), module.original_name)

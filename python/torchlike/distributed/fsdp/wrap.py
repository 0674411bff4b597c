"""Which modules are wrapped: policies, and ways of applying them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torchlike.nn.modules._attention import MultiheadAttention
from torchlike.nn.modules.container import ModuleDict, ModuleList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torchlike.nn import Module, Parameter

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "enable_wrap",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "wrap",
]


class _Policy:
    """Says for all modules of a model at once which are wrapped."""

    def _run_policy(
        self, root_module: Module, ignored_modules: set[Module], root_kwargs: dict[str, Any]
    ) -> dict[Module, dict[str, Any]]:
        """The modules that are wrapped, and the arguments of each."""
        raise NotImplementedError(f"{type(self).__name__} does not say which modules are wrapped")


class ModuleWrapPolicy(_Policy):
    """Wraps the modules of some classes.

    Raises:
        ValueError: for something that is no class.
    """

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        classes = set(module_classes)
        self._module_classes = classes
        self._module_classes_str = str(classes)

    def _run_policy(
        self, root_module: Module, ignored_modules: set[Module], root_kwargs: dict[str, Any]
    ) -> dict[Module, dict[str, Any]]:
        kinds = tuple(self._module_classes)
        wanted = (m for m in root_module.modules() if m not in ignored_modules)
        return {m: dict(root_kwargs) for m in wanted if isinstance(m, kinds)}

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        """The same policy for one module."""
        return _is_of(module, recurse, self._module_classes)

    def __repr__(self) -> str:
        return super().__repr__() + f"({self._module_classes_str})"


class CustomPolicy(_Policy):
    """Asks a function of each module: no, yes, or the arguments in which its wrapper differs from the root's."""

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]) -> None:
        self._lambda_fn = lambda_fn

    def _run_policy(
        self, root_module: Module, ignored_modules: set[Module], root_kwargs: dict[str, Any]
    ) -> dict[Module, dict[str, Any]]:
        found: dict[Module, dict[str, Any]] = {}
        for module in root_module.modules():
            if module in ignored_modules:
                continue
            answer = self._lambda_fn(module)
            if not isinstance(answer, dict | bool):
                raise ValueError(
                    "The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, but it returned "
                    f"{answer}"
                )
            if answer:
                found[module] = {**root_kwargs, **(answer if isinstance(answer, dict) else {})}
        return found


def _is_of(module: Module, recurse: bool, classes: Iterable[type[Module]]) -> bool:
    """Whether a module is of some classes; all are looked into."""
    return recurse or isinstance(module, tuple(classes))


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Wraps every module."""
    return True


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[..., bool]
) -> bool:
    """Wraps the modules that a function is true for."""
    return True if recurse else lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    transformer_layer_cls: set[type[Module]],
) -> bool:
    """Wraps the layers of a transformer, by their classes."""
    return _is_of(module, recurse, transformer_layer_cls)


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Wraps modules with enough elements that nothing below has taken; attention is not looked into, and containers
    without a forward pass are not wrapped."""
    leaves = size_based_auto_wrap_policy.FORCE_LEAF_MODULES  # type: ignore[attr-defined]
    never = size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES  # type: ignore[attr-defined]
    leaves = leaves if force_leaf_modules is None else force_leaf_modules
    never = never if exclude_wrap_modules is None else exclude_wrap_modules
    large = nonwrapped_numel >= min_num_params
    return large and not isinstance(module, tuple(leaves if recurse else never))


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {ModuleList, ModuleDict}  # type: ignore[attr-defined]
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {MultiheadAttention}  # type: ignore[attr-defined]


def _or_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Callable[..., bool]]
) -> bool:
    """Wraps what one of several policies wraps."""
    return any(
        p(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for p in policies
    )


class _Wrapping:
    """What `wrap` does, innermost last."""

    stack: list[tuple[Any, dict[str, Any]]] = []


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """Within, `wrap` wraps, with this class and these arguments."""
    _Wrapping.stack.append((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _Wrapping.stack.pop()


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """The module wrapped as `enable_wrap` says, or as it is outside of it."""
    if not _Wrapping.stack:
        return module
    kind, kwargs = _Wrapping.stack[-1]
    made: Module = kind(module, **{**kwargs, **wrap_overrides})
    return made


def _below(root: Module, wanted: dict[Module, dict[str, Any]], make: Callable[..., Module]) -> None:
    """Wraps the modules below a root, those furthest down first; one that stands in several places once."""
    made: dict[Module, Module] = {}
    seen: set[Module] = set()

    def visit(module: Module) -> None:
        if module in seen:
            return
        seen.add(module)
        for name, child in list(module.named_children()):
            visit(child)
            if child in wanted:
                if child not in made:
                    made[child] = make(child, **wanted[child])
                setattr(module, name, made[child])

    visit(root)


def _recursive_wrap(
    module: Module,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Callable[..., Module],
    ignored_modules: set[Module],
    ignored_params: set[Parameter],
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[Module, int]:
    """Asks a policy from the leaves up; the module, wrapped or not, and the elements that were wrapped."""
    size = sum(p.numel() for p in module.parameters() if p not in ignored_params)
    if not auto_wrap_policy(module=module, recurse=True, nonwrapped_numel=size):
        return module, 0
    total = 0
    for name, child in list(module.named_children()):
        if child in ignored_modules:
            continue
        new, count = _recursive_wrap(
            child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **kwargs
        )
        setattr(module, name, new)
        total += count
    rest = size - total
    if not only_wrap_children and auto_wrap_policy(
        module=module, recurse=False, nonwrapped_numel=rest
    ):
        return wrapper_cls(module, **kwargs), size
    return module, total

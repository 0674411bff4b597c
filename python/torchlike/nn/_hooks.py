"""Hook tables of modules and the handles that take hooks out again."""

from __future__ import annotations

import contextlib
import weakref
from collections import OrderedDict
from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]


class RemovableHandle:
    """Takes one hook out of its table; also a context manager that does so on exit."""

    __module__ = "torchlike.utils.hooks"
    next_id = 0

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        if extra_dict is None:
            self.extra_dict_ref: tuple[Any, ...] = ()
            return
        extras = extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self.extra_dict_ref = tuple([weakref.ref(d) for d in extras if d is not None])

    def remove(self) -> None:
        """Forget the hook; doing it twice is harmless."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            table = ref()
            if table is not None:
                table.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        table, self.id, extras = state
        self.hooks_dict_ref = weakref.ref(OrderedDict() if table is None else table)
        self.extra_dict_ref = tuple(
            weakref.ref(OrderedDict() if extra is None else extra) for extra in extras
        )
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


# The tables that change what a call of a module does.
CALL_TABLES = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)
# The tables that are read by state_dict and load_state_dict.
STATE_TABLES = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


class Table:
    """A hook table of a module as an attribute: made when it is first asked for."""

    __slots__ = ("home", "name")

    def __init__(self, name: str, home: str) -> None:
        self.name = name
        self.home = home

    def __get__(self, module: Any, owner: Any = None) -> Any:
        if module is None:
            return self
        try:
            tables = module._state_[self.home]
        except KeyError:
            raise AttributeError(
                f"'{type(module).__name__}' object has no attribute '{self.name}'"
            ) from None
        if tables is None:
            tables = module._state_[self.home] = {}
        table = tables.get(self.name)
        if table is None:
            table = tables[self.name] = OrderedDict()
        return table

    def __set__(self, module: Any, value: Any) -> None:
        tables = module._state_.get(self.home)
        if tables is None:
            tables = module._state_[self.home] = {}
        tables[self.name] = value

    def __delete__(self, module: Any) -> None:
        (module._state_.get(self.home) or {}).pop(self.name, None)


# Hooks of every module in the process.
global_tables: dict[str, OrderedDict[int, Any]] = {
    name: OrderedDict()
    for name in (
        *CALL_TABLES,
        "_parameter_registration",
        "_buffer_registration",
        "_module_registration",
    )
}


class _Everywhere:
    """What stands around the calls of all modules."""

    __slots__ = ("busy", "full", "hooks", "watchers")

    def __init__(self) -> None:
        self.busy = False
        self.full: bool | None = None  # of which kind the hooks on the way back are
        self.hooks = False
        self.watchers: dict[int, Any] = {}

    def settle(self) -> None:
        """See what there is now: hooks of every module, somebody who is told, or (``busy``) one of these."""
        self.hooks = any(global_tables[name] for name in CALL_TABLES)
        self.busy = self.hooks or bool(self.watchers)


everywhere = _Everywhere()


class _GlobalHandle(RemovableHandle):
    def remove(self) -> None:
        super().remove()
        everywhere.settle()


@contextlib.contextmanager
def watched(watcher: Any) -> Iterator[None]:
    """Tell somebody which modules work on this thread: ``enter(module)`` before a call and its hooks, ``leave()``
    after it."""
    here = get_ident()
    before = everywhere.watchers.get(here)
    everywhere.watchers[here] = watcher
    everywhere.settle()
    try:
        yield
    finally:
        del everywhere.watchers[here]
        if before is not None:
            everywhere.watchers[here] = before
        everywhere.settle()


def add_global(table: str, hook: Callable[..., Any], *also: str) -> RemovableHandle:
    """Put a hook of every module into ``table`` (and mark it in the tables ``also``)."""
    handle = _GlobalHandle(global_tables[table], extra_dict=[global_tables[name] for name in also])
    global_tables[table][handle.id] = hook
    for name in also:
        global_tables[name][handle.id] = True
    everywhere.settle()
    return handle


def add_hook(
    module: Any, table: str, hook: Any, *also: str, prepend: bool = False
) -> RemovableHandle:
    """Put ``hook`` into a table of one module, marked in the tables ``also``."""
    hooks = getattr(module, table)
    marks = [getattr(module, name) for name in also] if also else None
    handle = RemovableHandle(hooks, extra_dict=marks)
    hooks[handle.id] = hook
    for mark in marks or ():
        mark[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def put_hook(module: Any, table: str, hook: Any) -> None:
    """Put ``hook``, which nobody takes out again, into a table of one module."""
    key = RemovableHandle.next_id
    RemovableHandle.next_id = key + 1
    getattr(module, table)[key] = hook


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run ``hook(module, args)`` before the forward of every module."""
    return add_global("_forward_pre_hooks", hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Run ``hook(module, args, output)`` after the forward of every module."""
    also = []
    if with_kwargs:
        also.append("_forward_hooks_with_kwargs")
    if always_call:
        also.append("_forward_hooks_always_called")
    return add_global("_forward_hooks", hook, *also)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run ``hook(module, grad_output)`` before the backward of every module."""
    return add_global("_backward_pre_hooks", hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run ``hook(module, grad_input, grad_output)`` after the backward of every module."""
    _set_global_kind(True)
    return add_global("_backward_hooks", hook)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """The older kind, which sees the gradients of the last operator of a module alone."""
    _set_global_kind(False)
    return add_global("_backward_hooks", hook)


def _set_global_kind(full: bool) -> None:
    if everywhere.full is (not full):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a "
            "global Module hook. Please use only one of them."
        )
    everywhere.full = full


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Let ``hook(module, name, buffer)`` replace buffers as they are registered."""
    return add_global("_buffer_registration", hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Let ``hook(module, name, submodule)`` replace submodules as they are registered."""
    return add_global("_module_registration", hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Let ``hook(module, name, parameter)`` replace parameters as they are registered."""
    return add_global("_parameter_registration", hook)


def replaced(table: str, module: Any, name: str, value: Any) -> Any:
    """What the registration hooks in ``table`` make of ``value``."""
    for hook in global_tables[table].values():
        output = hook(module, name, value)
        if output is not None:
            value = output
    return value


def _live(own: dict[str, Any], table: str) -> list[tuple[int, Any]]:
    """The hooks of a table as they are now: those of every module, and a module's own."""
    mine, shared = own.get(table), global_tables[table]
    if mine:
        return [*shared.items(), *mine.items()]
    return list(shared.items()) if shared else []


def _marked(own: dict[str, Any], table: str) -> set[int]:
    mine, shared = own.get(table), global_tables[table]
    return {*shared, *(mine or ())} if mine or shared else set()


def _after(module: Any, hook: Any, keyed: bool, args: Any, kwargs: Any, result: Any) -> Any:
    out = hook(module, args, kwargs, result) if keyed else hook(module, args, result)
    return result if out is None else out


def call_with_hooks(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``module`` while there are hooks of its own, hooks of every module, or somebody to be told."""
    watchers = everywhere.watchers
    watcher = watchers.get(get_ident()) if watchers else None
    if watcher is None:
        return _hooked(module, args, kwargs)
    watcher.enter(module)
    try:
        if module._hooks is None and not everywhere.hooks:
            return module.forward(*args, **kwargs)
        return _hooked(module, args, kwargs)
    finally:
        watcher.leave()


_PLAIN = frozenset(("_forward_hooks", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"))


def _plainly_hooked(module: Any, own: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``module`` with hooks of its own that stand before and after it, and nothing else."""
    before, after = own.get("_forward_pre_hooks"), own.get("_forward_hooks")
    # What hooks add and take out counts from the next call on.
    after = list(after.values()) if after else ()
    if before:
        keyed = own.get("_forward_pre_hooks_with_kwargs")
        keyed = frozenset(keyed) if keyed else ()
        for key, hook in list(before.items()):
            args, kwargs = _before(module, hook, key in keyed, args, kwargs)
    result = module.forward(*args, **kwargs)
    for hook in after:
        out = hook(module, args, result)
        result = result if out is None else out
    return result


def _before(module: Any, hook: Any, keyed: bool, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments that a hook before the call leaves."""
    if not keyed:
        out = hook(module, args)
        return (args if out is None else out if isinstance(out, tuple) else (out,)), kwargs
    out = hook(module, args, kwargs)
    if out is None:
        return args, kwargs
    if not (isinstance(out, tuple) and len(out) == 2):
        raise RuntimeError(
            f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {out}."
        )
    return out


def _hooked(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``module`` with the hooks that it and every module have."""
    own = module._hooks or {}
    if not everywhere.hooks and own.keys() <= _PLAIN:
        return _plainly_hooked(module, own, args, kwargs)
    after = _live(own, "_forward_hooks")
    keyed = _marked(own, "_forward_hooks_with_kwargs")
    always = _marked(own, "_forward_hooks_always_called")
    called: set[int] = set()
    result = None
    try:
        pre_keyed = _marked(own, "_forward_pre_hooks_with_kwargs")
        for key, hook in _live(own, "_forward_pre_hooks"):
            args, kwargs = _before(module, hook, key in pre_keyed, args, kwargs)
        watch, older = _backward(module)
        if watch is not None:
            args = watch.enter(args)
        result = module.forward(*args, **kwargs)
        for key, hook in after:
            if key in always:
                called.add(key)
            result = _after(module, hook, key in keyed, args, kwargs, result)
        if watch is not None:
            result = watch.leave(result)
        if older:
            from torchlike.nn._backward_hooks import watch_last_node

            watch_last_node(module, older, args, result)
        return result
    except Exception:
        # Hooks that asked to be called always still have their turn; their own errors give way.
        for key, hook in after:
            if key in always and key not in called:
                try:
                    result = _after(module, hook, key in keyed, args, kwargs, result)
                except Exception as error:
                    import warnings

                    scope = "global module" if key in global_tables["_forward_hooks"] else "module"
                    warnings.warn(
                        f"{scope} forward hook with ``always_call=True`` raised an exception "
                        "that was silenced as another error was raised in forward: "
                        f"{error!s}",
                        stacklevel=2,
                    )
        raise


def _backward(module: Any) -> tuple[Any, list[Any]]:
    """Who stands on the module's way back, and its hooks of the older kind."""
    own = module._state_["_hooks"] or {}
    kinds = (
        (everywhere.full, global_tables["_backward_hooks"]),
        (module._state_.get("_is_full_backward_hook"), own.get("_backward_hooks") or {}),
    )
    whole = [hook for full, table in kinds if full is True for hook in table.values()]
    older = [hook for full, table in kinds if full is False for hook in table.values()]
    before = [hook for _, hook in _live(own, "_backward_pre_hooks")]
    if not whole and not before:
        return None, older
    from torchlike.nn._backward_hooks import BackwardHook

    return BackwardHook(module, whole, before), older

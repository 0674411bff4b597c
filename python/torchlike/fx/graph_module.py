"""A module whose `forward` is generated from a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
import sys
import traceback
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.fx._codegen import PythonCode, _BoxedCodeGen, _PyTreeCodeGen
from torchlike.fx._gm_hooks import GraphHooks
from torchlike.fx._source import (  # noqa: F401
    LateForward,
    _format_import_block,
    _forward_from_src,
    _method_from_src,
)
from torchlike.fx.graph import Graph
from torchlike.nn import Module, Parameter

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

__all__ = ["GraphModule", "reduce_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_HOOKS = ("_replace_hooks", "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks")


class _CodeOnlyModule(Module):
    """The contents of a graph module, from which it is made again."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self._state_ = body


def reduce_graph_module(body: dict[str, Any], import_block: str) -> Module:
    """The module of a pickle: its source, traced again with every module a leaf."""
    source = body.get("_code") or body["code"]
    return _deserialize_graph_module(_forward_from_src(import_block + source, {}), body)


def _deserialize_graph_module(
    forward: Callable[..., Any], body: dict[str, Any], graph_module_cls: type | None = None
) -> Module:
    from torchlike.fx._symbolic_trace import Tracer

    kind = type("_CodeOnlyModule", (_CodeOnlyModule,), {"forward": forward})
    tracer_cls: Any = body.get("_tracer_cls") or Tracer
    name = body.get("_graphmodule_cls_name", "GraphModule")

    class KeepModules(tracer_cls):  # type: ignore[misc]
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    held = kind(body)
    graph = KeepModules().trace(held, **body.get("_tracer_extras", {}))
    graph._tracer_cls = tracer_cls
    made = (graph_module_cls or GraphModule)(held, graph, class_name=name)
    for key, value in body.items():
        if not hasattr(made, key):
            setattr(made, key, value)
    return made


# attributes by path --------------------------------------------------------------------------


def _put(module: Module, name: str, value: Any) -> None:
    """An attribute of a module; tensors that are no parameters become buffers."""
    if isinstance(value, torchlike.Tensor) and not isinstance(value, Parameter):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


def _copy_attr(from_module: Any, to_module: Any, target: str) -> None:
    """Gives a module what another one has at a path, with plain modules on the way."""
    *prefix, field = target.split(".")
    for item in prefix:
        source, here = getattr(from_module, item), getattr(to_module, item, None)
        if source is here:
            return
        if here is None:
            here = Module()
            setattr(to_module, item, here)
        from_module, to_module = source, here
    _put(to_module, field, getattr(from_module, field))


def _copy_attrs(root: Module, made: Module, targets: Iterable[str]) -> None:
    """As `_copy_attr` for many paths, each module on the way looked up once."""
    known: dict[str, Any] = {"": (root, made)}
    for target in dict.fromkeys(targets):
        prefix, _, field = target.rpartition(".")
        pair = known.get(prefix)
        if prefix not in known:
            pair = known[""]
            walked = ""
            for item in prefix.split("."):
                walked = f"{walked}.{item}" if walked else item
                if walked not in known:
                    known[walked] = _step(pair, item)
                pair = known[walked]
        if pair is not None:
            _put(pair[1], field, getattr(pair[0], field))


def _step(pair: Any, item: str) -> Any:
    """One module further down on both sides; None where both sides hold the same module."""
    if pair is None:
        return None
    source, here = getattr(pair[0], item), getattr(pair[1], item, None)
    if source is here:
        return None
    if here is None:
        here = Module()
        setattr(pair[1], item, here)
    return source, here


def _assign_attr(from_obj: Any, to_module: Any, target: str) -> None:
    """Puts an object at a path below a module, with plain modules on the way."""
    *prefix, field = target.split(".")
    for item in prefix:
        here = getattr(to_module, item, None)
        if here is None:
            here = Module()
            setattr(to_module, item, here)
        to_module = here
    _put(to_module, field, from_obj)


def _get_attr(model: Any, attr_name: str) -> Any:
    return _get_attr_via_attr_list(model, attr_name.split("."))


def _get_attr_via_attr_list(model: Any, attr_list: list[str]) -> Any:
    here = model
    for item in attr_list:
        if not hasattr(here, item):
            raise AssertionError(f"Attribute '{item}' not found in model")
        here = getattr(here, item)
    return here


def _has_attr(model: Any, attr_name: str) -> bool:
    here = model
    for item in attr_name.split("."):
        if not hasattr(here, item):
            return False
        here = getattr(here, item)
    return True


def _del_attr(model: Any, attr_name: str) -> None:
    prefix, _, field = attr_name.rpartition(".")
    delattr(_get_attr(model, prefix) if prefix else model, field)


# calls ---------------------------------------------------------------------------------------


class _WrappedCall:
    """A call of a graph module: an error in generated code is shown with the lines around it."""

    def __init__(self, cls: type, cls_call: Callable[..., Any] | None) -> None:
        self.cls: Any = cls
        self.cls_call = cls_call

    @staticmethod
    def _generate_error_message(frame_summary: traceback.FrameSummary) -> str:
        at = frame_summary.lineno or 0
        lines = linecache.getlines(frame_summary.filename)
        message = (
            f"Call using an FX-traced Module, line {at} of the traced Module's "
            "generated forward function:"
        )
        before = "".join(lines[at - 2 : at])
        marker = "~" * len(frame_summary.line or "") + "~~~ <--- HERE"
        behind = "\n".join(lines[at : at + 2])
        return "\n".join([traceback.format_exc(), message, before, marker, behind])

    def __call__(self, obj: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.cls_call is not None:
                return self.cls_call(obj, *args, **kwargs)
            return super(self.cls, obj).__call__(*args, **kwargs)  # type: ignore[misc]
        except Exception as e:
            last = traceback.extract_tb(e.__traceback__)[-1]
            if "eval_with_key" not in last.filename:
                raise
            print(_WrappedCall._generate_error_message(last), file=sys.stderr)
            raise e.with_traceback(None)  # noqa: B904


def _implementation(cls: type) -> type:
    """A class of its own for a module, as each has its own `forward`."""
    base = next(c for c in cls.__mro__ if c.__qualname__.rpartition(".")[2] != "GraphModuleImpl")

    class GraphModuleImpl(base):  # type: ignore[valid-type, misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self._wrapped_call(self, *args, **kwargs)

    GraphModuleImpl._wrapped_call = _WrappedCall(GraphModuleImpl, None)
    GraphModuleImpl.__qualname__ = "GraphModule.__new__.<locals>.GraphModuleImpl"
    return GraphModuleImpl


class GraphModule(GraphHooks, Module):
    """A module with a graph, `graph`, and the `forward` and `code` that are generated from it.

    Args:
        root: where parameters, buffers and modules that the graph names are taken from: a module, or a dictionary by
            path.
        graph: what `forward` does.
        class_name: the name of the module's class.
    """

    __jit_unused_properties__ = ["graph", "_boxed_call"]
    _code: str
    _graph: Graph
    meta: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        return super().__new__(_implementation(cls))

    def __init__(
        self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        targets = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self._state_["training"] = getattr(root, "training", True)
            if isinstance(root, _CodeOnlyModule):
                state = (root.named_children(), root.named_buffers(), root.named_parameters())
                targets = [n for n, _ in itertools.chain(*state)] + targets
            _copy_attrs(root, self, targets)
        elif isinstance(root, dict):
            self._take(root, graph)
        else:
            raise RuntimeError("Unsupported type " + str(root) + " passed for root!")
        self.graph = graph
        tracer = graph._tracer_cls
        picklable = tracer is not None and "<locals>" not in tracer.__qualname__
        self._state_.update(
            _tracer_cls=tracer if picklable else None,
            _tracer_extras=graph._tracer_extras or {},
            meta={},
            _replace_hooks=[],
            _create_node_hooks=[],
            _erase_node_hooks=[],
            _deepcopy_hooks=[],
            shape_env=None,
        )

    def _take(self, root: dict[str, Any], graph: Graph) -> None:
        targets = []
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} "
                        "but that target was not provided in ``root``!"
                    )
                targets.append(node.target)
        for target in sorted(targets, key=lambda t: t.count(".")):
            _assign_attr(root[target], self, target)

    @property
    def _boxed_call(self) -> bool:
        return isinstance(self._graph._codegen, _BoxedCodeGen)

    @property
    def graph(self) -> Graph:
        """What the module computes. After changing it, call `recompile`."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._state_["_graph"] = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The generated source."""
        if "_code" not in self._state_:
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self._code

    def recompile(self) -> PythonCode:
        """Generates `forward` and `code` from the graph again."""
        graph, state = self._graph, self._state_
        if isinstance(graph._codegen, _PyTreeCodeGen):
            info = graph._codegen.pytree_info
            state.update(_in_spec=info.in_spec, _out_spec=info.out_spec)
        made = graph.python_code(root_module="self")
        state.update(
            _code=made.src, _lineno_map=made._lineno_map, _prologue_start=made._prologue_start
        )
        type(self).forward = LateForward(made.src, made.globals, graph._co_fields)  # type: ignore[method-assign, assignment]
        self._recompile_submodules()
        return made

    def _recompile_submodules(self) -> list[tuple[str, PythonCode]]:
        children = self.named_children()
        return [(n, m.recompile()) for n, m in children if isinstance(m, GraphModule)]

    # modules below

    def add_submodule(self, target: str, m: Module) -> bool:
        """Puts a module at a path; False if something that is no module stands on the way."""
        *prefix, field = target.split(".")
        here: Any = self
        for item in prefix:
            below = getattr(here, item, None)
            if below is None:
                below = Module()
                setattr(here, item, below)
            if not isinstance(below, Module):
                return False
            here = below
        here.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Takes the module at a path away; False if there is none."""
        *prefix, field = target.split(".")
        here: Any = self
        for item in prefix:
            here = getattr(here, item, None)
            if not isinstance(here, Module):
                return False
        if not isinstance(getattr(here, field, None), Module):
            return False
        delattr(here, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Takes away the modules that no node refers to."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = node.target.split(".")
            used.update(itertools.accumulate(parts, lambda x, y: f"{x}.{y}"))
            if node.op == "call_module" and _has_attr(self, node.target):
                below = self.get_submodule(node.target).named_modules()
                used.update(f"{node.target}.{name}" for name, _ in below if name)
        for name in [n for n, _ in self.named_modules() if n not in used]:
            if name:
                self.delete_submodule(name)

    # copies

    def __reduce__(self) -> Any:
        body = {k: v for k, v in self._state_.items() if k != "_graph"}
        return reduce_graph_module, (body, _format_import_block(self.recompile().globals))

    def _deepcopy_init(self) -> Callable[..., None]:
        return GraphModule.__init__

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        held = _CodeOnlyModule(copy.deepcopy(self._state_, memo))
        self._deepcopy_init()(made, held, held._state_["_graph"])
        for name in ("_hooks", "_state_hooks", *_HOOKS):
            if name in self._state_:
                made._state_[name] = copy.deepcopy(self._state_[name], memo)
        made.meta = copy.deepcopy(self._state_.get("meta", {}), memo)
        for name, value in made.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
            setattr(made, name, value)
        for hook in self._deepcopy_hooks:
            hook(made)
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self.graph)
        made.meta = self._state_.get("meta", {})
        return made

    def _replicate_for_data_parallel(self) -> GraphModule:
        made = self.__copy__()
        made._state_["_is_replica"] = True
        return made

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Writes the module as a Python package.

        Args:
            folder: the package.
            module_name: the name of the class in it.
        """
        from torchlike.fx._folder import write

        write(self, folder, module_name)

    # text

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """The source as a class, with shapes and places in the traced program where they are known."""
        return _print_readable(
            self,
            self._get_name(),
            print_output,
            include_stride=include_stride,
            include_device=include_device,
            colored=colored,
            expanded_def=expanded_def,
            additional_meta=additional_meta,
        )

    def __str__(self) -> str:
        reminder = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self._code, reminder])


def _print_readable(
    module: Any, module_name: str, print_output: bool = True, **options: Any
) -> str:
    graph = getattr(module, "graph", None)
    if not isinstance(graph, Graph):
        raise AssertionError("print_readable must be used on a module with a graph")
    source = graph.python_code("self", verbose=True, **options).src.lstrip("\n")
    text = _addindent(f"class {module_name}(torch.nn.Module):\n{source}", 4)
    below = [""]
    for name, child in module.named_children():
        if isinstance(child, GraphModule):
            below.append(_print_readable(child, name, print_output=False, **options))
    text += _addindent("\n".join(below), 4)
    if print_output:
        print(text)
    return text


def _addindent(text: str, spaces: int) -> str:
    """All lines but the first moved to the right; blank ones are emptied."""
    first, *rest = text.split("\n")
    padding = " " * spaces
    return "\n".join([first, *(padding + line if line.strip() else "" for line in rest)])

"""Graphs of operators: what a function comes down to, recorded below autograd."""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike import _C
from torchlike._ops import modes as dispatch_modes
from torchlike._subclasses.fake_tensor import FakeTensorMode
from torchlike._tags import Tag
from torchlike.fx._symbolic_trace import PH, Tracer
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.passes.shape_prop import _extract_tensor_metadata
from torchlike.fx.proxy import Proxy
from torchlike.nn import Module, Parameter
from torchlike.utils import _pytree as pytree
from torchlike.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torchlike.fx.graph import Graph

__all__ = [
    "ProxyTorchDispatchMode",
    "PythonKeyTracer",
    "dispatch_trace",
    "get_innermost_proxy_mode",
    "get_proxy_mode",
    "make_fx",
]

Tensor = torchlike.Tensor
READS = ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal", "aten::allclose")
_CONSTANTS = ("arange", "full", "ones", "scalar_tensor", "zeros")
_ALIKE = 256  # how many numbers there are for tensors that lie alike
SHAPES_OF_VALUES = ("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim")


class PythonKeyTracer(Tracer):
    """Knows which tensor is the value of which node.

    The core hands a tensor out as another object each time, so a tensor is known by where and how it lies in memory,
    and by a number that it takes along where several lie alike.
    """

    def __init__(self) -> None:
        super().__init__(autowrap_modules=())
        self.tensor_attrs = {}
        self.values: dict[Any, dict[int, tuple[Any, Proxy]]] = {}
        self.functional: str | None = None
        # of one mode are all values of a graph, so that passes can compute with them
        self.fakes = FakeTensorMode(allow_non_fake_inputs=True)

    def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
        """Every module is traced into."""
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """The value itself."""
        return attr_val

    def create_arg(self, a: Any) -> Any:
        """Parameters and other tensors of the function become attributes of the graph's module."""
        if isinstance(a, Parameter):
            name = next((n for n, p in self.root.named_parameters() if p is a), "")
            if not name:
                name = self.get_fresh_qualname("_param_constant")
                setattr(self.root, name, a)
            node = self.create_node("get_attr", name, (), {})
            node.meta["val"] = self.outline(a)
            return node
        made = super().create_arg(a)
        if isinstance(a, Tensor):
            made.meta["val"] = self.outline(a)
        return made

    def outline(self, tensor: Any) -> Any:
        """A fake tensor of this layout, on the same device."""
        if type(tensor) is not Tensor and not isinstance(tensor, Parameter):
            return tensor.detach()
        if tensor.layout is not torchlike.strided:
            return None
        with dispatch_modes.without(), self.fakes:
            return torchlike.empty_strided(
                tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device
            )

    def find(self, tensor: Any) -> Proxy | None:
        """The node of a tensor; one that nobody has numbered may be any of those that lie alike."""
        alike = self.values.get(place(tensor))
        if not alike:
            return None
        found = alike.get(_C._nr_alike(tensor)) or next(iter(alike.values()))
        return found[1]

    def track(self, tensor: Any, proxy: Proxy, *, anew: bool = False) -> None:
        """Notes the node of a tensor: another tensor than those before, or one of these `anew`."""
        alike = self.values.setdefault(place(tensor), {})
        nr = _C._nr_alike(tensor)
        if not anew and nr in alike:
            nr = next(n for n in range(_ALIKE) if n not in alike) if len(alike) < _ALIKE else nr
            _C._number_alike(tensor, nr)
        # the tensor is kept, or its memory would be that of another one
        alike[nr] = (tensor, proxy)
        proxy.node.meta["val"] = self.outline(tensor)
        proxy.node.meta["tensor_meta"] = _extract_tensor_metadata(tensor)


def _plain(tensor: Any) -> Any:
    """A tensor of numbers apart from gradients, which no fake mode takes."""
    before = _C._pause_fake_mode(True)
    try:
        return tensor.detach()
    finally:
        _C._pause_fake_mode(before)


def place(tensor: Any) -> Any:
    """What only the same view of the same memory has."""
    if tensor.layout is not torchlike.strided:
        return id(tensor)
    memory = tensor.untyped_storage()._cdata
    layout = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
    return memory, layout, tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _is_constant(node: Any) -> bool:
    """Whether a value is made of numbers in the program alone, and so is the same in every run."""
    seen, left = {node}, [node]
    while left:
        at = left.pop()
        packet = getattr(getattr(at.target, "overloadpacket", None), "__name__", "")
        if packet == "lift_fresh_copy":
            continue
        before = at.all_input_nodes
        if not before and packet not in _CONSTANTS:
            return False
        if Tag.nondeterministic_seeded in getattr(at.target, "tags", ()):
            return False
        left += [n for n in before if n not in seen]
        seen.update(before)
    return True


class ProxyTorchDispatchMode(TorchDispatchMode):
    """Makes a node of each operator that is called.

    Args:
        tracer: makes the nodes.
        tracing_mode: `real` or `fake`.
        decomposition_table: functions that are called, and seen, in the place of operators.
    """

    def __init__(
        self,
        tracer: PythonKeyTracer,
        tracing_mode: str = "real",
        pre_dispatch: bool = False,
        _allow_fake_constant: bool = False,
        _error_on_data_dependent_ops: bool = True,
        decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__()
        self.tracer = tracer
        self.tracing_mode = tracing_mode
        self.error_on_data_dependent_ops = _error_on_data_dependent_ops
        self.decomposition_table: Mapping[Any, Callable[..., Any]] = decomposition_table or {}
        self.enable_tracing = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True."""
        return True

    def _must_see(self, given: Iterable[Any]) -> bool:
        """Whether a call with these tensors would be missed in the graph."""
        return self.enable_tracing and any(self.tracer.find(t) is not None for t in given)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.enable_tracing:
            return func(*args, **kwargs)
        if types and self._is_for_classes(types, args, kwargs):
            return NotImplemented
        replacement = self.decomposition_table.get(func)
        if replacement is not None:
            with self:
                result = replacement(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return self._record(func, args, kwargs)

    def _is_for_classes(self, types: Any, args: Any, kwargs: Any) -> bool:
        """True if a tensor that handles its calls is no value of the graph: what it makes of them is recorded."""
        return any(
            isinstance(t, Tensor) and type(t) in types and self.tracer.find(t) is None
            for t in pytree.tree_leaves((args, kwargs))
        )

    def _record(self, func: Any, args: Any, kwargs: Any) -> Any:
        tracer = self.tracer
        name = func._schema.name
        if func.overloadpacket.__name__ == "lift_fresh" and tracer.find(args[0]) is None:
            # a new tensor of numbers: the graph makes a copy of it, as it may be written
            func = torchlike.ops.aten.lift_fresh_copy.default
            args = (_plain(args[0]),)
        self._check(name, args, kwargs)
        packet = func.overloadpacket.__name__
        node_args, node_kwargs = pytree.tree_map_only(Tensor, self._argument, (args, kwargs))
        proxy = tracer.create_proxy(
            "call_function", func, node_args, node_kwargs, tracer.graph._target_to_str(packet)
        )
        result = func(*args, **kwargs)
        written = func._schema.is_mutable and Tag.inplace_view not in func.tags
        self._note(result, proxy, written or any(result is a for a in args))
        return result

    def _check(self, name: str, args: Any, kwargs: Any) -> None:
        if name in READS or name in SHAPES_OF_VALUES:
            self._refuse_values(name, pytree.tree_leaves((args, kwargs)))

    def _refuse_values(self, name: str, given: Iterable[Any]) -> None:
        found = [self.tracer.find(t) for t in given if isinstance(t, Tensor)]
        unknown = [p for p in found if p is not None and not _is_constant(p.node)]
        if self.error_on_data_dependent_ops and unknown:
            shown = name.replace("::", ".") + ".default"
            raise RuntimeError(
                f"It appears that you're trying to get value out of a tracing tensor with {shown} - "
                "erroring out! It's likely that this is caused by data-dependent control flow or "
                "similar.  It may be possible to trace this with dynamic shapes; try setting "
                "tracing_mode='symbolic' in your make_fx call."
            )

    def _argument(self, tensor: Any) -> Any:
        proxy = self.tracer.find(tensor)
        return tensor if proxy is None else proxy

    def _note(self, result: Any, proxy: Any, written: bool) -> None:
        if isinstance(result, Tensor):
            self.tracer.track(result, proxy, anew=written)
        elif isinstance(result, list | tuple):
            for i, item in enumerate(result):
                self._note(item, proxy[i], written)
            proxy.node.meta["val"] = pytree.tree_map_only(Tensor, self.tracer.outline, result)


def get_innermost_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The mode that is recording, or None."""
    found = [m for m in dispatch_modes.stack() if isinstance(m, ProxyTorchDispatchMode)]
    return found[-1] if found else None


get_proxy_mode = get_innermost_proxy_mode


@contextlib.contextmanager
def disable_proxy_modes_tracing() -> Iterator[Any]:
    """Inside, nothing is recorded."""
    mode = get_innermost_proxy_mode()
    before = mode.enable_tracing if mode is not None else False
    try:
        if mode is not None:
            mode.enable_tracing = False
        yield mode
    finally:
        if mode is not None:
            mode.enable_tracing = before


def dispatch_trace(
    root: Any, tracer: Tracer, concrete_args: tuple[Any, ...] | None = None
) -> GraphModule:
    """The module of what a tracer records."""
    graph: Graph = tracer.trace(root, concrete_args)  # type: ignore[arg-type]
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


def _names_of(func: Callable[..., Any], count: int) -> tuple[list[str], dict[str, Any]]:
    """Names for placeholders, and annotations: those of the parameters where there are as many."""
    try:
        params = list(inspect.signature(inspect.unwrap(func)).parameters.values())
    except (TypeError, ValueError):
        params = []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in params if p.kind in plain]
    if isinstance(func, Module) or len(names) != count or len(params) != count:
        return [f"arg{i}" for i in range(count)], {}
    return names, {**getattr(func, "__annotations__", {})}


def _with_signature(func: Callable[..., Any], names: list[str]) -> Any:
    """A function with these parameters that calls another one."""
    listed = ", ".join(names)
    space = {"func": func}
    exec(f"def f({listed}):\n    return func({listed})", space)
    return space["f"]


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    _allow_fake_constant: bool = False,
    _error_on_data_dependent_ops: bool = True,
    record_stack_traces: bool = False,
    proxy_module_inputs: bool = False,
    _disable_torch_fn_metadata_mode: bool = False,
) -> Callable[..., GraphModule]:
    """A function that runs `f` and gives the graph of the operators that it came down to.

    What `f` does with gradients is recorded, too. The graph is that of these inputs: where `f` decides by values,
    it cannot be traced. Inside of `func.functionalize` calls that write become calls that do not.

    Args:
        decomposition_table: functions by operator, which are called, and recorded, in its place.
        tracing_mode: `real` computes; `fake` runs on fake tensors.
        record_module_stack: notes on nodes which modules of `f._orig_mod` they were made in.

    Raises:
        NotImplementedError: for `symbolic`: shapes are numbers here.
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f"tracing_mode must be real/fake/symbolic, got {tracing_mode}")
    if tracing_mode == "symbolic":
        raise NotImplementedError(
            "make_fx: tracing_mode='symbolic' is not supported, as sizes are numbers here; "
            "torchlike.export finds dynamic sizes by tracing several times"
        )
    if pre_dispatch:
        raise NotImplementedError("make_fx: pre_dispatch=True is not supported")

    @functools.wraps(f)
    def traced(*args: Any, **kwargs: Any) -> GraphModule:
        names, notes = _names_of(f, len(args))
        tracer = PythonKeyTracer()
        tracer.record_stack_traces = record_stack_traces
        mode = ProxyTorchDispatchMode(
            tracer,
            tracing_mode,
            _error_on_data_dependent_ops=_error_on_data_dependent_ops,
            decomposition_table=decomposition_table,
        )
        model = getattr(f, "_orig_mod", None) if record_module_stack else None
        with _fake_inputs(tracing_mode, args, tracer) as inputs:
            runner = _runner(f, inputs, kwargs, tracer, mode, model)
            function = _with_signature(runner, names)
            function.__name__ = getattr(f, "__name__", type(f).__name__)
            function.__annotations__ = notes
            tree = tuple(pytree.tree_map(lambda _: PH, a) for a in inputs)
            made = dispatch_trace(function, tracer, tree)
        if tracer.functional is not None:
            from torchlike.fx.experimental._functional import functionalize_graph

            functionalize_graph(made.graph, copies=tracer.functional == "mutations_and_views")
            made.recompile()
        return made

    return traced


def _noted_calls(model: Module | None, tracer: PythonKeyTracer) -> Any:
    """Inside, nodes are told which modules of a model are at work."""
    if model is None:
        return contextlib.nullcontext()
    from torchlike.export._module_calls import Calls

    return Calls(model, tracer, (), lambda *_: None, root="").watched()


@contextlib.contextmanager
def _fake_inputs(tracing_mode: str, args: Any, tracer: PythonKeyTracer) -> Iterator[Any]:
    """The inputs as they are run."""
    if tracing_mode == "real":
        yield args
        return
    from torchlike.fx._fake import detect_fake_mode

    mode = tracer.fakes = detect_fake_mode(pytree.tree_leaves(args)) or tracer.fakes
    with mode:
        yield pytree.tree_map_only(Tensor, mode.from_tensor, args)


def _runner(
    f: Callable[..., Any],
    inputs: Any,
    kwargs: dict[str, Any],
    tracer: PythonKeyTracer,
    mode: ProxyTorchDispatchMode,
    model: Module | None,
) -> Callable[..., Any]:
    """A function of stand-ins that runs `f` with the inputs, and gives stand-ins for its results."""

    def run(*proxies: Any) -> Any:
        leaves = pytree.tree_leaves(inputs)
        for leaf, proxy in zip(leaves, pytree.tree_leaves(proxies), strict=True):
            if isinstance(leaf, Tensor):
                tracer.track(leaf, proxy, anew=True)
        with mode, _noted_calls(model, tracer):
            result = f(*inputs, **kwargs)
        return pytree.tree_map_only(Tensor, mode._argument, result)

    run.__annotations__ = {}
    return run

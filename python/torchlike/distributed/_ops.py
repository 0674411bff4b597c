"""The collectives as operators, under PyTorch's names, so that dispatch modes see them.

`_c10d_functional` takes tensors and gives new ones, and so does `c10d_functional`, of ranks that are listed; `c10d`
writes tensors that are given. On a `fake` group results have their shapes, and the values of ranks that are all as this
one, sums apart: never those of memory that nobody wrote. A group of one rank, whoever made it, has the right ones.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C, _lazy, library, ops
from torchlike.distributed import _groups
from torchlike.distributed._groups import ProcessGroup, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlike.distributed import _gloo
else:
    _gloo = _lazy.module("torchlike.distributed._gloo")

functional = ops._c10d_functional
autograd = ops._c10d_functional_autograd
ranked = ops.c10d_functional
c10d = ops.c10d
dtensor = ops._dtensor


def _group(group: Any) -> ProcessGroup:
    return group if isinstance(group, ProcessGroup) else _groups.resolve(group)


def _rows(t: Any, factor: int, divide: bool = False) -> Any:
    """An empty tensor like `t`, of more or fewer rows."""
    shape = list(t.shape) or [1]
    shape[0] = shape[0] // factor if divide else shape[0] * factor
    return t.new_empty(shape)


def _has_values(t: Any) -> bool:
    """Whether somebody may look at its elements."""
    return not (t.is_meta or _C._is_fake(t))


def _gathered(input: Any, group_size: int, group_name: Any) -> Any:
    if group_size == 1:
        return input.clone()
    made = _rows(input, group_size)
    if _has_values(input):
        made.view(group_size, -1).copy_(input.reshape(1, -1))
    return made


_REDUCTIONS = frozenset(["sum", "avg", "product", "min", "max", "band", "bor", "bxor", "unused"])


def _known(reduce_op: str) -> None:
    if reduce_op not in _REDUCTIONS:
        raise RuntimeError(f"Unrecognized reduce_op: {reduce_op}")


def _scattered(input: Any, reduce_op: str, group_size: int, group_name: Any) -> Any:
    _known(reduce_op)
    if group_size == 1:
        return input.clone()
    made = _rows(input, group_size, divide=True)
    if _has_values(input):
        _own_chunk(made, input, _group(group_name))
    return made


def _own_chunk(output: Any, input: Any, group: ProcessGroup) -> None:
    """The part of the input that this rank has."""
    if input.numel() != output.numel() * group.size():
        raise RuntimeError("input tensor must be the same size as output size times world size")
    output.view(-1).copy_(input.reshape(group.size(), -1)[max(group.rank(), 0)])


def _reduced(input: Any, reduce_op: str, group_name: Any) -> Any:
    _known(reduce_op)
    return input.clone()


def _broadcast(input: Any, src: int, group_name: Any) -> Any:
    return input.clone()


def _exchanged(input: Any, output_split_sizes: Any, input_split_sizes: Any, group_name: Any) -> Any:
    made = input.new_empty([sum(output_split_sizes), *input.shape[1:]])
    if _has_values(input):
        _repeated(made, input, output_split_sizes)
    return made


def _repeated(output: Any, input: Any, sizes: Sequence[int]) -> None:
    """The first rows of the input as those of each rank, and again where it has fewer."""
    for part in output.split(list(sizes)) if len(input) else ():
        for rows in part.split(len(input)) if len(part) else ():
            rows.copy_(input[: len(rows)])


def _moved(input: Any, gather_dim: int, shard_dim: int, group_name: Any) -> Any:
    """Each rank's part along `gather_dim` becomes one along `shard_dim`."""
    group = _group(group_name)
    size = group.size()
    shape = list(input.shape)
    shape[gather_dim] *= size
    shape[shard_dim] //= size
    made = input.new_empty(shape)
    if _has_values(input):
        whole = torch.cat([input] * size, gather_dim)
        made.copy_(
            whole.narrow(shard_dim, shape[shard_dim] * max(group.rank(), 0), shape[shard_dim])
        )
    return made


_KERNELS: dict[str, Any] = {
    "_c10d_functional::all_gather_into_tensor(Tensor input, int group_size, Any group_name) -> Tensor": _gathered,
    "_c10d_functional::reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, Any group_name) "
    "-> Tensor": _scattered,
    "_c10d_functional::all_reduce(Tensor input, str reduce_op, Any group_name) -> Tensor": _reduced,
    "_c10d_functional::broadcast(Tensor input, int src, Any group_name) -> Tensor": _broadcast,
    "_c10d_functional::all_to_all_single(Tensor input, int[] output_split_sizes, int[] input_split_sizes, "
    "Any group_name) -> Tensor": _exchanged,
    "_c10d_functional::wait_tensor(Tensor input) -> Tensor": lambda input: input,
    "_c10d_functional::all_reduce_coalesced(Tensor[] inputs, str reduce_op, Any group_name) -> Tensor[]": (
        lambda inputs, reduce_op, group_name: [_reduced(t, reduce_op, group_name) for t in inputs]
    ),
    "_c10d_functional::all_gather_into_tensor_coalesced(Tensor[] inputs, int group_size, Any group_name) -> Tensor[]": (
        lambda inputs, group_size, group_name: [
            _gathered(t, group_size, group_name) for t in inputs
        ]
    ),
    "_c10d_functional::reduce_scatter_tensor_coalesced(Tensor[] inputs, str reduce_op, int group_size, "
    "Any group_name) -> Tensor[]": (
        lambda inputs, reduce_op, group_size, group_name: [
            _scattered(t, reduce_op, group_size, group_name) for t in inputs
        ]
    ),
    "_dtensor::shard_dim_alltoall(Tensor input, int gather_dim, int shard_dim, Any group_name) -> Tensor": _moved,
}


watchers: list[Any] = []
"""Who is told of each collective that moves something: `(kind, group, inputs, outputs)`, tensors of one rank."""

counters: list[Any] = []
"""Who is told of each collective by its operator, those of a single rank too."""

_KINDS = {
    "allgather": "all_gather", "all_gather": "all_gather", "allreduce": "all_reduce", "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all", "all_to_all": "all_to_all", "broadcast": "broadcast",
    "reduce_": "reduce", "gather_": "gather", "scatter_": "scatter", "send": "send", "recv_": "recv",
}  # fmt: skip


def _kind(name: str) -> str | None:
    """What a collective does; nothing for those that move nothing."""
    plain = name.lstrip("_")
    return next((kind for part, kind in _KINDS.items() if part in plain), None)


def _tell(op: Any, kind: str, group: ProcessGroup, inputs: Any, outputs: Any) -> None:
    """Tells of a collective, now and at every later run of the call that it is a part of."""
    given, made = _flat(inputs), _flat(outputs)
    hear = partial(_hear, op, kind, group, len(given))
    _C._trace_tell(hear, [*given, *made])
    hear([*given, *made])


def _hear(op: Any, kind: str, group: ProcessGroup, count: int, tensors: list[Any]) -> None:
    for counter in counters:
        counter(op)
    for watcher in watchers if group.size() > 1 else ():
        watcher(kind, group, tensors[:count], tensors[count:])


def _told(op: Any, kernel: Any) -> Any:
    kind = _kind(op._name)
    signature = inspect.signature(kernel)
    if "group_name" not in signature.parameters:
        return kernel
    count = len(signature.parameters)

    def run(*args: Any, **kwargs: Any) -> Any:
        values = args
        if kwargs or len(args) != count:
            values = tuple(signature.bind(*args, **kwargs).arguments.values())
        group = _group(values[-1])
        if group.connected:
            # What other processes send is no call of tensors, which could run again without asking them.
            _C._trace_void()
            made = _gloo.made(op._name, values, group)
        else:
            made = kernel(*values)
        if kind is not None:
            _tell(op, kind, group, values[0], made)
        return made

    return run


def _define() -> None:
    for schema, kernel in _KERNELS.items():
        space = getattr(ops, schema.partition("::")[0])
        made = space.define(schema)
        made.kernels["CompositeExplicitAutograd"] = _told(made.overloadpacket, kernel)
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"):
        text = getattr(functional, name).default._text
        kernel = next(k for schema, k in _KERNELS.items() if schema == text)
        made = autograd.define(text.replace("_c10d_functional::", "_c10d_functional_autograd::"))
        made.kernels["CompositeExplicitAutograd"] = _told(made.overloadpacket, kernel)


_define()


def _needs_sum(name: str, reduce_op: str) -> None:
    if reduce_op != "sum":
        raise RuntimeError(f"{name} backward only supports 'sum' reduction, got '{reduce_op}'")


def _keep(*names: str) -> Any:
    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.kept = dict(zip(names, inputs[1:], strict=True))

    return setup


def _gather_backward(ctx: Any, grad: Any) -> Any:
    kept = ctx.kept
    made = functional.reduce_scatter_tensor(
        grad.contiguous(), "sum", kept["group_size"], kept["group_name"]
    )
    return made, None, None


def _scatter_backward(ctx: Any, grad: Any) -> Any:
    kept = ctx.kept
    _needs_sum("reduce_scatter_tensor", kept["reduce_op"])
    made = functional.all_gather_into_tensor(
        grad.contiguous(), kept["group_size"], kept["group_name"]
    )
    return made, None, None, None


def _reduce_backward(ctx: Any, grad: Any) -> Any:
    kept = ctx.kept
    _needs_sum("all_reduce", kept["reduce_op"])
    return functional.all_reduce(grad.contiguous(), "sum", kept["group_name"]), None, None


def _exchange_backward(ctx: Any, grad: Any) -> Any:
    kept = ctx.kept
    made = functional.all_to_all_single(
        grad.contiguous(),
        kept["input_split_sizes"],
        kept["output_split_sizes"],
        kept["group_name"],
    )
    return made, None, None, None


for _space in ("_c10d_functional", "_c10d_functional_autograd"):
    library.register_autograd(
        f"{_space}::all_gather_into_tensor",
        _gather_backward,
        setup_context=_keep("group_size", "group_name"),
    )
    library.register_autograd(
        f"{_space}::reduce_scatter_tensor",
        _scatter_backward,
        setup_context=_keep("reduce_op", "group_size", "group_name"),
    )
    library.register_autograd(
        f"{_space}::all_to_all_single",
        _exchange_backward,
        setup_context=_keep("output_split_sizes", "input_split_sizes", "group_name"),
    )
library.register_autograd(
    "_c10d_functional::all_reduce",
    _reduce_backward,
    setup_context=_keep("reduce_op", "group_name"),
)


def _wait_backward(ctx: Any, grad: Any) -> Any:
    return grad


library.register_autograd("_c10d_functional::wait_tensor", _wait_backward, setup_context=_keep())

# What writes tensors that are given: name, and which of its arguments are written from which.
_WRITERS = {
    "allreduce_": "Tensor[] tensors, Any process_group, Any reduce_op",
    "allreduce_coalesced_": "Tensor[] tensors, Any process_group, Any reduce_op",
    "broadcast_": "Tensor[] tensors, Any process_group, int root_rank",
    "reduce_": "Tensor[] tensors, Any process_group, Any reduce_op, int root_rank",
    "allgather_": "Any output_tensors, Tensor[] input_tensors, Any process_group",
    "_allgather_base_": "Tensor output_tensor, Tensor input_tensor, Any process_group",
    "allgather_into_tensor_coalesced_": "Tensor[] outputs, Tensor[] inputs, Any process_group",
    "_reduce_scatter_base_": "Tensor output_tensor, Tensor input_tensor, Any process_group, Any reduce_op",
    "reduce_scatter_": "Tensor[] output_tensors, Any input_tensors, Any process_group, Any reduce_op",
    "reduce_scatter_tensor_coalesced_": "Tensor[] outputs, Tensor[] inputs, Any process_group, Any reduce_op",
    "alltoall_base_": (
        "Tensor output, Tensor input, Any process_group, int[] output_split_sizes, int[] input_split_sizes"
    ),
    "alltoall_": "Tensor[] output_tensors, Tensor[] input_tensors, Any process_group",
    "gather_": "Any output_tensors, Tensor[] input_tensors, Any process_group, int root_rank",
    "scatter_": "Tensor[] output_tensors, Any input_tensors, Any process_group, int root_rank",
    "send": "Tensor[] tensors, Any process_group, int dst, int tag",
    "recv_": "Tensor[] tensors, Any process_group, int src, int tag",
    "barrier": "Tensor tensor, Any process_group",
}


def _writer(name: str, group_at: int) -> Any:
    """The kernel of a collective that writes; its group is the argument at a place."""
    op, kind = getattr(c10d, name), _kind(name)
    from_own, copies = _FROM_OWN.get(name), "Tensor[] tensors" not in _WRITERS[name]

    def write(*args: Any) -> Any:
        group = args[group_at]
        if kind is not None:
            _tell(op, kind, group, args[group_at - 1], args[0])
        if group.connected:
            _C._trace_void()
            return _gloo.written(name, args, group)
        if copies and group.size() == 1:
            _copy_all(args[0], args[1])
        elif from_own is not None:
            from_own(args, group)
        return Work(args[0])

    return write


def _flat(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value or () for t in _flat(v)]


@torch.no_grad()  # type: ignore[untyped-decorator]
def _copy_all(outputs: Any, inputs: Any) -> None:
    for to, of in zip(_flat(outputs), _flat(inputs), strict=False):
        to.view(-1).copy_(of.reshape(-1))


@torch.no_grad()  # type: ignore[untyped-decorator]
def _fill_own(args: Any, group: ProcessGroup) -> None:
    """Every rank's part is taken to be this rank's."""
    outputs, inputs = _flat(args[0]), _flat(args[1])
    if len(outputs) != len(inputs):
        inputs = inputs * len(outputs)
    for to, of in zip(outputs, inputs, strict=False):
        if to.numel() == of.numel() * group.size():
            to.view(group.size(), -1).copy_(of.reshape(1, -1))
        elif to.numel() == of.numel():
            to.view(-1).copy_(of.reshape(-1))


@torch.no_grad()  # type: ignore[untyped-decorator]
def _keep_own(args: Any, group: ProcessGroup) -> None:
    """This rank's part of its own input, in place of what is reduced or sent."""
    outputs, inputs = args[0], args[1]
    if isinstance(outputs, torch.Tensor):
        outputs, inputs = [outputs], [inputs]
    for to, of in zip(outputs, inputs, strict=False):
        if not _has_values(to):
            continue
        if isinstance(of, torch.Tensor):
            _own_chunk(to, of, group)
        elif len(of) != group.size():
            raise RuntimeError(
                f"a fake group of {group.size()} ranks got a list of {len(of)} tensors"
            )
        else:
            to.copy_(of[max(group.rank(), 0)])


@torch.no_grad()  # type: ignore[untyped-decorator]
def _exchange_own(args: Any, group: ProcessGroup) -> None:
    """What would be sent, as what comes."""
    output, input, _, to_sizes, from_sizes = args
    if not _has_values(output):
        return
    for t, sizes in ((input, from_sizes), (output, to_sizes)):
        if not sizes and len(t) % group.size():
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        if sizes and sum(sizes) != len(t):
            raise RuntimeError("Split sizes doesn't match total dim 0 size")
    if not to_sizes and not from_sizes:
        output.copy_(input)
    else:
        even = [len(output) // group.size()] * group.size()
        _repeated(output, input, to_sizes or even)


# On a fake group, what of a rank's own input its result is made of.
_FROM_OWN = {
    "allgather_": _fill_own,
    "_allgather_base_": _fill_own,
    "allgather_into_tensor_coalesced_": _fill_own,
    "gather_": _fill_own,
    "alltoall_": _fill_own,
    "alltoall_base_": _exchange_own,
    "scatter_": _keep_own,
    "reduce_scatter_": _keep_own,
    "_reduce_scatter_base_": _keep_own,
    "reduce_scatter_tensor_coalesced_": _keep_own,
}


def _define_writers() -> None:
    for name, arguments in _WRITERS.items():
        made = c10d.define(f"c10d::{name}({arguments}) -> Any")
        group_at = arguments.split(", ").index("Any process_group")
        made.kernels["CompositeExplicitAutograd"] = _writer(name, group_at)


_define_writers()


_AMONG = "str tag, int[] ranks, int group_size"
_RANKED = {
    "all_gather_into_tensor": f"Tensor shard, {_AMONG}",
    "all_gather_into_tensor_coalesced": f"Tensor[] input, {_AMONG}",
    "all_reduce": f"Tensor self, str reduceOp, {_AMONG}",
    "all_reduce_coalesced": f"Tensor[] self, str reduceOp, {_AMONG}",
    "all_to_all_single": (
        f"Tensor input, SymInt[]? output_split_sizes, SymInt[]? input_split_sizes, {_AMONG}"
    ),
    "broadcast": f"Tensor self, int src, {_AMONG}",
    "reduce_scatter_tensor": f"Tensor input, str reduceOp, {_AMONG}",
    "reduce_scatter_tensor_coalesced": f"Tensor[] inputs, str reduceOp, {_AMONG}",
    "wait_tensor": "Tensor self",
}


def _among_ranks(name: str) -> Any:
    """The kernel of a collective of ranks that are listed: that of their group."""
    op = getattr(functional, name)
    sized = any(a.name == "group_size" for a in op.default._schema.arguments)

    def run(*args: Any) -> Any:
        *values, _, ranks, size = args
        if name == "all_to_all_single":
            even = [values[0].shape[0] // size] * size
            values = [values[0], *(even if v is None else v for v in values[1:])]
        return op(*values, *([size] if sized else []), _groups.among(ranks).group_name)

    return op if name == "wait_tensor" else run


def _define_ranked() -> None:
    for name, arguments in _RANKED.items():
        result = "Tensor[]" if name.endswith("coalesced") else "Tensor"
        made = ranked.define(f"c10d_functional::{name}({arguments}) -> {result}")
        made.kernels["CompositeImplicitAutograd"] = _among_ranks(name)


_define_ranked()

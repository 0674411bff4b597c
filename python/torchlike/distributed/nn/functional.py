"""Collectives with gradients: what a rank's result is made of on other ranks gets its share there."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import distributed as dist
from torchlike.autograd import Function

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]


def _sum() -> Any:
    return dist.ReduceOp.SUM


def _is(rank: int) -> bool:
    return dist.get_rank() == rank


class _Broadcast(Function):
    """The tensor of one rank; its gradient is the sum of all ranks'."""

    @staticmethod
    def forward(ctx: Any, src: int, group: Any, tensor: Any) -> Any:
        ctx.src, ctx.group = src, group
        made = tensor.clone()
        dist.broadcast(made, src, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        made = _Reduce.apply(ctx.src, _sum(), ctx.group, grad)
        return None, None, made if _is(ctx.src) else torch.zeros_like(made)


class _Reduce(Function):
    """The sum on one rank; its gradient is sent to all."""

    @staticmethod
    def forward(ctx: Any, dst: int, op: Any, group: Any, tensor: Any) -> Any:
        ctx.dst, ctx.group = dst, group
        made = tensor.clone()
        dist.reduce(made, dst, op=op, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.group, grad)


class _Gather(Function):
    """The tensors of all ranks on one; each gets its own gradient."""

    @staticmethod
    def forward(ctx: Any, dst: int, group: Any, tensor: Any) -> Any:
        ctx.dst, ctx.group = dst, group
        made = [torch.zeros_like(tensor) for _ in range(dist.get_world_size(group))]
        tensor = tensor.contiguous()
        dist.gather(tensor, made if _is(dst) else None, dst, group=group)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, _Scatter.apply(ctx.dst, ctx.group, *grads)


class _Scatter(Function):
    """A tensor of one rank for each; the gradients are gathered there."""

    @staticmethod
    def forward(ctx: Any, src: int, group: Any, *tensors: Any) -> Any:
        ctx.src, ctx.group = src, group
        made = torch.zeros_like(tensors[0])
        given = [t.contiguous() for t in tensors] if _is(src) else None
        dist.scatter(made, given, src, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, *_Gather.apply(ctx.src, ctx.group, grad)


class _ReduceScatter(Function):
    """The sum of what all ranks have for this one; its gradient goes to all."""

    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, made: Any, *tensors: Any) -> Any:
        ctx.group = group
        dist.reduce_scatter(made, [t.contiguous() for t in tensors], op=op, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, None, *_AllGather.apply(ctx.group, grad)


class _AllGather(Function):
    """The tensors of all ranks; this rank's gradient is the sum of what all have for it."""

    @staticmethod
    def forward(ctx: Any, group: Any, tensor: Any) -> Any:
        ctx.group = group
        made = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
        dist.all_gather(made, tensor.contiguous(), group=group)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        rank = dist.get_rank(ctx.group)
        return None, _ReduceScatter.apply(_sum(), ctx.group, grads[rank], *grads)


class _AllToAll(Function):
    """A tensor for each rank, and of each rank one; gradients go back the same way."""

    @staticmethod
    def forward(ctx: Any, group: Any, likes: Any, *tensors: Any) -> Any:
        ctx.group = group
        ctx.sizes = [t.shape for t in tensors]
        dist.all_to_all(likes, [t.contiguous() for t in tensors], group=group)
        return tuple(likes)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        likes = [grads[0].new_empty(size) for size in ctx.sizes]
        return None, None, *_AllToAll.apply(ctx.group, likes, *grads)


class _AllToAllSingle(Function):
    """Rows for each rank, and of each rank some; gradients go back the same way."""

    @staticmethod
    def forward(ctx: Any, group: Any, like: Any, outs: Any, ins: Any, tensor: Any) -> Any:
        ctx.group, ctx.size, ctx.outs, ctx.ins = group, tensor.shape, outs, ins
        dist.all_to_all_single(
            like, tensor.contiguous(), output_split_sizes=outs, input_split_sizes=ins, group=group
        )
        return like

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        like = grad.new_empty(ctx.size)
        back = _AllToAllSingle.apply(ctx.group, like, ctx.ins, ctx.outs, grad)
        return None, None, None, None, back


class _AllReduce(Function):
    """The sum of all ranks' tensors, whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, tensor: Any) -> Any:
        ctx.op, ctx.group = op, group
        made = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(made, op=op, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad)


def broadcast(tensor: Any, src: int, group: Any = None) -> Any:
    """The tensor of the rank `src`, on all ranks."""
    return _Broadcast.apply(src, group, tensor)


def gather(tensor: Any, dst: int = 0, group: Any = None) -> tuple[Any, ...]:
    """The tensors of all ranks, on the rank `dst`; zeros on others."""
    return tuple(_Gather.apply(dst, group, tensor))


def scatter(tensors: Any, src: int = 0, group: Any = None) -> Any:
    """This rank's of the tensors of the rank `src`."""
    return _Scatter.apply(src, group, *tensors)


def reduce(tensor: Any, dst: int, op: Any = None, group: Any = None) -> Any:
    """The tensors of all ranks reduced, on the rank `dst`."""
    return _Reduce.apply(dst, _sum() if op is None else op, group, tensor)


def reduce_scatter(output: Any, input_list: Any, op: Any = None, group: Any = None) -> Any:
    """What all ranks have for this one, reduced; written to `output`."""
    return _ReduceScatter.apply(_sum() if op is None else op, group, output, *input_list)


def all_gather(tensor: Any, group: Any = None) -> tuple[Any, ...]:
    """The tensors of all ranks."""
    return tuple(_AllGather.apply(group, tensor))


def all_to_all(
    output_tensor_list: Any, input_tensor_list: Any, group: Any = None
) -> tuple[Any, ...]:
    """Of each rank what it has for this one; written to `output_tensor_list`."""
    return tuple(_AllToAll.apply(group, list(output_tensor_list), *input_tensor_list))


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
) -> Any:
    """As `all_to_all`, for rows of one tensor."""
    return _AllToAllSingle.apply(group, output, output_split_sizes, input_split_sizes, input)


def all_reduce(tensor: Any, op: Any = None, group: Any = None) -> Any:
    """The tensors of all ranks reduced, on all ranks."""
    return _AllReduce.apply(_sum() if op is None else op, group, tensor)

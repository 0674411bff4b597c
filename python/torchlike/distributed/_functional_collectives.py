"""Collectives that give new tensors, and can be differentiated. A group is a `ProcessGroup`, its name, a mesh of one
dimension, or a mesh and the number of one of its dimensions."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.distributed import _groups
from torchlike.distributed._groups import ProcessGroup
from torchlike.distributed._ops import functional
from torchlike.distributed.device_mesh import DeviceMesh

__all__ = [
    "all_gather_into_tensor_coalesced",
    "all_gather_single",
    "all_gather_single_autograd",
    "all_gather_tensor",
    "all_gather_tensor_autograd",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all_single",
    "all_to_all_single_autograd",
    "broadcast",
    "permute_tensor",
    "reduce_scatter_single",
    "reduce_scatter_single_autograd",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd",
    "reduce_scatter_tensor_coalesced",
    "wait_tensor",
]


def _group(group: Any) -> ProcessGroup:
    """The group that is meant, of which this process plays one rank.

    Raises:
        ValueError: if nothing like a group is given.
        NotImplementedError: on a `local` group of several ranks.
    """
    from torchlike.distributed._collectives import _one

    if isinstance(group, str):
        group = _groups.resolve(group)
    elif isinstance(group, DeviceMesh):
        group = group.get_group()
    elif isinstance(group, tuple) and len(group) == 2:
        group = group[0].get_group(group[1])
    elif isinstance(group, list):
        group = _groups.among(group)
    if not isinstance(group, ProcessGroup):
        raise ValueError(
            "Invalid type for group, must be one of List, Processgroup, DeviceMesh or (DeviceMesh, int)."
        )
    return _one(group, "_functional_collectives")


def _word(op: Any) -> str:
    return str(getattr(op, "name", op)).lower()


def wait_tensor(tensor: Any) -> Any:
    """The tensor: it is there."""
    return functional.wait_tensor(tensor)


def broadcast(self: Any, src: int, group: Any, tag: str = "") -> Any:
    """What the rank `src` has."""
    return wait_tensor(functional.broadcast(self, src, _group(group).group_name))


def all_reduce(self: Any, reduceOp: str, group: Any, tag: str = "") -> Any:
    """The reduction of the tensors of all ranks."""
    return wait_tensor(functional.all_reduce(self, _word(reduceOp), _group(group).group_name))


def all_gather_single(self: Any, gather_dim: int, group: Any, tag: str = "") -> Any:
    """The tensors of all ranks, joined along a dimension."""
    found = _group(group)
    made = functional.all_gather_into_tensor(self, found.size(), found.group_name)
    made = wait_tensor(made)
    return made if gather_dim == 0 else torch.cat(made.chunk(found.size(), 0), gather_dim)


def reduce_scatter_single(
    self: Any, reduceOp: str, scatter_dim: int, group: Any, tag: str = ""
) -> Any:
    """This rank's part, along a dimension, of the reduction of the tensors of all ranks.

    Raises:
        AssertionError: if the dimension cannot be cut into parts of one size.
    """
    found = _group(group)
    if self.size(scatter_dim) % found.size():
        raise AssertionError(
            f"input dimension 0 ({self.size(0)} must be a multiple of group_size {found.size()})"
        )
    if scatter_dim:
        self = torch.cat(self.chunk(found.size(), scatter_dim), 0)
    made = functional.reduce_scatter_tensor(self, _word(reduceOp), found.size(), found.group_name)
    return wait_tensor(made)


def all_to_all_single(
    self: Any,
    output_split_sizes: list[int] | None,
    input_split_sizes: list[int] | None,
    group: Any,
    tag: str = "",
) -> Any:
    """A part of each rank's tensor.

    Raises:
        AssertionError: if only one of the lists of sizes is given.
    """
    found = _group(group)
    if (output_split_sizes is None) != (input_split_sizes is None):
        raise AssertionError(
            "output_split_sizes and input_split_sizes must either be specified together or both set to None"
        )
    if output_split_sizes is None or input_split_sizes is None:
        output_split_sizes = [self.shape[0] // found.size()] * found.size()
        input_split_sizes = output_split_sizes
    made = functional.all_to_all_single(
        self, output_split_sizes, input_split_sizes, found.group_name
    )
    return wait_tensor(made)


def permute_tensor(self: Any, src_dst: list[int], group: Any, tag: str = "") -> Any:
    """The tensor of the rank that sends to this one: rank `i` sends to `src_dst[i]`."""
    found = _group(group)
    out, into = [0] * found.size(), [0] * found.size()
    for src, dst in enumerate(src_dst):
        if src == found.rank():
            into[dst] = self.shape[0]
        if dst == found.rank():
            out[src] = self.shape[0]
    return all_to_all_single(self, out, into, found)


def all_reduce_coalesced(self: Any, reduceOp: str, group: Any, tag: str = "") -> list[Any]:
    """The reductions of several tensors at once."""
    name = _group(group).group_name
    made = functional.all_reduce_coalesced(list(self), _word(reduceOp), name)
    return [wait_tensor(t) for t in made]


def all_gather_into_tensor_coalesced(self: Any, group: Any, tag: str = "") -> list[Any]:
    """Several tensors of all ranks, each joined along its first dimension."""
    found = _group(group)
    made = functional.all_gather_into_tensor_coalesced(list(self), found.size(), found.group_name)
    return [wait_tensor(t) for t in made]


def reduce_scatter_tensor_coalesced(
    inputs: list[Any], reduceOp: str, scatter_dim: list[int], group: Any, tag: str = ""
) -> list[Any]:
    """This rank's parts of the reductions of several tensors."""
    found = _group(group)
    turned = [
        torch.cat(t.chunk(found.size(), d), 0) if d else t
        for t, d in zip(inputs, scatter_dim, strict=True)
    ]
    made = functional.reduce_scatter_tensor_coalesced(
        turned, _word(reduceOp), found.size(), found.group_name
    )
    return [wait_tensor(t) for t in made]


all_gather_tensor = all_gather_tensor_autograd = all_gather_single_autograd = all_gather_single
reduce_scatter_tensor = reduce_scatter_tensor_autograd = reduce_scatter_single
reduce_scatter_single_autograd = reduce_scatter_single
all_to_all_single_autograd = all_to_all_single

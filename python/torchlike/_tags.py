"""What PyTorch says of operators besides their schemas."""

from __future__ import annotations

import functools
from enum import IntEnum


class Tag(IntEnum):
    """A word about an operator, in `OpOverload.tags`; given to `library.define` for others."""

    core = 0
    cudagraph_unsafe = 1
    data_dependent_output = 2
    dynamic_output_shape = 3
    flexible_layout = 4
    generated = 5
    inplace = 6
    inplace_view = 7
    maybe_aliasing_or_mutating = 8
    needs_contiguous_strides = 9
    needs_exact_strides = 10
    needs_fixed_stride_order = 11
    nondeterministic_bitwise = 12
    nondeterministic_seeded = 13
    out = 14
    out_variant = 15
    pointwise = 16
    pt2_compliant_tag = 17
    reduction = 18
    view_copy = 19

    def __str__(self) -> str:
        return f"Tag.{self.name}"

    def __repr__(self) -> str:
        return f"<Tag.{self.name}: {self.value}>"


@functools.cache
def _table() -> dict[str, list[Tag]]:
    """The tags of operators of `ops.aten` by name and overload, from `_ops/tags.txt`."""
    from importlib import resources

    found: dict[str, list[Tag]] = {}
    text = (resources.files("torchlike._ops") / "tags.txt").read_text("utf-8")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        tag, *packets = line.split()
        for packet in packets:
            name, _, overloads = packet.partition(":")
            for overload in overloads.split(","):
                found.setdefault(f"{name}.{overload}", []).append(Tag[tag])
    return found


def of_aten(name: str, overload: str, to_given: bool) -> list[Tag]:
    """The tags of an operator of PyTorch's: all of them but `generated`, which says how PyTorch was built."""
    found = [*_table().get(f"{name}.{overload}", []), Tag.pt2_compliant_tag]
    if to_given:
        found.append(Tag.out)
    elif name.endswith("_") and not name.endswith("__"):
        found.append(Tag.inplace)
    return sorted(found)

"""Which operators cannot be cut: what a plan on a mesh says of the table."""

from __future__ import annotations

from torchlike import _C

__all__ = ["report", "uncut"]

_OWN = ("_nn.", "_optim.", "_grad.", "_amp.")


def uncut() -> tuple[list[str], int]:
    """The operators of PyTorch that tensors on a mesh have to be gathered for, by hand, and of how many.

    They have kernels of their own, no sharding rule, and come down to no operators that have one.
    """
    from torchlike._ops import decompositions, leaves
    from torchlike.distributed.tensor._rules import ruled

    names = ruled()
    kinds, schemas = dict(_C._op_kinds()), {name: schema for name, schema, *_ in _C._op_table()}
    asked = [
        row
        for row, kind in kinds.items()
        if kind in ("kernel", "view") and not row.startswith(_OWN) and "(Tensor" in schemas[row]
    ]
    found = []
    for row in asked:
        base = row.partition("#")[0]
        plain = leaves.NAMES.get(base, base.removeprefix("nn.functional.")).replace(".", "_")
        known = any(name in names for name in (plain, f"{plain}_", f"_{plain}"))
        if not known and not decompositions.known(row):
            found.append(row)
    return found, len(asked)


def report() -> str:
    """That in words."""
    found, count = uncut()
    share = 100 * len(found) / count
    return (
        f"{len(found)} of {count} operators ({share:.1f} %) have no sharding rule, and take replicated tensors alone: "
        + ", ".join(found)
    )

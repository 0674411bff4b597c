"""Operators that draw: the numbers of a piece are those that one device would draw for the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed.tensor import _moves
from torchlike.distributed.tensor._spec import replicated

if TYPE_CHECKING:
    from torchlike._ops import OpOverload

RANDOM = frozenset(
    [
        "native_dropout",
        "normal_",
        "uniform_",
        "bernoulli",
        "bernoulli_",
        "exponential_",
        "geometric_",
        "log_normal_",
        "cauchy_",
        "multinomial",
        "rand_like",
        "randn_like",
        "randint_like",
    ]
)
"""The operators that draw."""


def drawn(func: OpOverload, args: Any, kwargs: Any, decision: Any, pieces: Any) -> list[Any]:
    """The pieces of what one device draws for the whole."""
    spec = decision.inputs[0]
    whole = torch.empty_strided(
        spec.shape, spec.stride, dtype=spec.dtype, device=pieces[0][0].device
    )
    if not func._opname.endswith("_"):
        full = spec.placed(replicated(spec.mesh))
        whole = _moves.redistribute(args[0]._locals, args[0]._spec, full)[0]
    made = func(whole, *args[1:], **kwargs)
    found = []
    for seat in range(len(spec.mesh._seats)):
        outs = made if isinstance(made, tuple) else (made,)
        cut = [
            t if s is None else _moves.own_part(t, s, seat)
            for t, s in zip(outs, decision.results, strict=True)
        ]
        if func._opname.endswith("_"):
            found.append(pieces[0][seat].copy_(cut[0]))
        else:
            found.append(tuple(cut) if isinstance(made, tuple) else cut[0])
    return found

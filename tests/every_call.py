"""Every row of the operator table in every form, for every dtype and many layouts: does any write beyond its memory?

    python tests/every_call.py [--filter REGEX] [--dtypes f32,c32] [--jobs N]

The calls run in processes of their own under glibc's checking allocator (see `make sanitize`); results do not matter, and
refusals are as good as results. A process that dies names the row, which fails the run; the next row goes on.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

CHECKS = {
    "LD_PRELOAD": "libc_malloc_debug.so.0",
    "MALLOC_CHECK_": "3",
    "MALLOC_PERTURB_": "165",
    "TORCHLIKE_PLAIN_ALLOC": "1",
}
FUNCTION, METHOD, IN_PLACE, OUT = 1, 2, 4, 8


def dtypes(torch):
    """All dtypes by short names that are unique."""
    found = {v: k for k, v in vars(torch).items() if isinstance(v, torch.dtype)}
    return dict(sorted((name, dtype) for dtype, name in found.items()))


def layouts(torch, dtype):
    """Tensors of every kind of layout; those of a dtype that cannot be filled hold zeros."""

    def make(*shape):
        t = torch.zeros(shape, dtype=dtype)
        try:
            t.copy_((torch.arange(t.numel()) % 5 + 1).reshape(shape))
        except (RuntimeError, TypeError, NotImplementedError):
            pass
        return t

    image = make(2, 4, 6, 6)
    return {
        "odd": [make(1001)] * 3,
        "matrix": [make(5, 5), make(5, 5), make(5, 5)],
        "transposed": [make(7, 67).t()] * 3,
        "expanded": [make(1, 9).expand(11, 9), make(11, 9), make(11, 1).expand(11, 9)],
        "offset": [make(9, 70)[1:, 3:], make(8, 67), make(8, 134)[:, ::2]],
        "broadcast": [make(13, 1, 5), make(3, 1), make(5)],
        "scalar": [make(), make(), make()],
        "mixed": [make(65), torch.ones(65), make()],
        "empty": [make(0, 3), make(0, 3), make(3)],
        "image": [image, image, make(4)],
        "channels_last": [image.contiguous(memory_format=torch.channels_last)] * 3,
    }


def parameters(schema):
    """(type, name, has a default) of each parameter."""
    depth, inner = 0, ""
    for c in schema:
        depth += (c == "(") - (c == ")")
        if c == "(" and depth == 1:
            continue
        if depth == 0:
            break
        inner += c
    for text in re.split(r",\s*(?![^\[]*\])(?![^(]*\))", inner):
        m = re.match(r"(\S+) (\w+)(=.*)?$", text.strip())
        if m:
            yield m[1], m[2], m[3] is not None


def values(torch, kind, name, tensors, choice):
    """A value for a parameter of a type; `choice` tells attempts apart."""
    base = kind.rstrip("?")
    number = (1, 0, 2, -1)[choice]
    if base in ("Tensor", "Operand"):
        index = ("indices", "index", "mask", "condition", "target", "lengths", "offsets")
        if any(w in name for w in index) and choice % 2:
            t = tensors[0]
            return torch.zeros(t.shape, dtype=torch.bool if "mask" in name else torch.int64)
        return next(tensors_of := iter(tensors)) if tensors_of is None else None
    simple = {
        "int": number,
        "float": (0.5, 1.0, 0.0, -1.0)[choice],
        "Scalar": (1, 0.5, 0, 2)[choice],
        "bool": choice % 2 == 1,
        "dtype": (torch.float32, torch.float64, torch.bfloat16, torch.int64)[choice],
        "device": "cpu",
        "Generator": torch.Generator(),
        "format": torch.contiguous_format,
        "layout": torch.strided,
    }
    if base in simple:
        return simple[base]
    return None

"""The gradient of every row that has one, beside differences of its values, by the row's own samples."""

from __future__ import annotations

import math

import pytest

import samples
import torchlike as torch
from torchlike import _C

GRADIENTS = {name: (kind, text) for name, kind, text, _ in _C._op_gradients()}
SAMPLES = dict(_C._op_samples())
SCHEMAS = {name: schema for name, schema, _, _ in _C._op_table()}
STEP = 1e-6

# Draws, and what is not continuous where the samples lie.
UNSTEADY = {
    "bernoulli", "bernoulli#p", "bernoulli#inplace", "bernoulli#tensor_inplace", "cauchy", "exponential", "geometric",
    "log_normal", "normal#inplace", "poisson", "random", "random#from", "random#to", "uniform", "_nn.rrelu",
    "fmod", "remainder", "scatter",
}  # fmt: skip
# PyTorch says their gradient: of discrete values, and where signs, phases or a triangle are free.
CHOSEN = {
    "ceil", "floor", "round", "round#decimals", "trunc", "sign", "linalg.eigh", "linalg.svd", "nextafter", "copysign",
    "fill", "zero", "_grad.sgn", "renorm", "normal", "normal#mean", "normal#std", "cholesky",
    "cholesky_inverse", "cholesky_solve", "linalg.cholesky_ex", "_ctc_loss",
}  # fmt: skip
# PyTorch differentiates them for real numbers alone.
REAL = {"_nn.silu", "_grad.silu_backward"}
# Results after the first have no gradient of their own.
FIRST = {"native_group_norm", "_scaled_dot_product_flash_attention_for_cpu"}


def wide(t):
    """The tensor in double precision, wanting a gradient."""
    if t.dtype.is_complex:
        return t.to(torch.complex128).detach().requires_grad_()
    if t.dtype.is_floating_point:
        return t.to(torch.float64).detach().requires_grad_()
    return t


def inputs(row):
    """The parameters whose gradients the row's text gives."""
    clauses = GRADIENTS[row][1].rpartition("|")[2].split(";")
    pairs = [c.partition(":") for c in clauses]
    return {
        n.strip()
        for names, _, text in pairs
        for n in names.split(",")
        if text.strip() != "refused" and n.strip() != "jvp"
    }


def parameters(row):
    """The names of the row's parameters, in order."""
    schema = SCHEMAS[row].partition(") -> ")[0].strip("()")
    parts, depth, part = [], 0, ""
    for c in schema + ",":
        depth += c in "[("
        depth -= c in "])"
        if c == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return [p.partition("=")[0].split(" ")[-1] for p in parts if p and p != "*"]


def deep(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(deep(v, change) for v in value)
    return torch.float64 if value is torch.float32 else value


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, list | tuple):
        return [t for v in value for t in leaves(v)]
    return []


def outputs(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return (
        [t for v in value if v is not None for t in outputs(v)]
        if isinstance(value, list | tuple)
        else []
    )


def inner(a, b):
    """The real inner product."""
    both = (a.conj() * b).sum() if a.dtype.is_complex or b.dtype.is_complex else (a * b).sum()
    return (both.real if both.dtype.is_complex else both).item()


def direction(t):
    return torch.randn(t.shape, dtype=t.dtype)


def compare(row, call):
    args, kwargs = samples.arguments(call, "cpu")
    given = inputs(row)
    names = parameters(row)

    def widened(name, value):
        return deep(value, wide if name in given else lambda t: wide(t).detach())

    args = (
        tuple(widened(n, v) for n, v in zip(names, args, strict=False))
        if len(args) <= len(names)
        else deep(args, wide)
    )
    kwargs = {k: widened(k, v) for k, v in kwargs.items()}
    wanted = leaves(list(args)) + leaves(list(kwargs.values()))
    if not wanted or (row in REAL and any(t.dtype.is_complex for t in wanted)):
        return
    results = outputs(_C._call_row(row, False, args, kwargs))
    at = [i for i, o in enumerate(results) if o.requires_grad][: 1 if row in FIRST else None]
    made = [results[i] for i in at]
    if not made or any(o.dtype not in (torch.float64, torch.complex128) for o in made):
        return
    torch.manual_seed(1)
    cotangents = [direction(o) for o in made]
    steps = [direction(t) for t in wanted]
    grads = torch.autograd.grad(made, wanted, cotangents, allow_unused=True)
    got = sum(inner(s, g) for s, g in zip(steps, grads, strict=True) if g is not None)
    with torch.no_grad():
        sides = []
        for sign in (STEP, -STEP):
            for t, s in zip(wanted, steps, strict=True):
                t.add_(s, alpha=sign)
            moved = outputs(_C._call_row(row, False, args, kwargs))
            sides.append(sum(inner(c, moved[i]) for c, i in zip(cotangents, at, strict=True)))
            for t, s in zip(wanted, steps, strict=True):
                t.add_(s, alpha=-sign)
    want = (sides[0] - sides[1]) / (2 * STEP)
    if not math.isnan(want):  # outside of the domain
        assert got == pytest.approx(want, rel=2e-4, abs=2e-5)


RULES = sorted(n for n, (kind, _) in GRADIENTS.items() if kind == "rule")


def test_all_texts_are_read():
    assert [e for _, _, _, e in _C._op_gradients() if e] == []


@pytest.mark.parametrize("row", [r for r in RULES if r not in UNSTEADY | CHOSEN])
def test_gradient_is_the_derivative(row):
    for call in samples.calls(SAMPLES[row]):
        compare(row, call)


@pytest.mark.parametrize("row", [r for r in RULES if r not in UNSTEADY])
def test_gradient_on_meta_looks_the_same(row):
    """Shapes, dtypes and strides of gradients are those of the CPU's."""
    for call in samples.calls(SAMPLES[row]):
        found = []
        for device in ("cpu", "meta"):
            args, kwargs = samples.arguments(call, device)
            args, kwargs = (
                deep_as_is(args, tracked),
                {k: deep_as_is(v, tracked) for k, v in kwargs.items()},
            )
            wanted = leaves(list(args)) + leaves(list(kwargs.values()))
            try:
                made = [
                    o for o in outputs(_C._call_row(row, False, args, kwargs)) if o.requires_grad
                ]
                if not made or not wanted:
                    break
                cotangents = [torch.ones(o.shape, dtype=o.dtype, device=device) for o in made]
                grads = torch.autograd.grad(made, wanted, cotangents, allow_unused=True)
            except NotImplementedError as e:
                if "depends on the values" in str(e) or "the derivative for" in str(e):
                    break
                raise
            except RuntimeError as e:
                found.append(str(e))
                continue
            found.append(
                [None if g is None else (g.shape, g.dtype, g.numel() and g.stride()) for g in grads]
            )
        if len(found) == 2:
            assert found[0] == found[1]


def tracked(t):
    return t.requires_grad_() if t.dtype.is_floating_point or t.dtype.is_complex else t


def deep_as_is(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(deep_as_is(v, change) for v in value)
    return value

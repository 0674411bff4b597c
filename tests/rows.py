"""Every row of the table as functions of its sample's tensors, for tests that compare two ways to run one."""

import functools
import re

import samples
import torchlike as torch
from torchlike import _C

IN_PLACE = [r for r, _, forms, _ in _C._op_table() if forms & 4]
SAMPLES = {r: samples.calls(t) for r, t in _C._op_samples() if not samples.elsewhere(t)}
FAILS = (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError)
# Their numbers are drawn, or whatever is in memory.
WORDS = (
    "rand", "bernoulli", "multinomial", "dropout", "normal", "poisson", "gamma", "dirichlet", "binomial", "uniform",
    "exponential", "cauchy", "geometric", "rrelu", "empty", "fractional",
)  # fmt: skip
DRAW = {r for r in SAMPLES if any(w in r for w in WORDS)}
CASES = [(r, False) for r in SAMPLES] + [(r, True) for r in IN_PLACE if r in SAMPLES]


def another(t):
    """Another example beside a tensor: as positive, definite, small or valid as it is."""
    return (
        t * 0.75 if t.is_floating_point() or t.is_complex() else t.flatten().roll(1).view(t.shape)
    )


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, list | tuple) else []


def put(value, new):
    """Nested arguments with the tensors that a list gives, in order."""
    if isinstance(value, torch.Tensor):
        return new.pop(0)
    if isinstance(value, dict):
        return {k: put(v, new) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([put(v, new) for v in value])
    return value


def attempt(function):
    try:
        return function()
    except FAILS as e:
        return e


def copied(t):
    """A copy that a call may change; of a lazy view another, of a copy of its memory."""
    if t.layout != torch.strided:
        return t
    conj, neg = t.is_conj(), t.is_neg()
    plain = t.conj() if conj else t
    plain = (torch._neg_view(plain) if neg else plain).clone()
    plain = torch._neg_view(plain) if neg else plain
    return plain.conj() if conj else plain


def call_of(row, args, kwargs, in_place):
    """A row as a function of its tensors."""

    def call(*each):
        new = [copied(t) for t in each]
        made = _C._call_row(row, in_place, put(args, new), put(kwargs, new))
        return tuple(tensors([made]))

    return call


def public(row, in_place=False):
    """The function or method by which users call a row, or None."""
    name = row.partition("#")[0] + "_" * in_place
    if name.startswith("_"):
        return None
    *spaces, last = name.split(".")
    home = functools.reduce(getattr, spaces, torch)
    found = (getattr(space, last, None) for space in (home, torch.Tensor))
    return next(filter(callable, found), None)


def functions(row, in_place, device="cpu", change=None):
    """Each sample of a row as a function, and its tensors; `change` makes another layout of each."""
    for call in SAMPLES[row]:
        args, kwargs = samples.arguments(call, device, change)
        yield call_of(row, args, kwargs, in_place), tensors((args, kwargs))


def results(call, given):
    return call(*given)


def gradients(call, given):
    """The gradients of a function of tensors, by weights that are the same on each device."""
    xs = [t.detach().requires_grad_(t.is_floating_point() or t.is_complex()) for t in given]
    outs = [t for t in call(*xs) if t.requires_grad]
    if not outs:
        return ()
    drawn = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=drawn).to(t.device, t.dtype) for t in outs]
    wanted = [x for x in xs if x.requires_grad]
    return torch.autograd.grad(outs, wanted, weights, allow_unused=True)


def pairs(row, in_place, way, refused, other, change=None):
    """What a way to call samples gives for tensors of another kind, and on the host.

    `other` and `change` are what `functions` takes for either."""
    there = functions(row, in_place, *other)
    for (call, given), (other_call, other_given) in zip(
        functions(row, in_place, "cpu", change), there, strict=True
    ):
        want = attempt(lambda call=call, given=given: way(call, given))
        if isinstance(want, Exception):
            continue
        got = attempt(lambda call=other_call, given=other_given: way(call, given))
        if isinstance(got, Exception) and re.search(refused, str(got)):
            continue
        assert not isinstance(got, Exception), got
        assert [a is None for a in got] == [b is None for b in want]
        yield from ((a, b) for a, b in zip(got, want, strict=True) if b is not None)

"""Every row of the table as functions of its sample's tensors, for tests that compare two ways to run one."""

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


def call_of(row, args, kwargs, in_place):
    """A row as a function of its tensors."""

    def call(*each):
        new = [t.clone() if t.layout == torch.strided else t for t in each]
        made = _C._call_row(row, in_place, put(args, new), put(kwargs, new))
        return tuple(tensors([made]))

    return call


def functions(row, in_place):
    for call in SAMPLES[row]:
        args, kwargs = samples.arguments(call, "cpu")
        yield call_of(row, args, kwargs, in_place), tensors((args, kwargs))

"""Programs that nobody wrote: what they make of meta tensors becomes the bits that they make at once.

Each is a few calls drawn by its number: views and writes through them, mixed types and layouts, gradients at the end.
Where one of its calls is refused, it is refused in both ways, unless it takes values to know.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest

import torchlike as torch
from torchlike import nn

TYPES = ["float32"] * 6 + ["float64", "float64", "int64", "int32", "bool", "bfloat16", "complex64"]
SHAPES = ["()", "(3,)", "(2, 3)", "(3, 3)", "(2, 2, 3)", "(1, 3)", "(3, 1)", "(2, 0)"]
LAYOUTS = ["", "", ".transpose(0, -1)", "[..., ::2]", ".expand(2, *{shape})"]
CALLS = [
    "{a}.exp()",
    "{a}.neg()",
    "{a}.sigmoid()",
    "{a}.square()",
    "{a}.clone()",
    "{a}.detach()",
    "{a}.sum({dim})",
    "{a}.mean({dim}, keepdim=True)",
    "{a}.cumsum({dim})",
    "{a}.softmax({dim})",
    "{a}.sort({dim})",
    "{a}.amax({dim})",
    "{a}.var({dim})",
    "{a} + {b}",
    "{a} * {n}",
    "{n} - {a}",
    "{a} / {b}",
    "{a} ** {n}",
    "{a} < {b}",
    "{a} @ {b}",
    "{a}.maximum({b})",
    "{a}.reshape(-1)",
    "{a}.view(3, -1)",
    "{a}.transpose(0, {dim})",
    "{a}[{index}]",
    "{a}.narrow({dim}, 0, 1)",
    "{a}.flip({dim})",
    "{a}.to(torch.{type})",
    "{a}.real",
    "{a}.conj()",
    "torch.cat([{a}, {b}], {dim})",
    "torch.where({a} > 0, {a}, {b})",
    "torch.addcmul({a}, {a}, {b}, value={n})",
    "nn.functional.layer_norm({a}, {a}.shape[-1:])",
    "nn.functional.gelu({a})",
    "torch.einsum('ij,jk->ik', {a}, {b})",
    "{a}.masked_fill({b} > 0, {n})",
    "{a}.diagonal()",
    "{a}.unfold({dim}, 2, 1)",
]
WRITES = [
    "{a}.mul_({b})",
    "{a}.add_({n})",
    "{a}.copy_({b})",
    "{a}.zero_()",
    "{a}.tanh_()",
    "{a}.t_()",
    "{a}[{index}] = {n}",
    "{a}[{index}] = {b}",
    "{a} += {b}",
    "{a} *= {n}",
    "{a}.clamp_(0, 1)",
    "{a}.unsqueeze_(0)",
    "{a}.masked_fill_({a} > 0, {n})",
]
INDICES = ["0", "-1", "1:", "..., 0", "None", "::2", "[0, 1]", ":, 0", "[1], 1:"]
#: What values tell and meta tensors do not know.
UNKNOWN = ("out of bounds", "out of range", "ZeroDivision", "negative integer powers", "singular")


def program(number: int) -> list[str]:
    """The lines of a program."""
    draw = random.Random(number)
    names, lines = [], []
    for i in range(draw.choice([2, 3])):
        shape, dtype, layout = draw.choice(SHAPES), draw.choice(TYPES), draw.choice(LAYOUTS)
        made = f"values({shape}, torch.{dtype}, {draw.randrange(100)})" + layout.format(shape=shape)
        leaf = dtype.startswith(("float", "complex")) and draw.random() < 0.5
        lines.append(f"t{i} = {made}" + (".detach().requires_grad_()" if leaf else ""))
        names.append(f"t{i}")
    for i in range(draw.choice([3, 5, 7])):
        write = draw.random() < 0.35
        line = draw.choice(WRITES if write else CALLS).format(
            a=draw.choice(names),
            b=draw.choice(names),
            dim=draw.choice([0, -1, 1]),
            n=draw.choice(["2", "0.5", "-1", "True"]),
            index=draw.choice(INDICES),
            type=draw.choice(TYPES),
        )
        lines.append(line if write else f"x{i} = {line}")
        if not write:
            names += [f"x{i}", f"x{i}"]
    return [*lines, f"loss({draw.choice(names)}).backward()"]


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Small numbers with fractions, where the type has them."""
    draw = random.Random(seed)
    count = torch.Size(shape).numel()
    numbers = [draw.randrange(-12, 13) / 4 for _ in range(count)]
    if not numbers:
        return torch.zeros(shape, dtype=dtype)  # what is made of an empty list does not wait
    return torch.tensor(numbers, dtype=torch.float64).to(dtype).reshape(shape)


def loss(x: Any) -> torch.Tensor:
    """A number that all elements weigh in."""
    first = x[0] if isinstance(x, tuple) else x
    first = torch.view_as_real(first) if first.is_complex() else first
    return (first * first.detach().cos()).sum()


def attempt(line: str, names: dict[str, Any]) -> str:
    """What a line is refused with, if it is."""
    try:
        exec(line, names)  # a line of `program`
    except (RuntimeError, IndexError, TypeError, AttributeError, ValueError, NameError) as e:
        return f"{type(e).__name__}: {e}"
    return ""


def kinds(refused: list[str]) -> list[str]:
    """The types of errors: texts say where a tensor is."""
    return [text.split(":")[0] for text in refused]


def run(lines: list[str]) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The tensors that a program ends with, gradients among them, and what each line was refused with."""
    names: dict[str, Any] = {"torch": torch, "nn": nn, "values": values, "loss": loss}
    refused = [attempt(line, names) for line in lines]
    tensors = {}
    for name, value in names.items():
        parts = value if isinstance(value, tuple) else (value,)
        for i, t in enumerate(parts):
            if isinstance(t, torch.Tensor):
                tensors[f"{name}.{i}"] = t
                if t.is_leaf and t.grad is not None:
                    tensors[f"{name}.{i}.grad"] = t.grad
    return tensors, refused


def bits(t: torch.Tensor) -> tuple[Any, ...]:
    """All that there is to compare; NaN is NaN, whatever its bits."""
    with torch.no_grad():
        t = t.resolve_conj().resolve_neg()
    plain = torch.view_as_real(t) if t.is_complex() else t
    return t.dtype, t.shape, t.stride(), repr(plain.double().tolist())


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_what_programs_make_becomes_real(first: int) -> None:
    same = 0
    for number in range(first, first + 50):
        lines = program(number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            real, refused = run(lines)
            with nn.utils.meta_init():
                hollow, refused_then = run(lines)
            unknown = zip(refused, refused_then, strict=True)
            if any(a and not b and any(word in a for word in UNKNOWN) for a, b in unknown):
                continue
            shown = "\n".join(lines)
            assert kinds(refused) == kinds(refused_then), shown
            assert real.keys() == hollow.keys(), shown
            assert all(t.is_meta for t in hollow.values()), shown
            for name, t in real.items():
                assert bits(torch.materialize(hollow[name])) == bits(t), (name, shown)
            same += 1
    assert same >= 40

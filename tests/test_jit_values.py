"""TorchScript: what passes between Python and code, and what code asks of types."""

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035  (as scripted code is written)

import torchlike as torch
from jit_cases import alike


def test_what_python_passes_is_copied():
    """Code that changes a list or dictionary changes its own."""

    @torch.jit.script
    def changes(a: List[int], b: Dict[str, List[int]]):  # noqa: UP006
        a.append(3)
        b["k"].append(1)
        return a, b

    a, b = [1], {"k": [2]}
    assert changes(a, b) == ([1, 3], {"k": [2, 1]})
    assert (a, b) == ([1], {"k": [2]})


def test_old_classes_of_tensors():
    def made(n: int):
        return (
            torch.BoolTensor([True, False]),
            torch.FloatTensor([n, 2]),
            torch.LongTensor(n, 2).shape,
            torch.IntTensor().shape,
        )

    alike(torch.jit.script(made)(3), (*made(3)[:2], [3, 2], [0]))


def test_types_with_parameters_are_asked_for():
    def first(x: Any):
        if torch.jit.isinstance(x, List[torch.Tensor]):  # noqa: UP006
            return x[0] + 1
        assert not torch.jit.isinstance(x, Tuple[int])  # noqa: UP006
        return torch.zeros(1)

    scripted = torch.jit.script(first)
    assert scripted([torch.ones(1)]).item() == 2 and scripted(1).item() == 0


def test_names_of_a_text_are_those_around_it():
    def doubled(x):
        return x * 2

    unit = torch.jit.CompilationUnit("def f(x):\n  return doubled(x) + 1\n")
    assert unit.f(torch.ones(1)).item() == 3


def test_types_with_alternatives_are_asked_for():
    def several(x: int) -> bool:
        return torch.jit.isinstance(x, (Union[int, str], float))  # noqa: UP007

    def one(x: Union[int, str]) -> int:  # noqa: UP007
        if isinstance(x, Optional[int]):  # noqa: UP045
            return x + 1
        return len(x)

    assert torch.jit.script(several)(1)
    assert (torch.jit.script(one)(1), torch.jit.script(one)("abc")) == (2, 3)

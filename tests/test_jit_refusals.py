"""TorchScript: what compiling and running refuse, in PyTorch's words, and by the classes that it has for them."""

from typing import Dict, List  # noqa: UP035  (as scripted code is written)

import pytest

import torchlike as torch
from torchlike import Tensor


def adds_text(x):
    return "a" + 200


def divides(x: int):
    return x + 1 // 0


def bare(x: List) -> int:  # noqa: UP006
    return 1


def bare_within(x: Tensor):
    found: Dict = {}  # noqa: UP006
    return x, found


def missing(x: Dict[str, int]) -> int:  # noqa: UP006
    return x["no"]


def tries(x):
    try:
        return x
    except ValueError:
        return x


@torch.jit.ignore
class Ignored:
    pass


def makes_ignored(x):
    return Ignored()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (adds_text, "Arguments for call are not valid"),
        (bare, "Attempted to use List without a contained type"),
        (bare_within, "Attempted to use Dict without contained types"),
        (tries, "try blocks aren't supported"),
        (makes_ignored, "Cannot instantiate class 'Ignored' in a script function"),
    ],
)
def test_what_compiling_refuses_says_where(code, says):
    with pytest.raises(torch.jit.frontend.FrontendError, match=says) as refused:
        torch.jit.script(code)
    assert "<--- HERE" in str(refused.value)


def test_what_running_refuses():
    with pytest.raises(RuntimeError, match="KeyError: no"):
        torch.jit.script(missing)({})
    with pytest.raises(RuntimeError, match="division by 0"):
        torch.jit.script(divides)(1)
    with pytest.raises(torch.jit.frontend.UnsupportedNodeError):
        torch.jit.script(tries)

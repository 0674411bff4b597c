"""TorchScript: objects that modules hold, classes that derive from others, and layers that read packed sequences."""

from typing import Dict, List, Optional  # noqa: UP035  (as scripted code is written)

import pytest

import torchlike as torch
from jit_cases import X, alike, through_a_file
from torchlike import Tensor, nn


class Scaler:
    """An object that a module holds, of a class that derives from another."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.factor


class Shifter(Scaler):
    def __init__(self, factor: float, shift: int) -> None:
        super().__init__(factor)
        self.shift = shift
        self.names = ["a", "b"]

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) + self.shift + len(self.names)


def scaled_by(x: Tensor, scaler: Scaler) -> Tensor:
    return scaler(x)


class Holding(nn.Module):
    def __init__(self):
        super().__init__()
        self.scaler, self.shifter = Scaler(2.0), Shifter(3.0, 1)
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return scaled_by(x, self.scaler), self.shifter(x), self.shifter.factor, y


class Recipe:
    def __init__(self, order: List[int], more: Dict[int, int], before: Optional[List[int]] = None):  # noqa: UP006, UP045
        self.order: List[int] = order  # noqa: UP006
        self.more: Dict[int, int] = more  # noqa: UP006
        self.before: Optional[List[int]] = before  # noqa: UP006, UP045


class Cooking(nn.Module):
    """Objects in a dictionary, some of whose containers are empty."""

    def __init__(self):
        super().__init__()
        self.recipes = {2: Recipe([1, 0], {}, [1]), 3: Recipe([0, 2, 1], {1: 2})}

    def forward(self, x: Tensor):
        recipe = self.recipes[x.dim()]
        order: Optional[List[int]] = recipe.order  # noqa: UP006, UP045
        if recipe.before is not None:
            order = None
        y = x if order is None else x.permute(order)
        return y, len(recipe.more), sum(recipe.more.values())


class Reading(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, lengths: Tensor):
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        out, state = self.layer(packed)
        padded, sizes = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=6)
        return padded, sizes, state


class Deriving(nn.Linear):
    def forward(self, x: Tensor):
        return super().forward(x) * 2


def test_modules_hold_objects():
    module, x = Holding(), torch.tensor(X)
    scripted = torch.jit.script(module)
    for run in (scripted, through_a_file(scripted)):
        alike(run(x), module(x))


class Folded(nn.Module):
    """Is compiled as a plain layer, without what only training needs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))

    def __prepare_scriptable__(self):
        nn.utils.parametrize.remove_parametrizations(self.layer, "weight")
        return self

    def forward(self, x: Tensor):
        shape = (x.shape[0], -1)
        return self.layer(x).view(*shape)


def test_modules_prepare_themselves():
    module, x = nn.Sequential(Folded()), torch.tensor(X)
    want = module(x)
    alike(torch.jit.script(module)(x), want)
    assert not nn.utils.parametrize.is_parametrized(module[0].layer)


def test_objects_of_python_are_copied():
    scripted, x, scaler = torch.jit.script(scaled_by), torch.tensor(X), Scaler(3.0)
    for run in (scripted, through_a_file(scripted)):
        alike(run(x, scaler), x * 3)
    with pytest.raises(RuntimeError, match="no attribute or method '__call__'"):
        scripted(x, x)


def test_dictionaries_of_objects():
    module = Cooking()
    scripted = torch.jit.script(module)
    for run in (scripted, through_a_file(scripted)):
        for x in (torch.ones(2, 3), torch.ones(2, 3, 4)):
            alike(run(x), module(x))


RECURRENT = {
    "lstm": lambda: nn.LSTM(3, 2, 2, batch_first=True, bidirectional=True),
    "projections": lambda: nn.LSTM(3, 4, batch_first=True, proj_size=2),
    "gru": lambda: nn.GRU(3, 2, batch_first=True),
    "tanh": lambda: nn.RNN(3, 2, batch_first=True),
    "relu": lambda: nn.RNN(3, 2, batch_first=True, nonlinearity="relu", bias=False),
}


@pytest.mark.parametrize("layer", RECURRENT)
def test_packed_sequences(layer):
    module, given = Reading(RECURRENT[layer]()), (torch.rand(3, 5, 3), torch.tensor([2, 5, 1]))
    scripted = torch.jit.script(module)
    for run in (scripted, through_a_file(scripted)):
        alike(run(*given), module(*given))


@pytest.mark.parametrize("below", [nn.Linear, nn.Sequential])
def test_super(below):
    module, x = Deriving(2, 3), torch.tensor(X)
    module = nn.Sequential(module) if below is nn.Sequential else module
    alike(torch.jit.script(module)(x), module(x))

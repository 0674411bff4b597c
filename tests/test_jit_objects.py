"""TorchScript: objects that modules hold, classes that derive from others, and layers that read packed sequences."""

from typing import Dict, List, Optional, Tuple  # noqa: UP035  (as scripted code is written)

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


class Halved(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * self.weight / 2


class Scripted(torch.jit.ScriptModule):
    def __init__(self, more: int):
        super().__init__()
        self.more, self.seen, self.part = more, [1, 2], Halved()
        self.define("def defined(self, x):\n    return x * self.more\n")

    @torch.jit.script_method
    def forward(self, x):
        y = self.halved(x)
        if bool(y.sum() > 0):
            y = y + self.more
        return y + len(self.seen)

    @torch.jit.script_method
    def halved(self, x):
        return self.part(x)

    def plain(self):
        return type(self.part).__name__


class Other(Scripted):
    @torch.jit.script_method
    def halved(self, x):
        return x * 100


def test_classes_of_script_modules():
    model, x = Scripted(4), torch.tensor([2.0, 4.0])
    assert model.plain() == "RecursiveScriptModule"
    assert model(x).tolist() == [7, 8] and Other(1)(x).tolist() == [203, 403]
    assert model(-x).tolist() == [1, 0] and model.defined(x).tolist() == [8, 16]
    model.define("def later(self, x):\n    return self.defined(x) + 1\n")
    assert model.later(x).tolist() == [9, 17]
    read = through_a_file(model)
    assert read(x).tolist() == [7, 8] and read.original_name == "Scripted"
    assert [n for n, _ in model.named_parameters()] == ["part.weight"]
    model.part.weight.data.fill_(2)
    assert model(x).tolist() == [8, 10] and model.eval().part.training is False
    assert torch.jit.script(model) is model
    assert torch.jit.script(nn.Sequential(model))(x).tolist() == [8, 10]


def test_methods_that_are_defined_later():
    class Later(torch.jit.ScriptModule):
        def __init__(self):
            super().__init__()
            self.part = Halved()

    model = Later()
    model.define("def forward(self, x):\n    return self.part(x)\n")
    assert model(torch.ones(2)).tolist() == [0.5, 0.5]


class Sized(nn.Module):
    @torch.jit.export
    def __len__(self) -> int:
        return 10

    @torch.jit.export
    def __contains__(self, name: str) -> bool:
        return name == "here"

    @torch.jit.ignore
    def of_python(self, n):
        return [*range(n)]

    def forward(self, x):
        return x


def test_methods_that_python_calls():
    scripted = torch.jit.script(Sized())
    assert len(scripted) == 10 and "here" in scripted and "there" not in scripted
    assert scripted.of_python(2) == [0, 1]


class Typed(torch.jit.ScriptModule):
    def __init__(self):
        super().__init__()
        self.words = torch.jit.Attribute([], List[str])  # noqa: UP006
        self.words.append("a")

    @torch.jit.script_method
    def forward(self, x, device: torch.device):
        self.words.append("b")
        return self.words, x * -0.0, device


def test_attributes_with_types():
    words, zero, device = Typed()(torch.ones(1), "cpu")
    assert words == ["a", "b"] and zero.signbit() and device == torch.device("cpu")

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.counts = torch.jit.Attribute({}, Dict[str, int])  # noqa: UP006

        def forward(self, n: int):
            self.counts["n"] = n
            return self.counts

    assert torch.jit.script(Plain())(3) == {"n": 3}


class Box:
    def __init__(self, v: float):
        self.v = v

    def __int__(self) -> int:
        return int(self.v)

    def __bool__(self) -> bool:
        return bool(self.v)

    def __len__(self) -> int:
        return 3

    def __contains__(self, name: str) -> bool:
        return name == "here"

    @property
    def twice(self):
        return self.v * 2


def asked(box: Box):
    n = 0
    if box:
        n += 1
    if not box:
        n += 10
    while box:
        n += 100
        break
    return int(box), bool(box), len(box), "here" in box, "there" not in box, n, box.twice


def boxes(
    many: List[Box],  # noqa: UP006
    named: Dict[str, Box],  # noqa: UP006
    pair: Tuple[float, Box],  # noqa: UP006
    rows: List[List[float]],  # noqa: UP006
    some: Optional[Box],  # noqa: UP045
):
    total = named["a"].v + pair[0] + pair[1].v
    for box in many:
        total += box.v
    if some is not None:
        total += some.v
    return total, rows


@pytest.mark.parametrize("saved", [False, True])
def test_methods_that_python_calls_by_itself(saved):
    of_one, of_many = torch.jit.script(asked), torch.jit.script(boxes)
    if saved:
        of_one, of_many = through_a_file(of_one), through_a_file(of_many)
    assert of_one(Box(1.5)) == (1, True, 3, True, True, 101, 3.0)
    assert of_one(Box(0.0)) == (0, False, 3, True, True, 10, 0.0)
    args = [Box(1.0), Box(2.0)], {"a": Box(3.0)}, (4, Box(5.0)), [[1, 2]], Box(6.0)
    alike(of_many(*args), (21.0, [[1.0, 2.0]]))
    assert of_many(*args[:-1], None)[0] == 15.0


@torch.jit.script
class Setting:
    def __init__(self, a: int):
        self.a = a

    @property
    def value(self) -> int:
        return self.a - 2

    @value.setter
    def value(self, value: int):
        self.a = value + 4

    @property
    def fixed(self) -> int:
        return 1


class Sets(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = Setting(5)

    def forward(self, a: int, b: int):
        self.held.value = a
        made = Setting(b)
        made.value = a + b
        return self.held.value, made.value, self.held.a, made.a


def sets_nothing(a: int):
    made = Setting(a)
    made.fixed = a
    return made.a


def sets_what_is_not_there(a: int):
    made = Setting(a)
    made.other = a
    return made.a


@pytest.mark.parametrize("saved", [False, True])
def test_assignments_call_the_setters_of_properties(saved):
    made = torch.jit.script(Sets())
    if saved:
        made = through_a_file(made)
    assert made(1, 2) == Sets()(1, 2) == (3, 5, 5, 7)
    with pytest.raises(RuntimeError, match="read-only attribute: fixed"):
        torch.jit.script(sets_nothing)
    with pytest.raises(RuntimeError, match="Tried to set nonexistent attribute: other"):
        torch.jit.script(sets_what_is_not_there)


def test_annotations_name_classes_that_nothing_else_names():
    @torch.jit.script
    class Inner:
        def __init__(self):
            self.b = "text"

    @torch.jit.script
    class Outer:
        def __init__(self):
            self.inner = Inner()

        def take(self, both: Tuple[int, Inner]) -> Inner:  # noqa: UP006
            self.inner = both[1]
            return both[1]

    def made():
        return Outer().take((1, Inner())).b

    assert torch.jit.script(made)() == "text"


class Left(nn.Module):
    @torch.jit.ignore
    def told(self):
        return "old"

    def forward(self, x):
        return x


def test_ignored_methods_that_an_object_replaces():
    @torch.jit.ignore
    def told(self):
        return "new"

    module = Left()
    module.told = told.__get__(module)
    assert torch.jit.script(module).told() == "new" and torch.jit.script(Left()).told() == "old"

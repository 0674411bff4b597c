"""Modules and functions that are TorchScript already, as parts of what is scripted or traced."""

import copy
import io
import pickletools
import zipfile
from typing import Dict, List, NamedTuple, Tuple  # noqa: UP035  (as scripted code is written)

import pytest

import torchlike as torch
from torchlike import jit, nn


@jit.script
def scaled(x):
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0])


@jit.script
def counted(x, n: int):
    for _ in range(x.size(0)):
        x = x + n
    return x


class Branching(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), start))
        self.less = 3

    @jit.export
    def often(self, x, n: int = 2) -> List[torch.Tensor]:  # noqa: UP006
        return [x] * n

    def forward(self, x):
        if x.sum() > 0:
            return scaled(x) * self.weight
        return x - self.less


class Pair(NamedTuple):
    first: torch.Tensor
    second: int


class Paired(nn.Module):
    def forward(self, x) -> Pair:
        return Pair(x, 1)


class Holding(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = jit.script(Branching(1.0)), jit.script(Branching(2.0))
        self.traced = jit.trace(nn.Linear(4, 4), torch.ones(1, 4))
        self.layers = jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        self.paired = jit.script(Paired())
        self.listed = nn.ModuleList([jit.script(Branching(3.0)), self.a])

    def forward(self, x):
        y = self.a(x) + self.b(x) + self.traced(x)
        for more in self.a.often(y, 3):
            y = y + more
        for module in self.listed:
            y = module(y)
        for layer in self.layers:
            y = layer(y)
        pair = self.paired(y)
        return pair.first * pair.second + self.a.less


def test_scripted_parts_of_a_module():
    torch.manual_seed(0)
    model = Holding()
    made = jit.script(model)
    x = torch.randn(2, 4)
    for given in (x, -x.abs()):
        assert torch.equal(made(given), model(given))
    names = [n for n, _ in model.named_parameters()]
    assert [n for n, _ in made.named_parameters()] == names
    assert made.a.weight is model.a.weight
    buffer = io.BytesIO()
    jit.save(made, buffer)
    buffer.seek(0)
    again = jit.load(buffer)
    assert torch.equal(again(x), model(x))
    assert again.listed[1] is again.a
    # one class for the three that are alike
    assert again.a._spec is again.b._spec


def test_objects_are_numbered_once_they_are_whole():
    """PyTorch has no object to give a number before its state is there."""
    buffer = io.BytesIO()
    jit.save(jit.script(Holding()), buffer)
    with zipfile.ZipFile(buffer) as archive:
        data = archive.read(next(n for n in archive.namelist() if n.endswith("/data.pkl")))
    codes = [code.name for code, _, _ in pickletools.genops(data)]
    puts = [i for i, name in enumerate(codes) if name == "LONG_BINPUT"]
    assert puts and all(codes[i - 1] == "BUILD" for i in puts)


class Looping(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(
        self,
        x,
        y: Tuple[torch.Tensor, torch.Tensor],  # noqa: UP006
        z: Dict[str, torch.Tensor],  # noqa: UP006
    ):
        out: List[torch.Tensor] = []  # noqa: UP006
        for i in range(x.size(0)):
            if x[i].sum() > 0:
                out.append(x[i] * self.weight)
            else:
                out.append(x[i] + y[0][0])
        return torch.stack(out), {"a": y[1] + z["k"]}


class Tracked(nn.Module):
    def __init__(self):
        super().__init__()
        self.loop = jit.script(Looping())
        self.named = nn.ModuleDict({"same": self.loop})

    def forward(self, x):
        a, b = self.loop(x, (x, x * 2), {"k": x})
        return counted(a, n=2) + b["a"]


def test_traces_keep_the_branches_of_scripted_parts():
    torch.manual_seed(0)
    model = Tracked()
    traced = jit.trace(model, torch.randn(3, 4))
    buffer = io.BytesIO()
    traced.save(buffer)
    buffer.seek(0)
    y = torch.randn(5, 4)
    for made in (traced, jit.load(buffer)):
        for given in (y, -y):
            assert torch.equal(made(given), model(given))
    by_itself = jit.trace(lambda x: counted(x * 2, 3) * 2, torch.randn(3, 4))
    assert torch.equal(by_itself(y), counted(y * 2, 3) * 2)
    assert not jit.is_tracing()


def test_scripted_modules_have_to_be_parts_of_what_is_traced():
    apart = jit.script(Branching(1.0))
    with pytest.raises(RuntimeError, match="is not part of the active trace"):
        jit.trace(lambda x: apart(x), torch.ones(1, 4))


def test_what_scripted_parts_have_not():
    class Asking(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = jit.script(Branching(1.0))

        def forward(self, x):
            return self.part.nothing(x)

    with pytest.raises(jit.NotSupportedError, match="nothing"):
        jit.script(Asking())


def test_lists_of_inputs_for_trace_module():
    made = jit.trace_module(nn.Linear(4, 4), {"forward": [torch.ones(1, 4)]})
    assert made(torch.ones(3, 4)).shape == (3, 4)


def test_methods_of_constants():
    held = torch.arange(3.0)
    traced = jit.trace(lambda x: x + held.detach() * held.sum(), torch.ones(3))
    assert torch.equal(traced(torch.zeros(3)), held * 3)


class Asking(nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.layer = 2, nn.Linear(2, 2)

    @property
    def twice(self) -> int:
        return self.count * 2

    @property
    def turned(self):
        return self.layer.weight.t()

    def forward(self, x):
        if self.twice > 3:
            x = x @ self.turned
        return x + self.twice


def test_properties_are_compiled():
    model, x = Asking(), torch.ones(1, 2)
    made = jit.script(model)
    assert made.twice == 4 and torch.equal(made(x), model(x))
    buffer = io.BytesIO()
    made.save(buffer)
    buffer.seek(0)
    again = jit.load(buffer)
    assert again.twice == 4 and torch.equal(again(x), model(x))

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = made

        def forward(self, x):
            return x * self.part.twice

    assert torch.equal(jit.script(Around())(x), x * 4)


def test_whole_numbers_become_real_where_code_takes_those():
    @jit.script
    def scaled_by(x, one: float, more: List[float]):  # noqa: UP006
        return x * one + more[0]

    made = scaled_by(torch.tensor([2]), 3, [1])
    assert made.dtype == torch.float32 and made.tolist() == [7]


def test_sizes_are_compared_with_tuples():
    @jit.script
    def fits(x, n: int):
        return x.shape == (n, 2), x.shape != (n, 2), (n, 2) == x.size()

    assert fits(torch.ones(3, 2), 3) == (True, False, True)
    assert fits(torch.ones(3, 2), 2) == (False, True, False)


def test_scripted_modules_have_the_attributes_that_code_has_types_for():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 3)
            self.number, self.word, self.pair, self.more = 1, "x", (1, 2.0), [1, 2]
            self.table, self.nothing, self.plain = {"k": 1}, None, torch.ones(2)
            self.root, self.place = 1j, torch.device("cpu")
            self.other, self.mixed, self.function = object(), [1, "a"], torch.relu

        def forward(self, x):
            return self.layer(x)

    made = jit.script(Holder())
    buffer = io.BytesIO()
    made.save(buffer)
    buffer.seek(0)
    for model in (made, jit.load(buffer)):
        assert (model.number, model.word, model.pair, model.more) == (1, "x", (1, 2.0), [1, 2])
        assert model.table == {"k": 1} and model.nothing is None and model.plain.sum() == 2
        assert model.root == 1j and model.place == torch.device("cpu")
        assert model.layer.in_features == 2
        assert not any(hasattr(model, name) for name in ("other", "mixed", "function"))


class Walked(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table_1", torch.ones(2))
        self.register_buffer("table_2", torch.full((3,), 2.0))
        self.sub = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

    def forward(self, which: int):
        names: list[str] = []
        total = torch.zeros(())
        for name, p in self.named_parameters():
            names.append(name)
            total = total + p.sum()
        for b in self.buffers():
            total = total + b.sum()
        for name, _ in self.named_modules():
            names.append(name)
        return dict(self.named_buffers())[f"table_{which}"], total, names


def test_tensors_and_modules_below_are_walked():
    model = Walked()
    archive = io.BytesIO()
    torch.jit.save(torch.jit.script(model), archive)
    archive.seek(0)
    want = model(2)
    for made in (torch.jit.script(model), torch.jit.load(archive)):
        got = made(2)
        assert got[0].tolist() == [2, 2, 2] and torch.equal(got[1], want[1]) and got[2] == want[2]


def test_dictionaries_of_pairs():
    @torch.jit.script
    def made(pairs: list[tuple[str, int]], given: dict[str, int]):
        first = dict(pairs)
        copied = dict(given)
        copied["z"] = 3
        first.update(copied)
        return first, dict([(1, 2.0), (3, 4.0)]), dict(a=1, b=2), dict({"c": 1}), len(first)

    given = {"q": 1}
    assert made([("a", 3), ("b", 4), ("a", 5)], given) == (
        *({"a": 5, "b": 4, "q": 1, "z": 3}, {1: 2.0, 3: 4.0}, {"a": 1, "b": 2}, {"c": 1}),
        4,
    )
    assert given == {"q": 1}


def zipped(x: int, y: list[int]):
    return dict(zip(y, y, strict=False))


def two_at_once(x: int, y: list[int]):
    return dict([(1, x)], [(2, x)])


def threes(x: int, y: list[int]):
    return dict([(x, x, x)])


def numbers(x: int, y: list[int]):
    return dict(y)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (zipped, r"dict\(\) of zip\(\)|keyword"),
        (two_at_once, "expected at most 1 argument"),
        (threes, "pairs"),
        (numbers, r"'List\[int\]' object is not iterable"),
    ],
)
def test_other_dictionaries_are_refused(code, told):
    with pytest.raises(RuntimeError, match=told):
        torch.jit.script(code)


class Grid(nn.Module):
    """A module without `forward`, whose methods others call."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(2, 2)

    def there(self, x):
        """Text with a line

        that is empty.
        """
        return self.l(x) + self.back(x)

    def back(self, x):
        return x * 2

    def later(self, x):
        return self.added(x) + len(self.sizes)


class OnGrid(nn.Module):
    def __init__(self, grid) -> None:
        super().__init__()
        self.grid = grid

    def forward(self, x):
        return self.grid.there(x) - self.grid.back(x)


class LaterOnGrid(OnGrid):
    def forward(self, x):
        return self.grid.later(x)


class OffGrid(OnGrid):
    def forward(self, x):
        """Text with a line

        that is empty.
        """
        return self.grid.nowhere(x)


def test_a_script_module_gets_the_methods_that_others_ask_for():
    grid = Grid()
    scripted = torch.jit.script(grid)
    x = torch.ones(1, 2)
    made = torch.jit.script(OnGrid(scripted))
    torch.testing.assert_close(made(x), grid.l(x))
    assert torch.equal(scripted.there(x), grid.there(x))
    grid.added, grid.sizes = nn.Linear(2, 2), [1, 2, 3]
    assert torch.equal(torch.jit.script(LaterOnGrid(scripted))(x), grid.added(x) + 3)
    assert torch.equal(scripted.there(x), grid.there(x))
    with pytest.raises(RuntimeError, match="Module 'Grid' has no attribute 'nowhere'") as caught:
        torch.jit.script(OffGrid(copy.deepcopy(scripted)))
    first = OffGrid.forward.__code__.co_firstlineno
    assert f"line {first + 5}\n" in str(caught.value)
    assert "return self.grid.nowhere(x)" in str(caught.value)

"""TorchScript's language: functions and modules, compiled here, give what Python gives; an archive of PyTorch's, too.

`data/torchscript/language.pt` is `Language` as PyTorch 2.13 scripts it: `python -c "import sys, torch;
sys.modules['torchlike'] = torch; import test_jit_language as t; t.write('data/torchscript/language.pt')"`.
"""

import copy
import enum
import io
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple, Union  # noqa: UP035  (as scripted code is written)

import pytest

import torchlike as torch
from jit_cases import X, alike, through_a_file

nn, Tensor = torch.nn, torch.Tensor
F = nn.functional
DATA = Path(__file__).parent / "data" / "torchscript"


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    first: Tensor
    second: int
    third: Optional[Tensor] = None  # noqa: UP045


class Point:
    def __init__(self, x: Tensor, n: int = 2):
        self.x = x
        self.n = n
        self.seen: List[int] = []  # noqa: UP006

    def scaled(self) -> Tensor:
        self.seen.append(self.n)
        return self.x * self.twice()

    def twice(self) -> int:
        return self.n * 2

    def __add__(self, other: "Point") -> "Point":
        return Point(self.x + other.x, self.n)

    @staticmethod
    def unit(n: int) -> "Point":
        return Point(torch.ones(2), n)


def named_results(x: Tensor):
    best = torch.max(x, dim=0)
    q, r = torch.linalg.qr(x)
    order = x.sort(dim=1, descending=True)
    return (
        torch.min(x.view(-1, 2), dim=0).values - 1,
        best.values,
        best.indices,
        order.values,
        torch.linalg.svd(x).S,
        (q @ r),
        x.topk(1).indices,
    )


def unique(x: Tensor):
    values, counts = torch.unique_consecutive(x, return_counts=True)
    found, inverse = torch.unique(x, return_inverse=True)
    rows = torch.unique(x, dim=0)
    return values, counts, found, inverse, rows


def half(x: Tensor) -> Tensor:
    return x / 2


def forked(x: Tensor):
    futures: List[torch.jit.Future[Tensor]] = []  # noqa: UP006
    for _ in range(3):
        futures.append(torch.jit.fork(half, x))  # noqa: PERF401  (what is tested)
    done: List[Tensor] = []  # noqa: UP006
    for future in futures:
        done.append(torch.jit.wait(future))  # noqa: PERF401
    alone = torch.jit.fork(half, x=x)
    return torch.stack(done) + alone.wait()


def contexts(x: Tensor):
    y = x * 2
    with torch.no_grad():
        z = y * 2
        if torch.is_grad_enabled():
            z = z * 0
    with torch.autograd.profiler.record_function("named"):
        w = y + z
    return w, torch.is_grad_enabled()


def objects(x: Tensor):
    p = Point(x) + Point(x, 5)
    p.n += 1
    y = p.scaled()
    return y + Point.unit(3).x, p.n, p.seen


def colours(x: Tensor, c: Colour):
    if c == Colour.BLUE:
        return x * 2, c.name
    return x * c.value, c.name


def containers(x: Tensor):
    d: Dict[str, Tensor] = {"a": x, "b": x + 1}  # noqa: UP006
    del d["a"]
    pairs = [k + str(i) for i, (k, _) in enumerate([("q", 1), ("r", 2)])]
    sizes = {k: v.size(0) for k, v in d.items()}
    n = 7
    n //= 2
    some, more = [1, 2, 3], [4, 5]
    some += [9]
    products = [a * b + i for i, (a, b) in enumerate([(1, 2), (3, 4)])]
    sums = [a + b for a, b in zip(some, more)]  # noqa: B905  (TorchScript knows no `strict`)
    placed = {i: a for i, a in enumerate(more, 3)}
    total = 0
    for i in reversed([1, 2, 3]):
        total = total * 10 + i
    return (
        list(d.keys()),
        pairs,
        sizes,
        n,
        total,
        Pair(x, 3),
        pow(2, 3),
        divmod(7, 2),
        hex(20),
        round(2.6),
        (products, sums, placed),
    )


def padded(x: Tensor):
    return nn.utils.rnn.pad_sequence([x, x[:1]], batch_first=True, padding_value=-1.0)


def attended(x: Tensor):
    y = x.unsqueeze(1)
    w, b, out, c = torch.ones(6, 2), torch.zeros(6), torch.ones(2, 2), torch.zeros(2)
    return F.multi_head_attention_forward(y, y, y, 2, 1, w, b, None, None, False, 0.0, out, c)


def resized(x: Tensor):
    return F.interpolate(x[None, None], scale_factor=2.0), F.interpolate(
        x[None, None], size=[3, 3], mode="area"
    )


class Walking(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Tanh(), "bc": nn.Linear(2, 2)})

    @staticmethod
    def times(x: Tensor, n: int) -> Tensor:
        return x * n

    def forward(self, x: Tensor):
        length = 0
        for key in self.parts:
            length += len(key)
        for part in self.parts.values():
            x = part(x)
        waiting = torch.jit.fork(self.parts["bc"], x)
        return Walking.times(x, length) + self.times(torch.jit.wait(waiting), 2)


class Overloaded(nn.Module):
    @torch.jit._overload_method
    def forward(self, x: List[Tensor]) -> Tensor:  # noqa: UP006
        pass

    @torch.jit._overload_method
    def forward(self, x: Tensor) -> Tensor:  # noqa: F811
        pass

    def forward(self, x):  # noqa: F811
        if isinstance(x, Tensor):
            found = [x]
        else:
            found = x
        return torch.cat(found, 1)


class Overloads(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Overloaded()

    def forward(self, x: Tensor):
        return self.inner([x, x]), self.inner(x)


def narrowed(x: Tensor, n: int | None = None, y: Union[Tensor, List[Tensor], None] = None):  # noqa: UP006, UP007
    if n is None or n > 100:
        times = 2
    else:
        times = n
    total = torch.zeros_like(x)
    if isinstance(y, Tensor):
        total = total + y.mul(times)
    elif y is not None:
        for part in y:
            total = total + part
    assert x is not None and times > 0
    return total, times


def looped(x: Tensor, n: int, y: Optional[Tensor] = None):  # noqa: UP045
    count = 0
    for _ in range(n):
        if y is None:
            continue
        count += 1
    known = y is not None
    z: Optional[Tensor] = x  # noqa: UP045
    assert z is not None
    rounds = 0
    while rounds < 3:
        if z is None:
            break
        z = None
        rounds += 1
    return count, known, rounds


def said(x, n=2, sizes=None):
    # type: (Tensor, int, Optional[List[int]]) -> Tuple[Tensor, int]
    if sizes is not None:
        return x.view(sizes), len(sizes)
    return x * n, n


class Misled(Overloads):
    def forward(self, x: Tensor):
        return self.inner(3)


FUNCTIONS = {
    f.__name__: f
    for f in (
        named_results,
        unique,
        forked,
        contexts,
        objects,
        containers,
        padded,
        attended,
        resized,
    )
}


class Language(nn.Module):
    """What the language of PyTorch's archives has: contexts, tasks, objects, enumerations."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor, c: Colour) -> Tuple[Tensor, Tensor, Tensor, str]:  # noqa: UP006
        with torch.no_grad():
            y = self.linear(x)
        point = Point(y) + Point.unit(2)
        waiting = torch.jit.fork(self.linear, x)
        if c == Colour.BLUE:
            y = y * 2
        sequence = nn.utils.rnn.pad_sequence([y, y[:1]])
        return point.scaled() + torch.jit.wait(waiting), y, sequence, c.name


def write(path):
    """Scripts and saves `Language`."""
    made = Language()
    with torch.no_grad():
        made.linear.weight.copy_(torch.tensor([[1.0, 2.0], [-1.0, 0.5]]))
        made.linear.bias.fill_(0.25)
    torch.jit.script(made).save(path)
    return made


# What TorchScript computes as other types than Python.
OTHERWISE = {"containers": {6: 8.0, 9: 3.0}}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_gives_what_python_gives(name):
    function, x = FUNCTIONS[name], torch.tensor(X)
    want = function(x)
    want = list(want) if isinstance(want, tuple) else [want]
    for at, value in OTHERWISE.get(name, {}).items():
        want[at] = value
    scripted = torch.jit.script(function)
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    for run in (scripted, torch.jit.load(buffer)):
        got = run(x)
        alike(list(got) if len(want) > 1 else [got], want)


def test_members_of_enumerations():
    scripted, x = torch.jit.script(colours), torch.tensor(X)
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    for colour in Colour:
        for run in (scripted, loaded):
            alike(run(x, colour), colours(x, colour))


def test_a_module_walks_its_parts():
    module, x = Walking(), torch.tensor(X)
    alike(torch.jit.script(copy.deepcopy(module))(x), module(x))


def test_the_overload_that_takes_the_arguments_is_called():
    module, x = Overloads(), torch.tensor(X)
    alike(torch.jit.script(module)(x), module(x))
    with pytest.raises(torch.jit.NotSupportedError, match="no overload of 'forward' takes int"):
        torch.jit.script(Misled())


def test_tests_narrow_types():
    x = torch.tensor(X)
    scripted = torch.jit.script(narrowed)
    for run in (scripted, through_a_file(scripted)):
        for given in ((3, x), (None, [x, x]), (200, None)):
            alike(run(x, *given), narrowed(x, *given))


def test_loops_come_to_tests_once_more():
    x = torch.tensor(X)
    scripted = torch.jit.script(looped)
    for run in (scripted, through_a_file(scripted)):
        for given in ((0,), (2,), (0, x), (2, x)):
            alike(run(x, *given), looped(x, *given))


def test_comments_say_types():
    x = torch.tensor(X)
    scripted = torch.jit.script(said)
    assert "Optional[List[int]]" in scripted.code
    alike(scripted(x, 3), said(x, 3))
    alike(scripted(x, sizes=[6]), said(x, sizes=[6]))


def test_operators_of_libraries_keep_their_space(tmp_path):
    with torch.library._scoped_library("jit_language", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")

        def f(x: Tensor):
            return torch.ops.jit_language.twice(x)

        x = torch.tensor(X)
        for made in (torch.jit.trace(f, (x,)), torch.jit.script(f)):
            assert "ops.jit_language.twice" in made.code
            alike(made(x), x * 2)


def test_pytorchs_archive_gives_what_python_gives(tmp_path):
    made, x = write(tmp_path / "ours.pt"), torch.tensor(X)
    for path in (DATA / "language.pt", tmp_path / "ours.pt"):
        loaded = torch.jit.load(path)
        for colour in Colour:
            alike(loaded(x, colour), made(x, colour))


def test_what_a_context_leaves_behind():
    @torch.jit.script
    def failing(x: Tensor):
        with torch.no_grad():
            raise ValueError("inside")

    with pytest.raises(torch.jit.Error, match="inside"):
        failing(torch.ones(1))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("init", "body", "says"),
    [
        ("self.x = unknown()", "pass", "undefined value unknown"),
        ("self.x = 1", "self.y = 2", "nonexistent attribute: y"),
        ("self.x = 1", "return self.f()", "recursively"),
        ("self.x = 1", "return self.z", "no attribute or method 'z'"),
    ],
)
def test_a_class_that_is_no_torchscript_says_why(init, body, says, tmp_path, monkeypatch):
    methods = f"    def __init__(self):\n        {init}\n    def f(self) -> int:\n        {body}\n"
    (tmp_path / "made.py").write_text(f"class Made:\n{methods}\ndef use(x):\n    return Made()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "made", raising=False)
    with pytest.raises(torch.jit.NotSupportedError, match=says):
        torch.jit.script(__import__("made").use)


def test_slices_that_are_called_give_lists():
    def f(x: Tensor):
        size = x.shape
        return torch.nn.functional.interpolate(x, size=size[slice(-2, None, None)], mode="nearest")

    x = torch.rand(1, 2, 3, 4)
    assert torch.equal(torch.jit.script(f)(x), x)


def test_names_in_brackets_are_their_own():
    def f():
        i = 1
        x = [i + 1 for i in range(3)]
        return i, x

    assert torch.jit.script(f)() == (1, [1, 2, 3])


class Commented(nn.Module):
    # fmt: off
    def forward(self, x):
    # a comment further left than the code
        return x + 1
    # fmt: on


def test_texts_that_stand_oddly():
    assert torch.jit.script(Commented())(torch.ones(1)).item() == 2
    unit = torch.jit.CompilationUnit("def f(n, m):\n  # type: (int, float)\n  return n * m\n")
    assert unit.f(2, 1.5) == 3.0

    def several(a: Optional[List[int]]) -> bool:  # noqa: UP006, UP045
        return isinstance(a, (int, (float, str), List[int]))  # noqa: UP006

    assert torch.jit.script(several)([1]) and not torch.jit.script(several)(None)


def test_members_hashes_and_what_is_not_none():
    def f(n: Optional[int]):  # noqa: UP045
        found = [c.value for c in Colour]
        return found, hash("a") == hash("a"), torch.jit._unwrap_optional(n) + 1

    assert torch.jit.script(f)(4) == ([1, 2], True, 5)

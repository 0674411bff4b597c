"""What scripts do with values of wrong types, and with numbers and texts at their limits, as PyTorch does."""

import math

import pytest

import torchlike as torch

REFUSED = {
    "def f(x: bool):\n    if x:\n        y = 1\n    return y": "y is not defined in the false branch",
    "def f(x: bool):\n    if x:\n        z = 1\n    else:\n        y = 2\n    return y": "y is not defined in the true",
    "def f(x: bool):\n    if x:\n        y = 1\n    else:\n        y = 'a'\n    return y": (
        "Type mismatch: y is set to type int in the true branch and type str in the false branch"
    ),
    "def f():\n    x: int = 'a'\n    return x": "annotated with type int but is being assigned to a value of type str",
    "def f(x: int):\n    if x > 0:\n        return 1\n    return 'a'": "Previous return statement returned a value",
    "def f(x: int):\n    return 1 if x > 0 else 'a'": "true branch has type int but false branch has type str",
    "def f():\n    return {'a': 1, 2: 3}": "Dict keys must contain only a single type. Expected: str but found int",
    "def f():\n    x = [1]\n    x.append('a')\n    return x": "previously matched to type int is matched to type str",
    "def f():\n    x = [1]\n    x[0] = 'a'\n    return x": "Arguments for call are not valid",
    "def f():\n    x = (1, 2)\n    x[0] = 3\n    return x": "does not support subscripted assignment",
    "def f():\n    x = (1, 2)\n    return x[3]": "Tuple index out of range. Tuple is length 2 and index is 3",
    "def f():\n    a, b = (1, 2, 3)\n    return a": "too many values to unpack: need 2 but found 3",
    "def f():\n    a, b, c = (1, 2)\n    return a": "need 3 values to unpack but found only 2",
    "def f(x: int):\n    return x.foo": "'int' object has no attribute or method 'foo'",
}


@pytest.mark.parametrize("code", REFUSED)
def test_compiling_refuses(code):
    with pytest.raises(RuntimeError) as refused:
        torch.jit.CompilationUnit(code)
    assert REFUSED[code] in str(refused.value)


FORMATS = {
    "'%d' % 'x'": "%d requires a number for formatting, but got String",
    "'%c' % 'xy'": "%c requires an int or char for formatting, but got String",
    "'%s in 50%' % 'a'": "Incomplete format specifier",
    "'%s %s' % ('a',)": "Too few arguments for format string",
    "'%s' % ('a', 'b')": "Too many arguments for format string",
    "'%x' % 3": "The specifier %x is not supported in TorchScript format strings",
    "'{} {}'.format(1)": "Too few arguments for format string: {} {}",
}


@pytest.mark.parametrize("code", FORMATS)
def test_texts_with_values(code):
    with pytest.raises(RuntimeError) as refused:
        torch.jit.CompilationUnit(f"def f() -> str:\n    return {code}").f()
    assert FORMATS[code] in str(refused.value)


def test_what_numbers_and_containers_give():
    unit = torch.jit.CompilationUnit("""
def divide(a: float, b: float):
    return a / b, a // b, a % b
def whole(a: int, b: int):
    return a / b
def either(a: int):
    return a or 3, a and 3
def first():
    d = {'b': 1, 'a': 2}
    return d.popitem()
def shown():
    return '%s %d %f %%' % ('a', 2, 1.5)
def unpacked(x: List[int]):
    a, b = x
    return a
def found(x: List[int]):
    return x.index(5)
""")
    assert unit.divide(1.0, 0.0)[:2] == (math.inf, math.inf)
    assert all(math.isnan(v) for v in unit.divide(0.0, 0.0)) and unit.whole(-1, 0) == -math.inf
    assert unit.either(2) == (True, True) and unit.either(0) == (True, False)
    assert unit.first() == ("b", 1) and unit.shown() == "a 2 1.500000 %"
    with pytest.raises(RuntimeError, match="Expected 2 elements in a list but found 3"):
        unit.unpacked([1, 2, 3])
    with pytest.raises(RuntimeError, match="'5' is not in list"):
        unit.found([1])


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("int", [1, True, torch.tensor(3)], ["a", None, 1.5]),
        ("float", [1, 1.5], ["a", None, 1j]),
        ("str", ["a"], [1, b"a"]),
        ("Tensor", [torch.ones(1)], [1, None]),
        ("Optional[int]", [None, 1], ["a"]),
        ("List[int]", [[], [1], (1, 2), torch.Size([3])], [1, "ab", ["a"], [None]]),
        ("Dict[str, int]", [{}, {"a": 1}], [[1], {1: 1}, {"a": "b"}]),
        ("Tuple[int, str]", [(1, "a")], [(1,), (1, 2), 1]),
        ("List[Optional[Tensor]]", [[None, torch.ones(1)]], [[1]]),
    ],
)
def test_arguments_are_checked(kind, right, wrong):
    f = torch.jit.CompilationUnit(f"def f(x: {kind}) -> int:\n    return 1").f
    assert [f(v) for v in right] == [1] * len(right)
    for value in wrong:
        with pytest.raises(
            RuntimeError, match=r"f\(\) Expected a value of type '.*' for argument 'x'"
        ):
            f(value)
    with pytest.raises(
        RuntimeError, match=r"f\(\) is missing value for argument 'x'. Declaration: f\("
    ):
        f()
    with pytest.raises(
        RuntimeError, match=r"f\(\) expected at most 1 argument\(s\) but received 2"
    ):
        f(right[0], 1)


class Holds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 3
        self.parts = torch.nn.ModuleDict({"a": torch.nn.ReLU()})

    def forward(self, x):
        if "a" in self.parts and "b" not in self.parts:
            self.n += 1
        return self.parts["a"](x) * self.n


class SetsWrong(Holds):
    def forward(self, x):
        self.n = "a"
        return x


class SetsNew(Holds):
    def forward(self, x):
        self.m = x
        return x


class AsksWrong(Holds):
    def forward(self, x):
        return self.parts["b"](x)


def test_what_modules_hold():
    assert torch.jit.script(Holds())(torch.ones(1)).tolist() == [4.0]
    for model, says in (
        (SetsWrong(), "Wrong type for attribute assignment. Expected int but got str"),
        (
            SetsNew(),
            "Tried to set nonexistent attribute: m. Did you forget to initialize it in __init__()?",
        ),
        (AsksWrong(), "Key Error, b"),
    ):
        with pytest.raises(RuntimeError) as refused:
            torch.jit.script(model)
        assert says in str(refused.value)


def taking(x: int, y: torch.Tensor):
    return y * x


def gives_text(y):
    return taking("a", y)


def gives_number(y):
    return taking(2, 1)


def gives_both(y):
    return taking(2, y), taking(x=y.sum(), y=y)


def test_calls_of_functions_are_checked():
    assert torch.jit.script(gives_both)(torch.ones(1)) == (2, 1)
    for function, name in ((gives_text, "x"), (gives_number, "y")):
        with pytest.raises(
            RuntimeError, match=f"Expected a value of type '.*' for argument '{name}' but"
        ):
            torch.jit.script(function)


def test_casts_that_code_has_no_methods_for():
    f = torch.jit.CompilationUnit("def f(x):\n    return x.bool(), x.bfloat16()").f
    assert [t.dtype for t in f(torch.ones(1))] == [torch.bool, torch.bfloat16]
    assert "x.to(11)" in f.code and "x.to(15)" in f.code

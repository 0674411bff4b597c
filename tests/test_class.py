"""The class Tensor itself: how instances come and go, and what Python's operators find on it."""

from __future__ import annotations

import gc
import inspect
import operator
import pickle
import subprocess
import sys
import weakref

import pytest

import torchlike as torch
from torchlike import _C


class Named(torch.Tensor):
    pass


class Slotted(torch.Tensor):
    __slots__ = ("extra",)


CLASSES = [torch.Tensor, Named, Slotted, torch.nn.Parameter]


def make(cls: type) -> torch.Tensor:
    x = torch.ones(3)
    return x if cls is torch.Tensor else x.as_subclass(cls)


def test_names() -> None:
    assert torch.Tensor.__mro__ == (torch.Tensor, _C.TensorBase, object)
    assert (torch.Tensor.__module__, torch.Tensor.__qualname__) == ("torchlike", "Tensor")
    assert isinstance(torch.ones(1), _C.TensorBase)
    assert pickle.loads(pickle.dumps(torch.Tensor)) is torch.Tensor


def test_the_base_is_not_for_instances() -> None:
    with pytest.raises(RuntimeError, match="Cannot directly construct TensorBase; subclass it"):
        _C.TensorBase()


@pytest.mark.parametrize("cls", CLASSES)
def test_weak_references_are_cleared_and_their_callbacks_run(cls: type) -> None:
    x = make(cls)
    seen: list[object] = []
    r = weakref.ref(x, seen.append)
    assert r() is x
    del x
    assert r() is None and seen == [r]


@pytest.mark.parametrize("cls", CLASSES)
def test_a_new_instance_knows_nothing_of_one_that_is_gone(cls: type) -> None:
    for _ in range(200):
        x = make(cls)
        x.note = "mine"
        keep = weakref.ref(x)
        del x
        y = make(cls)
        assert not hasattr(y, "note") and weakref.getweakrefcount(y) == 0 and keep() is None


@pytest.mark.parametrize("cls", CLASSES)
def test_cycles_are_collected(cls: type) -> None:
    x = make(cls)
    x.me = x
    r = weakref.ref(x)
    del x
    gc.collect()
    assert r() is None


def test_cycles_through_a_gradient_are_collected() -> None:
    x = torch.ones(2)
    g = torch.ones(2)
    x.grad, g.back = g, x
    r = weakref.ref(x)
    del x, g
    gc.collect()
    assert r() is None


def test_what_a_tensor_keeps_goes_with_it() -> None:
    owner = Named.__new__(Named)
    x = torch.ones(2)
    x.owner, r = owner, weakref.ref(owner)
    del owner, x
    assert r() is None
    x, g = torch.ones(2), torch.ones(2)
    x.grad, r = g, weakref.ref(g)
    del g, x
    assert r() is None


def test_long_chains_of_gradients_are_freed() -> None:
    x = torch.ones(1)
    first = weakref.ref(x)
    for _ in range(100_000):
        y = torch.ones(1)
        y.grad = x
        x = y
    del x, y
    assert first() is None


def test_a_callback_may_make_and_free_tensors() -> None:
    made: list[torch.Tensor] = []

    def again(_: object) -> None:
        made.extend(torch.zeros(2) for _ in range(100))
        made.clear()

    for _ in range(100):
        x = torch.ones(2)
        r = weakref.ref(x, again)
        del x
    assert r() is None


def test_classes_keep_their_reference_count() -> None:
    before = [sys.getrefcount(c) for c in CLASSES]
    for cls in CLASSES:
        for _ in range(300):
            make(cls)
    after = [sys.getrefcount(c) for c in CLASSES]
    # Blocks that wait for the next instance hold no reference.
    assert all(abs(a - b) < 5 for a, b in zip(after, before, strict=True))


REFLECTED = [
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift",
]  # fmt: skip


@pytest.mark.parametrize("name", REFLECTED)
def test_numbers_on_either_side(name: str) -> None:
    do = getattr(operator, name)
    values = [1, 2, 3]
    x = torch.tensor(values)
    right, left = do(x, 2), do(2, x)
    assert right.tolist() == pytest.approx([do(v, 2) for v in values])
    assert left.tolist() == pytest.approx([do(2, v) for v in values])


@pytest.mark.parametrize("name", [*REFLECTED, "matmul", "lt", "le", "gt", "ge"])
def test_what_fits_neither_side_is_a_type_error(name: str) -> None:
    do, x = getattr(operator, name), torch.tensor([1, 2])
    for other in (object(), {}, None):
        with pytest.raises(TypeError):
            do(x, other)
        with pytest.raises(TypeError):
            do(other, x)


class Right:
    """Answers for the right side."""

    def __radd__(self, other: object) -> str:
        return "radd"

    def __rmatmul__(self, other: object) -> str:
        return "rmatmul"

    def __rpow__(self, other: object) -> str:
        return "rpow"


def test_the_other_operand_may_answer() -> None:
    x = torch.ones(2)
    assert (x + Right(), x @ Right(), x ** Right()) == ("radd", "rmatmul", "rpow")


@pytest.mark.parametrize("name", [n for n in REFLECTED if n not in ("pow",)])
def test_in_place_operators_keep_the_object(name: str) -> None:
    do = getattr(operator, "i" + name.rstrip("_"))
    x = torch.tensor([4, 5, 6]) if name != "truediv" else torch.tensor([4.0, 5.0, 6.0])
    before, memory = x, x.data_ptr()
    plain = getattr(operator, name)(x, 2)
    x = do(x, 2)
    assert x is before and x.data_ptr() == memory and x.tolist() == plain.tolist()


def test_reflected_methods_called_by_name() -> None:
    x = torch.tensor([1.0, 2.0])
    assert x.__radd__(1).tolist() == [2, 3] and x.__rsub__(1).tolist() == [0, -1]
    assert x.__rtruediv__(2).tolist() == [2, 1] and x.__rdiv__(2).tolist() == [2, 1]
    assert x.__rpow__(2).tolist() == [2, 4] and x.__rfloordiv__(3).tolist() == [3, 1]


def test_square_brackets() -> None:
    x = torch.arange(6).reshape(2, 3)
    assert x[1].tolist() == [3, 4, 5] and operator.getitem(x, (1, 2)).item() == 5
    assert [row.tolist() for row in x] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(IndexError):
        x[2]
    with pytest.raises(TypeError, match="does not support deleting items"):
        del x[0]


def test_hash_is_identity() -> None:
    x, y = torch.ones(2), torch.ones(2)
    assert hash(x) == id(x) and len({x, y, x}) == 2


def test_shapes_and_strides() -> None:
    for shape in [(), (1,), (2, 3), (2, 1, 3), (1, 2, 3, 4, 5, 6)] * 40:
        x = torch.empty(shape, device="meta")
        assert type(x.shape) is torch.Size and x.shape == shape and x.size() == shape
        strides = tuple(x.stride(d) for d in range(x.dim()))
        assert type(x.stride()) is tuple and x.stride() == strides
    x = torch.empty(2, 3)
    first = x.shape
    x.resize_(4)
    assert first == (2, 3) and x.shape == (4,) and x.stride() == (1,)


def test_what_lives_to_the_end_ends_quietly() -> None:
    script = """
import sys
import numpy, torchlike as torch
x = torch.from_numpy(numpy.ones(3))
y = torch.ones(2)
y.grad = torch.ones(2)
z = torch.empty(3, device="meta")
z.me, z.other = z, torch.from_numpy(numpy.ones(4))
layer = torch.nn.Linear(2, 2)
layer.me = layer
sys.kept = [x, y, z, layer]
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_functions_of_layers_have_signatures():
    functional = torch.nn.functional
    signature = inspect.signature(functional.cross_entropy)
    assert list(signature.parameters)[:2] == ["input", "target"]
    assert signature.parameters["ignore_index"].default == -100
    assert signature.parameters["reduction"].default == "mean"
    assert "input" in inspect.signature(functional.layer_norm).parameters
    assert functional.relu.__doc__.startswith("relu(")

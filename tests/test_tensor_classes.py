"""Tensors of classes of the user's in checkpoints: PyTorch's files are read, and what is written is as PyTorch's.

`data/ckpt/more/tensor_classes.pt` was saved by PyTorch, with classes like these in a module `tensor_classes`.
"""

import copy
import io
import pathlib
import pickle
import zipfile

import pytest

import torchlike as torch
from torchlike.serialization import Opaque, safe_globals

FILE = pathlib.Path(__file__).parent / "data" / "ckpt" / "more" / "tensor_classes.pt"


class Plain(torch.Tensor):
    """Elements of its own, and attributes."""


class Slotted(torch.Tensor):
    __slots__ = ("unit",)


class Wrap(torch.Tensor):
    """No elements of its own: another tensor has them."""

    @staticmethod
    def __new__(cls, elem):
        said = {"dtype": elem.dtype, "device": elem.device, "strides": elem.stride()}
        return torch.Tensor._make_wrapper_subclass(cls, elem.size(), **said)

    def __init__(self, elem):
        self.elem = elem

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


class Stated(Wrap):
    """It says itself what is kept."""

    def __getstate__(self):
        return {"elem": self.elem, "count": 5}

    def __setstate__(self, state):
        self.elem, self.count = state["elem"], state["count"] + 1


CLASSES = [Plain, Slotted, Wrap, Stated]
NAMED = [(c, f"tensor_classes.{c.__name__}") for c in (Plain, Wrap, Stated)]


def trip(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    with safe_globals(CLASSES):
        return torch.load(file, **options)


def test_pytorchs_files():
    with safe_globals(NAMED):
        state = torch.load(FILE)
    plain, wrap = state["plain"], state["wrap"]
    assert type(plain) is Plain and plain.stride() == (1, 3) and plain.note == "kept"
    assert plain.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert type(state["grad"]) is Plain and state["grad"].requires_grad
    assert state["short"].dtype is torch.uint16
    assert type(wrap) is Wrap and state["again"] is wrap and wrap.elem is state["elem"]
    assert type(state["stated"]) is Stated and state["stated"].count == 6


def test_classes_that_nobody_allowed():
    with pytest.raises(
        pickle.UnpicklingError, match=r"GLOBAL tensor_classes\.Plain was not an all"
    ):
        torch.load(FILE)
    state = torch.load(FILE, weights_only=False)
    assert all(isinstance(state[n], Opaque) for n in ("plain", "wrap", "stated"))
    assert state["plain"].args[0].tolist()[0] == [0.0, 3.0] and state["plain"].note == "kept"
    assert state["wrap"].elem is state["elem"]


def test_what_maps_places_maps_wrappers_too():
    with safe_globals(NAMED):
        wrap = torch.load(FILE, map_location="meta")["wrap"]
        assert wrap.device.type == wrap.elem.device.type == "meta"
        with pytest.raises(RuntimeError, match="Callable map_location not supported"):
            torch.load(FILE, map_location=lambda storage, place: storage)


@pytest.mark.parametrize("only", [True, False])
def test_round_trips(only):
    note = torch.ones(3, dtype=torch.complex64).conj().as_subclass(Plain)
    note.note = "kept"
    given = {
        "plain": note,
        "empty": Plain(),
        "meta": torch.ones(3, device="meta").as_subclass(Plain),
        "wrap": Wrap(torch.arange(4.0).view(2, 2).t()),
    }
    given["elem"] = given["wrap"].elem
    made = trip(given, weights_only=only)
    assert {n: type(t) for n, t in made.items()} == {n: type(t) for n, t in given.items()}
    assert made["plain"].is_conj() and made["plain"].note == "kept" and made["meta"].is_meta
    assert made["wrap"].stride() == (1, 2) and made["wrap"].elem is made["elem"]


def test_states_and_slots():
    assert trip(Stated(torch.ones(2))).count == 6
    slotted = torch.ones(2).as_subclass(Slotted)
    slotted.unit = "cm"
    for made in (trip(slotted), pickle.loads(pickle.dumps(slotted)), copy.copy(slotted)):
        assert type(made) is Slotted and made.unit == "cm"
    assert torch.load(io.BytesIO(_saved(Stated(torch.ones(2)))), weights_only=False).elem.sum() == 2


def _saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_what_is_written_calls_what_pytorch_has():
    text = zipfile.ZipFile(io.BytesIO(_saved(Wrap(torch.ones(2))))).read("archive/data.pkl")
    assert b"ctorch._utils\n_rebuild_wrapper_subclass\n" in text and b"torchlike" not in text


def test_arguments_that_no_tensor_has():
    import torchlike._rebuild_classes as classes
    from torchlike._rebuild_builders import Refused

    make, func = classes.builder().make, classes.maker("_rebuild_wrapper_subclass")
    fine = (Wrap, torch.float32, (2,), (1,), 0, torch.strided, torch.device("cpu"), False)
    assert type(make((func, Wrap, fine, {}), None)) is Wrap
    for i, bad in ((0, Plain), (1, "float32"), (2, [2]), (4, None), (7, 1)):
        with pytest.raises(Refused):
            make((func, Wrap, (*fine[:i], bad, *fine[i + 1 :]), {}), None)
    with pytest.raises(Refused):
        make((print, Wrap, fine, {}), None)


def test_the_environment_may_force_the_kind_of_loading(monkeypatch):
    file = _saved({"a": Plain()})
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        torch.load(io.BytesIO(file))
    with pytest.raises(pickle.UnpicklingError):
        torch.load(io.BytesIO(file), weights_only=True)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "yes")
    with pytest.raises(RuntimeError, match="Only one of"):
        torch.load(io.BytesIO(file))
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(io.BytesIO(file), weights_only=False)

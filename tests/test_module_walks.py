"""Walks of modules: names, memos, trees that change or are hostile, and what a walk keeps alive."""

import abc
import copy
import gc
import weakref
from typing import Generic, TypeVar

import pytest

from torchlike import nn


def test_walks_share_a_memo_and_a_prefix():
    m = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()))
    memo = {m[0]}
    names = [name for name, _ in m.named_modules(memo, prefix="net")]
    assert names == ["net", "net.1", "net.1.0"]
    assert memo == set(m.modules())
    assert [n for n, _ in nn.Linear(2, 2).named_parameters(prefix="a")] == ["a.weight", "a.bias"]


def test_a_model_may_change_while_it_is_walked():
    m = nn.Sequential(nn.Sequential(nn.ReLU()), nn.Tanh())
    seen = []
    for name, module in m.named_modules():
        seen.append(name)
        if name == "0":
            module.add_module("new", nn.Linear(1, 1))
            m[1] = nn.GELU()
    assert seen == ["", "0", "0.0", "0.new", "1"]
    seen = []
    for name, _ in m.named_parameters():
        seen.append(name)
        m[0].new.register_buffer("held", None)
    assert seen == ["0.new.weight", "0.new.bias"]
    parameters = nn.Linear(2, 2).named_parameters()
    assert iter(parameters) is parameters
    assert repr(parameters).startswith("<generator object Module.named_parameters at ")


def test_names_that_are_walked_do_not_change():
    def walked(names, change):
        for i, _ in enumerate(names):
            if i == 0:
                change()

    def pair():
        m = nn.Module()
        m.a, m.b = nn.Linear(1, 1), nn.Linear(1, 1)
        return m

    changed = "dictionary changed size during iteration"
    grown, shrunk = pair(), pair()
    with pytest.raises(RuntimeError, match=changed):
        walked(grown.parameters(), lambda: setattr(grown, "c", nn.ReLU()))
    with pytest.raises(RuntimeError, match=changed):
        walked(shrunk.parameters(), lambda: delattr(shrunk, "b"))
    m = nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match=changed):
        walked(m.parameters(), lambda: m.register_parameter("c", None))
    # A module's own parameters come first: what is added below meanwhile is met.
    m.register_module("below", nn.Linear(1, 1))
    walked(m.parameters(), lambda: m.register_module("new", nn.Linear(1, 1)))
    assert len(list(m.parameters())) == 6


def test_hostile_trees_end_in_an_error():
    m = nn.Sequential()
    m.add_module("0", m)
    assert len(list(m.modules())) == 1
    with pytest.raises(RecursionError):
        list(m.named_modules(remove_duplicate=False))
    with pytest.raises(RecursionError):
        m.state_dict()
    m = nn.Sequential(nn.ReLU())
    m._kinds["0"] = "nonsense"
    assert len(list(m.modules())) == 1
    with pytest.raises(TypeError):
        m.named_modules(prefix=3)
    bare = nn.Sequential()
    bare.__dict__["x"] = 3
    bare._kinds["x"] = "module"
    with pytest.raises(AttributeError):
        list(bare.named_modules())


def test_a_walk_does_not_keep_a_model_alive_in_a_circle():
    m = nn.Linear(1, 1)
    m.walk = m.named_modules()
    gone = weakref.ref(m)
    del m
    gc.collect()
    assert gone() is None


class Mixin:
    """A plain class, whose `__dict__` stands before that of modules."""


class Mixed(Mixin, nn.Sequential):
    pass


class Abstract(abc.ABC, nn.Sequential):
    """Gets a `__dict__` of its own, like all classes whose first base has none."""


class Typed(Generic[TypeVar("T")], nn.Sequential):
    pass


@pytest.mark.parametrize("make", [Mixed, Abstract, Typed, type("Below", (Abstract,), {})])
def test_modules_lie_as_others_whatever_their_first_base(make):
    model = make(nn.Linear(2, 2))
    assert list(vars(model)) == list(vars(nn.Sequential()))
    assert list(vars(model)["_modules"]) == ["0"]
    model.x = 3
    assert model.__dict__["x"] == 3 and model.__dict__.get("_kinds") is None
    assert list(copy.deepcopy(model).state_dict()) == ["0.weight", "0.bias"]

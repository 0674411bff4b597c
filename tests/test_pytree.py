"""`utils._pytree`."""

from collections import OrderedDict, defaultdict, deque, namedtuple
from enum import Enum

import pytest

import torchlike as torch
from torchlike.utils import _pytree as tree

Pair = namedtuple("Pair", "x y")
Color = Enum("Color", "RED GREEN")
TREES = [
    1,
    [1, (2, {"a": 3})],
    Pair(1, [2]),
    OrderedDict(b=1, a=2),
    defaultdict(list, a=1),
    deque([1, 2], maxlen=3),
]


@pytest.mark.parametrize("value", TREES, ids=repr)
def test_trees_come_back(value):
    leaves, spec = tree.tree_flatten(value)
    again = tree.tree_unflatten(leaves, spec)
    assert again == value and type(again) is type(value)
    assert tree.tree_structure(again) == spec and hash(tree.tree_structure(again)) == hash(spec)
    assert [v for _, v in tree.tree_flatten_with_path(value)[0]] == leaves
    assert tree.treespec_loads(tree.treespec_dumps(spec)) == spec


def test_sizes_become_tuples_that_hold_anything():
    leaves, spec = tree.tree_flatten(torch.Size([2, 3]))
    assert leaves == [2, 3] and spec != tree.tree_structure((2, 3))
    again = tree.tree_map(str, torch.Size([2, 3]))
    assert again == ("2", "3") and type(again) is tuple


def test_maps_over_several_trees():
    assert tree.tree_map(lambda a, b: a + b, [1, (2,)], [3, (4,)]) == [4, (6,)]
    with pytest.raises(ValueError, match="arity mismatch"):
        tree.tree_map(lambda a, b: a, [1, 2], [1])
    assert tree.tree_map_only(int, lambda v: v + 1, [1, "a"]) == [2, "a"]


def test_paths():
    paths = [tree.keystr(p) for p, _ in tree.tree_leaves_with_path({"a": [1, Pair(2, 3)]})]
    assert paths == ["['a'][0]", "['a'][1].x", "['a'][1].y"]


def test_own_containers():
    class Mine:
        def __init__(self, *items):
            self.items = items

    tree.register_pytree_node(Mine, lambda m: (list(m.items), None), lambda items, _: Mine(*items))
    assert tree.tree_leaves([Mine(1, [2]), 3]) == [1, 2, 3]
    with pytest.raises(ValueError, match="already registered"):
        tree.register_pytree_node(Mine, None, None)


def test_results_with_names_are_nodes():
    leaves, spec = tree.tree_flatten(torch.ones(2).max(0))
    assert len(leaves) == 2 and type(tree.tree_unflatten(leaves, spec)).__name__ == "max"


def test_endless_trees_end():
    endless = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        tree.tree_flatten(endless)


def test_old_names_say_so():
    class Leafless:
        pass

    with pytest.warns(FutureWarning, match="`torch.utils._pytree._register_pytree_node` is depr"):
        tree._register_pytree_node(Leafless, lambda x: ([], None), lambda c, _: Leafless())
    with (
        pytest.warns(UserWarning, match="Overwriting the previous registration"),
        pytest.warns(FutureWarning),
    ):
        tree._register_pytree_node(Leafless, lambda x: ([], "new"), lambda c, _: Leafless())
    named = tree.tree_structure({Color.GREEN: 1})
    assert (
        '"fqn\\": \\"' in (text := tree.treespec_dumps(named))
        and tree.treespec_loads(text) == named
    )
    stored = namedtuple("stored", "x y")
    tree._register_namedtuple(stored, serialized_type_name="mine.stored")
    text = tree.treespec_dumps(tree.tree_structure(stored(1, 2)))
    assert "mine.stored" in text and tree.treespec_loads(text).unflatten([1, 2]) == stored(1, 2)
    with pytest.raises(TypeError, match="to be an instance of PyTreeSpec but got item of type"):
        tree.treespec_dumps(3)

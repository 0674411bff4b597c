"""Objects of leaves that Python has let go while a graph lives: the graph keeps them, with all that was noted."""

import gc
import threading
import weakref

import pytest

import torchlike as torch
from torchlike import nn


class Noted(torch.Tensor):
    """A class of the user's."""


def leaf(kind=nn.Parameter):
    made = nn.Parameter(torch.ones(3))
    if kind is not nn.Parameter:
        made = made.detach().as_subclass(kind).requires_grad_()
    made.tag = ["noted"]
    return made


def place(y):
    node = y.grad_fn
    while node.next_functions:
        node = node.next_functions[0][0]
    return node


@pytest.mark.parametrize("kind", [nn.Parameter, Noted, torch.Tensor])
def test_a_graph_gives_back_the_object_that_was_a_leaf(kind):
    w = leaf(kind)
    seen, who = weakref.ref(w), id(w)
    y = (w * 2).sum()
    del w
    for _ in range(3):
        v = place(y).variable
        assert (type(v), v.tag, id(v)) == (kind, ["noted"], who)
        assert v is seen()
        del v
        gc.collect()


def test_a_plain_leaf_that_nobody_noted_is_made_again():
    w = torch.ones(3, requires_grad=True)
    y = (w * 2).sum()
    del w
    v = place(y).variable
    y.backward()
    assert v.grad.tolist() == [2, 2, 2]


def test_weak_references_end_with_the_graph():
    gone = []
    w = leaf()
    seen = weakref.ref(w, lambda _: gone.append(True))
    first, second = (w * 2).sum(), (w * 3).sum()
    del w
    assert not gone
    del first
    assert seen() is not None
    del second
    assert gone == [True]
    assert seen() is None


def test_a_leaf_that_is_found_again_outlives_its_graph():
    w = leaf()
    seen = weakref.ref(w)
    y = (w * 2).sum()
    del w
    v = seen()
    assert torch.autograd.grad(y, v, retain_graph=True)[0].tolist() == [2, 2, 2]
    y.backward()
    del y
    assert v.grad.tolist() == [2, 2, 2]
    z = (v * 3).sum()
    del v
    z.backward()
    assert place(z).variable.grad.tolist() == [5, 5, 5]
    del z
    assert seen() is None


def test_hooks_and_gradients_stay():
    told = []
    w = leaf()
    w.register_post_accumulate_grad_hook(lambda p: told.append((p.tag, type(p), p.grad.tolist())))
    w.register_hook(lambda g: g * 2)
    (w * 3).sum().backward()
    w.grad.tag = "gradient"
    y = (w * 2).sum()
    del w
    y.backward()
    assert told == [(["noted"], nn.Parameter, [n] * 3) for n in (6, 10)]
    assert place(y).variable.grad.tag == "gradient"


@pytest.mark.parametrize("by_node", [True, False])
@pytest.mark.parametrize(
    ("write", "values"),
    [
        (lambda w: w.add_(1), [2, 2, 2]),
        (lambda w: setattr(w, "data", torch.zeros(3)), [0, 0, 0]),
        (lambda w: w.set_(torch.zeros(3)), [0, 0, 0]),
        (lambda w: w.requires_grad_(False), [1, 1, 1]),
    ],
)
def test_an_object_that_a_graph_keeps_can_be_written(write, values, by_node):
    w = leaf()
    seen = weakref.ref(w)
    y = (w + 2).sum()
    del w
    with torch.no_grad():
        write(place(y).variable if by_node else seen())
    assert place(y).variable.tolist() == values
    assert place(y).variable is seen()
    y.backward()
    del y
    assert seen() is None


def test_what_refers_to_itself_is_collected_after_its_graph():
    w = leaf()
    w.me, seen = w, weakref.ref(w)
    w.register_hook(lambda g, w=w: None)
    y = (w * 2).sum()
    del w
    gc.collect()
    assert place(y).variable.me is seen()
    del y
    gc.collect()
    assert seen() is None


def test_nothing_is_left_of_many():
    def go():
        w = leaf()
        seen, y = weakref.ref(w), (w * 2).sum()
        z = (w * 3).sum()
        del w
        y.backward()
        del y
        assert seen().grad.tolist() == [2, 2, 2]
        waiting.append(z)
        if len(waiting) > 20:
            waiting.pop(0)
        found.append(seen)

    waiting, found = [], []
    threads = [threading.Thread(target=lambda: [go() for _ in range(250)]) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 1000
    waiting.clear()
    assert not any(seen() is not None for seen in found)


def test_another_thread_may_let_the_graph_go():
    w = leaf()
    seen, box = weakref.ref(w), [(w * 2).sum()]
    del w
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert seen() is None

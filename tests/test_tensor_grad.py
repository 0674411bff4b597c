"""What belongs to one tensor alone: its gradient."""

import copy
import gc
import io
import pickle
import weakref

import pytest

import torchlike as torch


def with_grad(*shape):
    t = torch.ones(*shape, requires_grad=True)
    t.grad = torch.full(shape, 2.0)
    return t


def test_a_gradient_is_one_object_outside_of_the_dict():
    t = with_grad(2)
    assert t.grad is t.grad
    assert t.__dict__ == {}
    t.grad.mark = 1
    assert t.grad.mark == 1
    t.grad.zero_()
    assert t.grad.tolist() == [0.0, 0.0]
    del t.grad
    assert t.grad is None


def test_views_and_results_have_none():
    t = with_grad(2, 3)
    for made in (t.detach(), t.data):
        assert made.grad is None
    for made in (t.view(6), t[0], t + 1, t.clone(), t.T):
        with pytest.warns(UserWarning, match="not a leaf"):
            assert made.grad is None
    assert t.reshape(2, 3) is not t


def test_it_stays_when_contents_change():
    t = with_grad(2)
    grad = t.grad
    t.data = torch.zeros(3)
    assert t.grad is grad
    with torch.no_grad():
        t.set_(torch.zeros(2))
    assert t.grad is grad
    t.requires_grad_(False)
    assert t.grad is grad
    t.unsqueeze_(0)
    assert t.grad is grad


def test_swapped_tensors_swap_it():
    a, b = with_grad(2), torch.ones(3)
    grad = a.grad
    torch.utils.swap_tensors(a, b)
    assert a.grad is None and b.grad is grad


def test_copies_and_files():
    t = with_grad(2)
    made = copy.deepcopy(t)
    assert made.grad is not t.grad and made.grad.tolist() == [2.0, 2.0]
    assert pickle.loads(pickle.dumps(t)).grad is None
    file = io.BytesIO()
    torch.save(t, file)
    file.seek(0)
    assert torch.load(file).grad is None


def test_what_does_not_fit_is_refused():
    t = torch.ones(2)
    with pytest.raises(TypeError, match="expected to be a Tensor or None"):
        t.grad = 1
    with pytest.raises(RuntimeError, match="gradient of size"):
        t.grad = torch.ones(3)
    assert t.grad is None


def test_cycles_are_collected():
    class Marked(torch.Tensor):
        pass

    t = torch.ones(2).as_subclass(Marked)
    t.grad = torch.ones(2)
    t.grad.owner = t
    gone = weakref.ref(t)
    del t
    gc.collect()
    assert gone() is None


def _by_attribute():
    t = torch.ones(2)
    t.kept = [t]
    return t


def _by_its_class():
    class Own(torch.Tensor):
        pass

    Own.first = torch.ones(2).as_subclass(Own)
    return Own


def _by_a_view():
    t = torch.ones(2)
    t.part = t[:1]
    return t


def _by_a_fake_one():
    from torchlike._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        t = torch.ones(2)
    t.kept = [t]
    return t


def _by_a_hook():
    t = torch.ones(2, requires_grad=True) * 2
    t.register_hook(lambda grad, kept=[t]: grad)
    return t


@pytest.mark.parametrize(
    "make", [_by_attribute, _by_its_class, _by_a_view, _by_a_fake_one, _by_a_hook]
)
def test_what_holds_itself_is_collected(make):
    gone = weakref.ref(make())
    gc.collect()
    assert gone() is None


def test_data_that_was_written_with_history_stays_a_leaf():
    # As adapters merge: the frozen parameter gets its own data back.
    p = torch.nn.Parameter(torch.ones(2, 3), requires_grad=False)
    w = torch.ones(2, 1, requires_grad=True)
    d = p.data
    d[:, :1] = w * 2
    p.data = d
    assert p.is_leaf and not p.requires_grad and p.grad_fn is None
    assert p.tolist() == [[2, 1, 1], [2, 1, 1]]

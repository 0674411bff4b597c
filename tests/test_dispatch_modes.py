"""What dispatch modes do to gradients: nothing."""

import contextlib

import numpy as np
import pytest

import torchlike as torch
from torchlike.utils._python_dispatch import TorchDispatchMode


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.repeat_interleave(2, 1),
        lambda x: x.tile(2),
        lambda x: torch.outer(x[0], x[1]),
        lambda x: torch.stack([x, x]).flatten(),
        lambda x: torch.cat([p.sigmoid_() for p in torch.unsafe_split(x * 1, 1, 1)]),
    ],
)
def test_composites_keep_their_history(f):
    x = torch.rand(2, 3, requires_grad=True)
    (plain,) = torch.autograd.grad(f(x).pow(2).sum(), x)
    with Passing():
        (seen,) = torch.autograd.grad(f(x).pow(2).sum(), x)
    assert torch.equal(plain, seen)


def test_functions_that_write_if_asked_are_operators_too():
    x = torch.rand(3) - 0.5
    want = torch.nn.functional.silu(x)
    with Passing():
        assert torch.nn.functional.silu(x, inplace=True) is x
    assert torch.equal(x, want)


def test_grouped_heads_come_down_to_products():
    from torchlike.utils.flop_counter import FlopCounterMode

    q, k = torch.rand(1, 4, 5, 8, device="meta"), torch.rand(1, 2, 5, 8, device="meta")
    with FlopCounterMode(display=False) as counter:
        torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    assert counter.get_total_flops() == 2 * (2 * 4 * 5 * 5 * 8)


def test_results_of_one_integer_each_are_tensors():
    with Passing():
        made = torch.meshgrid(torch.tensor(3), indexing="ij")
    assert isinstance(made[0], torch.Tensor) and made[0].tolist() == [3]


def test_what_is_detached_has_no_history():
    x = torch.ones(2, requires_grad=True)
    with Passing():
        for made in (x.detach(), x.data, (x * 2).detach(), torch.ops.aten.detach(x)):
            assert made is not x and not made.requires_grad and made.grad_fn is None
        (x * x.detach()).sum().backward()
        kept = torch.ops.aten.alias(x)
        assert kept is not x and kept.requires_grad and kept._is_view()
    assert x.grad.tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:To copy construct")
def test_values_of_tensors_are_copied_without_history():
    x = torch.ones(2, requires_grad=True)
    for make in (torch.tensor, x.new_tensor):
        for mode in (Passing(), contextlib.nullcontext()):
            with mode:
                made = make(x), make(x * 2), make(x, dtype=torch.float64)
                assert not any(t.requires_grad for t in made)
                assert make(x, requires_grad=True).is_leaf
    assert torch.Tensor(x).requires_grad


def test_numbers_are_given_to_numpy_where_nothing_is_recorded():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert x.numpy().tolist() == [1, 1] and np.asarray(x).sum() == 2
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        x.numpy()


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("name", ["mul.Scalar", "mul.Tensor", "div.Scalar", "sub.Scalar"])
def test_a_recorded_call_is_shown_as_the_overload_that_was_asked_for(name, asks):
    packet, form = name.split(".")
    overload = getattr(getattr(torch.ops.aten, packet), form)
    seen = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.rand(2, requires_grad=asks)
    with Names():
        y = overload(x, 2.0)
        x * 2.0
    assert seen == [overload, torch.ops.aten.mul.Tensor]
    assert y.requires_grad == asks


def test_the_old_spelling_of_a_mode():
    with pytest.warns(UserWarning, match="no longer necessary"):
        mode = Passing.push()
    with mode:
        assert torch.ones(2).sum() == 2

"""Rows that change lists of tensors: one call is the operations one by one, wherever the tensors lie."""

from __future__ import annotations

import pytest

import torchlike as torch
from test_optim import Passes, each, make, plain, push, steps
from torchlike import nn, optim
from torchlike.utils.counter import Counter


@each
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64]
)
def test_one_call_is_the_operations_one_by_one(name, options, dtype):
    ends = []
    for mode in (torch.no_grad(), Passes()):
        ps = make((3, 4), (5,), (), (0, 2), dtype=dtype)
        o = getattr(optim, name)(ps, lr=0.05, **options)
        with mode:
            steps(o, ps, 4)
        ends.append(plain([ps, o.state_dict()]))
    assert repr(ends[0]) == repr(ends[1])


@each
def test_a_group_is_one_call(name, options):
    counts = []
    for n in (2, 20):
        ps = make(*[(3,)] * n)
        o = getattr(optim, name)(ps, **options)
        steps(o, ps, 2)
        push(ps, 3)
        with Counter() as counter:
            o.step()
        counts.append(counter.total.calls)
    assert counts[0] == counts[1] <= 3


@each
def test_steps_do_not_depend_on_how_tensors_lie(name, options):
    want = make((4, 3), (2, 3, 2, 2))
    o = getattr(optim, name)(want, **options)
    steps(o, want, 3)
    rows = make((4, 3), (2, 3, 2, 2))
    across = torch.empty(3, 4).T.copy_(rows[0].detach())
    gaps = torch.empty(2, 3, 2, 2, 2)[..., 0].copy_(rows[1].detach())
    got = [nn.Parameter(across), nn.Parameter(gaps)]
    o = getattr(optim, name)(got, **options)
    for k in range(1, 4):
        push(got, k)
        got[1].grad = got[1].grad.contiguous(memory_format=torch.channels_last)
        o.step()
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert got[0].stride() == (1, 4) and got[1].stride()[-1] == 2


def test_parameters_may_share_a_storage_and_even_elements():
    flat = torch.zeros(6)
    ps = [nn.Parameter(flat[:3]), nn.Parameter(flat[3:])]
    o = optim.SGD(ps, lr=1.0)
    push(ps, 1)
    o.step()
    assert torch.equal(flat, -torch.cat([p.grad for p in ps]))
    x = torch.zeros(3)
    torch._optim.sgd(
        [x, x], [torch.ones(3), x], [], weight_decay=0.0, momentum=0.0, lr=1.0, dampening=0.0,
        nesterov=False, maximize=False, is_first_step=False,
    )  # fmt: skip
    assert x.tolist() == [0.0] * 3  # -1, and then minus itself
    with pytest.raises(RuntimeError, match="single memory location"):
        torch._optim.adadelta(
            [x], [torch.ones(3)], [x], [torch.ones(3)],
            lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0, maximize=False,
        )  # fmt: skip


def test_many_elements_are_shared_out():
    ps = [nn.Parameter(torch.linspace(-1, 1, n)) for n in (200_003, 5, 70_001)]
    qs = [nn.Parameter(p.detach().clone()) for p in ps]
    a, b = optim.AdamW(ps, lr=0.1), optim.AdamW(qs, lr=0.1)
    for _ in range(2):
        for p, q in zip(ps, qs, strict=True):
            p.grad, q.grad = p.detach() ** 2, q.detach() ** 2
        a.step()
        with Passes():
            b.step()
    assert all(torch.equal(p, q) for p, q in zip(ps, qs, strict=True))


def test_fused_rows_scale_and_skip():
    p, g = torch.ones(3), torch.full((3,), 4.0)
    options = {
        "weight_decay": 0.0, "momentum": 0.0, "lr": 0.5, "dampening": 0.0, "nesterov": False, "maximize": False,
        "is_first_step": False,
    }  # fmt: skip
    torch._fused_sgd_([p], [g], [], **options, found_inf=torch.tensor(1.0))
    assert p.tolist() == [1.0] * 3
    torch._fused_sgd_([p], [g], [], **options, grad_scale=torch.tensor(2.0))
    assert (p.tolist(), g.tolist()) == ([0.0] * 3, [2.0] * 3)
    o = optim.Adam([q := nn.Parameter(torch.ones(2))], fused=True)
    o.grad_scale, o.found_inf = torch.tensor(2.0), torch.tensor(1.0)
    q.grad = torch.ones(2)
    o.step()
    assert o.state[q]["step"] == 0.0 and q.tolist() == [1.0, 1.0]
    with pytest.raises(AssertionError, match="Expected grad_scale"):
        optim.adam.adam([], [], [], [], [], [], found_inf=torch.tensor(1.0), amsgrad=False, beta1=0.9,
                        beta2=0.9, lr=0.1, weight_decay=0.0, eps=1e-8, maximize=False)  # fmt: skip


def test_lists_have_to_fit():
    options = {"lr": 0.1, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0, "maximize": False}
    x = [torch.ones(2)]
    for lists, text in [
        ((x, [], x, x), "same number of tensors, got 1 and 0"),
        ((x, x, [torch.ones(3)], x), "of its shape and type"),
        (([torch.ones(2, dtype=torch.int64)],) * 4, "floating point"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            torch._optim.adadelta(*lists, **options)
    tracked = [torch.ones(2, requires_grad=True) * 1]
    with pytest.raises(NotImplementedError, match="derivative for 'adadelta'"):
        torch._optim.adadelta(tracked, x, [torch.ones(2)], [torch.ones(2)], **options)
    torch._optim.count_up([c := torch.tensor(3.0)])
    torch._optim.multiply_up([c], [torch.tensor(1.0)], beta1=0.5, momentum_decay=0.0)
    assert c == 4.0 * 0.5 * 0.5


def test_lists_of_tensors():
    """The `_foreach_` functions are the operators of their names."""
    xs = [torch.tensor([1.0, 4.0]), torch.tensor([[9.0]])]
    ys = [x / 2 for x in xs]
    want = {
        "_foreach_sqrt": ((), [x.sqrt() for x in xs]),
        "_foreach_add": ((ys,), [x + y for x, y in zip(xs, ys, strict=True)]),
        "_foreach_mul": (([2.0, 3.0],), [xs[0] * 2, xs[1] * 3]),
        "_foreach_maximum": ((2.0,), [x.clamp_min(2.0) for x in xs]),
        "_foreach_addcmul": ((ys, ys, 2.0), [x + 2 * y * y for x, y in zip(xs, ys, strict=True)]),
        "_foreach_lerp": ((ys, 0.25), [x.lerp(y, 0.25) for x, y in zip(xs, ys, strict=True)]),
    }
    for name, (args, expected) in want.items():
        made = getattr(torch, name)(xs, *args)
        assert isinstance(made, tuple) and all(
            torch.equal(a, b) for a, b in zip(made, expected, strict=True)
        )
        own = [x.clone() for x in xs]
        getattr(torch, name + "_")(own, *args)
        assert all(torch.equal(a, b) for a, b in zip(own, expected, strict=True))
    torch._foreach_copy_(own := [x.clone() for x in xs], ys)
    assert torch.equal(own[0], ys[0])
    torch._foreach_zero_(own)
    assert own[1].item() == 0.0
    assert [round(n.item() ** 2) for n in torch._foreach_norm(xs)] == [17, 81]
    assert [n.item() for n in torch._foreach_max(xs)] == [4.0, 9.0]
    assert torch._foreach_pow(2.0, [torch.tensor(3.0)])[0] == 8.0
    assert torch._foreach_mm([xs[1]], [xs[1]])[0].item() == 81.0
    assert torch._foreach_powsum([xs[0]])[0].item() == 17.0
    for args, text in [
        (([], 1), "at least one tensor"),
        ((xs, ys[:1]), "same number of tensors, got 2 and 1"),
        ((xs, [1.0]), "same number of elements as scalar list"),
        ((xs, torch.ones(2)), "0 dim but it has 1 dimensions and 2 elements"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            torch._foreach_add(*args)

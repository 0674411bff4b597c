"""The door: every call passes it: a counter sees every leaf, versions move, and what may not be written is refused."""

from __future__ import annotations

import re

import pytest

import test_ops as recorded
import torchlike as torch
from torchlike import _C, nn
from torchlike.utils.counter import Counter

VIEWS = {name.partition("#")[0] for name, kind in _C._op_kinds() if kind == "view"}
COMPOSITES = {name for name, kind in _C._op_kinds() if kind == "composite"}


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors(v)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_no_result_is_a_new_alias_unless_a_view_was_seen(device):
    """A composite that makes a view by hand shows here: its result lies in an argument's memory, and nobody saw why."""
    for sample in recorded.SAMPLES:
        args = [recorded.decode(a, device) for a in sample["args"]]
        kwargs = {k: recorded.decode(v, device) for k, v in sample["kwargs"].items()}
        given = list(tensors([args, kwargs]))
        storages = {t.untyped_storage()._cdata for t in given}
        with Counter() as seen:
            try:
                result = recorded.call(sample, device, args, kwargs)
            except (NotImplementedError, RuntimeError):
                assert device == "meta", "what depends on values is refused on meta alone"
                continue
        for t in tensors(result):
            alias = t.untyped_storage()._cdata in storages and not any(t is g for g in given)
            views = {name.partition("#")[0] for name in seen.counts} & VIEWS
            assert not alias or views, (sample["call"], dict(seen.counts))
        assert not COMPOSITES & set(seen.counts), "composites are seen by their leaves"


def test_a_counter_sees_leaves_flops_and_bytes():
    x, w = torch.empty(8, 16, device="meta"), torch.empty(4, 16, device="meta")
    with Counter() as outer:
        with Counter() as inner:
            x @ w.t()
        nn.functional.relu(x)
    assert inner["mm"].flops == 2 * 8 * 16 * 4
    assert inner["mm"].bytes == 8 * 4 * 4
    assert inner["t"].calls == 1 and inner["t"].bytes == 0
    assert "relu" not in inner.counts and outer["relu"].calls == 1
    assert outer.total.calls == inner.total.calls + 1
    assert "relu" in str(outer)


IN_PLACE = {
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "squeeze_": lambda x: x.squeeze_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "t_": lambda x: x.t_(),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "add_": lambda x: x.add_(1),
    "add_ of another dtype": lambda x: x.add_(
        torch.ones(3, 3, dtype=torch.float64, device=x.device)
    ),
    "add_ of itself": lambda x: x.add_(x),
    "copy_": lambda x: x.copy_(torch.ones(3, 3, device=x.device)),
    "fill_": lambda x: x.fill_(2.0),
    "zero_": lambda x: x.zero_(),
    "index": lambda x: x.__setitem__(0, 1.0),
    "mask": lambda x: x.__setitem__(torch.eye(3, device="cpu").bool(), 1.0),
    "addmm_": lambda x: x.addmm_(x, x),
    "out=": lambda x: torch.exp(torch.ones(3, 3, device=x.device), out=x),
    "out= of a composite": lambda x: torch.vstack([x[:1].clone(), x[:2].clone()], out=x),
    "uniform_": lambda x: x.uniform_(),
    "clamp_": lambda x: x.clamp_(0, 1),
    "resize_": lambda x: x.resize_(2, 2),
    "resize_as_": lambda x: x.resize_as_(torch.ones(2, device=x.device)),
    "set_": lambda x: x.set_(),
    "set_ of a tensor": lambda x: x.set_(torch.ones(2, device=x.device)),
    "as_strided_": lambda x: x.as_strided_((2,), (1,)),
    "swapdims_": lambda x: x.swapdims_(0, 1),
    "squeeze_ of a dimension": lambda x: x.squeeze_(0),
    "squeeze_ of several": lambda x: x.squeeze_((0, 1)),
    "slice": lambda x: x.__setitem__(slice(1, None), torch.zeros(3, device=x.device)),
    "element": lambda x: x.__setitem__((0, 0), torch.tensor(1.0, device=x.device)),
    "list": lambda x: x.__setitem__([0], 1.0),
    "ellipsis": lambda x: x.__setitem__(..., 1.0),
    "nothing": lambda x: x.__setitem__(slice(1, 1), 1.0),
    "view": lambda x: x[0].fill_(2),
    "detached": lambda x: x.detach().fill_(1),
    "operator": lambda x: x.__iadd__(1),
    "power": lambda x: x.__ipow__(2),
    "scatter_": lambda x: x.scatter_(0, torch.zeros(1, 3, dtype=torch.int64, device=x.device), 1.0),
    "index_add_": lambda x: x.index_add_(
        0, torch.zeros(1, dtype=torch.int64, device=x.device), x[:1].clone()
    ),
    "masked_fill_": lambda x: x.masked_fill_(
        torch.ones(3, 3, dtype=torch.bool, device=x.device), 1.0
    ),
    "inplace=": lambda x: nn.functional.relu(x, inplace=True),
    "out= of another dtype": lambda x: torch.add(
        torch.ones(3, 3, dtype=torch.float64, device=x.device), 1, out=x
    ),
    "out= of a factory": lambda x: torch.eye(3, out=x),
}

NOT_COUNTED = {
    "resize_ to the same": lambda x: x.resize_(3, 3),
    "resize_as_ itself": lambda x: x.resize_as_(x),
    "detach_": lambda x: x.detach_(),
    "requires_grad_": lambda x: x.requires_grad_(),
    "data": lambda x: x.data,
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", NOT_COUNTED)
def test_what_writes_nothing_does_not_count(name, device):
    x = torch.ones(3, 3, device=device)
    NOT_COUNTED[name](x)
    assert x._version == 0


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_every_write_counts_once(name, device):
    x = torch.ones(3, 3, device=device)
    if name == "mask" and device == "meta":
        pytest.skip("what is written depends on values")
    before = x._version
    IN_PLACE[name](x)
    assert x._version == before + 1


def test_every_in_place_form_of_the_table_moves_the_version():
    """Forms of one tensor that take nothing else."""
    checked = 0
    for name, schema, forms, _ in _C._op_table():
        path = name.partition("#")[0]
        if (
            not forms & 4
            or "." in path
            or schema.count(",")
            or "Tensor self" not in schema
            or path == "detach"
        ):
            continue
        for x in (
            torch.full((2, 2), 0.5),
            torch.ones(2, 2, dtype=torch.int64),
            torch.ones(2, 2, dtype=torch.bool),
        ):
            before = x._version
            try:
                getattr(x, path + "_")()
            except (RuntimeError, NotImplementedError, TypeError):
                continue
            assert x._version == before + 1, path
            checked += 1
            break
    assert checked >= 40


LEAF = re.escape("a leaf Variable that requires grad is being used in an in-place operation.")
VIEW = re.escape(
    "a view of a leaf Variable that requires grad is being used in an in-place operation."
)


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda p: p.squeeze_(), LEAF),
        (lambda p: p.unsqueeze_(0), LEAF),
        (lambda p: p.t_(), LEAF),
        (lambda p: p.add_(1), LEAF),
        (lambda p: p.set_(), LEAF),
        (lambda p: p.resize_(5), "cannot resize variables that require grad"),
        (lambda p: p.__setitem__(0, 1.0), VIEW),
        (lambda p: p[0].fill_(1), VIEW),
        (lambda p: p.view(-1).zero_(), VIEW),
        (lambda p: torch.exp(torch.ones(1, 3), out=p), "don't support automatic differentiation"),
    ],
)
def test_leaves_that_require_gradients_are_not_written(write, text):
    p = nn.Parameter(torch.zeros(1, 3))
    before = p._version
    with pytest.raises(RuntimeError, match=text):
        write(p)
    assert p._version == before and p.shape == (1, 3)
    with torch.no_grad():
        p[0] = 1.0
        p.unsqueeze_(0)
    assert p.shape == (1, 1, 3) and p.requires_grad
    p.data.fill_(3)
    p.detach().mul_(2)
    assert p.tolist() == [[[6.0, 6.0, 6.0]]]


def test_a_storage_that_shrank_is_an_error_wherever_a_view_is_used():
    for uses in (
        lambda z: z + 1,
        lambda z: z.sum(),
        lambda z: z.tolist(),
        lambda z: repr(z),
        lambda z: z.numpy(),
        lambda z: z.__dlpack__(),
        lambda z: z[0],
        lambda z: z.fill_(1),
        lambda z: z[0].item(),
        lambda z: torch.cat([z, z]),
        lambda z: torch.ones(8).copy_(z),
        lambda z: torch.add(torch.ones(8), 1, out=z),
        lambda z: z.clone(),
        lambda z: z.to(torch.float64),
        lambda z: z.contiguous().view(2, 4),
    ):
        y = torch.zeros(10)
        z = y[2:]
        y.untyped_storage().resize_(0)
        with pytest.raises(
            (RuntimeError, NotImplementedError), match="out of bounds for storage of size 0"
        ):
            uses(z)
        y.untyped_storage().resize_(40)
        assert z.shape == (8,) and (z.zero_() + 1).tolist() == [1.0] * 8


def test_what_has_no_gradient_is_written_for_arguments_that_want_one():
    p = nn.Parameter(torch.tensor([1.0, 0.0, 2.0]))
    truth = torch.zeros(3, dtype=torch.bool)
    assert torch.logical_and(p, p, out=truth) is truth and truth.tolist() == [True, False, True]
    for call in (torch.eq, torch.ge):
        assert call(p, p, out=truth).tolist() == [True] * 3
    assert torch.any(p, 0, out=torch.tensor(False))
    assert torch.argmax(p, out=torch.tensor(0)) == 2
    counts = torch.histc(p, 2, out=torch.zeros(2))
    assert counts.tolist() == [1, 2] and not counts.requires_grad
    leaf, out = nn.Parameter(torch.zeros(3)), torch.zeros(3)
    assert torch.equal(torch.special.bessel_j0(p, out=out), torch.special.bessel_j0(p))
    with pytest.raises(RuntimeError, match=r"^aten::ones\(\): functions with out="):
        torch.ones(3, out=leaf)
    with pytest.raises(RuntimeError, match=r"^add\(\): functions with out="):
        torch.add(p, p, out=torch.zeros(3))

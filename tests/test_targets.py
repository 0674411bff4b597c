"""Where results may be written: memory shared with operands, and how what is made larger lies."""

import warnings

import pytest

import torchlike as torch

SHARED = "refer to a single memory location"
LONG = torch.int64


def line():
    return torch.arange(6.0)


@pytest.mark.parametrize("name", ["add", "mul", "hypot", "atan2", "copysign"])
def test_pointwise_targets_lie_as_an_operand_or_apart(name):
    x, op = line(), getattr(torch, name)
    with pytest.raises(RuntimeError, match=SHARED):
        op(x[:-1], x[1:], out=x[1:])
    with pytest.raises(RuntimeError, match=SHARED):
        getattr(x[1:], name + "_")(x[:-1])
    want = op(x, 2 * x)
    assert torch.equal(op(x, 2 * x, out=x), want)
    x = line()
    want = op(x[::2], x[1::2])
    assert torch.equal(op(x[::2], x[1::2], out=x[::2]), want)  # between each other


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_has_no_elements_may_lie_anyhow(device):
    x = torch.zeros((), device=device).expand(0, 2)
    assert x.stride() == (0, 0)
    x[torch.ones(0, 2, dtype=torch.bool)] = 1.0
    assert x.add_(1).copy_(torch.zeros(0, 2)).cumsum_(0).uniform_().shape == (0, 2)
    x = torch.zeros((), device=device).expand(1, 2)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.add_(1)


def test_meta_says_the_same():
    x = line().to("meta")
    with pytest.raises(RuntimeError, match=SHARED):
        x[1:].add_(x[:-1])
    assert x[:3].add_(x[3:]).shape == (3,)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: torch.gather(x, 0, i, out=x),
        lambda x, i: torch.take(x, i, out=x[:2]),
        lambda x, i: torch.index_select(x, 0, i, out=x),
        lambda x, i: torch.masked_select(x, x > 1, out=x),
        lambda x, i: torch.cat([x[:3], x[3:]], out=x),
        lambda x, i: torch.stack([x, x], out=x),
        lambda x, i: torch.hstack([x, x], out=x),
        lambda x, i: torch.kthvalue(x, 1, out=(x[:1], torch.empty(1, dtype=LONG))),
        lambda x, i: torch.topk(x, 2, out=(x[:2], torch.empty(2, dtype=LONG))),
        lambda x, i: torch.max(x, 0, out=(x[0], torch.empty((), dtype=LONG))),
        lambda x, i: torch.outer(x[:2], x[:3], out=x.view(2, 3)),
        lambda x, i: x.index_copy_(0, i, x[2:4]),
        lambda x, i: x.index_add_(0, i, x[2:4]),
        lambda x, i: x.scatter_(0, i, x[2:4]),
        lambda x, i: x.index_put_((i,), x[2:4]),
        lambda x, i: x.put_(i, x[2:4]),
        lambda x, i: x.add_(x[0]),
    ],
)
def test_other_targets_lie_apart(call):
    x = line()
    with pytest.raises(RuntimeError, match=SHARED):
        call(x, torch.tensor([1, 0]))


def test_what_is_changed_may_be_the_target():
    x, i = line(), torch.tensor([1, 0])
    want = torch.scatter(x, 0, i, 7.0)
    assert torch.equal(torch.scatter(x, 0, i, 7.0, out=x), want)
    want = torch.cumsum(x, 0)
    assert torch.equal(torch.cumsum(x, 0, out=x), want)


@pytest.mark.parametrize(
    "call",
    [
        lambda out: torch.geqrf(torch.eye(3), out=(out, torch.empty(0)))[0],
        lambda out: torch.ormqr(torch.eye(3), torch.ones(3), torch.eye(3), out=out),
        lambda out: torch.cholesky_inverse(torch.eye(3), out=out),
        lambda out: torch.linalg.householder_product(torch.eye(3), torch.ones(3), out=out),
        lambda out: torch.linalg.matrix_power(torch.eye(3), -1, out=out),
    ],
)
def test_decompositions_fill_what_was_empty_by_columns(call):
    assert call(torch.empty(0)).stride() == (1, 3)
    with pytest.warns(UserWarning, match="was resized since it had shape"):
        assert call(torch.empty(2)).stride() == (3, 1)


def test_addbmm_and_narrow_copy_resize_silently():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = torch.ones(1, 2, 2)
        assert torch.addbmm(torch.ones(2, 2), batch, batch, out=torch.ones(5)).shape == (2, 2)
        assert torch.narrow_copy(line(), 0, 0, 2, out=torch.ones(5)).shape == (2,)


def test_nodes_are_called_as_pytorchs():
    x = torch.ones((), requires_grad=True)
    assert x.movedim([], []).grad_fn.name() == "AliasBackward0"
    assert torch.polygamma(0, x).grad_fn.name() == "PolygammaBackward0"
    x = torch.ones(2, 2, requires_grad=True)
    assert x.movedim([], []).grad_fn.name() == "PermuteBackward0"
    assert x.to_sparse().grad_fn.name() == "ToSparseBackward1"
    assert x.to_sparse(1).grad_fn.name() == "ToSparseBackward0"
    assert x.to_sparse_csr().grad_fn.name() == "ToSparseCsrBackward0"


def test_gradients_of_reflections_lie_as_they_do():
    a = torch.rand(3, 4).mT.requires_grad_()
    t, c = torch.rand(3), torch.rand(4, 2)
    torch.ormqr(a, t, c).sum().backward()
    assert a.grad.stride() == (1, 4)


def test_values_recorded_from_pytorch():
    image = (torch.arange(32) * 37 % 251).to(torch.uint8).view(1, 2, 4, 4)
    got = torch.nn.functional.interpolate(image, (5, 3), mode="bicubic")
    assert got[0, 0].tolist() == [
        [0, 46, 110],
        [123, 193, 45],
        [101, 178, 99],
        [81, 93, 133],
        [211, 124, 38],
    ]
    counts = torch.histc(torch.linspace(-4, 4, 23).bfloat16(), 16, -5, 3)
    assert counts.tolist() == [0, 0, 2, 1, 2, 1, 1, 2, 1, 1, 2, 1, 2, 1, 1, 2]
    gamma = torch.mvlgamma(torch.tensor([1.3, 2.0, 4.0, 8.0, 2.6]).bfloat16(), 3)
    assert gamma.tolist() == [2.875, 1.6015625, 5.40625, 24.375, 2.0]
    assert torch.angle(torch.ones(2, 3, 4, dtype=torch.complex64).permute(2, 0, 1)).is_contiguous()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_indices_are_not_written_over(device):
    def i():
        return torch.tensor([2, 1, 0], device=device)

    calls = (
        lambda x: x.index_add_(0, x, i()),
        lambda x: x.index_add_(0, i(), x),
        lambda x: x.index_copy_(0, x, i()),
        lambda x: x.index_fill_(0, x, 0),
        lambda x: x.index_put_((x,), i()),
        lambda x: x.scatter_(0, x, i()),
        lambda x: x.scatter_add_(0, i(), x),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match=SHARED):
            call(i())
    x = torch.ones(2, device=device)
    assert x.add_(x).mul_(x).shape == (2,)


def test_truth_is_written_as_bytes_too():
    t = torch.tensor([[0.0, 2.0], [1.0, 3.0]])
    assert torch.all(t, 0, out=torch.empty(0, dtype=torch.uint8)).tolist() == [0, 1]
    assert torch.any(t, out=torch.empty((), dtype=torch.uint8)).tolist() == 1
    bits = torch.tensor([3, 0], dtype=torch.uint8)
    assert torch.any(bits, 0, out=torch.empty((), dtype=torch.bool)).tolist() is True


@pytest.mark.parametrize(
    ("dim", "strides"),
    [(0, (120, 60, 1, 15, 3)), (1, (120, 3, 1, 30, 6)), (3, (120, 1, 30, 15, 3)), (4, None)],
)
def test_a_stack_lies_as_what_is_joined_along_the_dimension(dim, strides):
    t = torch.arange(120.0).view(2, 3, 4, 5).to(memory_format=torch.channels_last)
    made = torch.stack([t, -t], dim)
    assert made.stride() == (strides or (120, 40, 10, 2, 1))
    assert made.select(dim, 0).equal(t)
    assert made.select(dim, 1).equal(-t)


def test_a_strided_scatter_into_one_element_writes_a_copy():
    t = torch.ones(6)[:1].expand(6)
    assert t.as_strided_scatter(torch.full((2,), 5.0), (2,), (1,), 0).tolist() == [5, 5, 1, 1, 1, 1]

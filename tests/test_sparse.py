"""Sparse tensors of all layouts beside the strided ones that they stand for."""

from __future__ import annotations

import pytest

import torchlike as torch
from torchlike import _C

LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]


def matrix(rows=4, columns=6, dtype=torch.float64):
    """A matrix a third of whose elements are not zero."""
    t = torch.arange(1.0, rows * columns + 1, dtype=torch.float64).reshape(rows, columns)
    return torch.where(t % 3 == 1, t - 9.5, 0.0).to(dtype)


def sparse(t, layout="sparse_coo"):
    block = (2, 3) if "b" in layout.removeprefix("sparse_") else None
    return t.to_sparse(layout=getattr(torch, layout), blocksize=block)


def uncoalesced():
    indices = torch.tensor([[0, 1, 1, 0], [2, 0, 0, 1]])
    return torch.sparse_coo_tensor(indices, torch.tensor([3.0, 4, 5, 6]), (2, 3))


def same(got, want):
    got = got.to_dense() if got.layout != torch.strided else got
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128, torch.int64, torch.bool])
def test_layouts_are_made_and_made_strided(layout, dtype):
    t = matrix().to(dtype)
    s = sparse(t, layout)
    assert (s.layout, s.dtype, s.shape) == (getattr(torch, layout), dtype, t.shape)
    assert torch.equal(s.to_dense(), t)
    for other in LAYOUTS:
        assert torch.equal(sparse(s, other).to_dense(), t), other
    if dtype == torch.float32:
        assert s.to_dense(dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_batches_of_matrices_are_compressed(layout):
    t = torch.stack([matrix(), matrix() * 2])
    s = sparse(t, layout)
    assert torch.equal(s.to_dense(), t) and torch.equal(s.to_sparse().to_dense(), t)
    t[0, 0, 0] = 0
    if "b" not in layout.removeprefix("sparse_"):
        with pytest.raises(RuntimeError, match="same number of specified elements per batch"):
            sparse(t, layout)


def test_dense_dimensions_stay_dense():
    t = matrix().reshape(4, 3, 2)
    s = t.to_sparse(2)
    assert (s.sparse_dim(), s.dense_dim(), s._values().shape[1:]) == (2, 1, (2,))
    assert torch.equal(s.to_dense(), t)
    same(torch.sparse.sum(s, [2]), t.sum(2))
    same(torch.sparse.sum(s, [0, 2]), t.sum((0, 2)))
    same(s[1], t[1])
    c = t.to_sparse_csr(dense_dim=1)
    assert torch.equal(c.to_dense(), t)


def test_entries_come_together():
    s = uncoalesced()
    assert not s.is_coalesced()
    c = s.coalesce()
    assert c.is_coalesced() and c.coalesce() is c
    assert c.indices().tolist() == [[0, 0, 1], [1, 2, 0]] and c.values().tolist() == [6, 3, 9]
    truth = torch.sparse_coo_tensor(s._indices(), torch.tensor([True, False, True, True]), (2, 3))
    assert truth.coalesce().values().tolist() == [True, True, True]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compressed_tensors_are_made_of_their_parts(layout):
    t = matrix()
    s = sparse(t, layout)
    if layout == "sparse_coo":
        return
    rows = layout in ("sparse_csr", "sparse_bsr")
    starts = s.crow_indices() if rows else s.ccol_indices()
    plain = s.col_indices() if rows else s.row_indices()
    make = {
        "sparse_csr": torch.sparse_csr_tensor,
        "sparse_csc": torch.sparse_csc_tensor,
        "sparse_bsr": torch.sparse_bsr_tensor,
        "sparse_bsc": torch.sparse_bsc_tensor,
    }[layout]
    assert torch.equal(make(starts, plain, s.values(), tuple(t.shape)).to_dense(), t)
    assert torch.equal(
        torch.sparse_compressed_tensor(
            starts, plain, s.values(), t.shape, layout=s.layout
        ).to_dense(),
        t,
    )
    with pytest.raises(RuntimeError):
        make(starts, plain + 100, s.values(), tuple(t.shape))
    with pytest.raises(RuntimeError):
        make(starts[:-1], plain, s.values(), tuple(t.shape))


ELEMENTWISE = [
    lambda s: s * 2,
    lambda s: 3 * s,
    lambda s: s / 2,
    lambda s: -s,
    lambda s: s.abs(),
    lambda s: s.sin(),
    lambda s: s.tanh(),
    lambda s: s.sgn(),
    lambda s: s.pow(2),
    lambda s: s.floor(),
    lambda s: s.relu(),
    lambda s: s.expm1(),
    lambda s: s + s,
    lambda s: s - s * 3,
    lambda s: s * s,
    lambda s: s.isnan(),
    lambda s: torch.zeros_like(s),
    lambda s: s.float(),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_elements_are_computed_with(layout):
    t = matrix()
    s = sparse(t, layout)
    for f in ELEMENTWISE:
        made = f(s)
        assert made.layout == s.layout
        same(made, f(t))
    same(s * (t + 1), t * (t + 1))
    same(t + s, t + t)
    assert s.sum() == t.sum()


def test_what_comes_twice_counts_once_where_sums_matter():
    s = uncoalesced()
    t = s.to_dense()
    for f in ELEMENTWISE:
        same(f(s), f(t))


def test_sums_of_two_matrices():
    a, b = uncoalesced(), torch.eye(2, 3).to_sparse()
    same(a + b, a.to_dense() + b.to_dense())
    same(torch.sub(a, b, alpha=2), a.to_dense() - 2 * b.to_dense())
    assert (b + b).is_coalesced() and (b + b)._nnz() == 2
    with pytest.raises(RuntimeError, match=r"Use add\(dense, sparse\) instead"):
        a + torch.ones(2, 3)
    with pytest.raises(RuntimeError, match="sizes"):
        a + torch.eye(3).to_sparse()


def test_writes_change_the_parts():
    s = uncoalesced()
    t = s.to_dense()
    other = s
    s.mul_(2)
    s.add_(torch.eye(2, 3).to_sparse())
    same(other, 2 * t + torch.eye(2, 3))
    other = torch.ones(2, 3)
    other.add_(uncoalesced())
    assert torch.equal(other, 1 + t)
    s.zero_()
    assert s._nnz() == 0 and not s.to_dense().any()
    s.copy_(uncoalesced())
    same(s, t)
    with pytest.raises(RuntimeError):
        torch.ones(2, 3).copy_(s)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products(layout):
    t, d = matrix(), torch.linspace(-1, 1, 18, dtype=torch.float64).reshape(6, 3)
    s = sparse(t, layout)
    same(s @ d, t @ d)
    same(torch.sparse.mm(s, d), t @ d)
    same(d.T @ s.transpose(0, 1), d.T @ t.T)
    same(s @ d[:, 0], t @ d[:, 0])
    same(torch.mv(s, d[:, 1]), t @ d[:, 1])
    same(s @ s.transpose(0, 1), t @ t.T)
    first = torch.ones(4, 3, dtype=torch.float64)
    same(torch.addmm(first, s, d, beta=2, alpha=3), 2 * first + 3 * (t @ d))
    same(torch.sparse.addmm(first, s, d, beta=2, alpha=3), 2 * first + 3 * (t @ d))
    told = "Expected dim 0 size 6, got 3" if layout == "sparse_coo" else "cannot be multiplied"
    with pytest.raises(RuntimeError, match=told):
        s @ d.T


def test_products_at_the_places_of_a_sparse_matrix():
    t, a, b = matrix(), torch.rand(4, 2).double(), torch.rand(2, 6).double()
    for layout in ("sparse_csr", "sparse_coo"):
        made = torch.sparse.sampled_addmm(sparse(t, layout), a, b, beta=2, alpha=3)
        same(made, (2 * t + 3 * (a @ b)) * (t != 0))


def test_parts_and_rearrangements():
    s = uncoalesced()
    t = s.to_dense()
    for f in (
        lambda x: x[1],
        lambda x: x[:, 1:],
        lambda x: x.t(),
        lambda x: x.transpose(0, 1),
        lambda x: x.permute(1, 0),
        lambda x: x.unsqueeze(1),
        lambda x: torch.cat([x, x]),
        lambda x: torch.cat([x, x], 1),
        lambda x: x.narrow(1, 1, 2),
        lambda x: torch.stack([x, x], 1),
        lambda x: x.index_select(1, torch.tensor([2, 0, 2])),
        lambda x: x[1, 0],
    ):
        same(f(s), f(t))
    assert torch.sparse_coo_tensor([[0]], [5.0], (1,)).item() == 5
    with pytest.raises(IndexError):
        s[2]
    with pytest.raises(IndexError):
        s.index_select(0, torch.tensor([7]))
    for entries, text in ((None, "but got 3 sparse and 0"), (2, "but got 2 sparse and 1 dense")):
        with pytest.raises(RuntimeError, match=text):
            torch.ones(2, 2, 2).to_sparse(entries).t()
    with pytest.raises(RuntimeError, match="but self is 3D"):
        torch.ones(2, 2, 2).to_sparse_csr().t()


def test_shares_of_entries_tell_nothing_of_how_they_are_found(recwarn):
    torch.sparse.softmax(torch.eye(3).to_sparse(), 1)
    assert not [w for w in recwarn if "index_reduce" in str(w.message)]


def test_shares_and_sums_of_entries():
    s = uncoalesced()
    t = s.to_dense()
    for dim in (0, 1):
        hidden = t.masked_fill(t == 0, float("-inf"))
        same(torch.sparse.softmax(s, dim), hidden.softmax(dim).nan_to_num())
        want = hidden.log_softmax(dim)
        got = torch.sparse.log_softmax(s, dim).to_dense()
        assert torch.allclose(got[t != 0], want[t != 0])
        same(torch.sparse.sum(s, dim), t.sum(dim))
    same(torch.sparse.sum(s), t.sum())
    assert torch.sparse.sum(s, [0, 1], dtype=torch.float64).dtype == torch.float64
    torch.testing.assert_close(s.norm(), t.norm())


def test_diagonals_and_equations():
    d = torch.arange(9.0).reshape(3, 3)
    made = torch.sparse.spdiags(d, torch.tensor([0, -1, 2]), (3, 3))
    assert made.to_dense().tolist() == [[0, 0, 8], [3, 1, 0], [0, 4, 2]]
    assert (
        torch.sparse.spdiags(d, torch.tensor([0, -1, 2]), (3, 3), torch.sparse_csr).layout
        == torch.sparse_csr
    )
    with pytest.raises(RuntimeError, match="duplicate"):
        torch.sparse.spdiags(d, torch.tensor([0, 0, 2]), (3, 3))
    a, b = torch.eye(3) * 2, torch.ones(3)
    same(torch.sparse.spsolve(a.to_sparse_csr(), b), b / 2)


def test_what_is_not_computed_says_so():
    s = uncoalesced()
    for f in (
        s.exp,
        s.mean,
        lambda: s > 1,
        lambda: s.view(3, 2),
        lambda: torch.conv1d(s, s),
        s.sort,
    ):
        with pytest.raises(NotImplementedError, match=r"sparse COO tensors; call to_dense\(\)"):
            f()


def test_on_meta_shapes_are_known_and_values_are_not():
    indices, values = (
        torch.empty(2, 5, dtype=torch.int64, device="meta"),
        torch.empty(5, device="meta"),
    )
    s = torch._sparse_coo_tensor_unsafe(indices, values, [3, 4])
    assert s.device.type == "meta" and s.to_dense().shape == (3, 4)
    assert (s @ torch.empty(4, 2, device="meta")).shape == (3, 2)
    assert (s * 2 + s).shape == (3, 4)
    with pytest.raises(NotImplementedError, match="depends on the values"):
        s.coalesce()
    with pytest.raises(NotImplementedError, match="depends on the values"):
        torch.empty(3, 4, device="meta").to_sparse()


def gradient(f, *inputs):
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    f(*leaves).backward()
    return [x.grad.to_dense() if x.grad.layout != torch.strided else x.grad for x in leaves]


def test_gradients_reach_values_and_strided_factors():
    torch.manual_seed(0)
    indices, v = torch.tensor([[0, 1, 1, 0], [2, 0, 0, 1]]), torch.rand(4).double()
    w = torch.rand(3, 2).double()

    def dense(v):
        return torch.zeros(2, 3).double().index_put((indices[0], indices[1]), v, accumulate=True)

    def made(v):
        return torch.sparse_coo_tensor(indices, v, (2, 3))

    pairs = [
        (
            lambda v, w: (made(v).to_dense() ** 2).sum() + 0 * w.sum(),
            lambda v, w: (dense(v) ** 2).sum() + 0 * w.sum(),
        ),
        (lambda v, w: ((made(v) @ w) ** 2).sum(), lambda v, w: ((dense(v) @ w) ** 2).sum()),
        (
            lambda v, w: (torch.sparse.mm(made(v), w) ** 2).sum(),
            lambda v, w: ((dense(v) @ w) ** 2).sum(),
        ),
        (
            lambda v, w: ((made(v) * 3).coalesce().to_dense() ** 3).sum() + w.sum(),
            lambda v, w: ((dense(v) * 3) ** 3).sum() + w.sum(),
        ),
    ]
    for got, want in pairs:
        for g, x in zip(gradient(got, v, w), gradient(want, v, w), strict=True):
            torch.testing.assert_close(g, x)


def test_gradients_of_sparse_leaves_are_those_of_their_entries():
    t = matrix(3, 4)
    there = t != 0
    w = torch.linspace(0, 1, 8, dtype=torch.float64).reshape(4, 2)
    s = t.to_sparse()
    (got,) = gradient(lambda s: (torch.sparse.mm(s, w) ** 2).sum(), s)
    (want,) = gradient(lambda t: ((t @ w) ** 2).sum(), t)
    torch.testing.assert_close(got, want * there)
    (got,) = gradient(lambda s: (torch.sparse.softmax(s, 1).to_dense() ** 2).sum(), s)
    (want,) = gradient(lambda t: (t.masked_fill(~there, float("-inf")).softmax(1) ** 2).sum(), t)
    torch.testing.assert_close(got, want)
    (got,) = gradient(lambda s: (torch.sparse.sum(s, [1]).to_dense() ** 2).sum(), s)
    (want,) = gradient(lambda t: (t.sum(1) ** 2).sum(), t)
    torch.testing.assert_close(got, want * there)
    (got,) = gradient(lambda t: ((t.to_sparse_csr() * 2).to_dense() ** 2).sum(), t)
    torch.testing.assert_close(got, 8 * t)
    a, b = torch.rand(3, 2).double(), torch.rand(2, 4).double()
    got = gradient(lambda a, b: torch.sparse.sampled_addmm(s, a, b).to_dense().pow(2).sum(), a, b)
    want = gradient(lambda a, b: (((a @ b) + t) * there).pow(2).sum(), a, b)
    for g, x in zip(got, want, strict=True):
        torch.testing.assert_close(g, x)


def test_a_graph_network_learns():
    torch.manual_seed(0)
    graph = (torch.rand(20, 20) < 0.2).float().to_sparse()
    x, y = torch.randn(20, 4), torch.randn(20, 3)
    layer = torch.nn.Linear(4, 3)
    optimizer = torch.optim.Adam(layer.parameters(), 0.05)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = ((graph @ layer(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 0.9


def calls():
    """A call of each row that knows the parts, by its name."""
    s, t = uncoalesced(), uncoalesced().to_dense()
    csr = t.to_sparse_csr()
    parts = (csr.crow_indices(), csr.col_indices(), csr.values())
    return {
        "_sparse_coo_tensor_unsafe": lambda: torch._sparse_coo_tensor_unsafe(
            s._indices(), s._values(), [2, 3]
        ),
        "_sparse_compressed": lambda: torch._sparse_compressed(*parts, [2, 3], "sparse_csr"),
        "_to_sparse": lambda: torch._to_sparse(t, "sparse_csc"),
        "_coalesce": lambda: torch._coalesce(s),
        "_sparse_values": lambda: torch._sparse_values(s),
        "_grad.with_values": lambda: _C._call_row("_grad.with_values", False, (s._values(), s), {}),
        "sparse_mask": lambda: t.sparse_mask(s.coalesce()),
        "_sparse_mm": lambda: torch._sparse_mm(s, torch.eye(3)),
        "sparse_sampled_addmm": lambda: torch.sparse_sampled_addmm(
            csr, torch.zeros(2, 1), torch.zeros(1, 3)
        ),
        "hspmm": lambda: torch.hspmm(s, torch.eye(3)),
        "sspaddmm": lambda: torch.sspaddmm(s * 0, s, torch.eye(3)),
        "saddmm": lambda: torch.saddmm(s * 0, s, torch.eye(3)),
        "smm": lambda: torch.smm(s, torch.eye(3)),
        "_sparse_sum": lambda: torch.stack([torch._sparse_sum(s[0]), torch._sparse_sum(s[1])]),
        "_sparse_softmax": lambda: torch._sparse_softmax(s, 1, False).to_dense().sum(1),
        "_grad.sparse_softmax": lambda: _C._call_row(
            "_grad.sparse_softmax", False, (t * 0, s.coalesce(), 1, False), {}
        ),
    }


@pytest.mark.parametrize("row", list(calls()))
def test_rows_that_know_the_parts(row):
    t = uncoalesced().to_dense()
    sums = {
        "_sparse_sum": t.sum(1),
        "_sparse_values": uncoalesced()._values(),
        "_sparse_softmax": torch.ones(2),
        "_grad.sparse_softmax": t * 0,
    }
    same(calls()[row](), sums.get(row, t))


def test_the_old_constructors():
    at, values = torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0])
    made = torch.sparse.FloatTensor(at, values, torch.Size([4]))
    assert made.to_dense().tolist() == [1, 0, 2, 0]
    assert torch.sparse.FloatTensor(at, values.double()).dtype == torch.float64
    assert made.new(at, values).shape == (3,)
    for sizes in ((2, 3), (torch.Size([2, 3]),)):
        assert torch.sparse.LongTensor(*sizes).shape == made.new(*sizes).shape == (2, 3)
        assert torch.sparse.LongTensor(*sizes).dtype == torch.int64
    assert made.new().shape == (0,) and made.new()._nnz() == 0
    with pytest.raises(TypeError, match="only accepts sizes"):
        made.new([2, 3])
    with pytest.raises(TypeError, match=r"got \(Tensor\), but expected one of"):
        made.new(values)


def test_products_of_batches():
    a = torch.randn(2, 3, 4, dtype=torch.float64)
    a[a.abs() < 0.7] = 0
    sparse = a.to_sparse().requires_grad_()
    dense = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    made = torch.bmm(sparse, dense)
    assert torch.allclose(made, a.bmm(dense)) and made.layout is torch.strided
    made.pow(2).sum().backward()
    twin, other = a.clone().requires_grad_(), dense.detach().clone().requires_grad_()
    torch.bmm(twin, other).pow(2).sum().backward()
    assert torch.allclose(sparse.grad.to_dense(), twin.grad)
    assert torch.allclose(dense.grad, other.grad)
    twice = torch.sparse_coo_tensor([[0, 0], [1, 1], [2, 2]], [1.0, 2.0], (2, 3, 4))
    assert torch.bmm(twice, torch.ones(2, 4, 1)).flatten().tolist() == [0, 3, 0, 0, 0, 0]
    for x, y, text in (
        (sparse, sparse.transpose(1, 2), "'mat2' must be dense"),
        (sparse, dense[:1], r"'self.size\(0\)' and 'mat2.size\(0\)' must match"),
        (sparse, dense[:, :3], r"'self.size\(2\)' and 'mat2.size\(1\)' must match"),
        (a.to_sparse(2), dense, "must have 0 dense dims, but has 1"),
        (sparse, dense.float(), "expected scalar type Double but found Float"),
    ):
        with pytest.raises(RuntimeError, match=text):
            torch.bmm(x, y)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_have_gradients(layout):
    whole = matrix().requires_grad_()
    inner = sparse(whole, layout)
    inner = inner.coalesce() if layout == "sparse_coo" else inner
    (inner.values() ** 2).sum().backward()
    assert torch.equal(whole.grad, 2 * whole.detach())
    leaf = sparse(matrix(), layout).requires_grad_()
    leaf = leaf.coalesce() if layout == "sparse_coo" else leaf
    values = leaf.values()
    assert values.grad_fn.name() == "ValuesBackward0"
    (grad,) = torch.autograd.grad((values**3).sum(), leaf)
    assert grad.layout == leaf.layout
    torch.testing.assert_close(grad.to_dense(), 3 * matrix() ** 2)
    assert not leaf.detach().values().requires_grad
    with torch.no_grad():
        assert not leaf.values().requires_grad
    assert torch.positive(leaf).requires_grad


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reduced_products_have_gradients(reduce):
    weights = sparse(matrix(), "sparse_csr").requires_grad_()
    dense = torch.arange(1.0, 13.0, dtype=torch.float64).view(6, 2).requires_grad_()
    torch.sparse.mm(weights, dense, reduce).pow(2).sum().backward()
    lines = [[(j, v) for j, v in enumerate(row) if v] for row in matrix().tolist()]
    other = matrix().requires_grad_(), dense.detach().clone().requires_grad_()
    function = getattr(torch, reduce)
    rows = [
        function(torch.stack([other[0][i, j] * other[1][j] for j, _ in line]), 0)
        for i, line in enumerate(lines)
        if line
    ]
    torch.stack(rows).pow(2).sum().backward()
    torch.testing.assert_close(weights.grad.to_dense(), other[0].grad)
    torch.testing.assert_close(dense.grad, other[1].grad)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_vector_and_a_product(layout):
    m, v, t = matrix(), torch.arange(6.0, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    got = torch.addmv(t, sparse(m, layout), v, beta=2, alpha=3)
    torch.testing.assert_close(got, torch.addmv(t, m, v, beta=2, alpha=3))

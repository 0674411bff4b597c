"""Eigenvalues, least squares and factors of low rank beside what they have to satisfy; and operators made of others."""

from __future__ import annotations

import pytest

import torchlike as torch

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def near(got, want, dtype):
    size = 1e-3 if dtype in (torch.float32, torch.complex64) else 1e-9
    assert torch.allclose(got, want.to(got.dtype), rtol=size, atol=size)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_vectors_are_stretched_by_their_values(dtype, n):
    torch.manual_seed(n)
    a = torch.randn(2, n, n, dtype=dtype)
    values, vectors = torch.linalg.eig(a)
    near(a.to(values.dtype) @ vectors, vectors * values.unsqueeze(-2), dtype)
    near(torch.linalg.vector_norm(vectors, dim=-2), torch.ones(2, n), dtype)
    alone = torch.linalg.eigvals(a)
    near(alone.sum(-1), torch.diagonal(a, dim1=1, dim2=2).sum(-1), dtype)
    near(alone.prod(-1).abs(), torch.linalg.det(a).abs(), dtype)
    if not dtype.is_complex:
        near(alone.imag.sum(), torch.zeros(()), dtype)


def test_values_that_are_none_are_refused():
    for a in (torch.full((2, 2), float("nan")), torch.full((3, 2, 2), float("inf"))):
        with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
            torch.linalg.eig(a)
    assert torch.linalg.eig(torch.empty(0, 3, 3)).eigenvectors.shape == (0, 3, 3)


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_least_squares_are_solved(driver, shape):
    torch.manual_seed(0)
    a, b = torch.randn(2, *shape).double(), torch.randn(2, shape[0], 2).double()
    made = torch.linalg.lstsq(a, b, driver=driver)
    torch.testing.assert_close(made.solution, torch.linalg.pinv(a) @ b)
    known = shape == (5, 3) and driver not in (None, "gelsy")
    if known:
        torch.testing.assert_close(made.residuals, ((a @ made.solution - b) ** 2).sum(-2))
    assert (made.residuals.numel() > 0) == known
    assert made.rank.tolist() == ([] if driver == "gels" else [min(shape)] * 2)
    assert (made.singular_values.numel() > 0) == (driver in ("gelsd", "gelss"))
    one = torch.linalg.lstsq(a, b[..., 0], driver=driver).solution
    torch.testing.assert_close(one, made.solution[..., 0])


def test_least_squares_of_small_rank():
    a = torch.tensor([[1.0, 2], [2, 4], [3, 6]]).double()
    made = torch.linalg.lstsq(a, torch.ones(3, 1).double(), driver="gelsd")
    assert made.rank.item() == 1 and made.residuals.numel() == 0
    torch.testing.assert_close(made.solution, torch.linalg.pinv(a) @ torch.ones(3, 1).double())
    with pytest.raises(RuntimeError, match="parameter `driver` should be one of"):
        torch.linalg.lstsq(a, a, driver="foo")
    b = torch.ones(2, 3, 1).double()
    assert torch.linalg.lstsq(torch.stack((a, a + torch.eye(3, 2))), b).rank.tolist() == [1, 2]
    lost = torch.stack((torch.eye(3, 2), torch.tensor([[1.0, 0], [0, 0], [0, 0]]))).double()
    with pytest.raises(torch.linalg.LinAlgError, match=r"\(Batch element 1\).*\(error code: 2\)"):
        torch.linalg.lstsq(lost, b, driver="gels")
    assert not torch.linalg.lstsq(torch.zeros(3, 2), b[0].float(), driver="gels").solution.any()


@pytest.mark.parametrize("driver", ["gels", "gelsy"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_least_squares_of_one_matrix_and_many_sides(driver, dtype):
    torch.manual_seed(0)
    for shape in ((70, 40), (40, 70)):
        a, b = torch.randn(shape, dtype=dtype), torch.randn(3, shape[0], 5, dtype=dtype)
        near(
            torch.linalg.lstsq(a[None], b, driver=driver).solution, torch.linalg.pinv(a) @ b, dtype
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hermitian", [False, True])
def test_indefinite_equations_are_solved(dtype, hermitian):
    torch.manual_seed(0)
    a = torch.randn(3, 6, 6, dtype=dtype)
    a = a + (a.mH if hermitian else a.mT)
    a.diagonal(dim1=1, dim2=2)[:, ::2] = 0.01
    x = torch.randn(3, 6, 2, dtype=dtype)
    factors, pivots = torch.linalg.ldl_factor(a, hermitian=hermitian)
    near(torch.linalg.ldl_solve(factors, pivots, a @ x, hermitian=hermitian), x, dtype)
    assert (pivots < 0).any()


def test_indefinite_factors_are_pytorchs():
    a = torch.tensor([[1.0, 2, 3], [2, 0, 1], [3, 1, 0.5]])
    made = torch.linalg.ldl_factor_ex(a)
    assert made.pivots.tolist() == [-3, -3, 3] and made.info.item() == 0
    want = [[1.0, 0, 0], [3, 0.5, 0], [0.2353, 0.5882, -1.0588]]
    torch.testing.assert_close(made.LD, torch.tensor(want), rtol=1e-3, atol=1e-4)
    assert torch.linalg.ldl_factor_ex(torch.zeros(2, 2)).info.item() == 1
    with pytest.raises(RuntimeError, match="block 1 of D is zero"):
        torch.linalg.ldl_factor(torch.zeros(2, 2))


def test_matrices_of_low_rank():
    torch.manual_seed(0)
    a = torch.randn(9, 3).double() @ torch.randn(3, 7).double()
    for t in (a, a.T, torch.stack([a, 2 * a])):
        u, s, v = torch.svd_lowrank(t, q=4)
        torch.testing.assert_close(u * s.unsqueeze(-2) @ v.mT, t)
        torch.testing.assert_close(s[..., :3], torch.linalg.svdvals(t)[..., :3])
    u, s, v = torch.svd_lowrank(a + 1, q=4, M=torch.ones(9, 7).double())
    torch.testing.assert_close(u * s @ v.T, a)
    u, s, v = torch.pca_lowrank(a, q=4)
    torch.testing.assert_close(u * s @ v.T, a - a.mean(0))
    with pytest.raises(ValueError, match="must be non-negative integer"):
        torch.pca_lowrank(a, q=100)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("general", [True, False])
def test_a_few_eigenvalues_of_large_matrices(largest, general):
    torch.manual_seed(0)
    a = torch.randn(2, 30, 30).double()
    a = a @ a.mT + torch.eye(30)
    b = torch.diag(torch.linspace(1, 2, 30).double()) if general else None
    values, vectors = torch.lobpcg(a, k=3, B=b, largest=largest, niter=500, tol=1e-10)
    want = torch.linalg.eigvals(a if b is None else torch.linalg.solve(b, a)).real.sort(-1).values
    want = want[:, -3:].flip(-1) if largest else want[:, :3]
    torch.testing.assert_close(values, want, rtol=1e-6, atol=1e-6)
    right = vectors if b is None else b @ vectors
    torch.testing.assert_close(a @ vectors, right * values.unsqueeze(-2), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="3 x the number of requested eigenpairs"):
        torch.lobpcg(a, k=11)


def test_gradients_of_a_few_eigenvalues():
    torch.manual_seed(0)
    a = torch.randn(10, 10).double()
    a = (a @ a.T).requires_grad_()
    weight = torch.randn(10).double()

    def loss(values, vectors):
        return values.sum() + (weight @ vectors).pow(2).sum()

    loss(*torch.lobpcg(a, k=2, niter=500, tol=1e-12)).backward()
    got, a.grad = a.grad, None
    values, vectors = torch.linalg.eigh(a)
    loss(values[-2:], vectors[:, -2:]).backward()
    torch.testing.assert_close(got + got.T, a.grad + a.grad.T, rtol=1e-5, atol=1e-5)


def test_quotients_of_differences():
    x = torch.tensor([0.0, 1, 3, 4])
    (made,) = torch.gradient(x**2, spacing=(x,), edge_order=2)
    torch.testing.assert_close(made, 2 * x)
    first, second = torch.gradient(torch.arange(12.0).reshape(3, 4), spacing=[2.0, 0.5])
    assert (first == 2).all() and (second == 2).all()
    assert torch.gradient(torch.arange(5) ** 2)[0].tolist() == [1, 2, 4, 6, 7]
    with pytest.raises(RuntimeError, match="does not support uint8"):
        torch.gradient(torch.ones(3, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="a list of length equal to"):
        torch.gradient(x, spacing=[1.0, 2.0])


def test_cells_of_a_grid_are_counted():
    torch.manual_seed(0)
    x = torch.rand(100, 2)
    hist, edges = torch.histogramdd(x, bins=[3, 4], range=[0.0, 1.0, 0.0, 1.0])
    assert hist.sum() == 100 and [len(e) for e in edges] == [4, 5]
    inside = (x[:, 0] < 1 / 3) & (x[:, 1] >= 0.75)
    assert hist[0, 3] == inside.sum()
    dense = torch.histogramdd(x, bins=5, weight=torch.rand(100), density=True)
    assert (
        abs(dense.hist.sum() * torch.stack([e.diff()[0] for e in dense.bin_edges]).prod() - 1)
        < 1e-4
    )
    with pytest.raises(RuntimeError, match="size of bins must be equal"):
        torch.histogramdd(x, bins=[3])
    assert torch.histogramdd(x[:, :0], bins=[]).hist.item() == 0


def test_segments_are_folded():
    x = torch.arange(6.0).requires_grad_()
    lengths = torch.tensor([2, 0, 4])
    for reduce, want in {
        "sum": [1.0, 0, 14],
        "max": [1.0, float("-inf"), 5],
        "prod": [0.0, 1, 120],
    }.items():
        assert torch.segment_reduce(x, reduce, lengths=lengths).tolist() == want
    assert torch.segment_reduce(x, "mean", lengths=lengths)[1].isnan()
    assert torch.segment_reduce(x, "min", offsets=torch.tensor([0, 2, 6]), initial=1).tolist() == [
        0,
        1,
    ]
    torch.segment_reduce(x, "mean", lengths=torch.tensor([2, 4])).sum().backward()
    assert x.grad.tolist() == [0.5, 0.5, 0.25, 0.25, 0.25, 0.25]
    rows = torch.segment_reduce(
        torch.arange(12.0).view(2, 6), "sum", lengths=torch.tensor([[2, 4], [3, 3]]), axis=1
    )
    assert rows.tolist() == [[1, 14], [21, 30]]
    with pytest.raises(RuntimeError, match="Expected all rows of lengths"):
        torch.segment_reduce(x, "sum", lengths=torch.tensor([1]))


def test_bits_are_hashed():
    x = torch.tensor([1.5, -2.0])
    want = x.double().view(torch.int64)
    assert torch.hash_tensor(x).item() == (want[0] ^ want[1]).item() % 2**64
    assert torch.hash_tensor(torch.tensor([[1, 2], [4, 8]]), dim=0, keepdim=True).tolist() == [
        [5, 10]
    ]
    assert torch._is_all_true(torch.tensor([True])) and not torch._is_any_true(
        torch.tensor([False])
    )
    eight = torch.tensor([1.0, 2.0, float("nan")]).to(torch.float8_e8m0fnu)
    assert (eight == eight).tolist() == [True, True, False] and (eight != eight).tolist() == [
        False,
        False,
        True,
    ]


def test_private_compositions():
    chunks = torch._chunk_cat([torch.arange(3.0), torch.ones(4)], 0, 2)
    assert chunks.tolist() == [[0, 1, 1, 1], [2, 0, 1, 1]]
    x, mask = torch.arange(6.0).view(2, 3), torch.tensor([[True, False], [True, True]])
    index = [torch.tensor([[0], [1]]), torch.tensor([[0, 5]])]
    assert torch._unsafe_masked_index(x, mask, index, 7.0).tolist() == [[0, 7], [3, 5]]
    put = torch._unsafe_masked_index_put_accumulate(x, mask, index, torch.ones(2, 2))
    assert put.tolist() == [[1, 1, 2], [4, 4, 6]]
    assert torch._segment_reduce(torch.ones(3), "sum", lengths=torch.tensor([3])).item() == 3


def test_rows_of_histograms_refuse_what_does_not_fit():
    x, w = torch.arange(12.0).reshape(6, 2), torch.ones(6)
    edges = [torch.ones(2), torch.ones(2).double()]
    for wrong, text in (
        (
            lambda: torch._histogramdd_bin_edges(x, [2, 3], range=[1.0]),
            "range should have 4 elements",
        ),
        (lambda: torch._histogramdd_from_bin_cts(x, [2]), "size of bins must be equal"),
        (lambda: torch._histogramdd_from_bin_tensors(x, edges[:1]), "expected 2 sequences"),
        (
            lambda: torch._histogramdd_from_bin_tensors(x, edges),
            "bins for dimension 1 with dtype double",
        ),
        (
            lambda: torch.histogramdd(x, 2, weight=w.double()),
            r"input\(float\), and weight\(double\)",
        ),
        (lambda: torch.histogram(x, 2, weight=w), r"shape \[12, 1\] and weight with shape \[6\]"),
        (lambda: torch.histogram(x, 2, range=[1.0]), "range should have 2 elements, but got 1"),
    ):
        with pytest.raises(RuntimeError, match=text):
            wrong()
    assert torch.histogram(x, 2, weight=torch.ones(12)).hist.tolist() == [6, 6]
    with pytest.raises(RuntimeError):
        torch._chunk_cat([x], 0, 2**63 - 1)


def test_numbers_at_edges_belong_to_the_bin_above():
    edges = torch.linspace(0.1, 0.8, 22)
    uneven = torch.tensor([0.0, 0.1, 0.5, 0.50001, 0.50001, 1.0])
    for bins in (edges, uneven):
        x = torch.cat([bins, torch.rand(500), torch.tensor([torch.nan, -1.0, 2.0])])
        counts = torch.histogram(x, bins).hist.tolist()
        pairs = zip(bins.tolist(), bins[1:].tolist(), strict=False)
        want = [((x >= a) & (x < b)).sum().item() for a, b in pairs]
        want[-1] += (x == bins[-1]).sum().item()
        assert counts == want
    x = torch.rand(1000)
    assert torch.histc(x, 10).sum() == 1000 and torch.histc(x, 10, 0.2, 0.6).sum() < 1000
    x[70] = torch.nan
    with pytest.raises(RuntimeError, match="finite"):
        torch.histc(x, 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.5, 3.0, torch.inf])
def test_distances_of_any_power(p, dtype):
    x, y = torch.randn(7, 300, dtype=dtype), torch.randn(5, 300, dtype=dtype)
    gaps = (x[:, None] - y).abs()
    want = gaps.amax(-1) if p == torch.inf else gaps.pow(p).sum(-1).pow(1 / p)
    torch.testing.assert_close(torch.cdist(x, y, p), want)
    x[3, 200] = torch.nan
    assert torch.equal(torch.cdist(x, y, p).isnan().any(1), x.isnan().any(1))

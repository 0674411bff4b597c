"""Factorisations of larger matrices: what they satisfy, to a few rounding errors, with any number of threads."""

from __future__ import annotations

import pytest

import torchlike as torch

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
linalg = torch.linalg


def eps(dtype):
    return torch.finfo(dtype).eps


def close(got, want, size):
    """Both agree up to `size` rounding errors of the largest element."""
    scale = float(want.abs().max()) if want.numel() else 0.0
    apart = float((got - want).abs().max()) if want.numel() else 0.0
    assert apart <= size * eps(want.dtype) * max(scale, 1e-30), (apart, scale)


def orthonormal(q):
    eye = torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], q.shape[-1], q.shape[-1])
    close(q.mH @ q, eye, 20 * max(q.shape[-2], 4))


def matrices(dtype, n):
    """Matrices of many kinds, by name."""
    torch.manual_seed(n)
    a = torch.randn(n, n, dtype=dtype)
    steps = torch.arange(n).double()
    graded = torch.pow(torch.tensor(10.0).double(), -steps / 4).to(dtype)
    return {
        "random": a,
        "graded": a * graded,
        "of small rank": a[:, : n // 3] @ a[: n // 3],
        "tiny": a * 1e-30,
        "huge": a * 1e30,
        "repeated": torch.eye(n, dtype=dtype),
        "zero": torch.zeros(n, n, dtype=dtype),
        "nilpotent": torch.diag(torch.ones(n - 1, dtype=dtype), 1),
    }


KINDS = tuple(matrices(torch.float32, 4))
SIZES = [2, 31, 100, 170]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_singular_values(kind, dtype, n):
    a = matrices(dtype, n)[kind]
    u, s, vh = linalg.svd(a)
    orthonormal(u)
    orthonormal(vh)
    assert bool((s[:-1] >= s[1:]).all()) and bool((s >= 0).all())
    close((u * s.to(dtype)) @ vh, a, 40 * n)
    close(linalg.svdvals(a), s, 40 * n)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_eigenvalues_of_hermitian_matrices(kind, dtype, n):
    a = matrices(dtype, n)[kind]
    a = a + a.mH
    for uplo in "LU":
        half = a.tril() if uplo == "L" else a.triu()
        values, vectors = linalg.eigh(half, UPLO=uplo)
        orthonormal(vectors)
        assert bool((values[:-1] <= values[1:]).all())
        close((vectors * values.to(dtype)) @ vectors.mH, a, 40 * n)
        close(linalg.eigvalsh(half, UPLO=uplo), values, 40 * n)


@pytest.mark.parametrize("n", [2, 31, 100, 230])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [k for k in KINDS if k != "graded"])
def test_eigenvalues_of_general_matrices(kind, dtype, n):
    a = matrices(dtype, n)[kind]
    values, vectors = linalg.eig(a)
    wide = a.to(values.dtype)
    close(linalg.vector_norm(vectors, dim=0), torch.ones(n, dtype=values.real.dtype), 20 * n)
    scale = float(a.abs().max())
    apart = float((wide @ vectors - vectors * values).abs().max())
    assert apart <= 400 * n * eps(dtype) * max(scale, 1e-37), (apart, scale)
    alone = linalg.eigvals(a)
    assert float((alone.sum() - wide.trace()).abs()) <= 100 * n * eps(dtype) * max(scale, 1e-37) * n


@pytest.mark.parametrize("n", [6, 16, 31, 60, 150])
def test_eigenvectors_whose_components_are_of_one_size(n):
    a = torch.eye(n, dtype=torch.float64).roll(1, 1)
    values, vectors = linalg.eig(a)
    close(a.to(values.dtype) @ vectors, vectors * values, 100 * n)


@pytest.mark.parametrize(
    ("m", "n", "left", "right"),
    [(1, 7, "-", "-"), (3, 5, "+--", "+-+"), (3, 8, "+--", "+-+"), (4, 5, "+-++", "++-+")]
    + [(6, 9, "+++---", "-+----")],
)
def test_wide_matrices_have_the_signs_of_their_lower_form(m, n, left, right):
    # As PyTorch has them: the first row of U and the first column of V.
    i, j = torch.arange(m).double()[:, None], torch.arange(n).double()
    a = torch.cos(3 * i * i + 2 * i * j + j + 1)
    u, s, vh = linalg.svd(a, full_matrices=False)
    close((u * s) @ vh, a, 100 * n)
    signs = ["".join("+-"[bool(x < 0)] for x in v) for v in (u[0], vh[:, 0])]
    assert signs == [left, right]


@pytest.mark.parametrize("shape", [(1, 1), (40, 40), (150, 70), (70, 150), (3, 90, 40)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_multiply_to_the_matrix(dtype, shape):
    torch.manual_seed(1)
    a = torch.randn(*shape, dtype=dtype)
    n = max(shape[-2:])
    for mode in ("reduced", "complete"):
        q, r = linalg.qr(a, mode=mode)
        orthonormal(q)
        close(q @ r, a, 20 * n)
        close(r.triu(), r, 0)
    p, lower, upper = linalg.lu(a)
    close(p @ lower @ upper, a, 20 * n)
    packed, pivots = linalg.lu_factor(a)
    close(torch.lu_unpack(packed, pivots)[1], lower, 0)
    h, tau = torch.geqrf(a)
    if shape[-2] >= shape[-1]:
        q = linalg.householder_product(h, tau)
        close(q @ r[..., : shape[-1], :], a, 20 * n)
        close(
            torch.ormqr(h, tau, a, transpose=True)[..., : shape[-1], :],
            r[..., : shape[-1], :],
            20 * n,
        )
        close(
            torch.ormqr(h, tau, a.mH, left=False),
            (torch.ormqr(h, tau, a, transpose=True)).mH,
            20 * n,
        )


@pytest.mark.parametrize("n", [1, 33, 140])
@pytest.mark.parametrize("dtype", DTYPES)
def test_equations(dtype, n):
    torch.manual_seed(2)
    a = torch.randn(2, n, n, dtype=dtype) + 2 * n**0.5 * torch.eye(n, dtype=dtype)
    x = torch.randn(3, 2, n, 5, dtype=dtype)
    close(linalg.solve(a, a @ x), x, 50 * n)
    y = torch.randn(2, 4, n, dtype=dtype)
    close(linalg.solve(a, y @ a, left=False), y, 50 * n)
    close(linalg.solve(a, (a @ x[0])[..., 0]), x[0, ..., 0], 50 * n)
    close(linalg.inv(a) @ a, torch.eye(n, dtype=dtype).expand(2, n, n), 50 * n)
    lu, pivots = linalg.lu_factor(a)
    close(linalg.lu_solve(lu, pivots, a.mH @ x[1], adjoint=True), x[1], 50 * n)
    close(linalg.lu_solve(lu, pivots, y @ a.mH, left=False, adjoint=True), y, 50 * n)
    sign, log = linalg.slogdet(a)
    if n < 40:
        close(linalg.det(a), sign * log.exp().to(dtype), 100 * n)
    p = a @ a.mH
    lower = linalg.cholesky(p)
    close(lower @ lower.mH, p, 20 * n)
    close(linalg.cholesky(p, upper=True), lower.mH, 200 * n)
    for upper in (False, True):
        factor = lower.mH if upper else lower
        close(torch.cholesky_solve(p @ x[0], factor, upper=upper), x[0], 2000 * n)
        close(
            torch.cholesky_inverse(factor, upper=upper) @ p,
            torch.eye(n, dtype=dtype).expand(2, n, n),
            2000 * n,
        )
        for unit in (False, True):
            t = factor / (n if unit else 1)
            if unit:
                t = (
                    t
                    - torch.diag_embed(torch.diagonal(t, dim1=-2, dim2=-1))
                    + torch.eye(n, dtype=dtype)
                )
            got = linalg.solve_triangular(t, t @ x[0], upper=upper, unitriangular=unit)
            close(got, x[0], 500 * n)
            got = linalg.solve_triangular(t, y @ t, upper=upper, left=False, unitriangular=unit)
            close(got, y, 500 * n)
            got = torch.triangular_solve(
                t.mT @ x[0], t, upper=upper, transpose=True, unitriangular=unit
            )
            close(got.solution, x[0], 500 * n)


def test_where_factorisations_fail():
    a = torch.eye(90, dtype=torch.float64)
    a[70, 70] = -1
    assert linalg.cholesky_ex(a).info.item() == 71
    with pytest.raises(RuntimeError, match="minor of order 71 is not positive"):
        linalg.cholesky(a)
    a[70, 70] = 0
    assert linalg.lu_factor_ex(a).info.item() == 71
    assert linalg.inv_ex(a.expand(2, 90, 90)).info.tolist() == [71, 71]
    with pytest.raises(RuntimeError, match="singular"):
        linalg.solve(a, a)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_comes_to_an_end(bad):
    a = torch.randn(120, 120)
    a[50, 60] = bad
    for call in (linalg.svd, linalg.svdvals, linalg.eigh, linalg.eigvalsh):
        with pytest.raises(RuntimeError, match="contained non-finite values"):
            call(a)
    with pytest.raises(RuntimeError, match="infs or NaNs"):
        linalg.eig(a)
    linalg.qr(a)
    linalg.lu(a)
    linalg.inv_ex(a)
    linalg.cholesky_ex(a)
    linalg.matrix_exp(a)


def test_results_do_not_depend_on_threads():
    before = torch.get_num_threads()
    torch.manual_seed(3)
    a = torch.randn(200, 200, dtype=torch.complex64)
    batch = torch.randn(30, 20, 20)
    calls = [
        lambda: linalg.lu(a),
        lambda: linalg.inv(a),
        lambda: linalg.qr(a),
        lambda: linalg.svd(a.real),
        lambda: linalg.eigh(a + a.mH),
        lambda: linalg.eig(a.imag),
        lambda: linalg.cholesky(a @ a.mH + torch.eye(200)),
        lambda: linalg.svd(batch),
        lambda: linalg.eig(batch),
        lambda: linalg.solve(batch, batch.mT),
        lambda: (torch.fft.fft2(batch), torch.fft.rfft(batch, dim=0)),
    ]
    try:
        for call in calls:
            found = []
            for threads in (1, 2, 5):
                torch.set_num_threads(threads)
                made = call()
                found.append([made] if isinstance(made, torch.Tensor) else list(made))
            for other in found[1:]:
                assert all(torch.equal(x, y) for x, y in zip(found[0], other, strict=True))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_products_of_complex_matrices(dtype):
    torch.manual_seed(4)
    real = torch.float64
    for m, n, k in [(1, 5, 7), (4, 4, 4), (5, 1, 300), (70, 50, 300), (33, 500, 9)]:
        a, b = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
        for x, y in (
            (a, b),
            (a.mT.contiguous().mT, b),
            (a, b.mT.contiguous().mT),
            (a.conj(), b.conj()),
        ):
            p, q, r, s = (t.to(real) for t in (x.real, x.imag, y.real, y.imag))
            want = torch.complex(p @ r - q @ s, p @ s + q @ r)
            close((x @ y).to(torch.complex128), want, 20 * k * eps(dtype) / eps(real))
            c = torch.randn(m, n, dtype=dtype)
            got = torch.addmm(c, x, y, beta=0.5 - 2j, alpha=1j)
            close(
                got.to(torch.complex128),
                c.to(torch.complex128) * (0.5 - 2j) + want * 1j,
                40 * k * eps(dtype) / eps(real),
            )


@pytest.mark.parametrize("shape", [(37, 64), (3, 20, 33), (5, 4, 3, 2), (1, 50)])
def test_transforms_along_any_dimension(shape):
    torch.manual_seed(5)
    x = torch.randn(*shape, dtype=torch.complex128)
    for dim in range(len(shape)):
        n = shape[dim]
        steps = torch.arange(n).double()
        turns = torch.exp(torch.outer(steps, steps).to(x.dtype) * (-2j * torch.pi / n))
        want = torch.movedim(torch.movedim(x, dim, -1) @ turns, -1, dim)
        for lying in (x, torch.movedim(torch.movedim(x, 0, -1).contiguous(), -1, 0)):
            close(torch.fft.fft(lying, dim=dim), want, 200)
            close(torch.fft.ifft(torch.fft.fft(lying, dim=dim), dim=dim), x, 200)
        real = torch.fft.rfft(x.real, dim=dim)
        close(real, torch.fft.fft(x.real.to(x.dtype), dim=dim).narrow(dim, 0, n // 2 + 1), 200)
        close(torch.fft.irfft(real, n, dim=dim, norm="backward"), x.real, 200)


def test_factors_that_do_not_fit_are_refused():
    singular = torch.tensor([[[1.0, 0], [0, 1]], [[1, 0], [0, 0]]])
    with pytest.raises(
        torch.linalg.LinAlgError, match=r"\(Batch element 1\): The diagonal element 2 is"
    ):
        torch.cholesky_inverse(singular)
    factors, pivots = torch.linalg.lu_factor(torch.eye(2))
    for wrong, bound in ((0, "greater or equal to 1"), (3, "smaller or equal to LU.size")):
        pivots[0] = wrong
        with pytest.raises(RuntimeError, match=f"Pivots given to lu_solve must all be {bound}"):
            torch.linalg.lu_solve(factors, pivots, torch.eye(2))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: torch.linalg.matrix_exp(torch.ones(3)), "must have at least 2 dimensions"),
        (
            lambda: torch.linalg.pinv(torch.ones(2)),
            r"linalg.pinv\(Float{\[2\]}\): expected a tensor",
        ),
        (lambda: torch.linalg.slogdet(torch.eye(2).half()), "slogdet: Low precision dtypes not"),
        (lambda: torch.linalg.matrix_norm(torch.eye(2), 1j), "Expected a non-complex scalar"),
        (
            lambda: torch.ones(2, 2).addr(torch.ones(2), torch.ones(2), beta=True),
            "Boolean beta only",
        ),
        (
            lambda: torch.linalg.lstsq(torch.ones(1, 1, 1), torch.ones(3, 1)),
            r"input.size\(-2\) should match other.size\(-2\)",
        ),
    ],
)
def test_arguments_of_algebra_are_refused_in_their_words(call, text):
    with pytest.raises(RuntimeError, match=text):
        call()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_determinant_of_a_singular_matrix_has_a_gradient(dtype):
    single = torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=dtype)
    regular = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=dtype)
    if dtype.is_complex:
        single, regular = single * (1 + 2j), regular * (2 - 1j)
    m = torch.stack([single, regular]).requires_grad_()
    (g,) = torch.autograd.grad(torch.linalg.det(m).real.sum(), m)
    want = torch.stack([torch.stack([a[1, 1], -a[1, 0], -a[0, 1], a[0, 0]]).view(2, 2) for a in m])
    torch.testing.assert_close(g, want.conj().detach().resolve_conj())
    if not dtype.is_complex:
        twice = torch.func.jacrev(torch.func.jacrev(torch.linalg.det))(single).view(4, 4)
        torch.testing.assert_close(
            twice, torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=dtype).diag().flip(0)
        )
        torch.testing.assert_close(torch.func.hessian(torch.linalg.det)(single).view(4, 4), twice)


@pytest.mark.parametrize("of", [torch.tril, torch.triu])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64, torch.bool])
def test_triangles_are_written_into_memory_of_any_layout(of, dtype):
    t = (torch.arange(24).reshape(2, 3, 4) + 1).to(dtype)
    wanted = of(t, 1)
    for out in (
        torch.ones(2, 3, 4, 2, dtype=dtype)[..., 0],
        torch.ones(2, 3, 8, dtype=dtype)[..., ::2],
        torch.ones(4, 3, 2, dtype=dtype).permute(2, 1, 0),
        torch.ones(2, 4, 3, dtype=dtype).mT,
    ):
        assert torch.equal(of(t, 1, out=out), wanted)
        assert torch.equal(of(t.mT.contiguous().mT, 1, out=out.zero_()), wanted)
    strided = torch.ones(2, 3, 4, 2, dtype=dtype)[..., 0].copy_(t)
    assert torch.equal(of(strided, 1), wanted)
    assert torch.equal(of(strided, 1, out=strided), wanted)


def test_factors_of_singular_matrices():
    singular = torch.zeros(2, 2)
    for call in (linalg.lu_factor, lambda t: linalg.lu_factor_ex(t, check_errors=True)):
        with pytest.raises(RuntimeError, match=r"U\[1,1\] is zero") as e:
            call(singular)
        assert not isinstance(e.value, linalg.LinAlgError)
    assert torch.lu(singular)[0].tolist() == [[0.0, 0.0], [0.0, 0.0]]

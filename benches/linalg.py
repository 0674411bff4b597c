"""Dense algebra beside PyTorch's: `python benches/linalg.py [--torch PYTHON] [--before PYTHON] [--filter REGEX]`.

Factorisations, solutions and spectra of matrices of 64 to 1024 rows in f32, f64 and c64, with one thread and with two.
Ratios above 1 mean that torchlike is faster.
"""

from __future__ import annotations

import _turns

DTYPES = {"f32": "torch.float32", "f64": "torch.float64", "c64": "torch.complex64"}
SIZES = (64, 128, 256, 512, 1024)
CALLS = {
    "lu_factor": "torch.linalg.lu_factor(a)",
    "solve": "torch.linalg.solve(a, b)",
    "solve_one": "torch.linalg.solve(a, b[:, 0])",
    "inv": "torch.linalg.inv(a)",
    "det": "torch.linalg.det(a)",
    "triangular": "torch.linalg.solve_triangular(a, b, upper=True)",
    "cholesky": "torch.linalg.cholesky(p)",
    "qr": "torch.linalg.qr(a)",
    "qr_tall": "torch.linalg.qr(b4)",
    "lstsq": "torch.linalg.lstsq(a, b)",
    "eigh": "torch.linalg.eigh(p)",
    "eigvalsh": "torch.linalg.eigvalsh(p)",
    "svd": "torch.linalg.svd(a)",
    "svdvals": "torch.linalg.svdvals(a)",
    "eig": "torch.linalg.eig(a)",
    "eigvals": "torch.linalg.eigvals(a)",
}
BATCHED = {
    "inv_batch": "torch.linalg.inv(s)",
    "cholesky_batch": "torch.linalg.cholesky(q)",
    "eigh_batch": "torch.linalg.eigh(q)",
    "svd_batch": "torch.linalg.svd(s)",
}


def cases() -> _turns.Cases:
    """Setup and statement of each case."""
    out = {}
    for dtype, word in DTYPES.items():
        for n in SIZES:
            setup = "; ".join(
                [
                    f"a = torch.randn({n}, {n}, dtype={word})",
                    f"b = torch.randn({n}, {n}, dtype={word})",
                    f"b4 = torch.randn({4 * n}, {n // 4}, dtype={word})",
                    f"p = a @ a.mH + {n} * torch.eye({n}, dtype={word})",
                ]
            )
            for name, code in CALLS.items():
                out[f"{name}/{dtype}/{n}"] = (setup, code)
        setup = f"s = torch.randn(200, 16, 16, dtype={word}); q = s @ s.mH + 16 * torch.eye(16, dtype={word})"
        for name, code in BATCHED.items():
            out[f"{name}/{dtype}/16"] = (setup, code)
    return out


if __name__ == "__main__":
    _turns.main(__doc__, __file__, cases())

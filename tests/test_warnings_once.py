"""What the core says once in a process: each call in one of its own, with everything it says."""

import subprocess
import sys

CALLS = """
eye, line = torch.eye(2), torch.ones(40)
spectra = torch.stft(line, 8, return_complex=True)
torch.stft(line, 8, window=torch.ones(8), return_complex=False)
torch.istft(spectra, 8, length=60)
torch.cholesky(eye), torch.lu(eye), torch.qr(eye), torch.triangular_solve(eye, eye)
torch.lu_solve(eye, *torch.linalg.lu_factor(eye))
torch.chain_matmul(eye, eye), torch.cross(torch.ones(2, 3), torch.ones(2, 3))
torch.cov(torch.ones(2, 1)), torch.corrcoef(torch.ones(2, 1))
eye.to_sparse_csr(), eye.to_sparse_csc(), torch.zeros(1, dtype=torch.complex32)
torch.nn.RMSNorm(2)(eye.double())
torch.nn.LSTM(2, 3, proj_size=2)(eye)
"""
BEGINNINGS = [
    "A window was not provided. A rectangular window will be applied,which",
    "stft with return_complex=False is deprecated. In a future pytorch release",
    "A window was not provided. A rectangular window will be applied.Please",
    "The length of signal is shorter than the length parameter. Result is being padded",
    "torch.cholesky is deprecated in favor of torch.linalg.cholesky and will",
    "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex",
    "torch.qr is deprecated in favor of torch.linalg.qr and will be removed",
    "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangularand",
    "torch.lu_solve is deprecated in favor of torch.linalg.lu_solveand will",
    "torch.chain_matmul is deprecated and will be removed in a future PyTorch release",
    "Using torch.cross without specifying the dim arg is deprecated.",
    "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number",
    "cov(): degrees of freedom is <= 0.",
    "Sparse CSR tensor support is in beta state. If you miss a functionality",
    "ComplexHalf support is experimental and many operators don't support it yet.",
    "Mismatch dtype between input and weight: input dtype = double, weight dtype = float, Cannot dispatch",
    "LSTM with projections is not supported with oneDNN. Using default implementation.",
]


def test_old_functions_of_algebra_and_spectra_say_so_once():
    program = (
        "import warnings, torchlike as torch\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n"
        + "".join(f"    {line}\n" for line in (CALLS.strip() + CALLS).splitlines())
        + "print('\\0'.join(str(w.message) for w in said), end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    said = done.stdout.split("\0")
    always = [text for text in said if text.startswith("cov()")]
    assert len(always) == 4
    first = said[: len(BEGINNINGS)]
    assert [s[: len(b)] for s, b in zip(first, BEGINNINGS, strict=True)] == BEGINNINGS
    assert said[len(BEGINNINGS) :] == always[:2]

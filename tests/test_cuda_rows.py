"""Every row on a GPU: results, layouts and gradients of its samples are the CPU's.

`EVERY_NTH_ROW=4` tests a fourth of them, some of each family: compiling a kernel is most of a test's time.
"""

import os

import pytest

import rows
import torchlike as torch

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore:.*has no CUDA kernel yet"),
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="torchlike.cuda.is_available() is False"
    ),
]
# Their results are where their arguments say.
PLACED = {"cpu", "cuda", "to#device", "_grad.converted_back"}
# Which of several values for one place stays is not determined, as in PyTorch.
UNORDERED = {"scatter"}
# What libraries for GPUs give row by row, and those for the host column by column.
TURNED = {"linalg.eig", "linalg.svd", "_linalg_svd", "svd"}
CASES = [c for c in rows.CASES if c[0] not in rows.DRAW | PLACED | UNORDERED]
CASES = CASES[:: int(os.environ.get("EVERY_NTH_ROW", "1"))]
# As in PyTorch, integers have no products on GPUs, and where to split is known on the host.
REFUSED = "addmm_cuda|to be on cpu, but it's on cuda"
NEAR = {torch.float16: 1e-2, torch.bfloat16: 2e-2}


def stepping(t):
    """The same values, every other element of memory, beginning at one that no pack begins at."""
    if t.ndim == 0:
        return t
    wide = torch.zeros([*t.shape[:-1], 2 * t.shape[-1] + 1], dtype=t.dtype, device=t.device)
    return wide[..., 1::2].copy_(t)


def compare(got, want, strides):
    assert (got.device.type, got.shape, got.dtype) == ("cuda", want.shape, want.dtype)
    if want.layout != torch.strided or want.is_quantized:
        return
    if strides and want.numel() > 1:
        assert got.stride() == want.stride()
    got = got.cpu()
    if want.is_floating_point() or want.is_complex():
        near = NEAR.get(want.dtype, 1e-4)
        torch.testing.assert_close(
            got, want, rtol=near, atol=near, equal_nan=True, check_stride=False
        )
    else:
        assert torch.equal(got, want)


@pytest.mark.parametrize("change", [None, stepping], ids=["dense", "stepping"])
@pytest.mark.parametrize(("row", "in_place"), CASES)
def test_results(row, in_place, change):
    for got, want in rows.pairs(row, in_place, rows.results, REFUSED, ("cuda", change), change):
        compare(got, want, row not in TURNED)


# The conditions of its samples are so bad that rounding decides.
@pytest.mark.parametrize(("row", "in_place"), [c for c in CASES if c[0] != "cholesky_solve"])
def test_gradients(row, in_place):
    for got, want in rows.pairs(row, in_place, rows.gradients, REFUSED, ("cuda",)):
        compare(got, want, False)

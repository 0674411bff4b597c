"""Every row given views that are negated and conjugated lazily: results and gradients are those of plain tensors."""

import pytest

import rows
import torchlike as torch

# They take the memory of a tensor, not its values.
MEMORY = {"set#tensor", "set#tensor_layout", "set#storage", "set#storage_layout"}
# These read bits, must not be given views, or change lists of parameters in one pass over their memory.
REFUSED = "negative bit set|conjugate view|unresolved conjugated|Can't detach views|does not write into conjugated"
CASES = [c for c in rows.CASES if c[0] not in rows.DRAW | MEMORY]


def lazy(t):
    """A view with the same values, whose memory holds the negated, and conjugated, ones."""
    if t.layout != torch.strided or t.is_quantized or t.dtype in (torch.bool, torch.float8_e4m3fn):
        return t
    return torch._neg_view((-t).conj().resolve_conj().conj() if t.is_complex() else -t)


def compare(got, want):
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if want.layout == torch.strided and not want.is_quantized:
        near = 2e-2 if want.element_size() == 2 else 1e-4
        torch.testing.assert_close(
            got, want, rtol=near, atol=near, equal_nan=True, check_stride=False
        )


@pytest.mark.parametrize(("row", "in_place"), CASES)
def test_results(row, in_place):
    for got, want in rows.pairs(row, in_place, rows.results, REFUSED, ("cpu", lazy)):
        compare(got, want)


@pytest.mark.parametrize("row", [r for r, in_place in CASES if not in_place])
def test_gradients(row):
    for got, want in rows.pairs(row, False, rows.gradients, REFUSED, ("cpu", lazy)):
        compare(got, want)


@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.uint8, torch.int64],
    ids=str,
)
def test_negated_views_are_read_as_what_they_mean(dtype):
    t = torch._neg_view(torch.tensor([1, 2, 3]).to(dtype))
    plain = -torch.tensor([1, 2, 3]).to(dtype)
    assert t.tolist() == plain.tolist()
    assert t[1].item() == plain[1].item()
    for wider in (torch.float64, torch.int32):
        assert torch.equal(t.to(wider), plain.to(wider))
    assert not t.clone().is_neg()

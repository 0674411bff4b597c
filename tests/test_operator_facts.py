"""Calls of operators that went wrong once, against what PyTorch 2.13 makes of them."""

import json
import pathlib

import pytest

import torchlike as torch

FACTS = json.loads((pathlib.Path(__file__).parent / "data" / "operator_facts.json").read_text())
# Subjects whose errors are compared by type: the words are those of one place for all operators.
BY_TYPE = {"results given by the caller"}
CASES = [(subject, *fact) for subject, facts in FACTS.items() for fact in facts]


@pytest.mark.parametrize(("subject", "code", "want"), CASES, ids=[c[1] for c in CASES])
def test_fact(subject, code, want):
    try:
        got = ["result", repr(eval(code, {"torch": torch}))]
    except Exception as e:
        got = [type(e).__name__, str(e)]
    got[1] = got[1].replace("torchlike.", "torch.")
    if subject in BY_TYPE and want[0] != "result":
        assert got[0] == want[0]
    else:
        assert got == want


def test_degrees_of_polynomials_without_end_have_an_answer():
    x = torch.tensor([0.3, 0.9, 1.5, -2.0])
    for name in ("laguerre_polynomial_l", "legendre_polynomial_p", "chebyshev_polynomial_v"):
        made = getattr(torch.special, name)(x, torch.tensor(1e15))
        assert bool(made[:2].abs().lt(10).all()), name


def test_gradients_of_group_norm_without_elements():
    x = torch.zeros(0, 4, 3, requires_grad=True)
    weight = torch.ones(4, requires_grad=True)
    made = torch.nn.functional.group_norm(x, 2, weight)
    (first,) = torch.autograd.grad(made.sum(), weight, create_graph=True)
    assert first.tolist() == [0.0] * 4


def test_comparisons_in_place_have_no_gradient_left():
    a = torch.tensor([1.0, 2.0], requires_grad=True)
    b = torch.tensor([2.0, 1.0], requires_grad=True)
    (a.clone().ge_(b) * 3).sum().backward()
    assert a.grad.tolist() == b.grad.tolist() == [0.0, 0.0]


def test_typed_storages_are_made_of_sizes_and_sequences():
    assert len(torch.TypedStorage(5, dtype=torch.float64)) == 5
    assert torch.TypedStorage([1, 2.5], dtype=torch.float64).tolist() == [1.0, 2.5]
    assert len(torch.TypedStorage()) == 0
    for wrong in ((1, 2), (2.5,)):
        with pytest.raises((RuntimeError, TypeError), match="invalid combination of arguments"):
            torch.TypedStorage(*wrong)


def test_ranges_are_where_their_tensors_are():
    end = torch.tensor(3, device="meta")
    assert torch.linspace(1, end, 4).is_meta and torch.logspace(1, end, 4).is_meta


def test_powers_of_single_precision_are_rounded_once():
    wide = torch.logspace(1, 3, 4, dtype=torch.float64)
    assert torch.equal(torch.logspace(1, 3, 4), wide.float())


def test_strides_of_what_has_no_elements_or_no_dimensions():
    assert torch.zeros(3).nonzero().stride() == (1, 0)
    assert torch.tensor(1.0).expand(1, 1).stride() == (0, 0)
    with pytest.warns(UserWarning, match="cholesky is deprecated"):
        assert torch.cholesky(torch.zeros(0, 5, 5)).stride() == (25, 5, 1)


def test_erfcx_where_its_factors_are_large_and_small():
    # By the series of DLMF 7.12.1 with 14 terms in exact arithmetic.
    x = torch.tensor([10.0, 25.5, 100.0], dtype=torch.float64)
    want = [0.05614099274382259, 0.02210810805251983, 0.005641613782989433]
    assert torch.allclose(
        torch.special.erfcx(x), torch.tensor(want, dtype=torch.float64), rtol=1e-14
    )


def test_overloads_with_out_of_functions_without():
    """PyTorch generates them for operators whose functions cannot be told where the result goes."""
    aten, x = torch.ops.aten, torch.arange(4.0).view(1, 4, 1, 1)
    for made, want in (
        (aten.ones_like.out(x, out=torch.empty(0)), torch.ones_like(x)),
        (aten.new_ones.out(x, (2,), out=torch.empty(0)), torch.ones(2)),
        (aten.pixel_shuffle.out(x, 2, out=torch.empty(0)), torch.pixel_shuffle(x, 2)),
        (aten.sum.out(x, out=torch.empty(0)), x.sum()),
        (aten.sum.IntList_out(x, [1], out=torch.empty(0)), x.sum(1)),
        (aten.median.out(x, out=torch.empty(0)), x.median()),
    ):
        assert torch.equal(made, want)

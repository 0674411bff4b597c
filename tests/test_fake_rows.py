"""Every row in a fake mode: results look as real ones do, on the device that their arguments claim."""

import pytest

import torchlike as torch
from rows import CASES, attempt, functions
from torchlike._subclasses.fake_tensor import FakeTensor, FakeTensorMode

pytestmark = pytest.mark.filterwarnings("ignore")

# What depends on values is refused by these.
DEPENDS = ("DynamicOutputShapeException", "DataDependentOutputException")
# They are told where their results are.
TOLD = {
    "_grad.converted_back", "to#device", "cpu", "zeros_like", "ones_like", "full_like", "new_empty", "new_zeros",
    "new_ones", "new_full", "new_empty_strided", "linspace", "rand_like", "randn_like", "randint_like",
}  # fmt: skip


def look(t):
    """Shape, dtype, and strides where they tell anything."""
    steps = [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] if t.numel() else []
    return t.shape, t.dtype, steps


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("row", "in_place"), CASES)
def test_every_row(row, in_place, device):
    for call, given in functions(row, in_place):
        real = attempt(lambda call=call, given=given: call(*given))
        if isinstance(real, Exception):
            continue
        mode = FakeTensorMode()
        with mode:
            fakes = [mode.from_tensor(t).to(device) for t in given]
            made = attempt(lambda call=call, fakes=fakes: call(*fakes))
        if isinstance(made, Exception):
            # Some arguments have to be on the host.
            depends = type(made).__name__ in DEPENDS
            assert depends or (device == "cuda" and "on cpu" in str(made).lower()), made
            continue
        assert all(isinstance(t, FakeTensor) for t in made)
        if given and row not in TOLD:
            assert {t.device.type for t in made} <= {device}
        if device == "cpu":
            dense = [(m, r) for m, r in zip(made, real, strict=True) if r.layout == torch.strided]
            assert [look(m) for m, _ in dense] == [look(r) for _, r in dense]

"""Pruning. Masks are PyTorch 2.13's for the same seeds, a number a row, a bit an entry."""

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.nn.utils import prune


def layer():
    torch.manual_seed(3)
    return nn.Linear(5, 4)


def rows(mask):
    return [int("".join(str(int(v)) for v in row), 2) for row in mask.tolist()]


SCORES = torch.arange(20.0).view(4, 5)
CASES = [
    (lambda m: prune.identity(m, "weight"), [31, 31, 31, 31]),
    (lambda m: prune.random_unstructured(m, "weight", 0.4), [25, 27, 27, 1]),
    (lambda m: prune.l1_unstructured(m, "weight", 7), [26, 25, 13, 15]),
    (lambda m: prune.l1_unstructured(m, "weight", 0.3, SCORES), [0, 15, 31, 31]),
    (lambda m: prune.random_structured(m, "weight", 2, 0), [0, 0, 31, 31]),
    (lambda m: prune.random_structured(m, "weight", 0.4, 1), [14, 14, 14, 14]),
    (lambda m: prune.ln_structured(m, "weight", 0.5, 2, 0), [31, 0, 0, 31]),
    (lambda m: prune.ln_structured(m, "weight", 2, float("inf"), -1), [22, 22, 22, 22]),
    (
        lambda m: prune.l1_unstructured(prune.l1_unstructured(m, "weight", 4), "weight", 0.5),
        [26, 17, 1, 5],
    ),
    (
        lambda m: prune.ln_structured(prune.random_unstructured(m, "weight", 4), "weight", 1, 2, 0),
        [29, 27, 0, 7],
    ),
    (
        lambda m: prune.random_structured(
            prune.ln_structured(m, "weight", 1, 2, 0), "weight", 1, 0
        ),
        [0, 31, 0, 31],
    ),
]


@pytest.mark.parametrize(("act", "mask"), CASES)
def test_masks(act, mask):
    model = layer()
    before = model.weight.detach().clone()
    assert act(model) is model and rows(model.weight_mask) == mask
    assert sorted(model.state_dict()) == ["bias", "weight_mask", "weight_orig"]
    assert torch.equal(model.weight, before * model.weight_mask) and prune.is_pruned(model)
    model(torch.ones(5)).sum().backward()
    assert torch.equal(model.weight_orig.grad, model.weight_mask)
    prune.remove(model, "weight")
    assert sorted(model.state_dict()) == ["bias", "weight"] and not prune.is_pruned(model)
    assert type(model.weight) is nn.Parameter and rows((model.weight != 0).int()) == mask


def test_several_parameters_together():
    torch.manual_seed(1)
    a, b = nn.Linear(3, 2), nn.Linear(2, 3)
    parameters = [(a, "weight"), (b, "weight"), (b, "bias")]
    prune.global_unstructured(parameters, pruning_method=prune.L1Unstructured, amount=6)
    assert a.weight_mask.sum() == 6 and b.weight_mask.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert b.bias_mask.tolist() == [0, 0, 0]
    with pytest.raises(TypeError, match=r'^Only "unstructured" PRUNING_TYPE supported'):
        prune.global_unstructured(
            [(nn.Linear(2, 2), "weight")], pruning_method=prune.LnStructured, amount=1, n=2
        )


def test_what_is_refused():
    for amount, error in ((-1, ValueError), (1.5, ValueError), ("a", TypeError), (21, ValueError)):
        model = layer()
        with pytest.raises(error, match=r"amount"):
            prune.l1_unstructured(model, "weight", amount)
        assert sorted(model.state_dict()) == ["bias", "weight"] and not prune.is_pruned(model)
    with pytest.raises(ValueError, match=r"^Structured pruning can only be applied to multidim"):
        prune.ln_structured(layer(), "bias", 1, 2, 0)
    with pytest.raises(IndexError, match=r"^Invalid index 5 for tensor of size"):
        prune.ln_structured(layer(), "weight", 1, 2, 5)
    with pytest.raises(ValueError, match=r"has to be pruned before pruning can be removed$"):
        prune.remove(layer(), "weight")
    with pytest.raises(AssertionError, match=r"must match self.mask shape"):
        prune.custom_from_mask(layer(), "weight", torch.ones(2))

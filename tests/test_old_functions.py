"""Functions that stand beside methods or newer functions."""

from __future__ import annotations

from typing import Any

import pytest

import torchlike as torch


def test_norms_of_matrices() -> None:
    with pytest.warns(UserWarning, match="at::nuclear_norm is deprecated"):
        assert torch.nuclear_norm(torch.eye(3)) == 3
    with pytest.warns(UserWarning, match="at::frobenius_norm is deprecated"):
        assert torch.frobenius_norm(torch.ones(2, 2), (0, 1)) == 2
    with (
        pytest.warns(UserWarning, match="nuclear"),
        pytest.raises(RuntimeError, match="at least 2 dimensions"),
    ):
        torch.nuclear_norm(torch.ones(2))


def test_quantized() -> None:
    q = torch.quantize_per_tensor(torch.ones(2), 0.5, 3, torch.quint8)
    assert (torch.q_scale(q), torch.q_zero_point(q)) == (0.5, 3)
    assert torch.int_repr(q).tolist() == [5, 5]
    scales, zeros = torch.tensor([0.5, 1.0]), torch.tensor([0, 1])
    q = torch.quantize_per_channel(torch.ones(2, 2), scales, zeros, 0, torch.quint8)
    assert torch.q_per_channel_scales(q).tolist() == [0.5, 1.0]
    assert torch.q_per_channel_zero_points(q).tolist() == [0, 1]
    assert torch.q_per_channel_axis(q) == 0


def test_numbers_are_copied() -> None:
    x = torch.ones(2, 2)
    assert x.copy_(2.5) is x and x.tolist() == [[2.5, 2.5]] * 2 and x.copy_(other=1)[0, 0] == 1
    assert torch.ones(2, dtype=torch.int8).copy_(300, True).tolist() == [44, 44]
    with pytest.raises(TypeError, match=r"argument 'other'.* must be Tensor, not str"):
        x.copy_("2")
    y = torch.ones(2, requires_grad=True) * 1
    assert type(y.copy_(3).grad_fn).__name__ == "CopyBackwards"
    assert x.to("meta").copy_(3).is_meta


def test_switches_and_histories() -> None:
    x = torch.ones(2, requires_grad=True) * 2
    assert torch.detach_(x) is x and not x.requires_grad
    assert torch.has_lapack and torch.has_spectral and not torch.is_vulkan_available()
    assert not (torch.has_mkl or torch.has_openmp)
    with pytest.raises(NotImplementedError, match="no streams on cpu"):
        x.record_stream(None)


@pytest.mark.filterwarnings("ignore:This overload")
def test_sums_with_a_number_before_a_number() -> None:
    assert torch.add(torch.tensor(3.0), 5, 2) == 13 and torch.tensor(3.0).sub(5, 2.0) == -7
    assert torch.tensor(3.0).add_(2.5, 1) == 5.5
    assert torch.equal(torch.add(torch.tensor(True), 5, True), torch.tensor(True))


@pytest.mark.filterwarnings("ignore:.*set_default_tensor_type")
def test_default_types_are_types_of_tensors() -> None:
    for wrong in (torch.float32, 3, None):
        with pytest.raises(TypeError, match="invalid type object"):
            torch.set_default_tensor_type(wrong)


@pytest.mark.filterwarnings("ignore:This overload")
def test_numbers_between_tensors_may_be_tensors_of_one() -> None:
    x, three = torch.ones(2), torch.tensor(3.0)
    assert torch.add(x, three, x).tolist() == [4, 4]
    assert torch.sub(x, three, 2.0).tolist() == [-5, -5]
    assert x.add(three, 2.0).tolist() == [7, 7]
    assert torch.addcmul(x, three, x, x).tolist() == [4, 4]
    with pytest.raises(TypeError):
        torch.add(x, torch.ones(1), x)
    with pytest.raises(TypeError):
        torch.add(x, three.clone().requires_grad_(), x)


@pytest.mark.filterwarnings("ignore:at::")
def test_old_norms_write_to_what_is_given() -> None:
    x = torch.tensor([[3.0, 0.0], [0.0, -4.0]])
    for f, value in ((torch.nuclear_norm, 7.0), (torch.frobenius_norm, 5.0)):
        out = torch.empty(())
        assert f(x, (0, 1), out=out) is out and out.item() == pytest.approx(value)


PAIR = (torch.rand(3, 4), torch.rand(3, 4))
LABELS = torch.tensor([[1, 2], [2, 3]])
LOSSES: dict[str, tuple[tuple[Any, ...], tuple[int, ...]]] = {
    "kl_div": (PAIR, (3, 4)),
    "hinge_embedding_loss": ((PAIR[0], torch.ones(3, 4)), (3, 4)),
    "margin_ranking_loss": ((*PAIR, torch.ones(3, 4)), (3, 4)),
    "cosine_embedding_loss": ((*PAIR, torch.ones(3)), (3,)),
    "triplet_margin_loss": ((*PAIR, PAIR[0] + 1), (3,)),
    "binary_cross_entropy_with_logits": (PAIR, (3, 4)),
    "ctc_loss": ((torch.zeros(5, 2, 4), LABELS, torch.tensor([5, 5]), torch.tensor([2, 2])), (2,)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_reduce_nothing_by_default_but_as_operators(name: str) -> None:
    args, shape = LOSSES[name]
    loss, operator = getattr(torch, name), getattr(torch.ops.aten, name)
    kept = loss(*args)
    assert kept.shape == shape and kept.equal(operator(*args, reduction=0))
    assert operator(*args).equal(loss(*args, reduction=1)) and operator(*args).dim() == 0


def test_losses_in_code_reduce_as_operators_and_traced_ones_as_they_were_called() -> None:
    def losses(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.kl_div(a, b), torch.kl_div(a, b, 2)

    assert [t.shape for t in torch.jit.script(losses)(*PAIR)] == [(), ()]
    assert [t.shape for t in torch.jit.trace(losses, PAIR)(*PAIR)] == [(3, 4), ()]

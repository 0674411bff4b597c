"""Arguments that once led a kernel outside of its memory, or into a panic."""

import pytest

import torchlike as torch


def test_tolerances_broadcast_with_the_batch():
    ones = torch.ones(5, 2, 3)
    with pytest.raises(RuntimeError, match="must match"):
        torch.linalg.pinv(ones, rtol=torch.zeros(4))
    assert torch.linalg.pinv(ones, rtol=torch.zeros(4, 5)).shape == (4, 5, 3, 2)
    assert torch.linalg.pinv(ones[0], atol=torch.zeros(4), rtol=torch.zeros(2, 1)).shape == (
        2,
        4,
        3,
        2,
    )
    small = torch.full((4, 5), 1e-5)
    assert torch.linalg.matrix_rank(ones, rtol=small).tolist() == [[1] * 5] * 4


@pytest.mark.parametrize("dtype", ["complex32", "float8_e5m2", "uint16", "bool"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_running_sums_into_types_without_a_kernel(name, dtype):
    dtype = getattr(torch, dtype)
    with pytest.raises(NotImplementedError, match=f'"{name}_out_cpu" not implemented for'):
        getattr(torch, name)(torch.zeros(5), 0, dtype=dtype)


def test_cells_of_tensors_without_dimensions():
    t = torch.zeros(())
    for cell in (torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell):
        with pytest.raises(IndexError, match="no dimensions"):
            cell(t, t, t, t)
    with pytest.raises(IndexError, match="no dimensions"):
        torch.lstm_cell(t, (t, t), t, t)


def test_rows_scaled_to_a_norm():
    with pytest.raises(RuntimeError, match="Expected 2-dimensional tensor, but got 0-dimensional"):
        torch.embedding_renorm_(torch.zeros(()), torch.tensor([0]), 1.0, 2.0)
    with pytest.raises(RuntimeError, match="scalar types: Long, Int"):
        torch.embedding_renorm_(torch.zeros(3, 2), torch.zeros(1), 1.0, 2.0)


def test_a_sequence_that_claims_to_be_endless():
    net = torch.nn.GRU(1, 1, device="meta")
    with pytest.raises(RuntimeError, match="steps"):
        net(torch.zeros(1, 1, 1, device="meta").expand(1 << 40, 1, 1))
    with pytest.raises(RuntimeError, match="steps"):
        torch.nn.GRU(1, 1)(torch.zeros(1 << 40, 0, 1))

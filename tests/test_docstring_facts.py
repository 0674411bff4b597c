"""Small facts of PyTorch 2.13 that its own examples show."""

import pytest

import torchlike as tl
from torchlike import sparse
from torchlike.nn import functional as F


@pytest.mark.filterwarnings("ignore:torch.asarray")
def test_asarray_keeps_the_history() -> None:
    leaf = tl.tensor([1.0, 2.0], requires_grad=True)
    made = leaf + 2
    assert tl.asarray(leaf) is leaf
    assert tl.asarray(made).grad_fn is made.grad_fn
    assert tl.asarray(made, requires_grad=True).grad_fn is made.grad_fn
    assert not tl.asarray(made, requires_grad=False).requires_grad
    assert tl.asarray([1.0], requires_grad=True).is_leaf
    plain = tl.ones(2)
    assert tl.asarray(plain, requires_grad=True) is plain and plain.requires_grad
    with pytest.warns(UserWarning, match="unspecified requires_grad now defaults"):
        tl.asarray(leaf)


def test_dim_order() -> None:
    order = tl.empty(2, 3, 4, 5).dim_order
    assert order(ambiguity_check=True) == (0, 1, 2, 3)
    both = [tl.contiguous_format, tl.channels_last]
    assert order(ambiguity_check=both) == (0, 1, 2, 3)
    with pytest.raises(RuntimeError, match="does not have unique dim order, or cannot map"):
        tl.empty(1, 2).dim_order(ambiguity_check=True)
    with pytest.raises(RuntimeError, match="does not have unique dim order, or cannot map"):
        tl.empty(2, 1, 4, 5).dim_order(ambiguity_check=both)
    with pytest.raises(RuntimeError, match=r"does not have unique dim order\.$"):
        tl.empty(2, 3).expand(4, 2, 3).dim_order(ambiguity_check=True)
    with pytest.raises(TypeError, match="must be a bool or a list of memory formats"):
        order(ambiguity_check="yes")
    with pytest.raises(AttributeError, match="Can't get dim order on sparse type"):
        tl.empty(3).to_sparse().dim_order()


def test_typed_storages_are_made() -> None:
    assert tl.TypedStorage(5, dtype=tl.float32).size() == 5
    assert tl.TypedStorage([1, 2], dtype=tl.int32).tolist() == [1, 2]
    assert len(tl.TypedStorage(dtype=tl.int8)) == 0
    with pytest.raises(RuntimeError, match="invalid combination"):
        tl.TypedStorage(1, 2)


def test_names() -> None:
    x = tl.arange(16.0).reshape(1, 4, 2, 2)
    assert tl.equal(F.native_channel_shuffle(x, 2), tl.native_channel_shuffle(x, 2))
    assert tl.equal(tl.native_channel_shuffle(x, 2), tl.channel_shuffle(x, 2))
    assert tl.linalg.LinAlgError.__name__ == "_LinAlgError"
    assert tl.futures.Future is not None


def test_what_the_processor_can_do() -> None:
    found = tl.cpu.get_capabilities()
    assert found is tl.cpu.get_capabilities() and isinstance(found["architecture"], str)
    assert all(isinstance(v, bool) for k, v in found.items() if k.startswith(("sse", "avx", "amx")))
    with pytest.raises(TypeError):
        found["avx2"] = True  # type: ignore[index]


CSR = tl.tensor([[1.0, 0, 2], [0, 3, 0], [0, 0, 0]]).to_sparse_csr()
DENSE = tl.tensor([[0, 1.0], [2, 0], [4, 5]])


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        ("sum", [[8, 11], [6, 0], [0, 0]]),
        ("mean", [[4, 5.5], [6, 0], [0, 0]]),
        ("amax", [[8, 10], [6, 0], [0, 0]]),
        ("max", [[8, 10], [6, 0], [0, 0]]),
        ("amin", [[0, 1], [6, 0], [0, 0]]),
    ],
)
def test_products_of_sparse_rows_are_reduced(reduce: str, expected: list) -> None:
    assert sparse.mm(CSR, DENSE, reduce).tolist() == expected


def test_reductions_of_products_that_there_are_not() -> None:
    with pytest.raises(RuntimeError, match="reduce type of prod has not been enabled"):
        sparse.mm(CSR, DENSE, "prod")
    with pytest.raises(RuntimeError, match="must be either sum, prod, mean, amax or amin, got x"):
        sparse.mm(CSR, DENSE, "x")
    with pytest.raises(RuntimeError, match="Expected tensor to have Strided Layout"):
        sparse.mm(CSR, CSR, "sum")
    with pytest.raises(NotImplementedError, match="sparse_csr"):
        sparse.mm(CSR.to_dense().to_sparse(), DENSE, "sum")
    x = DENSE.clone().requires_grad_()
    sparse.mm(CSR, x, "sum").sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[1, 1], [3, 3], [2, 2]]


@pytest.mark.parametrize(
    ("starts", "places", "values", "rule"),
    [
        ([1, 1, 2], [0, 1], [1.0, 2], "`crow_indices[..., 0] == 0` is not satisfied."),
        ([0, 1, 3], [0, 1], [1.0, 2], "`crow_indices[..., -1] == nnz` is not satisfied."),
        ([0, 2, 1], [0], [1.0], "`0 <= crow_indices[..., 1:] - crow_indices[..., :-1] <= ncols` is not satisfied."),
        ([0, 1, 2], [0, 5], [1.0, 2], "`0 <= col_indices < ncols` is not satisfied."),
        (
            [0, 2, 2], [1, 0], [1.0, 2],
            "`col_indices[..., crow_indices[..., i - 1]:crow_indices[..., i]] for all i = 1, ..., nrows are sorted and "
            "distinct along the last dimension values` is not satisfied.",
        ),
        (
            [0, 1, 2], [0, 1], [1.0, 2, 3],
            "col_indices.shape[-1] must be equal to nnz (=3) as defined by values.shape[0], but got 2",
        ),
        (
            [0, 1, 2, 2], [0, 1], [1.0, 2],
            "crow_indices.shape[-1] must be equal to the number of rows + 1 (=3), but got 4",
        ),
    ],
)  # fmt: skip
def test_rules_of_compressed_indices(starts: list, places: list, values: list, rule: str) -> None:
    with pytest.raises(RuntimeError) as error:
        tl.sparse_csr_tensor(starts, places, values, (2, 2))
    assert str(error.value) == rule and type(error.value) is RuntimeError


def test_quantised_pools_and_norms() -> None:
    x = tl.tensor([[[[0.0, 1.5, 3.0], [6.0, -1.5, 0.0]]]])
    q = tl.quantize_per_tensor(x, 1.5, 3, tl.quint8)
    pooled = tl.quantized_max_pool2d(q, [2, 2], [1, 1])
    assert pooled.int_repr().tolist() == [[[[7, 5]]]] and pooled.q_scale() == 1.5
    assert tl.quantized_max_pool1d(q[0], [2]).int_repr().tolist() == [[[4], [7]]]
    assert tl.quantized_max_pool3d(q.unsqueeze(0), [1, 2, 2]).int_repr().tolist() == [[[[[7]]]]]
    one = tl.ones(1)
    normed = tl.quantized_batch_norm(q, one * 2, one, one, one * 4, 0.0, 0.5, 10)
    assert tl.allclose(normed.dequantize(), x, atol=0.26)
    with pytest.raises(RuntimeError, match="Weight must be provided"):
        tl.quantized_batch_norm(q, None, None, one, one, 0.0, 0.5, 10)
    with pytest.raises(NotImplementedError, match="quantized_max_pool2d"):
        tl.quantized_max_pool2d(x, [2, 2])
    with pytest.raises(RuntimeError, match="rank 5"):
        tl.quantized_max_pool3d(q, [1, 2, 2])

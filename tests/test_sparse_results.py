"""Sparse tensors that factories make, that results are written into, and that get another size."""

from __future__ import annotations

import pytest

import torchlike as torch

NAN = float("nan")


def coo():
    return torch.tensor([[1.0, 0], [-2, 3]]).to_sparse()


def uncoalesced():
    return torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 0]], [1.0, 2.0, 3.0], (2, 2))


@pytest.mark.parametrize("make", [torch.zeros, torch.empty])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_factories_make_sparse_layouts(make, device):
    t = make(2, 3, layout=torch.sparse_coo, device=device)
    assert (t.layout, t.shape, t.device.type) == (torch.sparse_coo, (2, 3), device)
    assert (t._nnz(), t.sparse_dim(), t.dense_dim(), t.is_coalesced()) == (0, 2, 0, True)
    t = make(4, 2, 3, layout=torch.sparse_csr, dtype=torch.int8, device=device)
    assert (t.crow_indices().shape, t.values().shape, t.dtype) == ((4, 3), (4, 0), torch.int8)
    assert make(2, 3, layout=torch.sparse_csc, device=device).ccol_indices().shape == (4,)
    assert make(2, 2, layout=torch.sparse_coo, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match=r"but got size \[4\]"):
        make(4, layout=torch.sparse_csr)
    with pytest.raises(RuntimeError, match=r"\(non-block\) tensor layout but got SparseBsr"):
        make(4, 4, layout=torch.sparse_bsr)


def test_factories_that_cannot_say_so():
    with pytest.raises(RuntimeError, match="not implemented for sparse layout"):
        torch.ones(2, 3, layout=torch.sparse_coo)
    with pytest.raises(
        NotImplementedError, match=r"rand\(\) makes no tensors of layout sparse_coo"
    ):
        torch.rand(2, 3, layout=torch.sparse_coo)


def test_factories_follow_sparse_tensors():
    hybrid = torch.ones(2, 3, 4).to_sparse(2)
    assert torch.zeros_like(hybrid).dense_dim() == 1
    assert torch.zeros_like(hybrid, device="meta").device.type == "meta"
    assert torch.zeros_like(hybrid, layout=torch.strided).stride() == (12, 4, 1)
    assert torch.zeros_like(torch.ones(2, 3), layout=torch.sparse_coo)._nnz() == 0
    csr = coo().to_sparse_csr()
    ones = torch.ones_like(csr, dtype=torch.float64)
    assert ones.values().tolist() == [1.0, 1.0, 1.0] and ones.dtype == torch.float64
    assert torch.zeros_like(csr)._nnz() == 0 and torch.empty_like(csr)._nnz() == 3
    assert torch.zeros_like(csr, layout=torch.sparse_coo).layout == torch.sparse_coo
    assert csr.new_zeros((3, 2)).layout == torch.sparse_csr
    assert coo().new_zeros((3,), layout=torch.strided).layout == torch.strided
    with pytest.raises(RuntimeError, match="self is SparseCsr but you requested Strided"):
        torch.empty_like(csr, layout=torch.strided)
    with pytest.raises(RuntimeError, match="only supported by strided tensors"):
        torch.zeros_like(coo(), memory_format=torch.contiguous_format)


def test_results_are_written_into_sparse_tensors():
    out = torch.sparse_coo_tensor((3, 3))
    assert torch.neg(coo(), out=out) is out
    assert out.shape == (2, 2) and out.to_dense().tolist() == [[-1.0, 0.0], [2.0, -3.0]]
    torch.mul(coo(), coo(), out=out)
    assert out.to_dense().tolist() == [[1.0, 0.0], [4.0, 9.0]]
    dense = torch.empty(0)
    torch.mm(coo(), torch.ones(2, 2), out=dense)
    assert dense.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert torch.zeros(3, 2, out=out)._nnz() == 0 and out.shape == (3, 2)
    with pytest.raises(RuntimeError, match="result type Float can't be cast"):
        torch.asin(coo(), out=torch.zeros_like(coo(), dtype=torch.int64))
    with pytest.raises(RuntimeError, match="layout"):
        torch.neg(coo(), out=torch.empty(2, 2))


def test_what_is_done_in_place():
    with pytest.raises(RuntimeError, match="sin_ requires coalesced input"):
        uncoalesced().sin_()
    assert not uncoalesced().neg_().is_coalesced()
    t = torch.sparse_coo_tensor([[0], [2]], [5.0], (2, 3)).t_()
    assert t.shape == (3, 2) and t.to_dense()[2, 0] == 5
    assert torch.ones(2, 2).mul_(coo()).tolist() == [[1.0, 0.0], [-2.0, 3.0]]
    with pytest.raises(TypeError, match="Cannot assign to a sparse tensor"):
        coo()[0] = 1
    t = coo()
    assert t._coalesced_(False) is t and not t.is_coalesced()


def test_another_size():
    t = coo().sparse_resize_((3, 4), 2, 0)
    assert t.shape == (3, 4) and t.to_dense()[1, :2].tolist() == [-2.0, 3.0]
    with pytest.raises(
        RuntimeError, match=r"shrinking the size of sparse dimensions \(from \[2, 2\]"
    ):
        coo().sparse_resize_((1, 2), 2, 0)
    with pytest.raises(RuntimeError, match="changing the number of dense dimensions"):
        coo().sparse_resize_((2, 2, 3), 2, 1)
    t = coo().sparse_resize_and_clear_((3, 4), 1, 1)
    assert (t._nnz(), t.sparse_dim(), t._values().shape) == (0, 1, (0, 4))
    assert torch.sparse_coo_tensor((2, 2)).resize_as_sparse_(coo().to_sparse()).shape == (2, 2)
    assert torch.sparse_coo_tensor((1, 2)).resize_as_(coo()).shape == (2, 2)


@pytest.mark.parametrize("row", ["sparse_resize", "sparse_resize_and_clear", "resize_as_sparse"])
def test_another_size_is_that_of_a_sparse_tensor(row):
    size = (coo(),) if row.startswith("resize_as") else ((2, 2), 2, 0)
    with pytest.raises(RuntimeError, match="sparse"):
        getattr(torch.ones(2, 2), f"{row}_")(*size)


def test_sums_keep_dimensions_and_layouts():
    csr = coo().to_sparse_csr().sum(0, keepdim=True)
    assert (csr.layout, csr.shape) == (torch.sparse_csr, (1, 2))
    assert csr.to_dense().tolist() == [[-1.0, 3.0]]
    assert coo().sum(1, keepdim=True).shape == (2, 1)
    assert coo().to(torch.int32).sum(1).dtype == torch.int64
    with pytest.raises(RuntimeError, match="only supports full reductions"):
        coo().norm(3, dim=0)
    assert (
        torch.sparse_coo_tensor([[0, 0]], torch.tensor([1, 2], dtype=torch.int8), (2,))[0].dtype
        == torch.int8
    )


def test_parts_are_copied_and_values_drawn():
    assert coo().narrow_copy(0, 1, 1).to_dense().tolist() == [[-2.0, 3.0]]
    assert torch.select_copy(coo(), 0, 0).to_dense().tolist() == [1.0, 0.0]
    csr = coo().to_sparse_csr()
    torch.manual_seed(3)
    drawn = torch.randn_like(csr)
    torch.manual_seed(3)
    assert drawn.values().equal(torch.randn(3)) and drawn._nnz() == 3


def test_products_broadcast():
    t = coo() * torch.tensor([[[1.0]], [[2.0]]])
    assert t.shape == (2, 2, 2) and t.to_dense()[1].tolist() == [[2.0, 0.0], [-4.0, 6.0]]
    assert (coo() * torch.tensor(2.0).to_sparse()).to_dense().tolist() == [[2.0, 0.0], [-4.0, 6.0]]
    empty = torch.zeros(0, 2, 0).to_sparse(1)
    assert empty.shape == (0, 2, 0)


def test_both_factors_have_gradients_at_their_entries():
    a, b = coo().requires_grad_(), coo().requires_grad_()
    torch.sparse.mm(a, b).to_dense().sum().backward()
    assert a.grad._indices().tolist() == b.grad._indices().tolist() == a._indices().tolist()
    assert b.grad._values().tolist() == [-1.0, 3.0, 3.0]
    c = coo().requires_grad_()
    torch.zeros(2, 2).to_sparse().copy_(c).to_dense().sum().backward()
    assert c.grad.device.type == "cpu"


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_bsc])
def test_gradients_are_compared_by_values(layout, masked):
    block = (1, 2) if layout == torch.sparse_bsc else None
    t = coo().double().to_dense().to_sparse(layout=layout, blocksize=block).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: x.to_dense() ** 3, (t,), masked=True)
    if masked:
        assert torch.autograd.gradcheck(lambda x: x * 2.0, (t,), masked=True)


def test_gathered_entries_have_sparse_gradients():
    x = torch.ones(3, 4, requires_grad=True)
    at = torch.tensor([[0, 1], [2, 2]])
    torch.gather(x, 1, at, sparse_grad=True).sum().backward()
    assert x.grad.layout == torch.sparse_coo and not x.grad.is_coalesced()
    assert x.grad._indices().tolist() == [[0, 0, 1, 1], [0, 1, 2, 2]]
    assert x.grad.to_dense()[1].tolist() == [0.0, 0.0, 2.0, 0.0]
    zero = torch.tensor(2.0, requires_grad=True)
    torch.gather(zero, 0, torch.tensor([0]), sparse_grad=True).sum().backward()
    assert zero.grad.to_dense() == 1


def test_slices_with_nan_are_as_they_come():
    made, inverse = torch.unique(torch.tensor([NAN, 1, NAN, 2, 0, NAN]), dim=0, return_inverse=True)
    assert made[[1, 3, 4]].tolist() == [1.0, 0.0, 2.0]
    assert inverse.tolist() == [0, 1, 2, 4, 3, 5]
    many = torch.tensor([[float(i * 7 % 11), NAN] for i in range(40)])
    assert torch.unique(many, dim=0).shape == (40, 2)
    with pytest.raises(RuntimeError, match="more than one"):
        torch.unique(torch.zeros(0, 0), dim=0)


def test_lists_and_tuples_as_results():
    out = torch.empty(0, dtype=torch.int64)
    assert torch.nonzero(torch.tensor([0, 1, 1]), as_tuple=False, out=out) is out
    assert out.tolist() == [[1], [2]]
    assert [t.tolist() for t in torch.nonzero(out, as_tuple=True)] == [[0, 1], [0, 0]]
    with pytest.raises(RuntimeError, match="does not support the out kwarg"):
        torch.nonzero(out, as_tuple=True, out=out)
    outs = [torch.empty(0), torch.empty(0)]
    torch.split_copy(torch.arange(3.0), 2, out=outs)
    assert [t.tolist() for t in outs] == [[0.0, 1.0], [2.0]]
    with pytest.raises(RuntimeError, match="expected an out= argument of size 3, got size 2"):
        torch.split_copy(torch.arange(3.0), 1, out=outs)


def test_quantised_tensors_are_flipped_and_ordered():
    q = torch.quantize_per_tensor(torch.tensor([1.0, 3.0, 2.0]), 0.5, 1, torch.quint8)
    assert q.flip(0).dequantize().tolist() == [2.0, 3.0, 1.0]
    values, at = q.topk(2)
    assert values.dequantize().tolist() == [3.0, 2.0] and at.tolist() == [1, 2]
    assert values.q_scale() == 0.5 and q.sort().values.dequantize().tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sums_of_two_types_are_computed_in_the_wider_one(layout):
    a = torch.tensor([[3, 0], [100, 1]], dtype=torch.int8)
    b = torch.tensor([[100, 7], [0, 1]], dtype=torch.uint8)
    sparse = (lambda t: t.to_sparse_csr()) if layout == "csr" else (lambda t: t.to_sparse())
    for got, want in (
        (sparse(a) - sparse(b), a - b),
        (torch.add(sparse(b), sparse(a), alpha=3), torch.add(b, a, alpha=3)),
        (torch.sub(a, sparse(b), alpha=2), torch.sub(a, b, alpha=2)),
        (sparse(a) + sparse(b.bool()), a + b.bool()),
    ):
        assert got.dtype == want.dtype
        assert torch.equal(got.to_dense() if got.layout != torch.strided else got, want)
    with pytest.raises(RuntimeError, match="with a bool tensor is not supported"):
        sparse(a) - sparse(b.bool())
    with pytest.raises(RuntimeError, match="argument alpha must not be a floating point number"):
        torch.add(sparse(a), sparse(b), alpha=2.5)


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr])
def test_one_of_a_batch_of_compressed_matrices_is_compressed(layout):
    dense = torch.arange(32.0).reshape(2, 4, 4) - 40
    block = (2, 2) if layout is torch.sparse_bsr else None
    batch = dense.to_sparse(layout=layout, blocksize=block)
    assert batch[1].layout is layout and torch.equal(batch[1].to_dense(), dense[1])
    assert [m.layout for m in batch] == [layout] * 2
    wide = torch.arange(32.0).reshape(4, 4, 2)
    pairs = wide.to_sparse(layout=layout, blocksize=block, dense_dim=1)
    assert pairs.select(2, 1).layout is layout
    assert torch.equal(pairs.select(-1, 1).to_dense(), wide[..., 1])


def test_sparse_tensors_are_taken_apart():
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    for t in (dense.to_sparse(), dense.to_sparse_csr()):
        for dim in (0, 1):
            parts = t.unbind(dim)
            assert all(p.layout is torch.sparse_coo for p in parts)
            for part, want in zip(parts, dense.unbind(dim), strict=True):
                assert torch.equal(part.to_dense(), want)
    assert [row.to_dense().tolist() for row in dense.to_sparse()] == dense.tolist()


CHOSEN = [
    lambda t: t[1],
    lambda t: t.select(1, 2),
    lambda t: t[1:3],
    lambda t: t.index_select(0, torch.tensor([2, 0, 2])),
]


@pytest.mark.parametrize("choose", CHOSEN)
def test_gradients_of_what_is_chosen_lie_where_it_was(choose):
    whole = torch.tensor([[1.0, 0, 2, 0], [0, -3, 4, 0], [0, 0, 0, 5]], dtype=torch.float64)
    sparse = whole.to_sparse().requires_grad_()
    made = choose(sparse).to_dense()
    (made * made + made).sum().backward()
    plain = whole.clone().requires_grad_()
    made = choose(plain)
    (made * made + made).sum().backward()
    assert torch.equal(sparse.grad.to_dense(), plain.grad * (whole != 0))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_gradients_lie_as_their_tensors(layout):
    whole = torch.tensor([[1.0, 0, -2], [0, 3, 4]], dtype=torch.float64)
    for change in (torch.relu, lambda t: t.to_sparse_csr(), lambda t: t.to_sparse_csc()):
        x = whole.to_sparse(layout=layout).requires_grad_()
        made = change(x).to_dense()
        (made * made + made).sum().backward()
        assert x.grad.layout == layout
        kept = (whole > 0) if change is torch.relu else (whole != 0)
        assert torch.equal(x.grad.to_dense(), (2 * whole + 1) * kept)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_linear_layers_of_sparse_factors(layout):
    linear = torch.nn.functional.linear
    weight = torch.tensor([[1.0, 0, -2], [0, 3, 4]], dtype=torch.float64)
    x, bias = torch.randn(2, 4, 3, dtype=torch.float64), torch.randn(2, dtype=torch.float64)
    pressed = weight.to_sparse(layout=layout)
    torch.testing.assert_close(linear(x[0], pressed), linear(x[0], weight))
    torch.testing.assert_close(linear(x[0], pressed, bias), linear(x[0], weight, bias))
    torch.testing.assert_close(linear(x, pressed, bias), linear(x, weight, bias))
    torch.testing.assert_close(linear(pressed, x[0]), linear(weight, x[0]))


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_indices_keep_their_dtype_in_other_layouts(layout):
    narrow = torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    t = torch.sparse_csr_tensor(*narrow, torch.ones(2))
    blocks = ((1, 1),) if layout.startswith("b") else ()
    made = getattr(t, f"to_sparse_{layout}")(*blocks)
    starts, places = (
        (made.crow_indices(), made.col_indices())
        if layout.endswith("r")
        else (made.ccol_indices(), made.row_indices())
    )
    assert starts.dtype == places.dtype == torch.int32
    assert torch.equal(made.to_dense(), torch.eye(2))
    assert (t + t).crow_indices().dtype == torch.int32
    with pytest.raises(RuntimeError, match=f"^to_sparse_{layout}: Expected product of batch dim"):
        getattr(torch.zeros(0, 2, 2), f"to_sparse_{layout}")(*blocks)


def test_starts_of_rows_and_rows_tell_each_other():
    starts, places = torch.tensor([[0, 1, 3], [0, 2, 3]]), torch.tensor([[0, 1, 2], [0, 1, 1]])
    both = torch._convert_indices_from_csr_to_coo(starts, places)
    assert both.tolist() == [[0, 0, 0, 1, 1, 1], [0, 1, 1, 0, 0, 1], [0, 1, 2, 0, 1, 1]]
    turned = torch._convert_indices_from_csr_to_coo(
        starts[0], places[0], out_int32=True, transpose=True
    )
    assert turned.dtype == torch.int32 and turned.tolist() == [[0, 1, 2], [0, 1, 1]]
    rows = torch.tensor([0, 1, 1], dtype=torch.int32)
    assert torch._convert_indices_from_coo_to_csr(rows, 3).tolist() == [0, 1, 3, 3]
    narrow = torch._convert_indices_from_coo_to_csr(rows, 2, out_int32=True)
    assert narrow.dtype == torch.int32 and narrow.tolist() == [0, 1, 3]
    with pytest.raises(RuntimeError, match="is said to have 5 entries, but there are 3"):
        torch._convert_indices_from_csr_to_coo(torch.tensor([0, 5]), places[0])


def test_sums_of_recorded_tensors_are_merged():
    def made():
        x = coo() + torch.tensor([[0.0, 5], [1, 0]]).to_sparse()
        return x, (x * x), x[1], torch.zeros_like(x, layout=torch.strided)

    want = made()
    with torch.nn.utils.meta_init():
        found = made()
    for a, b in zip(want, found, strict=True):
        if not a.is_sparse:
            assert torch.materialize(b).tolist() == a.tolist()
            continue
        assert b.is_coalesced() == a.is_coalesced()
        assert torch.materialize(b._indices()).tolist() == a._indices().tolist()
        assert torch.materialize(b._values()).tolist() == a._values().tolist()


def test_parts_have_no_history_of_their_own():
    values = torch.ones(2, requires_grad=True)
    for t in (
        torch.sparse_coo_tensor([[0, 1], [1, 0]], values, (2, 2), is_coalesced=True),
        torch.sparse_csr_tensor([0, 1, 2], [1, 0], values, (2, 2)),
    ):
        assert t.requires_grad and t.values().requires_grad
        assert not t.detach().values().requires_grad
    assert not torch.sparse_coo_tensor([[0, 1]], values)._values().requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.uint8])
def test_products_of_small_and_whole_numbers(dtype):
    dense = torch.tensor([[1, 0], [2, 3]], dtype=dtype)
    assert (dense.to_sparse() @ dense).tolist() == [[1, 0], [8, 9]]
    assert (dense.to_sparse() @ dense).dtype == dtype


def test_products_of_truths_are_refused_on_meta_too():
    for device in ("cpu", "meta"):
        dense = torch.ones(2, 2, dtype=torch.bool, device=device)
        indices = torch.zeros(2, 1, dtype=torch.int64, device=device)
        entries = torch.ones(1, dtype=torch.bool, device=device)
        with pytest.raises(NotImplementedError, match="addmm_sparse_dense"):
            torch.sparse_coo_tensor(indices, entries, (2, 2)) @ dense


def test_nodes_of_logarithms_of_shares_say_so():
    x = coo().requires_grad_()
    for make, name in ((torch.sparse.softmax, "Softmax"), (torch.sparse.log_softmax, "LogSoftmax")):
        assert type(make(x, 0).grad_fn).__name__ == f"Sparse{name}Backward0"


@pytest.mark.parametrize("way", ["csr", "csc"])
def test_complex_results_have_no_gradient_in_the_words_of_the_layout(way):
    x = torch.ones(2, 2, dtype=torch.complex64, requires_grad=True)
    with pytest.raises(RuntimeError, match=f"^_to_sparse_{way} does not support automatic"):
        getattr(x, f"to_sparse_{way}")()


@pytest.mark.parametrize("kind", [torch.uint8, torch.float16, torch.float64, torch.complex64])
def test_products_without_dimensions_have_the_type_of_both(kind):
    x = torch.tensor(3, dtype=kind).to_sparse()
    for other in (torch.tensor(2), torch.tensor(2.0), torch.tensor(2.0, dtype=torch.float64)):
        wanted = torch.result_type(x, other)
        for y in (other, other.to_sparse()):
            for made in (x * y, y * x):
                assert (made.dtype, made.layout) == (wanted, torch.sparse_coo)
                assert made.to_dense() == 6
    assert (x * 2).dtype == kind
    assert (
        torch.ones(2).to_sparse() * torch.tensor(2.0).double().to_sparse()
    ).dtype == torch.float32


def test_diagonals_of_other_offsets_and_layouts_are_refused():
    rows = torch.ones(1, 5)
    with pytest.raises(RuntimeError, match="Offset Tensor must have dtype Long but got Int"):
        torch.sparse.spdiags(rows, torch.tensor([0], dtype=torch.int32), (5, 5))
    with pytest.raises(RuntimeError, match="are supported, got Strided"):
        torch.sparse.spdiags(rows, torch.tensor([0]), (5, 5), torch.strided)
    with pytest.raises(RuntimeError, match="are supported, got SparseBsr"):
        torch.sparse.spdiags(rows, torch.tensor([0]), (5, 5), torch.sparse_bsr)

"""What wrong calls are told, against types and texts recorded from PyTorch."""

import json
import pathlib

import pytest

import torchlike as torch

CASES = json.loads((pathlib.Path(__file__).parent / "data" / "messages.json").read_text())


@pytest.mark.parametrize(("code", "want"), CASES, ids=[c[0] for c in CASES])
def test_message(code, want):
    try:
        got = ["result", repr(eval(code, {"torch": torch, "x": torch.ones(2)}))]
    except Exception as e:
        got = [type(e).__name__, str(e)]
    got[1] = got[1].replace("torchlike.", "torch.")
    assert got == want


def test_recurrent_layers_name_what_does_not_fit():
    cell = torch.nn.LSTMCell(3, 4)
    x, state = torch.ones(2, 3), torch.ones(2, 4)
    for call, want in (
        (lambda: cell(torch.ones(2, 5)), "input has inconsistent input_size: got 5 expected 3"),
        (
            lambda: cell(x, (state, torch.ones(2, 5))),
            "hidden1 has inconsistent hidden_size: got 5, expected 4",
        ),
        (
            lambda: cell(x, (torch.ones(3, 4), state)),
            "Input batch size 2 doesn't match hidden0 batch size 3",
        ),
        (
            lambda: torch.nn.LSTM(3, 4, device="meta")(torch.ones(5, 2, 3)),
            "Input and parameter tensors are not at the same device, "
            "found input tensor at cpu and parameter tensor at meta",
        ),
    ):
        with pytest.raises(RuntimeError) as error:
            call()
        assert str(error.value) == want


@pytest.mark.parametrize("convert", [int, float, complex])
def test_python_numbers_are_made_of_one_element(convert):
    assert convert(torch.ones(1, 1)) == 1
    with pytest.raises(ValueError, match=r"^only one element tensors can be"):
        convert(torch.ones(2))


def told(call):
    """The type and the first line of what a call is told."""
    try:
        return type(call()), ""
    except Exception as error:
        return type(error), str(error).replace("torchlike", "torch").split("\n")[0]


X, Y = torch.ones(3), torch.ones(3, 3)
F = torch.nn.functional
LARGE = "Overflow when unpacking long long"


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda: torch.abs(self=X), 'abs() missing 1 required positional arguments: "input"'),
        (lambda: torch.abs(X, self=1), "abs() got an unexpected keyword argument 'self'"),
        (lambda: F.mish(x=X), "mish() got an unexpected keyword argument 'x'"),
        (lambda: F.softmax(X, axis=0), "softmax() got an unexpected keyword argument 'axis'"),
        (lambda: X.select(0, 0, input=1), "select() got an unexpected keyword argument 'input'"),
        (lambda: X.byte(3), "byte() takes 0 positional arguments but 1 was given"),
        (lambda: torch.tensor(1.0, 2), "tensor() takes 1 positional argument but 2 were given"),
        (lambda: torch.tensor(), 'tensor() missing 1 required positional arguments: "data"'),
        (lambda: torch.abs(X, out=(X,)), "abs(): argument 'out' must be Tensor, not tuple"),
        (
            lambda: torch.linalg.eigh(Y, out=Y),
            "linalg_eigh(): argument 'out' must be tuple of Tensors, not Tensor",
        ),
        (lambda: torch.sort(Y, out=(Y,)), "expected tuple of 2 elements but got 1"),
        (
            lambda: torch.max(Y, 0, out=(Y, 3)),
            "expected Tensor as element 1 in argument 3, but got int",
        ),
        (
            lambda: torch.zeros(2, 2**70),
            f"zeros(): argument 'size' failed to unpack the object at pos 2 with error \"{LARGE}",
        ),
        (
            lambda: F.dropout(X, 0.5, 3),
            "dropout(): argument 'train' (position 3) must be bool, not int",
        ),
        (
            lambda: F.unfold(torch.ones(1, 1, 4, 4), "a"),
            "im2col(): argument 'kernel_size' (position 2) must be tuple of ints, "
            "but found element of type str at pos 0",
        ),
        (
            lambda: F.poisson_nll_loss(X, X, reduction=3),
            "unsupported operand type(s) for +: 'int' and 'str'",
        ),
    ],
)
def test_words_of_arguments_that_do_not_fit(call, want):
    assert told(call) == (TypeError, want)


@pytest.mark.parametrize("call", [lambda: X.sum(2**70), lambda: torch.topk(X, 2**70)])
def test_integers_of_more_than_64_bits_are_no_sizes(call):
    assert told(call) == (ValueError, LARGE)


@pytest.mark.parametrize(
    "call", [lambda: X + 2**70, lambda: torch.add(X, 2**70), lambda: X.fill_(2**70)]
)
def test_integers_of_more_than_64_bits_are_no_numbers(call):
    assert told(call) == (OverflowError, "int too big to convert")


def test_a_reduction_that_is_no_name_is_a_value_error():
    for loss in (F.mse_loss, F.smooth_l1_loss, F.soft_margin_loss):
        assert told(lambda loss=loss: loss(X, X, reduction=3)) == (
            ValueError,
            "3 is not a valid value for reduction",
        )


def test_what_python_only_tests_may_be_anything():
    assert torch.nn.ReLU(0.5)(X.clone()).tolist() == [1, 1, 1]
    assert F.dropout(X, 0.0, True, "in place").tolist() == [1, 1, 1]
    assert len(list(torch.nn.Linear(2, 2).parameters(1))) == 2


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda: torch.norm(torch.ones(2, 3, 4), "nuc"), "dim must be a 2-tuple. Got 0 1 2"),
        (lambda: torch.ones(1).index_add(0, torch.tensor([0]), torch.ones(())), "must match self"),
        (lambda: F.bilinear(X.byte(), X, torch.ones(1, 3, 3)), "must have the same dtype"),
        (
            lambda: X.byte().new_full((2,), 256),
            "value cannot be converted to type uint8_t without overflow",
        ),
        (lambda: torch.inner(X, X.long()), "both inputs should have same dtype"),
        (
            lambda: torch.zeros(2, 3, 4).index_copy(1, torch.tensor([0]), torch.ones(2, 1, 5)),
            "Destination slice shape: 2 4 at dimension 1 and source slice shape: 2 5 at dimension 0.",
        ),
        (
            lambda: torch.sum(X, 0, dtype=torch.float64, out=torch.empty(0)),
            "Expected out tensor to have dtype double, but got float instead",
        ),
        (lambda: torch.histc(X, 3, float("nan"), 1), "range of [nan, 1] is not finite"),
        (
            lambda: torch.take_along_dim(Y, torch.zeros(2).half(), 0),
            "same number of dimensions",
        ),
    ],
)
def test_operands_that_do_not_belong_together_are_refused(call, want):
    kind, text = told(call)
    assert kind is RuntimeError
    assert want in text


def test_integers_are_not_rounded_to_decimals():
    for decimals, kernel in ((0, "round_vml_cpu"), (2, "round_cpu")):
        kind, text = told(lambda n=decimals: torch.round(torch.ones(2).long(), decimals=n))
        assert (kind, text) == (NotImplementedError, f"\"{kernel}\" not implemented for 'Long'")


@pytest.mark.parametrize(
    ("draw", "kernel"),
    [
        (lambda t: t.random_(), "random_kernel_cpu"),
        (lambda t: t.bernoulli_(0.5), "bernoulli_scalar_cpu_"),
        (lambda t: t.random_(-(2**63), None), "random_full_64_bits_range_kernel_cpu"),
        (lambda t: torch.randperm(3, dtype=t.dtype), "randperm"),
    ],
)
@pytest.mark.parametrize(("dtype", "name"), [(torch.uint16, "UInt16"), (torch.uint64, "UInt64")])
def test_wide_unsigned_numbers_are_not_drawn(draw, kernel, dtype, name):
    kind, text = told(lambda: draw(torch.zeros(2, dtype=dtype)))
    assert (kind, text) == (NotImplementedError, f"\"{kernel}\" not implemented for '{name}'")


def test_small_floats_are_not_drawn_between_bounds():
    t = torch.zeros(2, dtype=torch.float8_e5m2)
    assert told(lambda: t.random_(5))[1].startswith('"random_update_from_to" not implemented')
    assert told(lambda: t.random_(0, None))[1].startswith('"random_from_to_range_calc" not')
    of = torch.zeros(2, dtype=torch.complex32)
    assert told(lambda: of.random_(0, None))[1].startswith("random_from_to_impl handles only")
    assert "c10::complex<c10::Half>" in told(lambda: of.cauchy_())[1]


def test_lists_that_may_be_given_one_by_one_may_have_none():
    assert torch.broadcast_tensors() == () and torch.atleast_2d() == ()
    for f in (torch.meshgrid, torch.cartesian_prod):
        assert told(f) == (RuntimeError, "meshgrid expects a non-empty TensorList")
    assert told(torch.chain_matmul)[0] is RuntimeError


def test_numbers_beyond_64_bits_are_no_indices():
    for i in (2**63, -(2**70)):
        kind, text = told(lambda i=i: torch.ones(3)[i])
        assert (kind, text) == (ValueError, "Overflow when unpacking long long")


@pytest.mark.parametrize(
    ("call", "kernel"),
    [
        (lambda t: t + 1, "add_stub"),
        (lambda t: torch.rsub(t, t), "add_stub"),
        (lambda t: t.square(), "pow"),
        (lambda t: t.sgn(), "sign_cpu"),
        (lambda t: t.relu(), "clamp_min_scalar_cpu"),
        (lambda t: t.clamp(max=1), "clamp_max_scalar_cpu"),
        (lambda t: t.clamp(0, 1), "clamp_scalar_cpu"),
        (lambda t: torch.clamp(t, t, t), "clamp_cpu"),
        (lambda t: torch.fmax(t, t), "maximum_cpu"),
        (lambda t: torch.nn.functional.softshrink(t), "softshrink_check"),
        (lambda t: torch.fmin(t.to(torch.float8_e5m2), t.to(torch.float8_e5m2)), "fmin_cpu"),
        (lambda t: t.to(torch.float8_e5m2).exp(), "exp_vml_cpu"),
        (lambda t: t.to(torch.float8_e5m2).nan_to_num(), "nan_to_num"),
    ],
)
def test_kernels_have_pytorchs_names(call, kernel):
    kind, text = told(lambda: call(torch.ones(2, dtype=torch.uint16)))
    assert kind is NotImplementedError
    assert text.startswith(f'"{kernel}" not implemented for ')


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (
            lambda: torch.cholesky_solve(torch.ones(3, 1), torch.eye(2)),
            "Incompatible matrix sizes for cholesky_solve: each A matrix is 2 by 2 but each b matrix is 3 by 1",
        ),
        (
            lambda: torch.triangular_solve(torch.ones(3, 1), torch.ones(3, 2)),
            "A must be batches of square matrices, but they are 3 by 2 matrices",
        ),
        (
            lambda: torch.cholesky_solve(torch.ones(3, 1), torch.ones(3, 2).double()),
            "Expected b and A to have the same dtype, but found b of type Float and A of type Double instead.",
        ),
        (
            lambda: torch.addmm(torch.ones(7, 7), torch.ones(3, 4), torch.ones(4, 5)),
            "The expanded size of the tensor (5) must match the existing size (7) at non-singleton dimension 1.  "
            "Target sizes: [3, 5].  Tensor sizes: [7, 7]",
        ),
        (
            lambda: torch.einsum("ii,i", torch.ones(3, 4), torch.ones(3)),
            "einsum(): subscript i is repeated for operand 0 but the sizes don't match, 4 != 3",
        ),
    ],
)
def test_the_first_thing_that_is_wrong_is_told(call, want):
    assert told(call) == (RuntimeError, want)


@pytest.mark.parametrize(
    ("value", "again", "once"),
    [
        (-1.0, "encountering probability entry < 0", "either `inf`, `nan` or element < 0"),
        (float("nan"), "encountering probability entry < 0", "either `inf`, `nan` or element < 0"),
        (float("inf"), "probability entry = infinity or NaN", "either `inf`, `nan` or element < 0"),
    ],
)
def test_weights_of_draws(value, again, once):
    weights = torch.tensor([1.0, value, 2.0])
    with pytest.raises(RuntimeError, match=again):
        torch.multinomial(weights, 2, replacement=True)
    for replacement in (True, False):
        with pytest.raises(RuntimeError, match=once):
            torch.multinomial(weights, 1, replacement=replacement)


INTS = torch.ones(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (
            lambda: torch.ones(3).cumsum_(0, dtype=torch.float64),
            "Bad in-place call: input tensor dtype float and output tensor dtype double should match",
        ),
        (
            lambda: torch.nn.functional.soft_margin_loss(INTS, INTS),
            "result type Float can't be cast to the desired output type Long",
        ),
        (
            lambda: torch.nn.functional.cross_entropy(torch.tensor(1.0), torch.tensor(0)),
            "Expected floating point type for target with class probabilities, got Long",
        ),
    ],
)
def test_types_of_what_is_written_are_told(call, want):
    assert told(call) == (RuntimeError, want)


def test_batch_norm_of_a_vector_has_no_channels():
    want = "Dimension out of range (expected to be in range of [-1, 0], but got 1)"
    call = torch.nn.functional.batch_norm
    assert told(lambda: call(torch.ones(3), None, None, training=True)) == (IndexError, want)


@pytest.mark.parametrize(
    ("shape", "mode", "kernel"),
    [
        ((1, 1, 4), "nearest", "compute_indices_weights_nearest"),
        ((1, 1, 4, 4), "nearest-exact", "upsample_nearest2d_channels_last"),
        ((1, 1, 4, 4), "bilinear", "upsample_bilinear2d_channels_last"),
        ((1, 1, 99, 99), "bilinear", "compute_indices_weights_linear"),
        ((1, 1, 4, 4), "bicubic", "compute_indices_weights_cubic"),
        ((1, 1, 4, 4, 4), "trilinear", "compute_indices_weights_linear"),
    ],
)
def test_kernels_that_resize_have_pytorchs_names(shape, mode, kernel):
    image = torch.ones(shape, dtype=torch.int64)
    kind, text = told(lambda: torch.nn.functional.interpolate(image, scale_factor=2, mode=mode))
    assert (kind, text) == (NotImplementedError, f"\"{kernel}\" not implemented for 'Long'")


def test_heaviside_looks_at_complex_operands_first():
    x = torch.ones(2, dtype=torch.complex64)
    for call in (lambda: torch.heaviside(x, x.real), lambda: torch.heaviside(x.real, x)):
        with pytest.raises(RuntimeError, match="not yet implemented for complex tensors"):
            call()

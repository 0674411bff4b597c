"""Automatic mixed precision: what is cast, when, and how gradients and scales go with it."""

from __future__ import annotations

import threading
import warnings

import pytest

import torchlike as torch
import torchlike.nn.functional as F
from torchlike import _C, nn
from torchlike.amp import GradScaler, custom_bwd, custom_fwd, is_autocast_available
from torchlike.amp.autocast_mode import autocast_decorator
from torchlike.utils.checkpoint import checkpoint

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64

# PyTorch's lists, by what its dispatcher has kernels for; where a function's row has another name, that.
LOW_ON_BOTH = """
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d bmm mm baddbmm addmm addbmm matmul
    prelu linalg.vecdot nn.functional.linear nn.functional.scaled_dot_product_attention
"""
LOW_ON_GPUS = """
    addmv addr einsum mv chain_matmul linalg.multi_dot lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell convolution
"""
SINGLE_ON_THE_CPU = """
    nn.functional.avg_pool3d grid_sampler polar trace view_as_complex prod quantile nanquantile cholesky
    cholesky_inverse cholesky_solve inverse linalg.cholesky linalg.inv linalg.qr linalg.solve linalg.svd
    linalg.eigh linalg.matrix_rank linalg.tensorinv ormqr pinverse triangular_solve lu_solve cdist
    nn.functional.cross_entropy nn.functional.binary_cross_entropy nn.functional.max_unpool2d
"""
SINGLE_ON_GPUS = """
    acos asin cosh erfinv exp expm1 log log10 log1p log2 reciprocal rsqrt square sinh tan pow layer_norm group_norm
    rms_norm renorm logsumexp cosine_similarity dist pdist cdist nn.functional.softplus nn.functional.mse_loss
    nn.functional.smooth_l1_loss nn.functional.kl_div
"""
BY_DTYPE_ON_GPUS = "sum prod cumsum cumprod softmax log_softmax norm linalg.vector_norm"
WIDEST_ON_THE_CPU = "cat stack index_copy"
WIDEST_ON_GPUS = (
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
)


@pytest.mark.parametrize(
    ("names", "cpu", "cuda"),
    [
        (LOW_ON_BOTH, "low", "low"),
        (LOW_ON_GPUS, "kept", "low"),
        (SINGLE_ON_THE_CPU, "single", None),
        (SINGLE_ON_GPUS, None, "single"),
        (BY_DTYPE_ON_GPUS, None, "result"),
        (WIDEST_ON_THE_CPU, "widest", "kept"),
        (WIDEST_ON_GPUS, None, "widest"),
        ("nn.functional.binary_cross_entropy", "single", "refused"),
    ],
)
def test_rows_say_what_pytorch_does(names, cpu, cuda):
    rows = {name: (host, gpu) for name, host, gpu in _C._op_amp()}
    for name in names.split():
        host, gpu = rows[name]
        assert cpu in (None, host), name
        assert cuda in (None, gpu), name


def single(shape=(2, 3, 3)):
    return torch.ones(shape)


CASES = [
    (lambda a, b: torch.mm(a[0], a[0]), "low"),
    (lambda a, b: a @ b, "low"),
    (lambda a, b: F.linear(a, b[0], b[0, 0]), "low"),
    (lambda a, b: F.conv1d(a, a), "low"),
    (lambda a, b: F.conv1d(a, a, padding="same"), "low"),
    (lambda a, b: torch.einsum("bij,bjk->bik", a, a), "low"),
    (lambda a, b: F.scaled_dot_product_attention(a, a, b), "low"),
    (lambda a, b: F.prelu(a, a[0, 0, :1]), "low"),
    (lambda a, b: torch.mv(a[0], a[0, 0]), "float32"),
    (lambda a, b: torch.prod(b), "float32"),
    (lambda a, b: torch.prod(b, 0, dtype=b.dtype), "low"),
    (lambda a, b: torch.trace(b[0]), "float32"),
    (lambda a, b: F.mse_loss(b, b), "float32"),
    (lambda a, b: F.cross_entropy(b[0], b[0].softmax(-1)), "float32"),
    (lambda a, b: torch.cdist(b, b), "float32"),
    (lambda a, b: torch.linalg.inv(b + torch.eye(3)), "float32"),
    (lambda a, b: F.pad(b, (1, 1), mode="reflect"), "float32"),
    (lambda a, b: F.pad(b, (1, 1), mode="circular"), "low"),
    (lambda a, b: F.pad(b, (1, 1)), "low"),
    (lambda a, b: F.max_unpool1d(b, torch.zeros((2, 3, 3), dtype=torch.int64), 2), "float32"),
    (lambda a, b: F.avg_pool3d(b[None], 1), "float32"),
    (lambda a, b: F.max_pool3d(b[None], 1), "float32"),
    (lambda a, b: F.max_pool1d(b, 2), "low"),
    (lambda a, b: torch.quantile(b, 0.5), "float32"),
    (lambda a, b: torch.polar(b, b), "complex64"),
    (lambda a, b: torch.cat([b, b]), "low"),
    (lambda a, b: torch.cat([a, b]), "float32"),
    (lambda a, b: torch.stack([b, a]), "float32"),
    (lambda a, b: torch.cat([a.double(), b]), "float64"),
    (lambda a, b: b.double() @ b.double(), "float64"),
    (lambda a, b: a.long() @ a.long(), "int64"),
    (lambda a, b: b.exp(), "low"),
    (lambda a, b: b.softmax(-1), "low"),
    (lambda a, b: a + b, "float32"),
    (lambda a, b: torch.tensordot(a, a, 3), "float32"),
]


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("low", [BF16, F16])
def test_what_is_cast_on_the_cpu(number, low):
    call, due = CASES[number]
    due = low if due == "low" else getattr(torch, due)
    with torch.autocast("cpu", dtype=low):
        assert call(single(), single().to(low)).dtype == due


def test_other_low_precisions_are_not_mixed():
    with (
        torch.autocast("cpu", dtype=BF16),
        pytest.raises(RuntimeError, match="Unexpected floating ScalarType"),
    ):
        torch.cat([single().half(), single().bfloat16()])


def test_calls_that_write_are_not_cast():
    with torch.autocast("cpu"):
        x = torch.zeros(2, 2)
        x.addmm_(torch.ones(2, 2), torch.ones(2, 2))
        out = torch.mm(torch.ones(2, 2), torch.ones(2, 2), out=torch.empty(2, 2))
        assert torch.matmul(x, x, out=torch.empty(2, 2)).dtype == F32
    assert (x.dtype, out.dtype) == (F32, F32)


def test_meta_tensors_are_left_alone_but_those_that_become_real_are_not():
    with torch.autocast("cpu"):
        plain = torch.ones(2, 2, device="meta")
        assert (plain @ plain).dtype == F32
        with torch.meta_init():
            torch.manual_seed(0)
            layer = nn.Linear(2, 2)
            y = layer(torch.ones(3, 2))
        assert (y.dtype, y.device.type) == (BF16, "meta")
        torch.manual_seed(0)
        eager = nn.Linear(2, 2)(torch.ones(3, 2))
    torch.materialize(y)
    assert torch.equal(y, eager)


def test_casts_of_parameters_are_kept_until_the_outermost_context_ends():
    w = torch.ones(2, 2, requires_grad=True)

    def node():
        return (torch.ones(2, 2) @ w).grad_fn.next_functions[1][0]

    with torch.autocast("cpu"):
        with torch.autocast("cpu"):
            first = node()
        assert node() is first
        torch.clear_autocast_cache()
        assert node() is not first
        with torch.no_grad():
            torch.ones(2, 2) @ w
        assert (torch.ones(2, 2) @ w).requires_grad
    with torch.autocast("cpu"):
        assert node() is not first
    with torch.autocast("cpu", cache_enabled=False):
        assert not torch.is_autocast_cache_enabled()
        assert node() is not node()
    assert torch.is_autocast_cache_enabled()
    view = w.view(4)
    with torch.autocast("cpu"):
        a, b = (torch.dot(view, view).sum() for _ in range(2))
        assert a.dtype == b.dtype == F32


def test_gradients_flow_through_casts():
    w, x = torch.full((2, 2), 0.5, requires_grad=True), torch.ones(3, 2)
    with torch.autocast("cpu"):
        y = x @ w
        assert y.grad_fn.next_functions[1][0].name() == "ToCopyBackward0"
    y.float().sum().backward()
    assert w.grad.dtype == F32
    assert w.grad.tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_contexts_nest_decorate_and_end_with_errors():
    one = torch.ones(2, 2)

    @torch.autocast("cpu", dtype=BF16)
    def f(x):
        return x @ x

    assert f(one).dtype == BF16
    assert autocast_decorator(torch.autocast("cpu"), lambda: (one @ one).dtype)() == BF16
    with torch.autocast("cpu", dtype=F16):
        with torch.autocast("cpu", enabled=False):
            assert (one @ one).dtype == F32
            assert f(one).dtype == BF16
        assert (one @ one).dtype == F16
    with pytest.raises(KeyError), torch.autocast("cpu"):
        raise KeyError
    assert not torch.is_autocast_enabled("cpu")
    assert torch.get_autocast_dtype("cpu") == BF16


def test_other_threads_have_settings_of_their_own():
    seen = []
    with torch.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append(torch.is_autocast_enabled("cpu")))
        thread.start()
        thread.join()
        assert torch.is_autocast_enabled("cpu")
    assert seen == [False]


def test_transforms_batches_modes_and_checkpoints():
    from torchlike.utils._python_dispatch import TorchDispatchMode

    w, x = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append((str(func), torch.is_autocast_enabled("cpu")))
            return func(*args, **(kwargs or {}))

    with torch.autocast("cpu"):
        assert torch.func.vmap(lambda a: a @ w)(x).dtype == BF16
        assert torch.func.grad(lambda a: (a @ x).sum())(x).dtype == F32
        assert torch.func.jvp(lambda a: a @ x, (x,), (x,))[1].dtype == BF16
        with Mode():
            torch.mm(x, x)
    cast, product = ("aten._to_copy.default", False), ("aten.mm.default", False)
    assert seen == [cast, cast, product]

    dtypes = []

    def part(a):
        y = a @ w
        dtypes.append(y.dtype)
        return y.float()

    for reentrant in (False, True):
        with torch.autocast("cpu"):
            y = checkpoint(part, x.clone().requires_grad_(), use_reentrant=reentrant)
        y.sum().backward()
    assert set(dtypes) == {BF16} and len(dtypes) >= 3


def test_functions_run_backward_as_they_ran_forward():
    seen = []

    class Fn(torch.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu", cast_inputs=F32)
        def forward(ctx, x):
            seen.append((x.dtype, torch.is_autocast_enabled("cpu")))
            return x * 2

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, g):
            seen.append(torch.is_autocast_enabled("cpu"))
            return g * 2

    class Same(Fn):
        @staticmethod
        @custom_fwd(device_type="cpu")
        def forward(ctx, x):
            seen.append((x.dtype, torch.is_autocast_enabled("cpu")))
            return x * 2

    for cls in (Fn, Same):
        x = torch.ones(2, dtype=BF16, requires_grad=True)
        with torch.autocast("cpu"):
            y = cls.apply(x)
        y.sum().backward()
        assert x.grad.dtype == BF16
    assert seen == [(F32, False), False, (BF16, True), True]
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        custom_fwd(lambda ctx: None, device_type=1)


def test_operators_of_python_are_cast_as_they_say():
    @torch.library.custom_op("amp_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    torch.library.register_autocast("amp_tests::twice", "cpu", BF16)
    assert twice(torch.ones(2)).dtype == F32
    with torch.autocast("cpu"):
        assert twice(torch.ones(2)).dtype == BF16
        assert torch.is_autocast_enabled("cpu")
    with pytest.raises(ValueError, match="Unknown device type: meta"):
        twice.register_autocast("meta", BF16)


def test_recurrent_networks():
    x = torch.ones(4, 1, 2)
    with torch.autocast("cpu"):
        y, (h, c) = nn.LSTM(2, 3)(x)
        assert {y.dtype, h.dtype, c.dtype} == {BF16}
        y, (h, c) = nn.LSTM(2, 3, proj_size=2)(x)
        assert (y.dtype, h.dtype, c.dtype) == (BF16, BF16, F32)
        assert nn.GRU(2, 3)(x)[0].dtype == F32
        assert nn.RNN(2, 3)(x)[0].dtype == BF16
        assert nn.LSTMCell(2, 3)(x[0])[0].dtype == F32


def test_settings():
    assert [is_autocast_available(d) for d in ("cpu", "cuda", "meta")] == [True, True, False]
    assert torch.get_autocast_dtype("cuda") == F16
    assert not torch.is_autocast_enabled()
    torch.set_autocast_enabled("xpu", True)
    assert torch.is_autocast_enabled("xpu")
    assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == F32
    torch.set_autocast_enabled("xpu", False)
    torch.set_autocast_dtype("xpu", BF16)
    assert torch.get_autocast_dtype("xpu") == BF16
    torch.set_autocast_dtype("xpu", F16)
    assert torch.autocast_increment_nesting() == 1
    assert torch.autocast_decrement_nesting() == 0
    torch.set_autocast_cache_enabled(False)
    assert not torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(True)
    with pytest.raises(RuntimeError, match="unknown device type for autocast"):
        torch.is_autocast_enabled("meta")
    with pytest.raises(
        TypeError, match=r"argument 'device_type' \(position 1\) must be str, not int"
    ):
        torch.is_autocast_enabled(3)
    with pytest.raises(TypeError, match=r"argument 'enabled' \(position 2\) must be bool, not int"):
        torch.set_autocast_enabled("cpu", 1)


def test_old_names_warn():
    for name, args in (
        ("is_autocast_cpu_enabled", ()), ("is_autocast_ipu_enabled", ()), ("is_autocast_xla_enabled", ()),
        ("get_autocast_cpu_dtype", ()), ("get_autocast_gpu_dtype", ()), ("get_autocast_ipu_dtype", ()),
        ("get_autocast_xla_dtype", ()), ("set_autocast_cpu_enabled", (False,)),
        ("set_autocast_ipu_enabled", (False,)), ("set_autocast_xla_enabled", (False,)),
        ("set_autocast_cpu_dtype", (BF16,)), ("set_autocast_gpu_dtype", (F16,)),
        ("set_autocast_ipu_dtype", (F16,)), ("set_autocast_xla_dtype", (BF16,)),
    ):  # fmt: skip
        with pytest.warns(DeprecationWarning, match=rf"torch\.{name}\(.*\) is deprecated"):
            getattr(torch, name)(*args)
    with pytest.warns(FutureWarning, match=r"Please use `torch.amp.autocast\('cpu', args...\)`"):
        torch.cpu.amp.autocast()
    with pytest.warns(FutureWarning, match=r"Please use `torch.amp.GradScaler\('cpu', args...\)`"):
        torch.cpu.amp.GradScaler()
    for make in (torch.cuda.amp.autocast, torch.cuda.amp.GradScaler):
        with pytest.warns(FutureWarning, match="Please use `torch.amp"):
            make(enabled=False)
    for decorate in (torch.cuda.amp.custom_fwd, torch.cuda.amp.custom_bwd):
        with pytest.warns(FutureWarning, match="device_type='cuda'"):
            decorate(lambda ctx: None)
    absent = torch.cuda.amp.amp_definitely_not_available()
    assert absent == (not torch.cuda.is_available())


def test_what_is_not_supported_says_so():
    with pytest.warns(UserWarning, match="the target dtype is not supported. Disabling autocast"):
        context = torch.autocast("cpu", dtype=F32)
    with context:
        assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == F32
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        torch.autocast(torch.device("cpu"))
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'meta'"):
        torch.autocast("meta", dtype=BF16)
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            torch.autocast("cuda")
        with pytest.warns(UserWarning, match="CUDA is not available.  Disabling"):
            assert not GradScaler().is_enabled()


def test_the_cpu_as_a_device():
    cpu = torch.cpu
    assert cpu.is_available() and cpu.is_initialized() and cpu.device_count() == 1
    assert cpu.current_device() == "cpu"
    cpu.set_device(0)
    cpu.synchronize()
    with cpu.stream(cpu.current_stream()) as inside:
        inside.wait_stream(cpu.Stream())
    assert isinstance(cpu.stream(cpu.Stream()), cpu.StreamContext)
    event = cpu.Event()
    event.record()
    event.wait()
    event.synchronize()
    assert event.query()


def test_nothing_warns_where_nothing_is_wrong():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autocast("cpu", dtype=F16), torch.autocast("cuda", enabled=False):
            torch.ones(2, 2) @ torch.ones(2, 2)


def test_weights_are_met_before_biases_on_the_way_back():
    layer, met = nn.Linear(3, 2), []
    for name, p in layer.named_parameters():
        p.register_hook(lambda grad, name=name: met.append(name))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(torch.ones(1, 3)).sum().backward()
    assert met == ["weight", "bias"]

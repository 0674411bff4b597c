"""What GPUs compute beside what the CPU does: layers and their gradients, indexing, order, whole steps of training."""

import warnings

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.nn import functional

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="torchlike.cuda.is_available() is False"
    ),
]


def _flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for part in value for t in _flat(part)] if isinstance(value, list | tuple) else []


def _same(f, *inputs, tolerance=2e-4, gradients=True):
    """Checks results and gradients of a function of tensors on the GPU against the CPU's."""
    results = []
    for device in ("cpu", "cuda"):
        leaves = [
            t.detach().to(device).requires_grad_(gradients and t.is_floating_point())
            for t in inputs
        ]
        outs = _flat(f(*leaves))
        wanted = [o for o in outs if o.requires_grad]
        if wanted:
            torch.autograd.backward(wanted, [torch.ones_like(o) * 0.5 for o in wanted])
        results.append(outs + [t.grad for t in leaves if t.grad is not None])
    cpu, gpu = results
    assert len(cpu) == len(gpu)
    for want, got in zip(cpu, gpu, strict=True):
        assert got.device.type == "cuda"
        assert (got.shape, got.dtype, got.stride()) == (want.shape, want.dtype, want.stride())
        if want.dtype == torch.int64:
            assert torch.equal(got.cpu(), want)
        else:
            torch.testing.assert_close(
                got.detach().cpu(), want.detach(), rtol=tolerance, atol=tolerance
            )


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("shape", [(5,), (3, 7), (64, 1000), (2, 40, 33), (4, 5000)])
@pytest.mark.parametrize("dim", [0, -1])
def test_softmax(shape, dim):
    x = torch.randn(shape) * 3
    _same(lambda t: t.softmax(dim) * t, x)
    _same(lambda t: t.log_softmax(dim) * t, x)


@pytest.mark.parametrize("shape", [(3, 8), (5, 64), (2, 3, 1024), (700, 20), (3, 5000)])
def test_norms(shape):
    n = shape[-1]
    x, w, b = torch.randn(shape), torch.randn(n), torch.randn(n)
    _same(lambda x, w, b: functional.layer_norm(x, (n,), w, b) * x, x, w, b)
    _same(lambda x, w: functional.rms_norm(x, (n,), w) * x, x, w)


@pytest.mark.parametrize(
    "shape", [(4, 6), (4, 6, 5), (8, 6, 9, 7), (8, 64, 16, 16), (2, 6, 3, 4, 5)]
)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(shape, training):
    c = shape[1]
    x, w, b = torch.randn(shape), torch.randn(c), torch.randn(c)

    def f(x, w, b):
        mean, var = torch.zeros(c, device=x.device), torch.ones(c, device=x.device)
        y = functional.batch_norm(x, mean, var, w, b, training=training)
        return y * x, mean, var

    _same(f, x, w, b, tolerance=1e-3)
    if len(shape) == 4:
        _same(f, x.to(memory_format=torch.channels_last), w, b, tolerance=1e-3)
    if len(shape) > 2:
        _same(lambda x, w, b: functional.group_norm(x, 2, w, b) * x, x, w, b, tolerance=1e-3)


CONVOLUTIONS = {
    "plain": dict(),
    "strided": dict(stride=2, padding=1),
    "dilated": dict(dilation=2, padding=2),
    "grouped": dict(groups=2, padding=1),
    "depthwise": dict(groups=8, padding=1),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_convolutions(name, n):
    options = CONVOLUTIONS[name]
    f = getattr(functional, f"conv{n}d")
    x = torch.randn(2, 8, *(9, 8, 7)[:n])
    w, b = torch.randn(16, 8 // options.get("groups", 1), *(3, 3, 3)[:n]), torch.randn(16)
    _same(lambda x, w, b: f(x, w, b, **options), x, w, b, tolerance=1e-3)
    turned = getattr(functional, f"conv_transpose{n}d")
    w = torch.randn(8, 16 // options.get("groups", 1), *(3, 3, 3)[:n])
    _same(lambda x, w, b: turned(x, w, b, **options), x, w, b, tolerance=1e-3)
    if n == 2:
        last = x.to(memory_format=torch.channels_last)
        w = torch.randn(16, 8 // options.get("groups", 1), 3, 3)
        _same(lambda x, w, b: f(x, w, b, **options), last, w, b, tolerance=1e-3)


def test_convolutions_by_kernels_of_our_own():
    # Integers, and complex numbers: no library does these.
    x, w = torch.randint(-5, 5, (2, 4, 9, 9)), torch.randint(-5, 5, (6, 4, 3, 3))
    assert torch.equal(functional.conv2d(x.cuda(), w.cuda()).cpu(), functional.conv2d(x, w))
    x, w = torch.randn(2, 4, 9, dtype=torch.complex64), torch.randn(6, 4, 3, dtype=torch.complex64)
    got, want = functional.conv1d(x.cuda(), w.cuda()).cpu(), functional.conv1d(x, w)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_pools_and_resizing():
    x = torch.randn(2, 3, 17, 14)
    _same(lambda t: functional.max_pool2d(t, 3, 2, 1), x)
    _same(lambda t: functional.max_pool2d(t, 2, return_indices=True)[0], x)
    _same(lambda t: functional.avg_pool2d(t, 3, 2, 1, ceil_mode=True), x)
    _same(lambda t: functional.adaptive_avg_pool2d(t, (4, 3)), x)
    _same(lambda t: functional.adaptive_max_pool2d(t, (4, 3)), x)
    for mode in ("nearest", "bilinear", "bicubic"):
        _same(lambda t, mode=mode: functional.interpolate(t, (23, 9), mode=mode), x)
    _same(lambda t: functional.interpolate(t, (9, 5), mode="bilinear", antialias=True), x)
    for mode in ("reflect", "replicate", "circular", "constant"):
        _same(lambda t, mode=mode: functional.pad(t, (2, 3, 1, 4), mode), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [True, False])
def test_attention(dtype, causal):
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    q, k, v = (torch.randn(2, 4, 65, 32).to(dtype) for _ in range(3))
    f = functional.scaled_dot_product_attention
    _same(lambda q, k, v: f(q, k, v, is_causal=causal), q, k, v, tolerance=tolerance)
    if not causal:
        mask = torch.randn(65, 65) > 0
        _same(lambda q, k, v: f(q, k, v, attn_mask=mask.to(q.device)), q, k, v, tolerance=tolerance)
    few = torch.randn(2, 2, 65, 32).to(dtype)
    _same(
        lambda q, k, v: f(q, k, v, is_causal=causal, enable_gqa=True), q, few, few,
        tolerance=tolerance,
    )  # fmt: skip


def test_indexing():
    x = torch.randn(6, 7, 5)
    i, j = torch.tensor([3, 0, 3, 5]), torch.tensor([[1, -1], [6, 2]])
    _same(lambda t: t[i.to(t.device)], x)
    _same(lambda t: t[i], x)  # indices on the host
    _same(lambda t: t[:, j.to(t.device)], x)
    _same(lambda t: t[i.to(t.device)[:2], :, j.to(t.device)[0] % 5], x)
    _same(lambda t: t[t[:, 0, 0] > 0], x)
    _same(lambda t: t.index_select(1, i.to(t.device)), x)
    _same(lambda t: t.gather(0, i.to(t.device)[:, None, None].expand(4, 7, 5)), x)
    _same(lambda t: t.take(j.to(t.device)), x)
    _same(lambda t: t.clone().index_fill_(0, i.to(t.device), 2.0), x)
    _same(lambda t: torch.zeros_like(t).index_add(0, i.to(t.device), t[:4]), x)
    _same(
        lambda t: torch.zeros_like(t).scatter_add(
            0, i.to(t.device)[:, None, None].expand(4, 7, 5), t[:4]
        ),
        x,
    )
    for how in ("sum", "prod", "mean", "amax", "amin"):
        index = i[:, None, None].expand(4, 7, 5)
        _same(
            lambda t, how=how, index=index: t.scatter_reduce(
                0, index.to(t.device), t[:4].detach() * 2, how, include_self=how != "mean"
            ),
            x,
        )

    def put(t):
        t = t.clone()
        t[i.to(t.device), 1] = 3.0
        t[t > 1] = 0.5
        t.index_put_((i.to(t.device),), torch.ones(4, 7, 5, device=t.device), accumulate=True)
        return t

    _same(put, x)
    words = torch.randint(0, 6, (4, 9))
    _same(lambda w: functional.embedding(words.to(w.device), w, padding_idx=2), torch.randn(6, 16))


def test_an_index_out_of_bounds_is_an_error_and_does_no_harm():
    x = torch.arange(6.0, device="cuda")
    y = x.index_select(0, torch.tensor([0, 9], device="cuda"))
    with pytest.raises(RuntimeError, match="device-side assert triggered"):
        y.cpu()
    assert (x + 1).sum().item() == 21


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
@pytest.mark.parametrize("shape", [(1,), (17,), (5, 300), (3, 5000), (4, 6, 33)])
def test_order(dtype, shape):
    x = (torch.randn(shape) * 20).to(dtype)
    for descending in (True, False):
        for dim in (0, -1):
            want, got = x.sort(dim, descending), x.cuda().sort(dim, descending)
            assert torch.equal(got[0].cpu(), want[0])
            stable = x.sort(stable=True, dim=dim, descending=descending)[1]
            assert torch.equal(got[1].cpu(), stable)
    if dtype != torch.bool:
        k = min(4, shape[-1])
        for largest in (True, False):
            want, got = x.topk(k, largest=largest), x.cuda().topk(k, largest=largest)
            assert torch.equal(got[0].cpu(), want[0])
            assert torch.equal(x.gather(-1, got[1].cpu()), want[0])
    if dtype.is_floating_point:
        x[..., 0] = float("nan")
        assert torch.equal(x.cuda().sort()[1].cpu(), x.sort(stable=True)[1])


@pytest.mark.parametrize("shape", [(9,), (3, 300), (700, 40), (4, 5, 6)])
def test_results_so_far_and_moments(shape):
    x = torch.randn(shape)
    for dim in (0, -1):
        _same(lambda t, dim=dim: t.cumsum(dim), x)
        _same(lambda t, dim=dim: t.cumprod(dim), x * 0.5 + 1, tolerance=1e-3)
        _same(lambda t, dim=dim: t.logcumsumexp(dim), x)
        _same(lambda t, dim=dim: t.cummax(dim), x)
        _same(lambda t, dim=dim: t.var(dim), x)
        _same(lambda t, dim=dim: torch.std_mean(t, dim), x)
    _same(lambda t: t.tril(1) if t.ndim > 1 else t, x)
    _same(lambda t: t.flip(0).repeat(2, *[1] * t.ndim), x)


def test_losses():
    x, y = torch.randn(9, 5), torch.randint(0, 5, (9,))
    y[3] = -100
    for reduction in ("mean", "sum", "none"):
        _same(
            lambda t, reduction=reduction: functional.cross_entropy(
                t, y.to(t.device), reduction=reduction
            ),
            x,
        )
    w = torch.rand(5)
    _same(lambda t: functional.nll_loss(t, y.to(t.device), w.to(t.device)), x)
    images = torch.randn(2, 5, 4, 3)
    where = torch.randint(0, 5, (2, 4, 3))
    _same(lambda t: functional.cross_entropy(t, where.to(t.device)), images)


def _mlp():
    return nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 5))


def _cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip


class _Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.body = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, i):
        return self.head(self.body(self.table(i)).mean(1))


MODELS = {
    "mlp": (_mlp, lambda: torch.randn(16, 20)),
    "cnn": (_cnn, lambda: torch.randn(16, 3, 12, 12)),
    "transformer": (_Words, lambda: torch.randint(0, 50, (16, 9))),
}
OPTIMIZERS = {
    "SGD": dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": dict(lr=0.01, amsgrad=True),
    "AdamW": dict(lr=0.01),
    "Adagrad": dict(lr=0.05),
    "Adadelta": dict(lr=1.0),
    "Adamax": dict(lr=0.01),
    "ASGD": dict(lr=0.05),
    "NAdam": dict(lr=0.01),
    "RAdam": dict(lr=0.01),
    "RMSprop": dict(lr=0.005, momentum=0.5, centered=True),
    "Rprop": dict(lr=0.005),
}


def _losses(name, optimizer, device, dtype=torch.float64):
    torch.manual_seed(0)
    make, data = MODELS[name]
    model, x, y = make().to(dtype), data(), torch.randint(0, 5, (16,))
    x = x.to(dtype) if x.is_floating_point() else x
    model, x, y = model.to(device), x.to(device), y.to(device)
    steps = getattr(torch.optim, optimizer)(model.parameters(), **OPTIMIZERS[optimizer])
    losses = []
    for _ in range(6):
        loss = functional.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_models_train_as_on_the_cpu(name, optimizer):
    if name != "mlp" and optimizer not in ("SGD", "AdamW"):
        pytest.skip("one model is enough for the others")
    assert _losses(name, optimizer, "cuda") == pytest.approx(
        _losses(name, optimizer, "cpu"), rel=1e-8
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixed_precision(dtype):
    torch.manual_seed(0)
    model, x, y = _mlp().cuda(), torch.randn(16, 20, device="cuda"), torch.randint(0, 5, (16,))
    y = y.cuda()
    steps, scaler = torch.optim.AdamW(model.parameters(), lr=0.01), torch.amp.GradScaler("cuda")
    losses = []
    for _ in range(10):
        with torch.autocast("cuda", dtype=dtype):
            out = model(x)
            assert out.dtype == dtype
            loss = functional.cross_entropy(out, y)
        steps.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(steps)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert scaler.get_scale() > 0


def test_what_has_no_kernel_runs_on_the_host_and_says_so_once():
    x = torch.randn(4, 4)
    x = x @ x.t() + torch.eye(4)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            got = torch.linalg.cholesky(x.cuda())
    assert got.device.type == "cuda"
    torch.testing.assert_close(got.cpu(), torch.linalg.cholesky(x), rtol=1e-4, atol=1e-4)
    assert len([w for w in told if "has no CUDA kernel yet" in str(w.message)]) <= 1


def test_meta_models_become_real_and_move():
    with torch.meta_init():
        torch.manual_seed(3)
        late = _mlp()
    torch.manual_seed(3)
    eager = _mlp()
    torch.materialize(late)
    late = late.cuda()
    for a, b in zip(late.parameters(), eager.parameters(), strict=True):
        assert a.device.type == "cuda"
        assert torch.equal(a.cpu(), b)


def test_files_load_to_gpus(tmp_path):
    model = _cnn()
    torch.save(model.state_dict(), tmp_path / "m.pt")
    there = torch.load(tmp_path / "m.pt", map_location="cuda")
    for name, t in model.state_dict().items():
        assert there[name].device.type == "cuda"
        assert torch.equal(there[name].cpu(), t)
    torch.save(there, tmp_path / "n.pt")
    assert next(iter(torch.load(tmp_path / "n.pt").values())).device.type == "cuda"


def test_single_precision_may_be_rounded_if_asked():
    x = torch.randn(64, 256, device="cuda")
    exact = x @ x.t()
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        rounded = x @ x.t()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=1e-2, atol=1e-1)

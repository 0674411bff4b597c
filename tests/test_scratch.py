"""What kernels take besides their results: predicted from their arguments, beside what the allocator counts."""

import contextlib
import warnings

import pytest

import samples
import torchlike as torch
from rows import SAMPLES, tensors
from torchlike import _C, nn
from torchlike._subclasses.fake_tensor import FakeTensorMode

# Their results are as large as values say, and no fake tensor has them.
ASKS = (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def measured(row, args, kwargs):
    """Bytes that the allocator gave out at most during a call."""
    torch.manual_seed(0)
    _C._cpu_reset_peak()
    before = _C._cpu_memory()[0]
    with torch.no_grad():
        _C._call_row(row, False, args, kwargs)
    return _C._cpu_memory()[1] - before


def predicted(row, args, kwargs):
    """The same of a recorded call on fake tensors, and whether a kernel takes what nothing says."""
    mode, program = FakeTensorMode(), _C._Program()

    def fake(v):
        if isinstance(v, list | tuple):
            return type(v)(map(fake, v))
        return mode.from_tensor(v) if isinstance(v, torch.Tensor) else v

    args, kwargs = fake(args), {n: fake(v) for n, v in kwargs.items()}
    with mode, torch.no_grad():
        program.start()
        try:
            for t in tensors((args, kwargs)):
                program.label("given", t, 2)
            _C._call_row(row, False, args, kwargs)
        finally:
            program.stop()
    values = [program.value(i) for i in range(program.counts()[1])]
    given = sum(size for size, _, _, _, born, *_ in values if born is None)
    here = "cpu" in program.devices()
    rows = program.timeline("cpu", "torchlike-cpu") if here else []
    return max(map(sum, rows), default=given) - given, program.unmeasured()


def apart(t):
    """The same elements, every other one of a larger tensor."""
    if t.ndim == 0 or t.layout != torch.strided:
        return t
    wide = torch.empty([*t.shape[:-1], 2 * t.shape[-1]], dtype=t.dtype)
    return wide[..., ::2].copy_(t)


def turned(t):
    """The same elements with the first dimension innermost in memory."""
    if t.ndim < 2 or t.layout != torch.strided:
        return t
    return t.transpose(0, -1).contiguous().transpose(0, -1)


def halves(t):
    return t.bfloat16() if t.layout == torch.strided and t.is_floating_point() else t


def short(t):
    return t.int() if t.dtype == torch.int64 else t


# Their results share memory with an argument that is larger than what is seen of it.
SEES_MORE = {"slice_scatter", "select_scatter", "diagonal_scatter"}


def compare(row, call, change):
    """Whether a call of a row could be compared."""
    with contextlib.suppress(*ASKS):
        expected, unmeasured = predicted(row, *samples.arguments(call, "cpu", change))
        if not unmeasured:
            found = measured(row, *samples.arguments(call, "cpu", change))
            assert found == expected, (call.text, change)
            return True
    return False


@pytest.mark.parametrize("row", SAMPLES)
def test_every_row_says_what_it_takes(row, threads):
    for call in SAMPLES[row]:
        for change in (None, apart, turned, halves, short):
            if change is None or row not in SEES_MORE:
                compare(row, call, change)


# As much of each as is cut into tasks, brought into lines, or kept in lists, and results that are spread.
LARGER = """
sort: f32[40, 300]
sort: i64[2, 3000], 1
sort: f64[150, 40], 0, True
sort: u8[0, 5]
topk: f32[10, 1500], 5
topk: f32[8, 500], 100
topk: f32[400, 30], 3, 0
topk: i32[9, 40], 40
median#dim: f32[40, 400], 1
median#dim: i64[300, 20], 0
median: f64[70, 30]
kthvalue: f32[40, 400], 7
kthvalue: f32[300, 20], 3, 0
mode: i64[30, 250].below(9)
mode: f64[30, 20], 0
quantile: f32[40, 400], f32([0.2, 0.5]), 1
quantile: f64[300, 20], f64(0.5), 0
logsumexp: f32[40, 400], (1,)
logsumexp: f64[30, 20, 10], (0,)
logsumexp: c64[5, 6], (1,)
max#dim: f32[40, 300], 1
max#dim: i16[40, 300], 0
max#dim: f64[5, 6, 7], 1
argmax: f32[40, 300]
argmax: u8[40, 300], 0
argmax: f32[40, 5, 6], 1
cummax: f32[40, 300], 0
cummax: i32[40, 300], 1
linalg.vector_norm: f32[40, 300], 2, (1,)
linalg.vector_norm: c64[20, 30], 1
linalg.vector_norm: c128[20, 30], 2, (0,)
prod: f32[60, 30]
prod: i32[60, 30]
prod: c64[6, 7]
scatter_add: f32[30, 20], 0, i64[1, 20].below(30), f32[40, 20]
scatter_reduce: f32[30, 20], 1, i64[30, 9].below(20), f32[30, 20], 'mean'
scatter_reduce: i32[30], 0, i64[50].below(30), i32[50], 'mean'
index_add: f32[30, 20], 0, i64[50].below(30), f32[50, 20], alpha=2
index_add: f32[30, 20], 1, i64[5].below(20), f32[30, 5]
index_reduce: f32[30, 20], 0, i64[50].below(30), f32[50, 20], 'mean'
put: f32[30, 20], i64[50].below(600), f32[50], True
put: c64[3, 4], i64[5].below(12), c64[5]
embedding_bag: f32[50, 30], i64[80].below(50), i64([0, 20, 21]), mode=2
embedding_bag: f32[50, 30], i64[9].below(50), i64([0, 4]), per_sample_weights=f32[9]
_upsample: f32[2, 3, 10, 12].cl, [20, 12], 'bilinear', False, False, [nan, nan]
_upsample: u8[2, 3, 10, 12], [5, 30], 'bicubic', False, True, [nan, nan]
_upsample: f32[2, 3, 9], [20], 'nearest', False, False, [nan]
_cdist_forward: f32[60, 5], f32[70, 5], 2.0, None
_cdist_forward: f32[2, 9, 5], f32[40, 5], 1.0, None
_cdist_forward: f32[9, 5], f32[8, 5], 3.0, None
multinomial: f32[9, 400].unit, 5
multinomial: f32[400].unit, 300, True
_fft_c2c: c64[30, 40], (0, 1), 0, True
_fft_c2c: c128[7, 9, 11], (1,), 1, False
_fft_r2c: f32[30, 41], (1,), 0, True
_fft_r2c: f64[30, 40], (1, 0), 1, False
_fft_c2r: c64[30, 21], (1,), 2, 40
_fft_c2r: c64[9, 8, 7], (0, 1), 2, 15
linalg.solve_ex: f32[4, 30, 30], f32[4, 30, 50]
linalg.solve_ex: f64[20, 20], f64[20]
linalg.solve_ex: f32[9, 9], f32[2, 3, 9], left=False
linalg.inv_ex: f32[4, 30, 30]
linalg.cholesky_ex: f32[4, 30, 30].spd
linalg.cholesky_ex: f64[30, 30].spd, upper=True
linalg.solve_triangular: f32[30, 30], f32[30, 100], upper=True
linalg.solve_triangular: f32[2, 30, 30], f32[2, 9, 30], upper=False, left=False
linalg.qr: f32[3, 40, 30]
linalg.qr: f32[30, 40], 'complete'
linalg.qr: f64[30, 20], 'r'
isin: f32[60, 30], f32[500]
isin: i64[60], i64[900]
histogram: f32[400], f32([-1, 0, 1]), weight=f32[400]
renorm: f32[30, 40], 2, 0, 0.5
renorm: c64[6, 7, 8], 1, 1, 3
grid_sampler_2d: f32[2, 3, 9, 9], f32[2, 40, 40, 2], 0, 0, False
_grad.upsample: f32[2, 3, 20, 24].cl, [20, 24], [2, 3, 9, 8], 'name', 'bilinear', False, False, [0.0, 0.0]
_ctc_loss: f32[40, 3, 9], i64[3, 7].below(8), [40, 30, 9], [7, 3, 2]
"""


@pytest.mark.parametrize("line", LARGER.strip().splitlines())
def test_larger_calls(line, threads):
    row, text = line.split(": ", 1)
    (call,) = samples.calls(text)
    assert compare(row, call, None) and compare(row, call, apart)
    for change in (turned, halves, short):
        compare(row, call, change)


WINDOWS = [
    (nn.Conv2d(8, 16, 3, padding=1), (2, 8, 12, 12)),
    (nn.Conv2d(8, 16, 3, stride=2, bias=False), (2, 8, 13, 13)),
    (nn.Conv2d(8, 8, 3, padding=1, groups=8), (3, 8, 20, 20)),
    (nn.Conv2d(8, 8, 5, groups=2, dilation=3), (1, 8, 40, 40)),
    (nn.Conv2d(64, 64, 1), (9, 64, 5, 5)),
    (nn.Conv2d(40, 24, 3, stride=2, padding=1), (3, 40, 13, 13)),
    (nn.Conv1d(4, 6, 7, stride=3), (5, 4, 60)),
    (nn.Conv3d(2, 3, 3), (1, 2, 7, 8, 9)),
    (nn.ConvTranspose2d(6, 4, 4, stride=2, padding=1), (2, 6, 9, 9)),
    (nn.ConvTranspose2d(6, 6, 3, groups=6), (2, 6, 9, 9)),
    (nn.ConvTranspose1d(3, 5, 3, stride=2), (2, 3, 11)),
]


@pytest.mark.parametrize(("layer", "shape"), WINDOWS, ids=lambda v: str(v)[:40])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_steps_with_windows(layer, shape, last, dtype, threads):
    if last and len(shape) != 4:
        pytest.skip("images alone are laid out so")
    dtype = getattr(torch, dtype)
    x = torch.zeros(shape, dtype=dtype)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    plan = torch.plan(layer.to(dtype), x, step="train")
    done = plan.verify()
    assert done.equal and not plan.unmeasured, done


class Attention(nn.Module):
    def __init__(self, heads=2, causal=False, masked=False):
        super().__init__()
        self.qkv, self.heads, self.causal, self.masked = nn.Linear(16, 48), heads, causal, masked

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mask = torch.zeros(n, n) if self.masked else None
        return nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=self.causal
        )


@pytest.mark.parametrize("how", [{}, {"causal": True}, {"masked": True}, {"heads": 1}])
@pytest.mark.parametrize("step", ["forward", "train"])
def test_steps_of_attention(how, step, threads):
    done = torch.plan(Attention(**how), torch.zeros(2, 9, 16), step=step).verify()
    assert done.equal, done


OPTIMIZERS = ("adam", "adamw", "adagrad", "sgd", "rmsprop", "adamax", "nadam", "radam", "rprop")


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, "adadelta", "asgd"])
def test_steps_of_optimizers(optimizer, threads):
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    model[0].weight = nn.Parameter(torch.zeros(4, 6).t())
    plan = torch.plan(model, torch.zeros(2, 5, 4), step="train", optimizer=optimizer)
    done = plan.verify()
    assert done.equal and not plan.unmeasured, (done, plan.unmeasured)


def test_steps_whose_tensors_share_memory():
    a, b, c = torch.ones(3, 4), torch.ones(4, 3).t(), torch.ones(3, 4)
    lists = {
        "a parameter twice": ([a, a], [b, c], [c.clone(), c.clone()], [c + 1, c + 2]),
        "its own gradient": ([a, b], [a, c], [c.clone(), c.clone()], [c + 1, c + 2]),
        "a gradient for two": ([a, b], [c, c], [c.clone(), b.clone()], [c + 1, c + 2]),
    }
    numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
    flags = {"amsgrad": False, "maximize": False, "decoupled_weight_decay": True}
    for name, (params, grads, means, squares) in lists.items():
        args = (params, grads, means, squares, [], [torch.tensor(1.0), torch.tensor(1.0)])
        expected, unmeasured = predicted("_optim.adam", args, {**numbers, **flags})
        assert not unmeasured
        assert measured("_optim.adam", args, {**numbers, **flags}) == expected, name


def test_what_nothing_says_is_named():
    class Sorted(nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x)

    plan = torch.plan(Sorted(), torch.zeros(4, 4))
    assert plan.unmeasured == ["linalg.svdvals"]
    assert "not counted: what linalg.svdvals take besides their results" in str(plan)
    assert torch.plan(nn.Linear(2, 2), torch.zeros(1, 2)).unmeasured == []


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lead", [(), (2, 3)])
@pytest.mark.parametrize(("n", "dtype"), [(9, "float32"), (40, "bfloat16")])
def test_rows_of_attention(masked, causal, lead, n, dtype, threads):
    """A mask and the order of keys at once, and masks that are spread over heads."""
    dtype = getattr(torch, dtype)
    shape = (*(lead or (1, 2)), n, 20)
    q, k, v = (torch.zeros(shape, dtype=dtype) for _ in range(3))
    mask = torch.zeros(n, n, dtype=dtype) if masked else None
    row = "_scaled_dot_product_flash_attention_for_cpu"
    args, kwargs = (q, k, v, 0.0, causal), {"attn_mask": mask}
    assert measured(row, args, kwargs) == predicted(row, args, kwargs)[0]
    sums = torch.zeros(shape[:3], dtype=torch.float32)
    args = (q, q, k, v, q, sums, 0.0, causal)
    row = f"_grad.{row}_backward"
    assert measured(row, args, kwargs) == predicted(row, args, kwargs)[0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_operands_that_are_turned(dtype, threads):
    class Sum(nn.Module):
        def forward(self, x):
            return x + x.t()

    done = torch.plan(Sum(), torch.zeros(150, 150, dtype=getattr(torch, dtype)), step="forward")
    done = done.verify()
    assert done.equal, done


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_steps_of_group_norm(dtype, threads):
    x = torch.zeros(2, 8, 9, 9, dtype=getattr(torch, dtype))
    plan = torch.plan(nn.GroupNorm(2, 8).to(x.dtype), x, step="train")
    assert plan.verify().equal and not plan.unmeasured

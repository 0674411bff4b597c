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
ASKS = (RuntimeError, NotImplementedError, ValueError, TypeError)


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


# Their results share memory with an argument that is larger than what is seen of it.
SEES_MORE = {"slice_scatter", "select_scatter", "diagonal_scatter"}


@pytest.mark.parametrize("row", SAMPLES)
def test_every_row_says_what_it_takes(row, threads):
    for call in SAMPLES[row]:
        for change in (None, apart):
            if change is not None and row in SEES_MORE:
                continue
            args, kwargs = samples.arguments(call, "cpu", change)
            with contextlib.suppress(*ASKS):
                expected, unmeasured = predicted(row, args, kwargs)
                args, kwargs = samples.arguments(call, "cpu", change)
                if not unmeasured:
                    assert measured(row, args, kwargs) == expected, (call.text, change)


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

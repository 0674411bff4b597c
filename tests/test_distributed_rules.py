"""Sharding rules on a world whose ranks are all in this process: for any placements of the arguments, the result is the
plain operator's."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import torchlike as torch
import torchlike.distributed as dist
import torchlike.nn.functional as F
from meshes import REFUSED, options, placed
from torchlike.distributed.device_mesh import DeviceMesh, init_device_mesh
from torchlike.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torchlike.distributed.tensor.placement_types import _StridedShard

Case = tuple[Callable[..., Any], list[Any]]
_made = torch.Generator().manual_seed(0)


def rnd(*shape: int) -> Any:
    return torch.randn(shape, generator=_made)


def ints(*shape: int, n: int = 5) -> Any:
    return torch.randint(0, n, shape, generator=_made)


def yes(*shape: int) -> Any:
    return torch.rand(shape, generator=_made) > 0.5


CASES: dict[str, Case] = {
    "add": (lambda a, b: a + b, [rnd(5, 4), rnd(5, 4)]),
    "add_b": (lambda a, b: a + b, [rnd(5, 4), rnd(4)]),
    "mul_b": (lambda a, b: a * b, [rnd(3, 1, 4), rnd(5, 1)]),
    "div": (lambda a, b: a / b, [rnd(5, 4), rnd(5, 1)]),
    "neg": (lambda a: -a, [rnd(5, 4)]),
    "mul2": (lambda a: a * 2, [rnd(5, 4)]),
    "add2": (lambda a: a + 2, [rnd(5, 4)]),
    "relu": (lambda a: torch.relu(a), [rnd(5, 4)]),
    "threshold": (lambda a: F.threshold(a, 0.1, 5.0), [rnd(5, 4)]),
    "number_by": (lambda a: torch.div(0.5, a), [rnd(5, 4)]),
    "gelu": (lambda a: F.gelu(a), [rnd(5, 4)]),
    "exp": (lambda a: a.exp(), [rnd(5, 4)]),
    "clamp": (lambda a: a.clamp(-1, 1), [rnd(5, 4)]),
    "clampmin": (lambda a: a.clamp_min(0.1), [rnd(5, 4)]),
    "maximum": (lambda a, b: torch.maximum(a, b), [rnd(5, 4), rnd(5, 4)]),
    "where": (lambda c, a, b: torch.where(c, a, b), [yes(5, 4), rnd(5, 4), rnd(4)]),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), [rnd(5, 4), rnd(5, 4)]),
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c), [rnd(5, 4)] * 3),
    "masked_fill": (lambda a, m: a.masked_fill(m, 0.0), [rnd(5, 4), yes(5, 4)]),
    "to": (lambda a: a.to(torch.float64), [rnd(5, 4)]),
    "pow": (lambda a: a.abs().pow(2), [rnd(5, 4)]),
    "bitand": (lambda a, b: a & b, [yes(5, 4), yes(5, 4)]),
    "eq": (lambda a, b: a == b, [ints(5, 4), ints(5, 4)]),
    "sum": (lambda a: a.sum(), [rnd(5, 4)]),
    "sum0": (lambda a: a.sum(0), [rnd(5, 4, 3)]),
    "sum1k": (lambda a: a.sum(1, keepdim=True), [rnd(5, 4, 3)]),
    "sum02": (lambda a: a.sum((0, 2)), [rnd(5, 4, 3)]),
    "mean": (lambda a: a.mean(), [rnd(6, 4)]),
    "mean0": (lambda a: a.mean(0), [rnd(5, 4, 3)]),
    "var": (lambda a: a.var(1), [rnd(5, 4, 3)]),
    "std": (lambda a: a.std(), [rnd(5, 4)]),
    "var_mean": (lambda a: torch.var_mean(a, 0)[0], [rnd(5, 4)]),
    "amax": (lambda a: a.amax(1), [rnd(5, 4, 3)]),
    "amin": (lambda a: a.amin((0, 1)), [rnd(5, 4, 3)]),
    "max": (lambda a: a.max(), [rnd(5, 4)]),
    "maxdim": (lambda a: a.max(0).values, [rnd(5, 4)]),
    "maxdim_i": (lambda a: a.max(0).indices, [rnd(5, 4)]),
    "min": (lambda a: a.min(), [rnd(5, 4)]),
    "prod": (lambda a: a.prod(), [rnd(5, 4)]),
    "prod0": (lambda a: a.prod(0), [rnd(5, 4)]),
    "all": (lambda a: a.all(), [yes(5, 4)]),
    "any": (lambda a: a.any(), [yes(5, 4)]),
    "any0": (lambda a: a.any(0), [yes(5, 4)]),
    "all1": (lambda a: a.all(1), [yes(5, 4)]),
    "any_f": (lambda a: a.any(), [rnd(5, 4)]),
    "norm": (lambda a: torch.linalg.vector_norm(a), [rnd(5, 4)]),
    "norm1": (lambda a: torch.linalg.vector_norm(a, 1), [rnd(5, 4)]),
    "norm_inf": (lambda a: torch.linalg.vector_norm(a, float("inf")), [rnd(5, 4)]),
    "norm_3": (lambda a: torch.linalg.vector_norm(a, 3, dim=1), [rnd(5, 4)]),
    "norm_0": (lambda a: torch.linalg.vector_norm(a, 0), [rnd(5, 4)]),
    "norm_minf": (lambda a: torch.linalg.vector_norm(a, float("-inf")), [rnd(5, 4)]),
    "cumsum": (lambda a: a.cumsum(0), [rnd(5, 4)]),
    "logsumexp": (lambda a: a.logsumexp(1), [rnd(5, 4)]),
    "argmax": (lambda a: a.argmax(1), [rnd(5, 4)]),
    "argmax_all": (lambda a: a.argmax(), [rnd(5, 4)]),
    "argmin": (lambda a: a.argmin(0, keepdim=True), [rnd(5, 4)]),
    "argmax_neg": (lambda a: a.argmax(-1), [rnd(5, 4)]),
    "mm": (lambda a, b: a @ b, [rnd(5, 4), rnd(4, 3)]),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b), [rnd(3), rnd(5, 4), rnd(4, 3)]),
    "addmm_ab": (
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2),
        [rnd(5, 3), rnd(5, 4), rnd(4, 3)],
    ),
    "bmm": (lambda a, b: torch.bmm(a, b), [rnd(2, 5, 4), rnd(2, 4, 3)]),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b), [rnd(2, 5, 3), rnd(2, 5, 4), rnd(2, 4, 3)]),
    "matmul3": (lambda a, b: a @ b, [rnd(2, 5, 4), rnd(4, 3)]),
    "mv": (lambda a, b: a @ b, [rnd(5, 4), rnd(4)]),
    "dot": (lambda a, b: torch.dot(a, b), [rnd(5), rnd(5)]),
    "linear": (lambda a, w, b: F.linear(a, w, b), [rnd(2, 5, 4), rnd(3, 4), rnd(3)]),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), [rnd(2, 3, 4), rnd(2, 5, 4)]),
    "outer": (lambda a, b: torch.outer(a, b), [rnd(5), rnd(4)]),
    "t": (lambda a: a.t(), [rnd(5, 4)]),
    "permute": (lambda a: a.permute(2, 0, 1), [rnd(2, 3, 4)]),
    "transpose": (lambda a: a.transpose(0, 2), [rnd(2, 3, 4)]),
    "view": (lambda a: a.view(12, 4), [rnd(3, 4, 4)]),
    "view2": (lambda a: a.view(3, 2, 2, 4), [rnd(3, 4, 4)]),
    "flatten": (lambda a: a.flatten(), [rnd(6, 4)]),
    "reshape": (lambda a: a.reshape(4, 6), [rnd(6, 4)]),
    "unflatten": (lambda a: a.unflatten(0, (3, 4)), [rnd(12, 4)]),
    "unsqueeze": (lambda a: a.unsqueeze(1), [rnd(5, 4)]),
    "squeeze": (lambda a: a.squeeze(), [rnd(5, 1, 4)]),
    "squeeze1": (lambda a: a.squeeze(1), [rnd(5, 1, 4)]),
    "expand": (lambda a: a.expand(3, 5, 4), [rnd(5, 1)]),
    "select": (lambda a: a.select(0, 2), [rnd(5, 4)]),
    "slice": (lambda a: a[1:4], [rnd(5, 4)]),
    "slice1": (lambda a: a[:, ::2], [rnd(5, 4)]),
    "slice_full": (lambda a: a[0:5], [rnd(5, 4)]),
    "split": (lambda a: a.split(2)[1], [rnd(5, 4)]),
    "chunk": (lambda a: a.chunk(2, 1)[1], [rnd(5, 4)]),
    "unbind": (lambda a: a.unbind(1)[2], [rnd(5, 4)]),
    "cat": (lambda a, b: torch.cat([a, b]), [rnd(5, 4), rnd(3, 4)]),
    "cat1": (lambda a, b: torch.cat([a, b], 1), [rnd(5, 4), rnd(5, 3)]),
    "stack": (lambda a, b: torch.stack([a, b], 1), [rnd(5, 4), rnd(5, 4)]),
    "flip": (lambda a: a.flip(0), [rnd(5, 4)]),
    "roll": (lambda a: a.roll(2, 0), [rnd(5, 4)]),
    "tril": (lambda a: a.tril(), [rnd(5, 4)]),
    "triu": (lambda a: a.triu(1), [rnd(2, 5, 4)]),
    "diagonal": (lambda a: a.diagonal(), [rnd(5, 4)]),
    "repeat": (lambda a: a.repeat(2, 1), [rnd(5, 4)]),
    "rot90": (lambda a: torch.rot90(a), [rnd(5, 4)]),
    "pad": (lambda a: F.pad(a, (1, 1)), [rnd(5, 4)]),
    "sort": (lambda a: a.sort(1)[0], [rnd(5, 4)]),
    "topk": (lambda a: a.topk(2, 0)[0], [rnd(5, 4)]),
    "gather": (lambda a, i: a.gather(1, i), [rnd(5, 4), ints(5, 3, n=4)]),
    "gather0": (lambda a, i: a.gather(0, i), [rnd(5, 4), ints(3, 4, n=5)]),
    "scatter": (
        lambda a, i, b: a.scatter(1, i, b),
        [rnd(5, 4), torch.arange(15).view(5, 3) % 4, rnd(5, 3)],
    ),
    "scatter_add": (
        lambda a, i, b: a.scatter_add(0, i, b),
        [rnd(5, 4), ints(3, 4, n=5), rnd(3, 4)],
    ),
    "index_select": (lambda a, i: a.index_select(0, i), [rnd(5, 4), ints(6, n=5)]),
    "index": (lambda a, i: a[i], [rnd(5, 4), ints(6, n=5)]),
    "index2": (lambda a, i: a[:, i], [rnd(5, 4), ints(6, n=4)]),
    "index_ij": (lambda a, i, j: a[i, j], [rnd(5, 4, 3), ints(6, n=5), ints(6, n=4)]),
    "index_put": (
        lambda a, i, v: a.index_put((i,), v),
        [rnd(5, 4), torch.tensor([0, 2, 4]), rnd(3, 4)],
    ),
    "index_add": (
        lambda a, i, v: a.index_add(0, i, v),
        [rnd(5, 4), torch.tensor([0, 2, 4]), rnd(3, 4)],
    ),
    "embedding": (lambda w, i: F.embedding(i, w), [rnd(7, 4), ints(3, 5, n=7)]),
    "one_hot": (lambda i: F.one_hot(i, 6), [ints(3, 4)]),
    "one_hot_all": (lambda i: F.one_hot(i), [ints(3, 4)]),
    "softmax": (lambda a: a.softmax(-1), [rnd(5, 4)]),
    "log_softmax": (lambda a: a.log_softmax(0), [rnd(5, 4)]),
    "layer_norm": (lambda a, w, b: F.layer_norm(a, (4,), w, b), [rnd(5, 3, 4), rnd(4), rnd(4)]),
    "rms_norm": (lambda a, w: F.rms_norm(a, (4,), w), [rnd(5, 3, 4), rnd(4)]),
    "group_norm": (lambda a: F.group_norm(a, 2), [rnd(5, 4, 3)]),
    "batch_norm": (
        lambda a, m, v: F.batch_norm(a, m.detach().clone(), v.detach().clone(), training=False),
        [rnd(5, 4, 3), rnd(4), rnd(4).abs()],
    ),
    "batch_norm_t": (lambda a: F.batch_norm(a, None, None, training=True), [rnd(5, 4, 3)]),
    "conv1d": (lambda a, w: F.conv1d(a, w), [rnd(5, 4, 8), rnd(3, 4, 3)]),
    "conv2d": (
        lambda a, w, b: F.conv2d(a, w, b, padding=1),
        [rnd(3, 2, 5, 5), rnd(4, 2, 3, 3), rnd(4)],
    ),
    "max_pool": (lambda a: F.max_pool2d(a, 2), [rnd(5, 3, 4, 4)]),
    "avg_pool": (lambda a: F.avg_pool2d(a, 2), [rnd(5, 3, 4, 4)]),
    "adaptive": (lambda a: F.adaptive_avg_pool2d(a, 2), [rnd(5, 3, 4, 4)]),
    "interp": (lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"), [rnd(5, 3, 4, 4)]),
    "sdpa": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [rnd(2, 4, 3, 8)] * 3),
    "sdpa_c": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [rnd(3, 4, 3, 8)] * 3,
    ),
    "nll": (lambda a, t: F.nll_loss(a.log_softmax(1), t), [rnd(6, 4), ints(6, n=4)]),
    "ce": (lambda a, t: F.cross_entropy(a, t), [rnd(6, 4), ints(6, n=4)]),
    "ce_sum": (lambda a, t: F.cross_entropy(a, t, reduction="sum"), [rnd(5, 4), ints(5, n=4)]),
    "ce_none": (lambda a, t: F.cross_entropy(a, t, reduction="none"), [rnd(5, 4), ints(5, n=4)]),
    "ce_ignored": (
        lambda a, t: F.cross_entropy(a, t, ignore_index=0),
        [rnd(12, 4), torch.tensor([0, 0, 1, 2, 3, 3, 0, 2, 1, 1, 1, 2])],
    ),
    "ce_weighted": (
        lambda a, t, w: F.cross_entropy(a, t, w),
        [rnd(6, 4), ints(6, n=4), torch.tensor([1.0, 0.2, 3.0, 0.5])],
    ),
    "ce_places": (
        lambda a, t: F.cross_entropy(a, t, ignore_index=1),
        [rnd(6, 3, 4), ints(6, 4, n=3)],
    ),
    "mse": (lambda a, b: F.mse_loss(a, b), [rnd(6, 4), rnd(6, 4)]),
    "mse_sum": (lambda a, b: F.mse_loss(a, b, reduction="sum"), [rnd(5, 4), rnd(5, 4)]),
    "l1": (lambda a, b: F.l1_loss(a, b), [rnd(6, 4), rnd(6, 4)]),
    "bce": (
        lambda a, b: F.binary_cross_entropy_with_logits(a, b),
        [rnd(6, 4), rnd(6, 4).abs().clamp(max=1)],
    ),
    "huber": (lambda a, b: F.huber_loss(a, b), [rnd(6, 4), rnd(6, 4)]),
    "kl": (
        lambda a, b: F.kl_div(a.log_softmax(1), b.softmax(1), reduction="batchmean"),
        [rnd(6, 4), rnd(6, 4)],
    ),
    "zeros_like": (lambda a: torch.zeros_like(a), [rnd(5, 4)]),
    "ones_like": (lambda a: torch.ones_like(a), [rnd(5, 4)]),
    "full_like": (lambda a: torch.full_like(a, 3.0), [rnd(5, 4)]),
    "new_zeros": (lambda a: a.new_zeros(3, 4), [rnd(5, 4)]),
    "clone": (lambda a: a.clone(), [rnd(5, 4)]),
    "contig": (lambda a: a.t().contiguous(), [rnd(5, 4)]),
    "item": (lambda a: torch.tensor(a.sum().item()), [rnd(5, 4)]),
    "equal": (lambda a, b: torch.tensor(torch.equal(a, b)), [ints(5, 4), ints(5, 4)]),
    "isnan": (lambda a: a.isnan(), [rnd(5, 4)]),
    "add_": (lambda a, b: a.clone().add_(b), [rnd(5, 4), rnd(4)]),
    "mul_": (lambda a, b: a.clone().mul_(b), [rnd(5, 4), rnd(5, 4)]),
    "copy_": (lambda a, b: a.clone().copy_(b), [rnd(5, 4), rnd(4)]),
    "zero_": (lambda a: a.clone().zero_(), [rnd(5, 4)]),
    "glu": (lambda a: F.glu(a), [rnd(5, 4)]),
    "silu_mul": (lambda a, b: F.silu(a) * b, [rnd(5, 4)] * 2),
    "nonzero_sum": (lambda a: (a > 0).sum(0), [rnd(5, 4)]),
    "bucketize": (lambda a, b: torch.bucketize(a, b), [rnd(5, 4), torch.tensor([-1.0, 0, 1.0])]),
    "histc": (lambda a: torch.histc(a, 4, -2, 2), [rnd(5, 4)]),
    "constant_pad": (lambda a: F.pad(a, (0, 0, 1, 2)), [rnd(5, 4)]),
    "movedim": (lambda a: a.movedim(0, 1).reshape(-1, 3), [rnd(2, 4, 3)]),
    "broadcast3": (lambda a, b, c: a + b * c, [rnd(5, 4), rnd(1, 4), rnd(5, 1)]),
    "trace": (lambda a: a.trace(), [rnd(5, 5)]),
    "isin": (lambda a, b: torch.isin(a, b), [ints(5, 4), ints(3)]),
    "index_copy": (
        lambda a, i, b: a.index_copy(0, i, b),
        [rnd(5, 4), torch.tensor([0, 3, 4]), rnd(3, 4)],
    ),
    "pixel_shuffle": (lambda a: F.pixel_shuffle(a, 2), [rnd(3, 4, 2, 2)]),
    "count_nonzero": (lambda a: torch.count_nonzero(a, 0), [ints(5, 4)]),
    "aminmax": (lambda a: torch.aminmax(a, dim=1)[1], [rnd(5, 4)]),
    "rsub": (lambda a, b: torch.rsub(a, b), [rnd(5, 4), rnd(5, 4)]),
    "complex": (lambda a, b: torch.complex(a, b).abs(), [rnd(5, 4), rnd(5, 4)]),
    "solve": (lambda a, b: torch.linalg.solve(a, b), [rnd(5, 3, 3), rnd(5, 3, 2)]),
    "cross": (lambda a, b: torch.linalg.cross(a, b), [rnd(5, 3), rnd(5, 3)]),
    "embedding_1d": (lambda w, i: F.embedding(i, w), [rnd(8, 4), ints(6, n=8)]),
    "dist": (lambda a, b: torch.dist(a, b), [rnd(5, 4), rnd(5, 4)]),
    "foreach": (lambda a, b: torch._foreach_add([a, b], 1.0)[1], [rnd(5, 4), rnd(5, 4)]),
    "foreach_norm": (lambda a, b: torch._foreach_norm([a, b])[1], [rnd(5, 4), rnd(5, 4)]),
    "foreach_mul": (lambda a, b: torch._foreach_mul([a, b], [b, a])[1], [rnd(5, 4), rnd(5, 4)]),
}


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    dist.init_process_group("local", rank=0, world_size=4)
    yield
    dist.destroy_process_group()


def chosen(tensors: list[Any], seed: str) -> list[tuple[DeviceMesh, Any]]:
    """Placements on a line of three and a square of four ranks."""
    draw = random.Random(seed)
    line, square = DeviceMesh("cpu", [0, 1, 2]), init_device_mesh("cpu", (2, 2))
    rows = list(itertools.product(*[[(p,) for p in options(t)] for t in tensors]))
    found: list[tuple[DeviceMesh, Any]] = [
        (line, row) for row in draw.sample(rows, min(30, len(rows)))
    ]
    pairs = [list(itertools.product(options(t), repeat=2)) for t in tensors]
    return found + [(square, tuple(draw.choice(p) for p in pairs)) for _ in range(12)]


def asked(f: Callable[..., Any], args: list[Any]) -> Any:
    """The result; None if the placements are refused as PyTorch refuses them."""
    try:
        return f(*args)
    except (RuntimeError, IndexError) as error:
        if re.search(REFUSED, str(error)):
            return None
        raise


def check(name: str, tensors: list[Any], mesh: DeviceMesh, rows: Any) -> bool:
    """Whether the placements are taken; the result has to be the plain one then."""
    f = CASES[name][0]
    want = f(*tensors)
    args = [placed(t, mesh, row) for t, row in zip(tensors, rows, strict=True)]
    summed = any(p.is_partial() for row in rows for p in row)
    got = asked(f, args)
    if got is None:
        return False
    if isinstance(got, DTensor):
        shapes = [tuple(p.shape) for p in got._locals]
        assert shapes == [tuple(s) for s in got._spec.locals()], rows
        summed = summed or any(p.is_partial() for p in got.placements)
        got = got.full_tensor()
    assert got.shape == want.shape and got.dtype == want.dtype, rows
    if want.dtype.is_floating_point and (summed or name not in BITWISE):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    else:
        assert torch.equal(got, want), (rows, got)
    return True


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")  # of ranks without elements
@pytest.mark.parametrize("name", CASES)
def test_any_placement_gives_the_plain_result(name: str) -> None:
    tensors, right = CASES[name][1], 0
    # Those of one dimension may be sorted.
    others = [t.flip(0) if t.ndim > 1 else t for t in tensors]
    for mesh, rows in chosen(tensors, name):
        # The second call of a kind runs as the first one did, on other numbers.
        taken = check(name, tensors, mesh, rows)
        assert check(name, others, mesh, rows) == taken
        right += taken
    assert right


# Every element is computed as by the plain operator, from the same numbers in the same order.
BITWISE = {
    "add",
    "add_b",
    "mul_b",
    "div",
    "neg",
    "mul2",
    "add2",
    "relu",
    "clamp",
    "maximum",
    "where",
    "masked_fill",
    "to",
    "t",
    "permute",
    "transpose",
    "view",
    "view2",
    "flatten",
    "reshape",
    "unsqueeze",
    "squeeze",
    "expand",
    "select",
    "slice",
    "slice1",
    "split",
    "chunk",
    "unbind",
    "cat",
    "cat1",
    "stack",
    "flip",
    "roll",
    "tril",
    "triu",
    "diagonal",
    "repeat",
    "rot90",
    "pad",
    "gather",
    "gather0",
    "scatter",
    "index_select",
    "index",
    "index2",
    "index_ij",
    "index_put",
    "embedding",
    "clone",
    "contig",
    "amax",
    "amin",
    "sort",
    "topk",
    "max_pool",
    "copy_",
    "zero_",
    "movedim",
    "constant_pad",
    "zeros_like",
    "ones_like",
}


def test_strided_shards_come_together_again() -> None:
    kinds = [Replicate(), Shard(0), Shard(1)]
    kinds += [_StridedShard(0, split_factor=2), _StridedShard(0, split_factor=3)]
    mesh = init_device_mesh("cpu", (2, 2))
    for rows, first, second in itertools.product((1, 3, 5, 6, 7, 12, 13), kinds, kinds):
        x = torch.arange(rows * 2.0).view(rows, 2)
        t = distribute_tensor(x, mesh, [first, second])
        assert torch.equal(t.full_tensor(), x), (rows, first, second)
        t = t.redistribute(mesh, [Shard(1), Shard(0)])
        assert torch.equal(t.full_tensor(), x), (rows, first, second)


INTO: dict[str, tuple[Any, list[Any]]] = {
    "add": (torch.add, [rnd(5, 4), 3]),
    "sum": (torch.sum, [rnd(5, 4), 0]),
    "mm": (torch.mm, [rnd(5, 4), rnd(4, 3)]),
    "cat": (lambda t, out=None: torch.cat([t, t], out=out), [rnd(5, 4)]),
    "argmax": (torch.argmax, [rnd(5, 4), 0]),
    "max": (torch.max, [rnd(5, 4), 0]),
}


@pytest.mark.parametrize("name", INTO)
def test_results_go_where_they_are_told_and_keep_its_placements(name: str) -> None:
    function, args = INTO[name]
    plain = function(*args)
    several = isinstance(plain, tuple)
    mesh = init_device_mesh("cpu", (3,))
    for given in (Shard(0), Shard(1), Replicate()):
        for kept in (Shard(0), Replicate()):
            placed_args = [
                distribute_tensor(a, mesh, [given]) if isinstance(a, torch.Tensor) else a
                for a in args
            ]
            for _ in range(2):  # the second call of a kind runs as the first one did
                wanted = tuple(plain) if several else (plain,)
                outs = tuple(distribute_tensor(torch.zeros_like(t), mesh, [kept]) for t in wanted)
                got = function(*placed_args, out=outs if several else outs[0])
                for out, back, want in zip(outs, got if several else [got], wanted, strict=True):
                    assert back is out and out.placements == (kept,)
                    torch.testing.assert_close(out.full_tensor(), want)


def test_thresholds_keep_extremes_that_they_do_not_turn_round() -> None:
    mesh = init_device_mesh("cpu", (2,))
    pieces = [torch.tensor([0.0, 3.0, 0.5]), torch.tensor([2.0, 0.0, 0.25])]
    spec = distribute_tensor(pieces[0], mesh, [Replicate()])._spec.placed([Partial("max")])
    t, want = DTensor._of(pieces, spec), torch.maximum(*pieces)
    for value, kept in ((5.0, Replicate()), (-1.0, Partial("max"))):
        got = F.threshold(t, 1.0, value)
        assert got.placements == (kept,)
        assert torch.equal(got.full_tensor(), F.threshold(want, 1.0, value))


def test_results_of_other_types_or_shapes_go_nowhere() -> None:
    mesh = init_device_mesh("cpu", (2,))
    t = distribute_tensor(rnd(4, 2), mesh, [Shard(0)])
    whole = distribute_tensor(torch.zeros(4, 2, dtype=torch.int64), mesh, [Shard(0)])
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        torch.add(t, 1, out=whole)
    with pytest.raises(NotImplementedError, match="cannot take another shape"):
        torch.add(t, 1, out=distribute_tensor(torch.zeros(0, 2), mesh, [Shard(0)]))


def test_strided_shards_of_several_sizes_are_not_flattened() -> None:
    mesh = init_device_mesh("cpu", (2, 2))
    x = torch.arange(12.0).view(4, 3)
    t = distribute_tensor(x, mesh, [Replicate(), _StridedShard(1, split_factor=2)])
    with pytest.raises(RuntimeError, match="Cannot flatten unevenly sharded tensor: dimension 1"):
        t.repeat_interleave(2, -1)
    y = distribute_tensor(
        torch.arange(16.0).view(4, 4), mesh, [Replicate(), _StridedShard(1, split_factor=2)]
    )
    assert torch.equal(
        y.repeat_interleave(2, -1).full_tensor(), y.full_tensor().repeat_interleave(2, -1)
    )

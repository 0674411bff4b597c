"""Every row on meshes whose ranks are all in this process: results and gradients are the plain tensors'."""

import random

import pytest

import rows
import torchlike as torch
import torchlike.distributed as dist
from meshes import options, placed
from torchlike.distributed.device_mesh import DeviceMesh, init_device_mesh
from torchlike.distributed.tensor import DTensor, Replicate

# One-element tensors beside those on meshes are told of.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
PUBLIC = [r for r in rows.SAMPLES if not r.startswith("_") and r not in rows.DRAW]
# Conditions of their samples are so bad that rounding decides.
LOOSE = {"cholesky_solve"}
# Bits of parts are no parts of bits.
WHOLE = {"view#dtype"}


@pytest.fixture(autouse=True)
def world():
    dist.init_process_group("local", rank=0, world_size=4)
    yield
    dist.destroy_process_group()


def placements(tensors, seed, count, partial):
    """Meshes, and placements of each tensor: on a line of three and a square of four ranks."""
    draw = random.Random(seed)
    line, square = DeviceMesh("cpu", [0, 1, 2]), init_device_mesh("cpu", (2, 2))
    for i in range(count):
        mesh = square if i % 3 == 2 else line
        kinds = [[p for p in options(t) if partial or not p.is_partial()] for t in tensors]
        yield mesh, [tuple(draw.choice(k) for _ in range(mesh.ndim)) for k in kinds]


def cases(row):
    for call, given in rows.functions(row, False):
        if given and all(t.layout == torch.strided and not t.is_quantized for t in given):
            yield call, given


def compare(got, want, how):
    if isinstance(got, DTensor):
        assert [tuple(p.shape) for p in got._locals] == [tuple(s) for s in got._spec.locals()], how
        got = got.full_tensor()
    assert (got.shape, got.dtype) == (want.shape, want.dtype), how
    if got.layout != torch.strided:
        return
    if not (got.is_floating_point() or got.is_complex()):
        assert torch.equal(got, want), how
        return
    near = 1e-2 if got.dtype in (torch.float16, torch.bfloat16) else 1e-4
    torch.testing.assert_close(
        got,
        want,
        rtol=near,
        atol=near,
        equal_nan=True,
        check_stride=False,
        msg=lambda m: f"{how}\n{m}",
    )


@pytest.mark.parametrize("row", PUBLIC)
def test_results_are_the_plain_ones_or_the_call_is_refused(row):
    for call, given in cases(row):
        want = rows.attempt(lambda call=call, given=given: call(*given))
        if isinstance(want, Exception) or not want:
            continue
        for mesh, places in placements(given, row, 6, row not in WHOLE):
            pieces = [placed(t, mesh, p) for t, p in zip(given, places, strict=True)]
            made = rows.attempt(lambda call=call, pieces=pieces: call(*pieces))
            if not isinstance(made, Exception):
                assert len(made) == len(want)
                for a, b in zip(made, want, strict=True):
                    compare(a, b, places)


def wanting(tensors):
    return [t.detach().requires_grad_(t.is_floating_point() or t.is_complex()) for t in tensors]


def gradients(call, given, weights):
    xs = wanting(given)
    outs = [t for t in call(*xs) if t.requires_grad]
    inputs = [t for t in xs if t.requires_grad]
    return torch.autograd.grad(outs, inputs, weights(outs), allow_unused=True) if outs else None


@pytest.mark.parametrize("row", [r for r in PUBLIC if r not in LOOSE])
def test_gradients_are_the_plain_ones_or_the_call_is_refused(row):
    for call, given in cases(row):
        drawn = []

        def draw(outs, drawn=drawn):
            new = torch.Generator().manual_seed(1)
            drawn += [torch.randn(t.shape, generator=new).to(t.dtype) for t in outs]
            return drawn

        want = rows.attempt(lambda call=call, given=given: gradients(call, given, draw))
        if isinstance(want, Exception) or want is None:
            continue
        for mesh, places in placements(given, row, 3, False):
            back = next(iter(placements(drawn, row, 3, False)))[1]
            back = [p[:1] * mesh.ndim for p in back]
            pieces = [placed(t, mesh, p) for t, p in zip(given, places, strict=True)]

            def bring(outs, mesh=mesh, back=back, drawn=drawn):
                assert len(outs) == len(drawn), "results have lost their histories"
                return [placed(t, mesh, p) for t, p in zip(drawn, back, strict=True)]

            made = rows.attempt(lambda call=call, pieces=pieces: gradients(call, pieces, bring))
            if isinstance(made, Exception):
                continue
            assert made is not None
            for a, b in zip(made, want, strict=True):
                assert (a is None) == (b is None), places
                if b is not None:
                    compare(a, b, places)


def share(function):
    """How many of the calls that have a plain result have one on a mesh."""
    mesh, taken, asked = DeviceMesh("cpu", [0, 1, 2]), 0, 0
    for row in PUBLIC:
        for call, given in cases(row):
            want = rows.attempt(lambda call=call, given=given: function(call, given))
            if isinstance(want, Exception) or not want:
                continue
            pieces = [placed(t, mesh, (Replicate(),)) for t in given]
            made = rows.attempt(lambda call=call, pieces=pieces: function(call, pieces))
            asked, taken = asked + 1, taken + (not isinstance(made, Exception))
    return taken / asked


def test_most_rows_are_taken_on_a_mesh():
    """All but those whose results depend on data, or that PyTorch has no rule for either."""
    assert share(lambda call, given: call(*given)) > 0.94


def test_most_gradients_are_taken_on_a_mesh():
    def ones(outs):
        return [torch.ones_like(t) for t in outs]

    assert share(lambda call, given: gradients(call, given, ones)) > 0.94

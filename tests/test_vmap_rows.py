"""Every row under `vmap`: what a whole batch gives is what its examples give one after the other."""

import re

import pytest

import torchlike as torch
from rows import DRAW, IN_PLACE, SAMPLES, another, attempt, functions

pytestmark = pytest.mark.filterwarnings("ignore")

# How a refusal of `vmap` begins.
REFUSALS = (
    "vmap", "When vmap-ing", "Batching rule", "Batch norm got a batched tensor", "output with shape", "NYI: ",
    "required rank 4 tensor to use channels_last format",
)  # fmt: skip
# Gradients whose formulas make again what a forward call made, which samples did not.
MADE_AGAIN = {
    r for r in SAMPLES
    if re.search(r"_grad\..*(layer_norm|rms_norm|group_norm|batch_norm|rnn_layer|cumprod_backward)", r)
}  # fmt: skip


def smooth(call, each):
    """A function of only the floating point tensors among those given, to such results; and these tensors."""
    at = [i for i, t in enumerate(each) if t.is_floating_point()]

    def only(*given):
        new = list(each)
        for i, t in zip(at, given, strict=True):
            new[i] = t
        return tuple(t for t in call(*new) if t.is_floating_point())

    return only, [each[i] for i in at]


def gradients(call):
    """The gradients of a function of tensors by those that are floating point, weighed as if each result had a loss."""

    def back(*each):
        only, given = smooth(call, each)
        made, pull = torch.func.vjp(only, *given)
        weights = [torch.arange(1, t.numel() + 1, dtype=t.dtype).view(t.shape) for t in made]
        return pull(tuple(weights))

    return back


def tangents(call):
    """The derivative of a function of tensors along all of its floating point arguments."""

    def along(*each):
        only, given = smooth(call, each)
        return torch.func.jvp(only, tuple(given), tuple(t * 0.5 + 1 for t in given))[1]

    return along


def tangents_apart(call, n):
    """The derivative of a function of `n` tensors along as many others, those of floating point numbers."""

    def along(*each):
        only, given = smooth(call, each[:n])
        directions = [d for t, d in zip(each[:n], each[n:], strict=True) if t.is_floating_point()]
        return torch.func.jvp(only, tuple(given), tuple(directions))[1]

    return along


def agree(row, call, given, which):
    """Compares the two ways for a batch of two in the places `which` says."""
    examples = [[t, another(t) if w else t] for t, w in zip(given, which, strict=True)]
    each = [attempt(lambda i=i: call(*[e[i] for e in examples])) for i in range(2)]
    if any(isinstance(e, Exception) or not e for e in each):
        return
    # What speaks of memory sees that of an example as it is alone.
    dim = 0 if re.search("strided|view_as_complex|view#dtype", row) else -1
    whole = [torch.stack(e, dim) if w else e[0] for e, w in zip(examples, which, strict=True)]
    dims = tuple(dim if w else None for w in which)
    made = attempt(lambda: torch.func.vmap(call, in_dims=dims, randomness="different")(*whole))
    if isinstance(made, Exception):
        assert str(made).startswith(REFUSALS), (which, made)
        return
    for k, got in enumerate(made):
        want = torch.stack([e[k] for e in each])
        if row in DRAW | MADE_AGAIN:
            assert (got.shape, got.dtype) == (want.shape, want.dtype), which
        elif got.is_floating_point() or got.is_complex():
            near = 2e-2 if got.dtype.itemsize < 4 else 1e-4
            torch.testing.assert_close(got, want, rtol=near, atol=1e-4, equal_nan=True)
        else:
            assert got.tolist() == want.tolist(), which


def ways(given):
    """All tensors in a batch, and each alone."""
    n = len(given)
    each = {(True,) * n, *(tuple(i == k for i in range(n)) for k in range(n))}
    return sorted(w for w in each if any(w))


@pytest.mark.parametrize("row", SAMPLES)
def test_every_row(row):
    for call, given in functions(row, False):
        for which in ways(given):
            agree(row, call, given, which)


@pytest.mark.parametrize("row", [r for r in IN_PLACE if r in SAMPLES])
def test_every_row_in_place(row):
    for call, given in functions(row, True):
        for which in ways(given):
            agree(row, call, given, which)


@pytest.mark.parametrize("row", SAMPLES)
def test_gradients_of_every_row(row):
    for call, given in functions(row, False):
        for which in ways(given):
            agree(row, gradients(call), given, which)


@pytest.mark.parametrize("row", SAMPLES)
def test_tangents_of_every_row(row):
    for call, given in functions(row, False):
        for which in ways(given):
            agree(row, tangents(call), given, which)


# What is drawn has no tangents but zeros.
@pytest.mark.parametrize("row", [r for r in SAMPLES if r not in DRAW])
def test_tangents_that_differ_where_their_operand_does_not(row):
    for call, given in functions(row, False):
        n = len(given)
        both = [*given, *(t * 0.5 + 1 for t in given)]
        for at, along in [(i, j) for i in range(n) for j in range(n) if i != j]:
            which = tuple(k in (at, n + along) for k in range(2 * n))
            agree(row, tangents_apart(call, n), both, which)


@pytest.mark.parametrize("row", SAMPLES)
def test_two_levels_of_every_row(row):
    for call, given in functions(row, False):
        for inner in ways(given):
            both = [
                torch.stack([t, another(t)], 1 if w and t.ndim else 0) if w else t
                for t, w in zip(given, inner, strict=True)
            ]
            dims = tuple(
                (1 if t.ndim else 0) if w else None for t, w in zip(given, inner, strict=True)
            )
            each = torch.func.vmap(call, in_dims=dims, randomness="different")
            for which in ways(given):
                agree(row, each, both, which)


def test_masks_beside_other_indices():
    x = torch.arange(24.0).view(3, 2, 2, 2)
    mask, wide = torch.tensor([True, False]), torch.tensor([[True, False], [True, True]])
    y = torch.tensor([-1.0, -2.0, -3.0])
    for places in (
        (torch.tensor([[0], [1]]), mask),
        (mask, torch.tensor([[0, 1]])),
        (wide,),
        (wide, torch.tensor([0, 1, 1])),
    ):
        got = torch.vmap(lambda a, places=places: a[places])(x)
        assert torch.equal(got, torch.stack([a[places] for a in x]))
        got = torch.vmap(lambda a, b, places=places: a.index_put(places, b))(x, y)
        assert torch.equal(
            got, torch.stack([a.index_put(places, b) for a, b in zip(x, y, strict=True)])
        )
    with pytest.raises(IndexError, match="The shape of the mask"):
        torch.vmap(lambda a: a[torch.tensor([0]), torch.tensor([True])])(x)


@pytest.mark.filterwarnings("error:There is a performance drop")
@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize("name", ["expand_as", "view_as"])
def test_shapes_of_others_are_read_for_all_examples_at_once(name, dims):
    x = torch.randn(4, 1, 3) if name == "expand_as" else torch.randn(4, 6)
    other = torch.randn(4, 2, 3)
    given = [t if d == 0 else t[0] for t, d in zip((x, other), dims, strict=True)]
    call = getattr(torch.Tensor, name)
    each = [
        call(*(t[i] if d == 0 else t for t, d in zip(given, dims, strict=True))) for i in range(4)
    ]
    assert torch.equal(torch.vmap(call, dims)(*given), torch.stack(each))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.ReflectionPad2d(1),
        torch.nn.CircularPad1d(1),
        torch.nn.Upsample(scale_factor=2),
        torch.nn.BatchNorm2d(2, affine=False).eval(),
        torch.nn.BatchNorm2d(2, track_running_stats=True).eval(),
    ],
    ids=str,
)
def test_layers_run_on_whole_batches(layer):
    x = torch.randn(3, 1, 2, 4, 4)
    if isinstance(layer, torch.nn.CircularPad1d):
        x = x[..., 0]
    torch.testing.assert_close(torch.vmap(layer)(x), torch.stack([layer(one) for one in x]))

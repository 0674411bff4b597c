"""The table test: everything that can be derived from the samples of a row.

Each row is called by its samples as a function, method, in place and with `out=`, on the CPU and on meta, with
arguments in other layouts, deferred and eager, under the counter and a dispatch mode.
"""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

import pytest

import samples
import torchlike as torch
from torchlike import _C
from torchlike.utils._python_dispatch import TorchDispatchMode
from torchlike.utils.counter import Counter

FUNCTION, METHOD, IN_PLACE, OUT, EXACT = 1, 2, 4, 8, 16
SAMPLES = dict(_C._op_samples())
ELSEWHERE = {name: samples.elsewhere(s) for name, s in SAMPLES.items() if samples.elsewhere(s)}
ROWS = {name: forms for name, _, forms, _ in _C._op_table() if name not in ELSEWHERE}
KINDS = dict(_C._op_kinds())
CALLS = {name: samples.calls(text) for name, text in SAMPLES.items() if name in ROWS}
REFUSED = (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError, AssertionError)

# What is drawn, and memory that nobody has written.
RANDOM = {
    "alpha_dropout", "bernoulli", "binomial", "cauchy", "dropout", "empty", "exponential", "feature_alpha_dropout",
    "feature_dropout", "geometric", "log_normal", "multinomial", "new_empty", "normal", "poisson", "rand", "resize",
    "rrelu", "sample_dirichlet", "standard_gamma", "uniform",
}  # fmt: skip
# What a result is made of depends on how its argument lies in memory.
MEMORY = {
    "as_strided", "as_strided_copy", "as_strided_scatter", "resize", "resize_as", "set", "view_as_complex_copy",
    "view_copy",
}  # fmt: skip
# Python prepares their arguments.
PREPARED = {"einsum", "tensordot"}


def leaf_name(row):
    return row.partition("#")[0].rpartition(".")[2].strip("_")


def is_random(row):
    name = leaf_name(row)
    return any(name.startswith(r) or name.startswith("native_" + r) for r in RANDOM)


def run(row, call, device="cpu", change=None):
    """The row's result for a sample, and its arguments."""
    args, kwargs = samples.arguments(call, device, change)
    torch.manual_seed(0)
    return _C._call_row(row, False, args, kwargs), args, kwargs


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [t for v in value for t in flat(v)]
    return []


def layout(t):
    """What a tensor looks like; a dimension of size 1 and a tensor without elements have no stride."""
    strides = [st for st, n in zip(t.stride(), t.shape, strict=True) if n > 1] if t.numel() else []
    return tuple(t.shape), t.dtype, strides


def numbers(t):
    t = t.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(t.to(torch.complex128)) if t.dtype.is_complex else t.to(torch.float64)


def assert_same(got, want, exact=True, values=True):
    """Layouts and values of two results agree."""
    got_t, want_t = flat(got), flat(want)
    assert len(got_t) == len(want_t)
    for g, w in zip(got_t, want_t, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if exact:
            assert layout(g) == layout(w)
        if not values:
            continue
        rtol = (
            0
            if exact
            else {2: 2e-2, 4: 1e-4}.get(w.element_size() // (1 + w.dtype.is_complex), 1e-9)
        )
        torch.testing.assert_close(numbers(g), numbers(w), rtol=rtol, atol=rtol, equal_nan=True)
    if not want_t:
        assert got == want or got != got


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def every(*forms):
    """The rows that have one of these forms; without a GPU, `cuda` can only refuse."""
    rows = [r for r, f in ROWS.items() if (not forms or any(f & x for x in forms)) and r != "cuda"]
    return pytest.mark.parametrize("row", rows)


def test_every_row_has_samples():
    assert not [row for row, calls in CALLS.items() if not calls]


def test_rows_without_strided_samples_are_called_elsewhere():
    root = Path(__file__).resolve().parent.parent
    texts = {name: (root / name).read_text() for name in set(ELSEWHERE.values())}
    assert [row for row, file in ELSEWHERE.items() if f'"{row}"' not in texts[file]] == []


def public(row):
    """The function of the module that a row stands behind."""
    found = torch
    for part in row.partition("#")[0].split("."):
        found = getattr(found, part)
    return found


@every(FUNCTION, METHOD)
def test_functions_and_methods_give_what_the_row_gives(row):
    values = "empty" not in row
    for call in CALLS[row]:
        want, *_ = run(row, call)
        if ROWS[row] & FUNCTION and row not in PREPARED:
            args, kwargs = samples.arguments(call, "cpu")
            torch.manual_seed(0)
            assert_same(public(row)(*args, **kwargs), want, values=values)
        args, kwargs = samples.arguments(call, "cpu")
        if ROWS[row] & METHOD and args and isinstance(args[0], torch.Tensor):
            torch.manual_seed(0)
            name = row.partition("#")[0].rpartition(".")[2]
            assert_same(getattr(args[0], name)(*args[1:], **kwargs), want, values=values)


@pytest.mark.parametrize(("alias", "target"), _C._op_aliases())
def test_other_names_are_the_same_functions(alias, target):
    for row in (r for r in ROWS if r.partition("#")[0] == target and ROWS[r] & FUNCTION):
        for call in CALLS[row]:
            want, args, kwargs = run(row, call)
            assert_same(public(alias)(*args, **kwargs), want)
            if ROWS[row] & METHOD and "." not in alias and isinstance(args[0], torch.Tensor):
                assert_same(getattr(args[0], alias)(*args[1:], **kwargs), want)


@every(IN_PLACE)
def test_in_place_forms_change_their_argument(row):
    for call in CALLS[row]:
        args, kwargs = samples.arguments(call, "cpu")
        x = args[0].clone(memory_format=torch.contiguous_format)
        before = x._version
        try:
            want, *_ = run(row, call)
        except REFUSED:
            want = None
        torch.manual_seed(0)
        try:
            result = _C._call_row(row, True, (x, *args[1:]), kwargs)
        except RuntimeError:
            assert want is None or layout(want)[:2] != layout(args[0])[:2], call.text
            continue
        writes = leaf_name(row) != "detach"
        assert result is x and x._version == before + writes
        if isinstance(want, torch.Tensor) and not is_random(row):
            assert_same(x, want.to(x.dtype), exact=False)


def outs(want, make):
    """`out=` for a result."""
    made = [make(t) for t in flat(want)]
    return made[0] if isinstance(want, torch.Tensor) else tuple(made)


@every(OUT)
def test_out_forms_write_where_they_are_told(row):
    for call in CALLS[row]:
        want, args, kwargs = run(row, call)
        if not flat(want):
            continue
        for make in (
            lambda t: torch.empty(t.shape, dtype=t.dtype),
            lambda t: torch.empty(0, dtype=t.dtype),
        ):
            out = outs(want, make)
            torch.manual_seed(0)
            result = _C._call_row(row, False, args, {**kwargs, "out": out})
            assert [id(t) for t in flat(result)] == [id(t) for t in flat(out)]
            if not is_random(row):
                assert_same(out, want, exact=False)


@every(OUT)
def test_out_of_another_dtype_is_cast_or_refused(row):
    for call in CALLS[row]:
        want, args, kwargs = run(row, call)
        if not flat(want) or "dtype" in kwargs:
            continue
        if all(t.dtype == torch.complex128 for t in flat(want)):
            continue
        out = outs(want, lambda t: torch.empty(t.shape, dtype=torch.complex128))
        torch.manual_seed(0)
        # Sizes of complex numbers are cast where they are written.
        sizes = leaf_name(row) == "abs" and flat(args)[0].dtype.is_complex
        if ROWS[row] & EXACT and not sizes:
            with pytest.raises(RuntimeError):
                _C._call_row(row, False, args, {**kwargs, "out": out})
            continue
        with contextlib.suppress(RuntimeError, NotImplementedError):
            _C._call_row(row, False, args, {**kwargs, "out": out})
            assert all(t.dtype == torch.complex128 for t in flat(out))


def outcome(row, call, device, change=None):
    """The layouts of a call's results, or None if it was refused."""
    try:
        result, *_ = run(row, call, device, change)
    except REFUSED:
        return None
    return [layout(t) for t in flat(result)]


# What a refusal says that would need the values of a meta tensor.
NEEDS = ("depend", "no data", "meta tensor", "item()", "on cpu", "on CPU", "must be real")


def depends_on_values(row, call, change=None):
    """Whether a refusal on meta says that values are needed."""
    try:
        run(row, call, "meta", change)
    except REFUSED as e:
        return any(text in str(e) for text in NEEDS)
    return False


@every()
def test_meta_says_what_the_cpu_does(row):
    for call in CALLS[row]:
        want = outcome(row, call, "cpu")
        assert want is not None, call.text
        got = outcome(row, call, "meta")
        assert got == want or depends_on_values(row, call), call.text


def transposed(t):
    return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.ndim > 1 else t


def strided(t):
    gaps = torch.empty((*t.shape, 2), dtype=t.dtype, device=t.device)[..., 0]
    return gaps.copy_(t) if gaps.numel() else gaps


@every()
@pytest.mark.parametrize("change", [transposed, strided])
def test_values_do_not_depend_on_layout(row, change):
    for call in CALLS[row]:
        if leaf_name(row) in MEMORY or row == "detach#inplace":
            continue
        want, *_ = run(row, call)
        try:
            got, *_ = run(row, call, "cpu", change)
        except RuntimeError:
            assert KINDS[row] == "view", call.text
            continue
        if not is_random(row) and KINDS[row] != "view":
            assert_same(got, want, exact=False)
        meta = outcome(row, call, "meta", change)
        assert meta == [layout(t) for t in flat(got)] or depends_on_values(row, call, change), (
            call.text
        )


def expanded(t):
    return t[:1].expand(t.shape) if t.ndim and t.shape[0] else t


def scalar(t):
    return t.reshape(-1)[0] if t.numel() else t


def empty(t):
    return t[:0] if t.ndim else t


@every(
    FUNCTION, METHOD, IN_PLACE
)  # what has no public form is called with arguments that were checked
@pytest.mark.parametrize("change", [expanded, scalar, empty])
def test_meta_agrees_on_edges(row, change):
    for call in CALLS[row]:
        want, got = outcome(row, call, "cpu", change), outcome(row, call, "meta", change)
        assert got == want or depends_on_values(row, call, change) or want is None, call.text


@every()
def test_deferred_is_eager(row):
    if row == "set":
        pytest.skip("an empty storage comes from nowhere")
    for call in CALLS[row]:
        want, *_ = run(row, call)
        with torch.meta_init():

            def deferred(t):
                return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t)

            try:
                got, *_ = run(row, call, "cpu", deferred)
            except NotImplementedError:
                continue  # data-dependent, in a form that is not recorded
        for t in flat(got):
            torch.materialize(t)
        assert_same(got, want, values="empty" not in row)


class Passes(TorchDispatchMode):
    """A mode that only watches."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@every(FUNCTION, METHOD)
def test_a_dispatch_mode_changes_nothing(row):
    """What a row comes down to, for those who watch, computes the same."""
    for call in CALLS[row]:
        want, *_ = run(row, call)
        with Passes():
            got, *_ = run(row, call)
        assert_same(got, want, exact=False, values="empty" not in row)


@every()
def test_the_counter_sees_the_leaves(row):
    """A kernel and a view show themselves, a composite what it is made of; no result is an alias that nobody saw."""
    for call in CALLS[row]:
        args, kwargs = samples.arguments(call, "cpu")
        given = flat([args, kwargs])
        with Counter() as seen:
            result = _C._call_row(row, False, args, kwargs)
        assert not [name for name in seen.counts if KINDS[name] == "composite"]
        if KINDS[row] in ("kernel", "view"):
            assert seen[row].calls == 1, (call.text, seen.counts)
        storages = {t.untyped_storage()._cdata for t in given}
        fresh = [t for t in flat(result) if not any(t is g for g in given)]
        alias = any(t.untyped_storage()._cdata in storages for t in fresh)
        assert not alias or any(KINDS[name] in ("view", "change") for name in seen.counts), (
            call.text
        )

"""What `gradcheck` compares beside gradients: tangents, and gradients and tangents of whole batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike._C import Tensor
from torchlike.autograd import forward_ad

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Outputs = Callable[[Any], tuple[Tensor, ...]]


def _duals(items: Sequence[Any], x: Tensor, tangent: Tensor) -> list[Any]:
    """The inputs without their history, those that want gradients with tangents: zeros but for one of them."""

    def dual(a: Any) -> Any:
        if not (isinstance(a, Tensor) and a.requires_grad):
            return a
        plain = a.detach()
        return forward_ad.make_dual(plain, tangent if a is x else torch.zeros_like(plain))

    return [dual(a) for a in items]


def _tangents(
    func: Callable[..., Any], items: Sequence[Any], x: Tensor, tangent: Tensor, places: list[int]
) -> list[Tensor]:
    """The tangents of the outputs at these places, for one of an input; zeros for those that have none."""
    made = func(*_duals(items, x, tangent))
    all_ = made if isinstance(made, tuple | list) else (made,)
    duals = [forward_ad.unpack_dual(all_[i]) for i in places]
    return [torch.zeros_like(u.primal) if u.tangent is None else u.tangent for u in duals]


def _places(func: Callable[..., Any], items: Sequence[Any], outputs: Outputs) -> list[int]:
    """Which outputs have a gradient."""
    made = func(*items)
    wanted = {id(o) for o in outputs(made)}
    all_ = made if isinstance(made, tuple | list) else (made,)
    return [i for i, o in enumerate(all_) if id(o) in wanted]


def forward_rows(
    func: Callable[..., Any],
    items: Sequence[Any],
    x: Tensor,
    outputs: Outputs,
    parts: Callable[[Tensor], Tensor],
) -> list[Tensor]:
    """For each output its tangents by each number of one input: [numbers of x, of the output]."""
    units = [1.0, 1.0j] if x.is_complex() else [1.0]
    rows = []
    places = _places(func, items, outputs)
    with forward_ad.dual_level():
        for place in range(x.numel()):
            for unit in units:
                v = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
                v.view(-1)[place] = unit
                rows.append([parts(t) for t in _tangents(func, items, x, v, places)])
    count = len(rows[0]) if rows else 0
    return [torch.stack([r[i] for r in rows]) for i in range(count)]


def _batches(t: Tensor) -> Tensor:
    return torch.stack([torch.randn_like(t.detach()) for _ in range(2)])


def batched_gradients_differ(made: Sequence[Tensor], wanted: Sequence[Tensor]) -> bool:
    """Whether gradients for a batch of cotangents at once are others than those for one after the other."""
    for o in made:
        along = _batches(o)
        options = {"retain_graph": True, "allow_unused": True}
        at_once = torch.autograd.grad([o], wanted, [along], is_grads_batched=True, **options)
        each = [torch.autograd.grad([o], wanted, [v], **options) for v in along]
        for k, got in enumerate(at_once):
            want = [g[k] for g in each]
            if got is None:
                if any(w is not None for w in want):
                    return True
            elif not torch.allclose(got, torch.stack(want), equal_nan=True):
                return True
    return False


def batched_tangents_differ(
    func: Callable[..., Any], items: Sequence[Any], wanted: Sequence[Tensor], outputs: Outputs
) -> bool:
    """Whether tangents for a batch at once are others than those for one after the other."""
    places = _places(func, items, outputs)
    with forward_ad.dual_level():
        for x in wanted:
            along = _batches(x)

            def push(v: Tensor, x: Tensor = x) -> tuple[Tensor, ...]:
                return tuple(_tangents(func, items, x, v, places))

            at_once = torch.func.vmap(push)(along)
            each = [push(v) for v in along]
            for k, got in enumerate(at_once):
                if not torch.allclose(got, torch.stack([e[k] for e in each]), equal_nan=True):
                    return True
    return False


def by_values(
    func: Callable[..., Any], items: Sequence[Any], masked: bool
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function of the values of its sparse inputs, with strided outputs, and these values as leaves.

    Unless masked, the entries of an input are all of its elements, as their gradients are compared too.
    """
    built: dict[int, Tensor] = {}
    given = list(items)
    for i, x in enumerate(items):
        if isinstance(x, Tensor) and x.requires_grad and x.layout != torch.strided:
            entries = x.detach() if masked else _with_all_entries(x.detach())
            built[i] = entries.coalesce() if x.layout == torch.sparse_coo else entries
            given[i] = built[i].values().clone().requires_grad_()

    def of_values(*args: Any) -> Any:
        made = func(*(_built(built[i], a) if i in built else a for i, a in enumerate(args)))
        outputs = made if isinstance(made, tuple | list) else (made,)
        return tuple(
            o.to_dense() if isinstance(o, Tensor) and o.layout != torch.strided else o
            for o in outputs
        )

    return of_values, tuple(given)


def _with_all_entries(x: Any) -> Tensor:
    """The same sparse tensor with an entry for each element."""
    ones = torch.ones(x.shape, dtype=x.dtype, device=x.device)
    if x.layout == torch.sparse_coo:
        return x.to_dense().sparse_mask(ones.to_sparse(x.sparse_dim()))
    blocks = x.layout in (torch.sparse_bsr, torch.sparse_bsc)
    at = x.values().dim() - x.dense_dim()
    size = tuple(x.values().shape[at - 2 : at]) if blocks else None
    everywhere = ones.to_sparse(layout=x.layout, blocksize=size, dense_dim=x.dense_dim())
    return x.to_dense().sparse_mask(everywhere)


def _built(like: Any, values: Tensor) -> Tensor:
    """A sparse tensor with the places of another and values of its own."""
    if like.layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(like.indices(), values, like.shape, is_coalesced=True)
    rows = like.layout in (torch.sparse_csr, torch.sparse_bsr)
    first, second = (
        (like.crow_indices(), like.col_indices())
        if rows
        else (like.ccol_indices(), like.row_indices())
    )
    return torch.sparse_compressed_tensor(first, second, values, like.shape, layout=like.layout)


def _tell_of_old(name: str) -> None:
    import warnings

    warnings.warn(
        f"`{name}` was part of PyTorch's private API and not meant to be exposed. It will be removed; "
        "torch.autograd.functional.jacobian is the public way to a Jacobian.",
        FutureWarning,
        stacklevel=3,
    )


def _refuse_old(name: str, outputs: Any, grad_out: Any) -> None:
    if grad_out != 1.0:
        raise ValueError(
            f"Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0."
        )
    if any(isinstance(o, Tensor) and o.is_complex() for o in outputs):
        raise ValueError(
            f"Expected output to be non-complex. {name} no longer supports functions that return "
            "complex outputs."
        )


def _joined(rows: Tensor, x: Tensor) -> Tensor:
    """Derivatives by the numbers of an input; those by both parts of a complex one as one."""
    if not x.is_complex():
        return rows
    return torch.complex(rows[0::2], rows[1::2])


def get_numerical_jacobian_wrt_specific_input(
    fn: Callable[..., Any],
    input_idx: int,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    eps: float,
    input: Any = None,
    is_forward_ad: bool = False,
) -> tuple[Tensor, ...]:
    """By differences, for each output its derivatives by one input: [numbers of the input, of the output].

    Args:
        input: what is changed, if that is not the input itself.
    """
    from torchlike.autograd.gradcheck import _numerical, _tuple

    x = inputs[input_idx] if input is None else input

    def tracked(*given: Any) -> Any:
        return tuple(
            o if o.requires_grad else o.detach().requires_grad_() for o in _tuple(fn(*given))
        )

    _refuse_old("get_numerical_jacobian_wrt_specific_input", outputs, 1.0)
    return tuple(_joined(rows, x) for rows in _numerical(tracked, inputs, x, eps))


def get_numerical_jacobian(
    fn: Callable[..., Any],
    inputs: Any,
    target: Any = None,
    eps: float = 1e-3,
    grad_out: float = 1.0,
) -> tuple[Tensor, ...]:
    """By differences, for each input that requires gradients the derivatives of the first output.

    Args:
        fn: takes all inputs as one tuple.
        target: the inputs that are changed, if those are not all.
    """
    _tell_of_old("get_numerical_jacobian")
    outputs = fn(inputs)
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    _refuse_old("get_numerical_jacobian", outputs, grad_out)
    chosen = inputs if target is None else target
    chosen = chosen if isinstance(chosen, tuple | list) else (chosen,)
    return tuple(
        get_numerical_jacobian_wrt_specific_input(
            lambda *given: fn(given), i, inputs, outputs, eps, x
        )[0]
        for i, x in enumerate(chosen)
        if isinstance(x, Tensor) and x.requires_grad
    )


def get_analytical_jacobian(
    inputs: Any, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """By gradients, for each input the derivatives of an output: [numbers of the input, of the output].

    Returns:
        Beside them whether a second time gives the same, and whether gradients have the sizes and types of inputs.
    """
    _tell_of_old("get_analytical_jacobian")
    _refuse_old("get_analytical_jacobian", (output,), grad_out)
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    sizes = types = True
    rounds: list[list[Tensor]] = []
    for _ in range(2):
        columns: list[list[Tensor]] = [[] for _ in wanted]
        for place in range(output.numel()):
            v = torch.zeros(output.numel(), dtype=output.dtype, device=output.device)
            v[place] = 1.0
            grads = torch.autograd.grad(
                output, wanted, v.view(output.shape), retain_graph=True, allow_unused=True
            )
            for column, g, x in zip(columns, grads, wanted, strict=True):
                if g is not None:
                    sizes &= g.shape == x.shape
                    types &= g.dtype == x.dtype
                column.append((torch.zeros_like(x) if g is None else g).detach().reshape(-1))
        rounds.append([torch.stack(c, dim=1) for c in columns])
    pairs = zip(*rounds, strict=True)
    same = all(bool((a - b).abs().max() <= nondet_tol) for a, b in pairs if a.numel())
    return tuple(rounds[0]), same, sizes, types

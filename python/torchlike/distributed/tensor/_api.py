"""Tensors on meshes: one whole, of which this process has a piece (or the pieces of all ranks, on a `local` world)."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C, nn
from torchlike.distributed._ops import c10d
from torchlike.distributed.device_mesh import _mesh_resources
from torchlike.distributed.tensor import _dispatch, _moves
from torchlike.distributed.tensor._spec import (
    Spec,
    TensorMeta,
    contiguous,
    meta_of,
    whole_of,
)
from torchlike.distributed.tensor.placement_types import (
    Partial,
    Placement,
    Replicate,
    Shard,
    _MaskPartial,
    check_mixed,
    is_cut,
    normalized,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchlike.distributed.device_mesh import DeviceMesh

__all__ = [
    "DTensor",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "ones",
    "rand",
    "randn",
    "zeros",
]


def _without_partial(placements: Sequence[Placement]) -> tuple[Placement, ...]:
    return tuple(Replicate() if p.is_partial() else p for p in placements)


class _ToLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: DTensor, grad_placements: Any) -> Any:
        ctx.spec, ctx.grad_placements = t._spec, grad_placements
        ctx.set_materialize_grads(False)
        local = t._local_tensor
        return local.view_as(local)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if grad is None:
            return None, None
        spec: Spec = ctx.spec
        placements = ctx.grad_placements or _without_partial(spec.placements)
        _, strides = whole_of(grad, spec.mesh, spec.placements)
        meta = TensorMeta(spec.shape, strides, grad.dtype)
        return DTensor._of([grad], spec.of(meta).placed(placements)), None


class _FromLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Any, spec: Spec, grad_placements: Any) -> Any:
        ctx.spec, ctx.grad_placements = spec, grad_placements
        ctx.set_materialize_grads(False)
        others = [local.clone() for _ in spec.mesh._seats[1:]]
        return DTensor._of([local.view_as(local), *others], spec)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if grad is None:
            return None, None, None
        wanted = ctx.grad_placements or _without_partial(ctx.spec.placements)
        pieces = _moves.redistribute(grad._locals, grad._spec, grad._spec.placed(wanted))
        return sum(pieces[1:], pieces[0]), None, None


class _Redistribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: DTensor, placements: Any, dtypes: Any) -> Any:
        forward, ctx.backward_dtype, ctx.out_dtype = dtypes
        spec, pieces = _cast(t._spec, t._locals, forward)
        ctx.spec = spec
        target = spec
        if spec.placements != placements:
            target = spec.placed(placements, True)
            pieces = _moves.redistribute(pieces, spec, target)
        return DTensor._of(pieces, target)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return (
            _GradOfRedistribute.apply(grad, ctx.spec, ctx.backward_dtype, ctx.out_dtype),
            None,
            None,
        )


class _GradOfRedistribute(torch.autograd.Function):
    """The gradient goes back to where the tensor came from; it stays partial where that was partial."""

    @staticmethod
    def forward(ctx: Any, grad: DTensor, previous: Spec, dtype: Any, out_dtype: Any) -> Any:
        ctx.spec, ctx.dtype = grad._spec, dtype
        spec, pieces = _cast(grad._spec, grad._locals, dtype)
        wanted = _grad_placements(spec.placements, previous.placements)
        target = spec.placed(wanted, previous.ordered)
        pieces = _moves.redistribute(pieces, spec, target)
        target, pieces = _cast(target, pieces, out_dtype)
        return DTensor._of(pieces, target)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        wanted = _without_partial(ctx.spec.placements)
        return grad.redistribute(placements=wanted), None, None, None


def _grad_placements(now: Sequence[Placement], before: Sequence[Placement]) -> list[Placement]:
    """Where a gradient goes: a tensor that was partial has one that is replicated, or stays partial."""
    wanted: list[Placement] = []
    for current, target in zip(now, before, strict=True):
        if target.is_partial():
            wanted.append(current if current.is_partial() else Replicate())
        else:
            wanted.append(target)
    return wanted


def _cast(spec: Spec, pieces: Sequence[Any], dtype: Any) -> tuple[Spec, list[Any]]:
    if dtype is None or spec.dtype == dtype:
        return spec, list(pieces)
    meta = TensorMeta(spec.shape, spec.stride, dtype)
    return spec.of(meta), [p.to(dtype) for p in pieces]


class DTensor(torch.Tensor):
    """A tensor on a mesh: it has the whole's shape, and `placements` say which piece each rank has.

    Operators run on the pieces, with collectives where a rule asks for them (`tensor/_rules/`). On a `fake` world, or
    on meta, results have the right shapes and placements, and collectives the right sizes; on a `local` one values are
    right too.
    """

    _spec: Spec
    _locals: list[Any]

    @staticmethod
    def __new__(cls: Any, local_tensor: Any, spec: Spec, *, requires_grad: bool = False) -> DTensor:
        """The tensor of this process's piece."""
        return DTensor._of([local_tensor], spec, requires_grad)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is left to do."""

    @staticmethod
    def _of(pieces: Sequence[Any], spec: Spec | None, requires_grad: bool = False) -> DTensor:
        """The tensor of these pieces, one for each rank that this process plays."""
        assert spec is not None
        device = pieces[0].device if pieces else torch.device(spec.mesh.device_type)
        made = torch.Tensor._make_wrapper_subclass(
            DTensor,
            spec.shape,
            strides=spec.stride,
            dtype=spec.dtype,
            device=device,
            requires_grad=requires_grad,
        )
        made._spec = spec
        made._hold(pieces)
        return made

    def _hold(self, pieces: Sequence[Any]) -> None:
        """Notes the pieces, here and for calls that run again without Python."""
        self._locals = list(pieces)
        _C._pieces(self, self._spec, self._spec.number, self._locals)

    @property
    def _local_tensor(self) -> Any:
        """This process's piece.

        Raises:
            RuntimeError: if it has those of several ranks.
        """
        if len(self._locals) == 1:
            return self._locals[0]
        if not self._locals:
            return torch.empty(0, dtype=self.dtype, device=self.device)
        raise RuntimeError(
            f"this process plays {len(self._locals)} ranks, and has a piece for each: ask for `_locals` or "
            "`full_tensor()`"
        )

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operator on the pieces."""
        return _dispatch.dispatch(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        local = self._locals[0] if len(self._locals) == 1 else self._locals
        return (
            f"DTensor(local_tensor={local}, device_mesh={self._spec.mesh}, "
            f"placements={self._spec.placements})"
        )

    def __deepcopy__(self, memo: Any) -> DTensor:
        made = DTensor._of([p.clone() for p in self._locals], self._spec, self.requires_grad)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuilt, (
            self._locals,
            self._spec.mesh,
            self._spec.placements,
            self._spec.tensor_meta,
        )

    def __tensor_flatten__(self) -> Any:
        return ["_local_tensor"], (self._spec, self.requires_grad)

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any = None, stride: Any = None) -> Any:
        spec, requires_grad = context
        return DTensor._of([inner["_local_tensor"]], spec, requires_grad)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """What each dimension of the mesh has of it."""
        return self._spec.placements

    @staticmethod
    def from_local(
        local_tensor: Any,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Any = None,
        stride: Any = None,
        grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        """The whole of which every rank gives its piece. Without `shape` and `stride` all pieces are taken to be alike.
        Where this process plays several ranks, each of them gives the same piece.

        Raises:
            RuntimeError: for a tensor that lies on a mesh already, or one of `shape` and `stride` without the other.
        """
        if isinstance(local_tensor, DTensor):
            raise RuntimeError(
                f"the local_tensor argument only accepts torch.Tensor but got {type(local_tensor)} value."
            )
        mesh = device_mesh or _mesh_resources.get_current_mesh()
        if mesh.device_type != local_tensor.device.type and not local_tensor.is_meta:
            local_tensor = local_tensor.to(mesh.device_type)
        given = placements if placements is not None else [Replicate()] * mesh.ndim
        if (shape is None) != (stride is None):
            raise RuntimeError(
                f"Found shape:{shape}, stride:{stride}.",
                "Please pass both shape and stride at the same time.",
            )
        spec = _spec_of_piece(local_tensor, mesh, tuple(given))
        if shape is not None:
            spec = spec.of(TensorMeta(tuple(shape), tuple(stride), local_tensor.dtype))
        if run_check:
            for dim, p in enumerate(spec.placements):
                if p.is_replicate() and mesh.size(dim) > 1 and not local_tensor.is_meta:
                    c10d.broadcast_([local_tensor.contiguous()], mesh.get_group(dim), 0)
        made: DTensor = _FromLocal.apply(
            local_tensor, spec, tuple(grad_placements) if grad_placements else None
        )
        return made

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Any:
        """This process's piece; its gradient is taken to lie as `grad_placements` say.

        Raises:
            RuntimeError: if this process has the pieces of several ranks.
        """
        if not torch.is_grad_enabled():
            return self._local_tensor
        return _ToLocal.apply(self, tuple(grad_placements) if grad_placements else None)

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """The same whole with other placements.

        Raises:
            RuntimeError: without placements, or if it is to become partial.
            NotImplementedError: for another mesh.
        """
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError("Cross device mesh comm not supported yet!")
        chosen = tuple(normalized(p, self.ndim) for p in placements)
        for old, new in zip(self.placements, chosen, strict=False):
            if new.is_partial() and old != new:
                raise RuntimeError(
                    f"Can not redistribute from {old} to {new}, redistributing to Partial is for internal use only!"
                )
        if len(chosen) != self.device_mesh.ndim:
            raise ValueError(
                f"{len(chosen)} placements for a mesh of {self.device_mesh.ndim} dimensions"
            )
        own = self.dtype
        made: DTensor = _Redistribute.apply(
            self, chosen, (forward_dtype or own, backward_dtype or own, own)
        )
        return made

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Any:
        """The whole, as a plain tensor."""
        whole = self.redistribute(placements=[Replicate()] * self.device_mesh.ndim)
        if len(whole._locals) > 1:
            return _FirstOf.apply(whole)
        return _ToLocal.apply(whole, tuple(grad_placements) if grad_placements else None)

    def __create_chunk_list__(self) -> Any:
        raise NotImplementedError(
            "torch.distributed.checkpoint of a DTensor is not supported by torchlike"
        )


_specs: dict[Any, Spec] = {}
_LIMIT = 1 << 12


def _spec_of_piece(local: Any, mesh: DeviceMesh, given: tuple[Placement, ...]) -> Spec:
    """How a whole lies all of whose pieces are like this one; layers ask for the same ones again and again."""
    own = meta_of(local)
    key = (id(mesh), given, own)
    found = _specs.get(key)
    if found is None:
        chosen = tuple(normalized(p, local.ndim) for p in given)
        check_mixed(chosen)
        shape, strides = whole_of(local, mesh, chosen)
        found = Spec(mesh, chosen, TensorMeta(shape, strides, own.dtype))
        if len(_specs) >= _LIMIT:
            _specs.clear()
        if not any(isinstance(p, _MaskPartial) for p in chosen):
            # The spec holds the mesh, so nothing else gets its number.
            _specs[key] = found
    return found


class _FirstOf(torch.autograd.Function):
    """One of the pieces of a replicated tensor, all of which this process has."""

    @staticmethod
    def forward(ctx: Any, t: DTensor) -> Any:
        ctx.spec = t._spec
        return t._locals[0].clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return DTensor._of([grad] * len(ctx.spec.mesh._seats), ctx.spec.of(meta_of(grad)))


def _rebuilt(pieces: Any, mesh: Any, placements: Any, meta: Any) -> DTensor:
    return DTensor._of(pieces, Spec(mesh, placements, meta))


def distribute_tensor(
    tensor: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """A whole that the rank `src_data_rank` of each dimension of the mesh has, cut and sent as `placements` say; with
    None every rank has the whole already, and nothing is sent.

    Raises:
        RuntimeError: if the tensor is no leaf.
        ValueError: if there are not as many placements as the mesh has dimensions.
        IndexError: if a dimension is to be cut that is not there.
    """
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    if not tensor.is_leaf:
        raise RuntimeError(
            "`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!"
        )
    given = list(placements) if placements is not None else [Replicate()] * mesh.ndim
    if len(given) != mesh.ndim:
        raise ValueError(
            "`placements` must have the same length as `device_mesh.ndim`! Found placements length: "
            f"{len(given)}, and device_mesh.ndim: {mesh.ndim}."
        )
    check_mixed(given)
    if isinstance(tensor, DTensor):
        return _checked(tensor, mesh, tuple(given))
    if mesh.device_type != tensor.device.type and not tensor.is_meta:
        tensor = tensor.to(mesh.device_type)
    chosen = tuple(normalized(p, tensor.ndim) for p in given)
    for p in chosen:
        if is_cut(p) and not 0 <= p.dim < tensor.ndim:  # type: ignore[attr-defined]
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-tensor.ndim}, {tensor.ndim - 1}], but got "
                f"{p.dim})"  # type: ignore[attr-defined]
            )
    spec = Spec(mesh, chosen, meta_of(tensor))
    whole = tensor.detach()
    if not mesh._seats:
        return DTensor._of([], spec, tensor.requires_grad)
    pieces = [_own(whole, spec, seat, src_data_rank) for seat in range(len(mesh._seats))]
    return DTensor._of(pieces, spec, tensor.requires_grad)


def _checked(t: DTensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> DTensor:
    if t.device_mesh != mesh:
        raise ValueError(
            f"Cannot distribute a DTensor with device mesh {t.device_mesh} to a different device mesh {mesh}."
        )
    if t.placements != placements:
        raise ValueError(
            f"Cannot distribute a DTensor with placements {t.placements} to a different placements {placements}. "
            "do you want to call `redistribute` instead?"
        )
    return t


def _own(whole: Any, spec: Spec, seat: int, source: int | None) -> Any:
    """The piece of a rank, sent as PyTorch does: one dimension of the mesh after the other."""
    mesh, part = spec.mesh, whole
    at = mesh._position(mesh._here[seat])
    sends = source is not None and not whole.is_meta and mesh._world.backend != "local"
    for dim, p in enumerate(spec.placements):
        parts = mesh.size(dim)
        if is_cut(p):
            if sends:
                _scatter(part, p, mesh, dim, at[dim], source or 0)
            part = _moves._taken(part, p, parts, at[dim])
        elif sends:
            c10d.broadcast_([part.contiguous()], mesh.get_group(dim), source)
        if isinstance(p, Partial):
            part = p._partition([part], mesh, dim)[0]
    return part.contiguous() if part is not whole else whole.clone()


def _scatter(whole: Any, p: Any, mesh: DeviceMesh, dim: int, at: int, source: int) -> None:
    """Sends the parts, all padded to the size of the largest."""
    parts = mesh.size(dim)
    if isinstance(p, Shard) and whole.shape[p.dim] % parts == 0:
        padded = list(whole.chunk(parts, p.dim))
    else:
        pieces = [_moves._taken(whole, p, parts, i) for i in range(parts)]
        size = max(t.shape[p.dim] for t in pieces)
        padded = [_moves._padded(t, p.dim, size) for t in pieces]
    out = torch.empty_like(padded[at])
    lists = [padded] if at == source else []
    c10d.scatter_([out], lists, mesh.get_group(dim), source)


def distribute_module(
    module: nn.Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, nn.Module, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> nn.Module:
    """Distributes the parameters and buffers of a module: as `partition_fn(name, module, mesh)` says, and replicated
    where it says nothing. `input_fn(module, inputs, mesh)` and `output_fn(module, outputs, mesh)` become hooks.

    Raises:
        RuntimeError: if it was called on the module before.
    """
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError(
            "distribute_module should only be called once on a module, but it has already been called on this module!"
        )
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, mesh)
        _replicate(part, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(_hook(input_fn, mesh, "input_fn"))
    if output_fn is not None:
        module.register_forward_hook(_out_hook(output_fn, mesh))
    module._distribute_module_applied = True
    return module


def _replicate(module: nn.Module, mesh: DeviceMesh) -> None:
    whole = [Replicate()] * mesh.ndim
    for name, p in list(module._parameters.items()):
        if p is not None and not isinstance(p, DTensor):
            made = nn.Parameter(
                distribute_tensor(p.data, mesh, whole), requires_grad=p.requires_grad
            )
            module.register_parameter(name, made)
    for name, b in list(module._buffers.items()):
        if b is not None and not isinstance(b, DTensor):
            module._buffers[name] = distribute_tensor(b, mesh, whole)


@functools.cache
def _arguments(f: Any) -> int:
    return len(inspect.signature(f).parameters)


def _hook(f: Any, mesh: DeviceMesh, name: str) -> Any:
    count = _arguments(getattr(f, "__func__", f)) - hasattr(f, "__func__")
    if count == 2:
        return lambda _, inputs: f(inputs, mesh)
    if count == 3:
        return lambda module, inputs: f(module, inputs, mesh)
    raise ValueError(f"{name} should take in 3 arguments, but got {count} arguments!")


def _out_hook(f: Any, mesh: DeviceMesh) -> Any:
    inner = _hook(f, mesh, "output_fn")
    return lambda module, inputs, outputs: inner(module, outputs)


def _sizes(size: Any) -> tuple[int, ...]:
    if len(size) == 1 and not isinstance(size[0], int):
        return tuple(size[0])
    return tuple(size)


def _made(
    size: tuple[int, ...],
    fill: Callable[..., Any],
    dtype: Any,
    requires_grad: bool,
    device_mesh: DeviceMesh | None,
    placements: Sequence[Placement] | None,
    drawn: bool = False,
) -> DTensor:
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    chosen = tuple(placements or [Replicate()] * mesh.ndim)
    if len(chosen) != mesh.ndim:
        raise AssertionError("mesh dimension does not match the length of placements")
    chosen = tuple(normalized(p, len(size)) for p in chosen)
    meta = TensorMeta(size, contiguous(size), dtype or torch.get_default_dtype())
    spec = Spec(mesh, chosen, meta)
    options = {"dtype": dtype, "device": mesh.device_type}
    if drawn and mesh.device_type != "meta":
        whole = fill(size, **options)
        pieces = [_dispatch.own_part(whole, spec, seat) for seat in range(len(mesh._seats))]
    else:
        pieces = [fill(shape, **options) for shape in spec.locals()]
    if pieces:
        spec = spec.of(TensorMeta(size, contiguous(size), pieces[0].dtype))
    return DTensor._of(pieces, spec, requires_grad)


def ones(
    *size: Any,
    dtype: Any = None,
    layout: Any = torch.strided,
    requires_grad: bool = False,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """A whole of ones."""
    return _made(_sizes(size), torch.ones, dtype, requires_grad, device_mesh, placements)


def zeros(
    *size: Any,
    requires_grad: bool = False,
    dtype: Any = None,
    layout: Any = torch.strided,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """A whole of zeros."""
    return _made(_sizes(size), torch.zeros, dtype, requires_grad, device_mesh, placements)


def empty(
    *size: Any,
    dtype: Any = None,
    layout: Any = torch.strided,
    requires_grad: bool = False,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """A whole of which nobody has written the elements."""
    return _made(_sizes(size), torch.empty, dtype, requires_grad, device_mesh, placements)


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = torch.strided,
    requires_grad: bool = False,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """A whole of one value."""

    def fill(shape: Any, **options: Any) -> Any:
        return torch.full(shape, fill_value, **options)

    sizes = _sizes((size,) if not isinstance(size, int) else size)
    return _made(sizes, fill, dtype, requires_grad, device_mesh, placements)


def rand(
    *size: Any,
    requires_grad: bool = False,
    dtype: Any = None,
    layout: Any = torch.strided,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """A whole of uniform numbers between 0 and 1: those that one device would draw."""
    return _made(_sizes(size), torch.rand, dtype, requires_grad, device_mesh, placements, True)


def randn(
    *size: Any,
    requires_grad: bool = False,
    dtype: Any = None,
    layout: Any = torch.strided,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """A whole of normal numbers: those that one device would draw."""
    return _made(_sizes(size), torch.randn, dtype, requires_grad, device_mesh, placements, True)

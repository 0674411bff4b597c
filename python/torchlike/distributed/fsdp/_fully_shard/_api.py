"""`fully_shard`, and what can be asked of a module afterwards."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NoReturn

import torchlike as torch
from torchlike import nn
from torchlike.distributed import _groups
from torchlike.distributed.device_mesh import DeviceMesh, init_device_mesh
from torchlike.distributed.fsdp._fully_shard._fsdp_api import MixedPrecisionPolicy, OffloadPolicy
from torchlike.distributed.fsdp._fully_shard._group import ParamGroup
from torchlike.distributed.fsdp._fully_shard._param import FSDPParam, MeshInfo, Place
from torchlike.distributed.fsdp._fully_shard._state import State, state_of
from torchlike.nn.modules.container import ModuleDict, ModuleList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_CLASSES: dict[type, type] = {}


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[nn.Parameter], Any] | None = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),  # noqa: B008
    offload_policy: OffloadPolicy = OffloadPolicy(),  # noqa: B008
    ignored_params: set[nn.Parameter] | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """Cuts the parameters of a module, or of several that are gathered together, over a mesh; those of modules below
    that were given to it before are left alone. The module gets the methods of `FSDPModule`. Works on meta.

    Args:
        module: a module, or a list.
        mesh: of one dimension, or of two: the parameters are replicated along the first then. All ranks by default.
        reshard_after_forward: whether wholes are let go between forward and backward; a number keeps parts for a
        group of so many ranks. None: yes, but for the root module.
        shard_placement_fn: along which dimension a parameter is cut, as a `Shard`; None is the first.
        mp_policy: the dtypes of parameters, reductions and results.
        offload_policy: where parts are kept; only with the modules.
        ignored_params: parameters that stay as they are.

    Raises:
        ValueError: for containers without a forward pass, scalar parameters and meshes of more dimensions.
    """
    if dp_mesh_dims is not None:
        raise NotImplementedError(
            "fully_shard: dp_mesh_dims is not supported by torchlike; give the mesh of these dimensions"
        )
    modules = tuple(module) if isinstance(module, list | tuple) else (module,)
    for m in modules:
        if isinstance(m, ModuleList | ModuleDict) and type(m).forward is nn.Module.forward:
            raise ValueError(
                f"fully_shard does not support containers that do not implement forward: {m}"
            )
    if type(offload_policy) is not OffloadPolicy:
        raise NotImplementedError(
            "torch.distributed.fsdp.fully_shard: CPUOffloadPolicy is not supported by torchlike"
        )
    info = _mesh_info(mesh)
    auto = reshard_after_forward is None
    reshards = _reshard_info(True if reshard_after_forward is None else reshard_after_forward, info)
    state = State(modules, mp_policy, auto)
    found = _parameters(modules, ignored_params or set())
    if found:
        with torch.no_grad():
            params = [
                FSDPParam(p, place, info, mp_policy, shard_placement_fn) for p, place in found
            ]
        state.group = ParamGroup(params, modules, info, reshards)
    for m in modules:
        object.__setattr__(m, "_fsdp_state", state)
        _make_class(m)
    return module


def _mesh_info(mesh: DeviceMesh | None) -> MeshInfo:
    if mesh is None:
        size = _groups.world().size if _groups.is_initialized() else 1
        mesh = init_device_mesh("cpu", (size,))
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    if mesh.ndim == 2 and mesh.mesh_dim_names is None:
        raise AssertionError("Please init the 2D mesh for HSDP with mesh_dim_names specified")
    if len(mesh._here) > 1:
        raise NotImplementedError(
            "torch.distributed.fsdp.fully_shard cuts the parameters of one rank, and a 'local' world plays all of "
            "them in this process; DTensor works there"
        )
    return MeshInfo(mesh)


def _reshard_info(wanted: Any, info: MeshInfo) -> MeshInfo | None:
    """Over what parts are cut after forward; None if they are not."""
    if not isinstance(wanted, bool | int):
        raise ValueError(
            "reshard_after_forward should be a bool or an int representing the group size to reshard to, not "
            f"{wanted}"
        )
    if isinstance(wanted, bool):
        return info if wanted else None
    if wanted < 1 or wanted > info.size or info.size % wanted:
        raise ValueError(
            f"If passing reshard_after_forward as an int, it should be a factor of {info.size}, not {wanted}"
        )
    if wanted == 1:
        return None
    if wanted == info.size:
        return info
    mesh = DeviceMesh(info.mesh.device_type, torch.tensor(info.group.ranks).view(-1, wanted))
    return MeshInfo(mesh)


def _managed(
    module: nn.Module, roots: Sequence[nn.Module], seen: set[nn.Module]
) -> list[tuple[nn.Module, str, nn.Parameter]]:
    """The parameters of a module and of those below it that no other call has taken, those below first; with the module
    and the name of each."""
    state = module._state_
    if module in seen or (state.get("_fsdp_state") is not None and module not in roots):
        return []
    seen.add(module)
    below, own = [], []
    for name, kind in state["_kinds"].items():
        value = state[name]
        if value is None:
            continue
        if kind == "module":
            below += _managed(value, roots, seen)
        elif kind == "parameter":
            own.append((module, name, value))
    return below + own


def _parameters(
    modules: Sequence[nn.Module], ignored: set[nn.Parameter]
) -> list[tuple[nn.Parameter, Place]]:
    """The parameters of the modules, and where each is used."""
    seen: set[nn.Module] = set()
    places: dict[int, tuple[nn.Parameter, Place]] = {}
    left_out = set(map(id, ignored))
    for m, name, p in [found for root in modules for found in _managed(root, modules, seen)]:
        key = id(p)
        if key in left_out:
            continue
        if key in places:
            places[key][1].add(m, name)
            continue
        if not p.shape:
            raise ValueError(
                f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1."
            )
        places[key] = (p, Place(m, name))
    return list(places.values())


def _make_class(module: nn.Module) -> None:
    old = type(module)
    if issubclass(old, FSDPModule):
        return
    if old not in _CLASSES:
        body = {"__deepcopy__": _no_deepcopy, "__module__": old.__module__}
        _CLASSES[old] = type(f"FSDP{old.__name__}", (FSDPModule, old), body)
    module.__class__ = _CLASSES[old]


def _no_deepcopy(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")


class UnshardHandle:
    """Parameters that are being gathered."""

    def __init__(self, group: ParamGroup | None = None) -> None:
        self._group = group

    def wait(self) -> None:
        """Has the module use the whole parameters."""
        if self._group is not None:
            self._group.wait()
            self._group = None


class FSDPModule:
    """What a module can be asked once its parameters are cut."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """An ordinary module of the class that this one was made of."""
        plain: Any = cls.__mro__[2]
        made = plain.__new__(plain)
        made.__init__(*args, **kwargs)
        return made

    def _state(self) -> State:
        found = state_of(self)  # type: ignore[arg-type]
        assert found is not None
        return found

    def _below(self, recurse: bool) -> Iterable[ParamGroup]:
        modules: Any = self.modules() if recurse else [self]  # type: ignore[attr-defined]
        states = (state_of(m) for m in modules)
        return [s.group for s in states if s is not None and s.group is not None]

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gathers the parameters now; with `async_op` they are used once the handle is waited for."""
        group = self._state().group
        if group is not None:
            group.unshard()
        handle = UnshardHandle(group)
        if async_op:
            return handle
        handle.wait()
        return None

    def reshard(self) -> None:
        """Lets the whole parameters go."""
        group = self._state().group
        if group is not None:
            group.reshard()

    def reset_iter_state(self) -> None:
        """Begins anew, after a step that was not finished."""
        self._state().forget()

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Whether the next backward pass is the last of a step."""
        self._state().root.is_last_backward = is_last_backward

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Whether gradients are reduced, or gathered as wholes until they are."""
        for group in self._below(recurse):
            group.reduce_grads = group.all_reduce_grads = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether gradients are reduced over the ranks that have the same parts."""
        for group in self._below(recurse):
            group.all_reduce_grads = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether wholes are let go between forward and backward.

        Raises:
            ValueError: if it is no truth value.
        """
        if not isinstance(reshard_after_forward, bool):
            raise ValueError(
                f"reshard_after_forward should be a bool, got {type(reshard_after_forward)}"
            )
        modules: Any = self.modules() if recurse else [self]  # type: ignore[attr-defined]
        for module in modules:
            state = state_of(module)
            if state is not None:
                state.auto = False
                if state.group is not None:
                    info = state.group.info if reshard_after_forward else None
                    state.group.reshard_after_forward = info

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, *, recurse: bool = True
    ) -> None:
        """Whether wholes are let go after backward."""
        for group in self._below(recurse):
            group.reshard_after_backward = reshard_after_backward

    def set_modules_to_forward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """Which modules' parameters are asked for when this one's forward pass begins."""
        self._state().forward_prefetch = [m._state() for m in modules]

    def set_modules_to_backward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """Which modules' parameters are asked for when this one's backward pass begins."""
        self._state().backward_prefetch = [m._state() for m in modules]

    def set_gradient_divide_factor(self, factor: float) -> None:
        """What gradients are divided by, in place of the number of ranks."""
        group = self._state().group
        if group is not None:
            group.divide_factor = factor

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Whether collectives sum, and gradients are divided apart."""
        group = self._state().group
        if group is not None:
            group.sums_only = enable

    def set_reduce_scatter_unused_params(
        self, reduce_scatter_unused_params: bool, *, recurse: bool = True
    ) -> None:
        """Whether parameters without a gradient are reduced too, as zeros."""
        for group in self._below(recurse):
            group.unused = reduce_scatter_unused_params

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Whether backward needs the parameters."""
        group = self._state().group
        if group is not None:
            group.unshard_in_backward = unshard_in_backward

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Moves or casts the parts."""
        group = self._state().group
        if group is not None:
            group.to_parts()
        made = super()._apply(*args, **kwargs)  # type: ignore[misc]
        if group is not None:
            group.reset()
        return made


def register_fsdp_forward_method(module: nn.Module, method_name: str) -> None:
    """Has a method of a module gather its parameters, as its forward pass does.

    Raises:
        ValueError: if it has no such method.
    """
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    plain = getattr(module, method_name)

    @functools.wraps(plain)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        state = module._state()
        args, kwargs = state.before_forward(module, args, kwargs)
        return state.after_forward(module, args, plain(*args, **kwargs))

    setattr(module, method_name, wrapped)

"""What the optimizers share: checks of options, step counts, and the walk over a group's parameters."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import torchlike as torch
from torchlike import _optim as rows
from torchlike._ops import modes
from torchlike.utils._foreach_utils import _group_tensors_by_device_and_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Tensor = torch.Tensor
Tensors = list[Any]


class _RequiredParameter:
    """The default of an option that every group has to say."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """A step that is recorded for gradients if the optimizer is ``differentiable``, and never else."""

    @functools.wraps(func)
    def stepping(self: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return func(self, *args, **kwargs)

    return stepping


def never_recorded(func: Callable[..., Any]) -> Callable[..., Any]:
    """A step outside of gradients."""
    plain: Callable[..., Any] = torch.no_grad()(func)
    return plain


def _get_value(x: Any) -> Any:
    """The number in a tensor; numbers are themselves."""
    return x.item() if isinstance(x, Tensor) else x


def _stack_if_compiling(x: Any) -> Any:
    """The list itself: nothing is being compiled."""
    return x


def _to_scalar(x: Any) -> Any:
    """An option that is a tensor of one element, without dimensions; numbers are themselves."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() != 0 else x


def _get_scalar_dtype(is_fused: bool | None = None) -> torch.dtype:
    """The type of step counts."""
    if is_fused or torch.get_default_dtype() != torch.float64:
        return torch.float32
    return torch.float64


def _view_as_real(params: Tensors, *state_and_grads: Tensors) -> None:
    """Put pairs of real numbers in the place of complex parameters and all that belongs to them."""
    for i, p in enumerate(params):
        if p.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = torch.view_as_real(tensors[i])


def _get_fused_kernels_supported_devices() -> list[str]:
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The devices on which a step can be captured."""
    return ["cuda", "xpu", "hpu", "privateuseone", *(["xla"] if supports_xla else [])]


def _default_to_fused_or_foreach(
    params: Tensors, differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Neither: what is fastest is chosen by where the parameters are, not by flags."""
    return False, False


def _will_be(p: Any) -> str:
    """The type of a parameter's device; of the one where it will be, while it waits."""
    kind: str = "cpu" if p.is_meta and p.source is not None else p.device.type
    return kind


def _device_dtype_check_for_fused(p: Any, cuda_unsupported: bool = False) -> None:
    devices = _get_fused_kernels_supported_devices()
    if cuda_unsupported:
        devices.remove("cuda")
    if not (_will_be(p) in devices and p.is_floating_point()):
        raise RuntimeError(
            "`fused=True` requires all the params to be floating point Tensors of "
            f"supported devices: {devices} but {p.dtype} and {p.device.type}"
        )


# Checks of options: one for each kind, so that all optimizers refuse the same mistakes in the same words.


def check_one_element(lr: Any) -> None:
    """A learning rate is a number, or a tensor of one element."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")


def check_lr(lr: Any) -> None:
    """A learning rate has one element, and is not negative."""
    check_one_element(lr)
    if not 0.0 <= lr:
        raise ValueError(f"Invalid learning rate: {lr}")


def check_not_negative(**options: Any) -> None:
    """Each option is at least zero; the names are those of the message."""
    for name, value in options.items():
        if not 0.0 <= value:
            raise ValueError(f"Invalid {name} value: {value}")


def check_betas(betas: Any) -> None:
    """Both coefficients of running averages lie between 0 and 1."""
    for i in range(2):
        beta = betas[i]
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


def check_fused(fused: Any, differentiable: bool, foreach: Any) -> None:
    """``fused`` excludes the other two ways of stepping."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def check_capturable(
    params: Tensors, *counts: Tensors, names: str = "params and state_steps", xla: bool = True
) -> None:
    """A captured step has its counts beside its parameters, on a device that captures."""
    devices = _get_capturable_supported_devices(supports_xla=xla)
    for p, *own in zip(params, *counts, strict=True):
        kind = p.device.type
        if kind not in devices or any(count.device.type != kind for count in own):
            raise AssertionError(
                f"If capturable=True, {names} must be on supported devices: {devices}."
            )


def check_counts(counts: Tensors, name: str = "state_steps") -> None:
    """Counts are tensors; they were numbers once."""
    if not all(issubclass(kind, Tensor) for kind in set(map(type, counts))):
        raise RuntimeError(
            f"API has changed, `{name}` argument must contain a list of singleton tensors"
        )


def check_foreach(foreach: Any, differentiable: bool) -> None:
    """Operations on lists are not differentiable."""
    if foreach and differentiable:
        raise AssertionError("_foreach ops don't support autograd")


# State


def step_count(p: Any, group: dict[str, Any], value: float = 0.0, *, beside: bool = False) -> Any:
    """A number of the state, `beside` the parameter or where the step is captured or fused, and on the CPU else."""
    fused = group.get("fused")
    dtype = _get_scalar_dtype(is_fused=fused)
    if not (beside or fused or group.get("capturable")):
        return torch.tensor(value, dtype=dtype, device="cpu")
    # Made without a device it is a recipe where parameters are, and plain where those are on a mesh.
    made = torch.tensor(value, dtype=dtype)
    return made if made.device == p.device else made.to(p.device)


def zeros(p: Any) -> Any:
    """State of a parameter's shape, type and layout."""
    return torch.zeros_like(p, memory_format=torch.preserve_format)


def losses(closure: Any) -> Any:
    """The loss that the closure gives; None without one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


Begins: TypeAlias = tuple[tuple[str, float | None], ...]
"""Entries of a parameter's state: a `step_count` that begins with this number, or `zeros` where there is none."""


def gather(optimizer: Any, group: dict[str, Any], *names: str) -> Any:
    """The group's parameters that have a gradient, the gradients, and a list for each of these entries of their state.

    A parameter's state begins with its first gradient, as the optimizer's ``_begins``, or its ``_start``, says.
    """
    begins = optimizer._begins(group)
    if begins is not None and isinstance(optimizer.state, dict):
        if group.get("fused"):
            begins = ()  # what begins is looked at one by one: not all can be fused
        dtype, beside = _get_scalar_dtype(), bool(group.get("capturable"))
        found = torch._C._gather(group["params"], optimizer.state, names, begins, dtype, beside)
        if found is not None:
            return found
    lists: list[Tensors] = [[] for _ in range(2 + len(names))]
    appends = [(names[i], entry.append) for i, entry in enumerate(lists[2:])]
    for p in group["params"]:
        grad = p.grad
        if grad is None:
            continue
        if grad.is_sparse and optimizer._refusal:
            raise RuntimeError(optimizer._refusal)
        state = optimizer.state[p]
        if not state:
            state.update(optimizer._start(p, group))
        lists[0].append(p)
        lists[1].append(grad)
        for name, append in appends:
            append(state[name])
    return lists


# The walk over parameters


def each(
    params: Tensors, grads: Tensors, *states: Tensors, maximize: bool = False
) -> Iterator[tuple[Any, ...]]:
    """Each parameter with its gradient and state; complex ones are seen as pairs of real numbers.

    Sparse gradients are given as they are.
    """
    for p, grad, *own in zip(params, grads, *states, strict=True):
        if maximize and not grad.is_sparse:
            grad = -grad
        if p.is_complex():
            yield tuple(
                torch.view_as_real(t) if t is not None and t.is_complex() else t
                for t in (p, grad, *own)
            )
        else:
            yield (p, grad, *own)


def decayed(grad: Any, p: Any, weight_decay: Any) -> Any:
    """The gradient with that of the parameter's square added."""
    if isinstance(weight_decay, Tensor) and weight_decay.requires_grad:
        return grad.addcmul(p.clone(), weight_decay)
    return grad.add(p, alpha=weight_decay) if weight_decay != 0 else grad


def taken_whole(lists: Iterable[Tensors], numbers: Iterable[Any] = ()) -> bool | None:
    """Whether tensors are complex, if a kernel can take these lists, and nobody watches or differentiates what it does.

    None says that the operations have to be made one by one.
    """
    if modes.stack() or _are_changed():
        return None
    if any(isinstance(n, Tensor) and n.requires_grad for n in numbers):
        return None
    return torch._C._alike(_as_lists(lists))


def _are_changed() -> bool:
    """Whether a function mode that is on may answer calls otherwise."""
    if not torch.overrides._len_torch_function_stack():
        return False
    on = torch.overrides._get_current_function_mode_stack()
    return not all(getattr(mode, "_only_notes", False) for mode in on)


def _as_lists(several: Iterable[Iterable[Any]]) -> list[Tensors]:
    return [one if type(one) is list else list(one) for one in several]


def count_up(steps: Tensors) -> None:
    """Add one to each count."""
    if taken_whole([steps]) is not None:
        rows.count_up(steps)
    else:
        for t in steps:
            t += 1


def begin(
    params: Tensors,
    counts: Tensors,
    foreach: Any,
    differentiable: bool,
    capturable: bool,
    xla: bool | None = None,
) -> None:
    """What steps begin with: their options are checked, and the counts go up. ``xla``: whether that can be captured."""
    check_counts(counts)
    check_foreach(foreach, differentiable)
    if capturable:
        check_capturable(params, counts, xla=not foreach if xla is None else xla)
    count_up(counts)


# One call for all parameters


def are_taken(lists: tuple[Tensors, ...], numbers: Iterable[Any]) -> bool:
    """Whether a row takes these lists, as they are or as pieces."""
    if taken_whole(lists, numbers) is not None:
        return True
    return torch._C._pieces_alike(_as_lists(lists)) is not None


def in_one_call(
    row: Callable[..., None],
    lists: tuple[Tensors, ...],
    counts: tuple[Tensors, ...],
    numbers: dict[str, Any],
    apart: bool = False,
) -> bool:
    """Make a step of all parameters by one call of a row, if that can be; of those on a mesh by one of their pieces.

    Args:
        row: takes the lists, then the counts, then the numbers.
        lists: the parameters, and what is of their shapes; some may be empty.
        counts: lists of single numbers.
        numbers: the options by name; those that are tensors are read.
        apart: somebody differentiates or captures the step.
    """
    if apart:
        return False
    kind = taken_whole(lists, numbers.values())
    if kind is None:
        pieces = torch._C._pieces_alike(_as_lists(lists))
        if pieces is None:
            return False
        lists = tuple(pieces)
        kind = taken_whole(lists, numbers.values())
        if kind is None:
            return False
    if kind:
        lists = tuple(tensors[:] for tensors in lists)
        _view_as_real(*(tensors for tensors in lists if tensors))
    row(*lists, *counts, **{name: _get_value(value) for name, value in numbers.items()})
    return True


def fused_call(
    row: Callable[..., None],
    lists: tuple[Tensors, ...],
    steps: Tensors | None,
    numbers: dict[str, Any],
    scaling: dict[str, Any],
) -> None:
    """A step by a fused row. ``steps`` are counted up, but for those that a scaler skips."""
    if not lists[0]:
        return
    if lists[0][0].is_cuda and len({p.device for p in lists[0]}) > 1:
        groups = _group_tensors_by_device_and_dtype([*lists, [] if steps is None else steps])
        for (device, _), ((*own, own_steps), _) in groups.items():
            there = {k: v if v is None else v.to(device) for k, v in scaling.items()}
            fused_call(row, tuple(own), own_steps if steps else None, numbers, there)
        return
    if steps is not None:
        count_up(steps)
    plain = {name: _get_value(value) for name, value in numbers.items()}
    row(*lists, *([] if steps is None else [steps]), **plain, **scaling)
    if steps is not None and scaling["found_inf"] is not None:
        for step in steps:
            step -= scaling["found_inf"]


# Options of a step


def chosen(group: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The group's options of these names."""
    return {name: group[name] for name in names}


def scaling(optimizer: Any) -> dict[str, Any]:
    """What a gradient scaler left at the optimizer for a fused step."""
    return {
        "grad_scale": getattr(optimizer, "grad_scale", None),
        "found_inf": getattr(optimizer, "found_inf", None),
    }


def fused_here(fused: Any, params: Tensors, grad_scale: Any, found_inf: Any) -> bool:
    """Whether the fused row makes the step: on the CPU and on GPUs.

    Only fused steps take a scale out of the gradients.
    """
    devices = {_will_be(p) for p in params} if fused else ()
    whole = bool(fused) and all(device in ("cpu", "cuda") for device in devices)
    if not whole and (grad_scale is not None or found_inf is not None):
        if fused:
            raise NotImplementedError(
                "fused steps with a scale are made on the CPU and on GPUs alone"
            )
        raise AssertionError("Expected grad_scale and found_inf to be None")
    return whole


def check_fused_params(optimizer: Any, params: Tensors) -> None:
    """Refuses parameters of a fused step that no fused kernel takes; looked at with the first step."""
    if not getattr(optimizer, "_fused_checked", False):
        for p in params:
            _device_dtype_check_for_fused(p)
        optimizer._fused_checked = True

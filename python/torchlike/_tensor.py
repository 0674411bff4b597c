"""What belongs to Tensor but is easier said in Python: copying, pickling, small functions."""

from __future__ import annotations

import copyreg
from collections import OrderedDict
from typing import Any

from torchlike import _C
from torchlike._C import Tensor
from torchlike._function import overridable

__all__ = [
    "compile",
    "get_device_module",
    "is_complex",
    "is_floating_point",
    "is_storage",
    "numel",
    "typename",
]

numel = _C._root.numel


@overridable
def is_floating_point(input: Tensor) -> bool:
    """True if the dtype is a real floating point type."""
    try:
        return input.is_floating_point()
    except AttributeError:
        raise _no_tensor("is_floating_point", input) from None


@overridable
def is_complex(input: Tensor) -> bool:
    """True if the dtype is complex."""
    try:
        return input.is_complex()
    except AttributeError:
        raise _no_tensor("is_complex", input) from None


def _no_tensor(function: str, given: Any) -> TypeError:
    found = type(given).__name__
    return TypeError(f"{function}(): argument 'input' (position 1) must be Tensor, not {found}")


def is_storage(obj: Any) -> bool:
    """True for storages."""
    from torchlike.storage import TypedStorage, UntypedStorage

    return isinstance(obj, TypedStorage | UntypedStorage)


def typename(obj: Any) -> str:
    """The full name of a class, a function or an object's type; for tensors that of the old tensor type."""
    if isinstance(obj, Tensor):
        return obj.type()
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    module = getattr(obj, "__module__", None)
    if name is None:
        name, module = type(obj).__qualname__, type(obj).__module__
    return name if module in ("builtins", "", None) else f"{module}.{name}"


_said = False


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: Any = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """A module in an `OptimizedModule`, a function itself, or a decorator: there is no compiler, and all runs as it is.

    It warns of that once. What is wrapped is at ``_orig_mod``, and names of its state begin so, as in PyTorch.

    Raises:
        RuntimeError: for both a mode and options.
    """
    from torchlike._dynamo.eval_frame import OptimizeContext
    from torchlike.compiler import get_default_backend

    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if disable:
        return model if model is not None else lambda fn: fn
    say_that_nothing_is_compiled()
    context = OptimizeContext(backend or get_default_backend(), mode, options, fullgraph, dynamic)
    return context if model is None else context(model)


def say_that_nothing_is_compiled() -> None:
    """Warns once."""
    global _said
    if not _said:
        import warnings

        _said = True
        warnings.warn(
            "torch.compile compiles nothing in torchlike: functions and modules run as they are",
            stacklevel=3,
        )


def get_device_module(device: Any = None) -> Any:
    """The module of a device type; without one, of the accelerator, or of the CPU where there is none.

    Raises:
        RuntimeError: if there is no such module.
    """
    import torchlike

    if device is None:
        kind = "cuda" if torchlike.cuda.is_available() else "cpu"
    elif isinstance(device, str | _C.device):
        kind = _C.device(device).type
    else:
        raise RuntimeError(f"Invalid value of device '{device}', expect torch.device, str, or None")
    found = getattr(torchlike, kind, None)
    if found is None:
        raise RuntimeError(
            f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'."
        )
    return found


def _deepcopy(t: Tensor, memo: dict[int, Any]) -> Tensor:
    """A copy with storage of its own; tensors on one storage stay together within one deepcopy."""
    done = memo.get(id(t))
    if done is not None:
        return done
    if not t.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
            "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
            "see https://github.com/pytorch/pytorch/pull/103001"
        )
    made: Any
    mode = _C._fake_mode_here()
    if mode is not None and mode.allow_non_fake_inputs and not _C._is_fake(t):
        made = memo[id(t)] = mode.from_tensor(t).detach().clone().requires_grad_(t.requires_grad)
        if _is_parameter(t):
            made._is_param = True
        return made
    if not _is_plain(t):
        made = memo[id(t)] = _deepcopy_subclass(t, memo)
        return made
    if t._has_parts():
        made = t.detach().clone()
    else:
        storage = t.untyped_storage()
        made = _C._from_storage(
            storage.__deepcopy__(memo),
            t.dtype,
            tuple(t.shape),
            t.stride(),
            t.storage_offset(),
            False,
        )
        if t.is_conj():
            made = made.conj()
        if t.is_neg():
            made = _C._root._neg_view(made)
    if type(t) is not Tensor or made._is_view():
        # Of the copy nothing else is left: it is no view.
        made = Tensor._make_subclass(type(t), made)
    memo[id(t)] = made
    return _with_state(made, t, memo)


def _is_plain(t: Tensor) -> bool:
    """True for tensors and parameters of no class of their own."""
    from torchlike.nn.parameter import Parameter

    return type(t) in (Tensor, Parameter)


def _is_wrapper(t: Tensor) -> bool:
    """True for a tensor that handles its calls and has no memory of its own."""
    storage = t.untyped_storage()
    return bool(storage.nbytes()) and not storage.data_ptr()


def _is_parameter(t: Tensor) -> bool:
    from torchlike.nn.parameter import Parameter

    return isinstance(t, Parameter)


def _with_state(made: Any, t: Tensor, memo: dict[int, Any]) -> Any:
    """A copy that requires gradients as the tensor does; with its attributes and gradient, but for plain parameters."""
    if t.requires_grad:
        made.requires_grad_()
    if _is_plain(t) and type(t) is not Tensor:
        return made
    if t.__dict__:
        import copy as copying

        made.__dict__.update(copying.deepcopy(t.__dict__, memo))
    if t.grad is not None:
        import copy as copying

        made.grad = copying.deepcopy(t.grad, memo)
    return made


_NO_COPY = (
    "The default implementation of __deepcopy__() for {0} subclasses only works for subclass types that "
    "implement {1}() and for which {2} returns another instance of the same subclass. You should either "
    "properly implement {1}() for your subclass or override __deepcopy__() if it is intended behavior for "
    "{1}() to return an instance of a different type."
)


def _deepcopy_subclass(t: Any, memo: dict[int, Any]) -> Any:
    """A copy of a tensor of a class of its own, which has to know how to make another of the class."""
    from torchlike.nn.parameter import Parameter

    cls = type(t)
    if issubclass(cls, Parameter):
        return cls(t.data.clone(), t.requires_grad)
    with _C.DisableTorchFunctionSubclass():
        if t._has_parts() or t.device.type == "meta" or _is_wrapper(t):
            made = t.clone()
            if type(made) is not cls:
                raise RuntimeError(_NO_COPY.format("wrapper", "clone", "cloning"))
        else:
            made = t.new_empty([])
            if type(made) is not cls:
                raise RuntimeError(_NO_COPY.format("non-wrapper", "new_empty", "that function"))
            storage = t.untyped_storage().__deepcopy__(memo)
            made.set_(storage, t.storage_offset(), t.size(), t.stride())
        return _with_state(made, t, memo)


def _rebuild_storage(device: str, nbytes: int, data: Any) -> Any:
    from torchlike.storage import UntypedStorage

    return UntypedStorage(nbytes, device=device)


def _rebuild_saved(data: bytes) -> Any:
    from torchlike.serialization import load

    return load(data)


def _state_of(t: Tensor) -> Any:
    """What a tensor is saved with besides its elements: what its class says, or its attributes and slots."""
    own = getattr(type(t), "__getstate__", None)
    if own is not None and own is not getattr(object, "__getstate__", None):
        return own(t)
    slots = copyreg._slotnames(type(t))  # type: ignore[attr-defined]
    held = {name: getattr(t, name) for name in slots if hasattr(t, name)}
    return (t.__dict__, held) if held else t.__dict__


def _reduce(t: Tensor, protocol: int) -> Any:
    """A tensor's pickle: PyTorch's, so that each library opens what the other one wrote."""
    if type(t) is Tensor and not t.__dict__:
        return _reduce_plain(t)
    state = _state_of(t)
    with _C.DisableTorchFunctionSubclass():
        if not _is_plain(t) and not t.is_meta and not t._has_parts() and _is_wrapper(t):
            return _rebuild_from_type_v2, (*_reduce_wrapper(t), state)
        func, args = _reduce_plain(t)
    return _rebuild_from_type_v2, (func, type(t), args, state)


def _reduce_wrapper(t: Tensor) -> Any:
    """What makes a wrapper without its attributes: the function, the class and the arguments."""
    from torchlike import _utils

    lies = (tuple(t.shape), t.stride(), t.storage_offset())
    said = (type(t), t.dtype, *lies, t.layout, t.device, t.requires_grad)
    return _utils._rebuild_wrapper_subclass, type(t), said


def _reduce_plain(t: Tensor) -> Any:
    """The same of the tensor alone, without its class and attributes."""
    from torchlike import _utils

    if t._has_parts():
        if t.is_sparse:
            parts = (t._indices(), t._values(), t.size(), t.is_coalesced())
            return _utils._rebuild_sparse_tensor, (t.layout, parts)
        if t.layout in (_C.sparse_csr, _C.sparse_bsr):
            compressed = (t.crow_indices(), t.col_indices(), t.values(), t.size())
            return _utils._rebuild_sparse_tensor, (t.layout, compressed)
        if t.layout in (_C.sparse_csc, _C.sparse_bsc):
            compressed = (t.ccol_indices(), t.row_indices(), t.values(), t.size())
            return _utils._rebuild_sparse_tensor, (t.layout, compressed)
        if t.dtype in (_C.qint8, _C.quint8, _C.qint32):  # smaller ones lie several in a byte
            return _utils._rebuild_qtensor, _quantized(t)
        import io

        from torchlike.serialization import save

        buffer = io.BytesIO()
        save(t, buffer)
        return _rebuild_saved, (buffer.getvalue(),)
    if t.requires_grad:
        from torchlike.utils.hooks import warn_if_has_hooks

        warn_if_has_hooks(t)
    shape, stride = tuple(t.shape), t.stride()
    # `copy.copy` calls what is returned here: a tensor that can become real has to stay on its storage
    if t.is_meta and (_C._is_blank(t) if type(t) is Tensor else t.source is None):
        meta = (t.dtype, shape, stride, t.requires_grad)
        return _utils._rebuild_meta_tensor_no_storage, meta
    said = {name: True for name, on in (("conj", t.is_conj()), ("neg", t.is_neg())) if on}
    storage = t.untyped_storage()
    hooks: OrderedDict[int, Any] = OrderedDict()
    rest = (t.storage_offset(), shape, stride, t.requires_grad, hooks)
    tail = (said,) if said else ()
    if t.requires_grad:  # PyTorch refuses to make such a tensor of the newest form
        from torchlike.storage import TypedStorage

        typed = TypedStorage(wrap_storage=storage, dtype=t.dtype, _internal=True)
        return _utils._rebuild_tensor_v2, (typed, *rest, *tail)
    # it takes storages without a type, which there are for every type
    return _utils._rebuild_tensor_v3, (storage, *rest, t.dtype, *tail)


def _rebuild_from_type_v2(func: Any, new_type: type, args: Any, state: Any) -> Any:
    """A tensor of a class of its own as PyTorch's files keep it: the call that makes it, and its attributes."""
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    restore = getattr(type(made), "__setstate__", None)
    if restore is not None:
        restore(made, state)
    else:
        from torchlike._rebuild_builders import attributes

        attributes(made, state)
    return made


def _quantized(t: Tensor) -> tuple[Any, ...]:
    """The arguments of a quantized tensor's pickle."""
    from torchlike import _parts
    from torchlike.storage import TypedStorage

    scheme, integers = t.qscheme(), t.int_repr()
    if scheme == _parts.per_tensor_affine:
        quantizer: tuple[Any, ...] = (scheme, t.q_scale(), t.q_zero_point())
    else:
        scales, zeros = t.q_per_channel_scales(), t.q_per_channel_zero_points()
        quantizer = (scheme, scales, zeros, t.q_per_channel_axis())
    storage = TypedStorage(wrap_storage=integers.untyped_storage(), dtype=t.dtype, _internal=True)
    rest = (integers.storage_offset(), tuple(t.shape), integers.stride())
    return (storage, *rest, quantizer, t.requires_grad, OrderedDict())


def _reduce_parameter(t: Tensor) -> Any:
    """A parameter's pickle: of whatever class it is, it comes back as `Parameter`."""
    from torchlike import _utils

    hooks: OrderedDict[int, Any] = OrderedDict()
    args = (t.data, t.requires_grad, hooks)
    if t.__dict__:
        return _utils._rebuild_parameter_with_state, (*args, t.__dict__)
    return _utils._rebuild_parameter, args


def _rebuild_generator(state: Tensor, device: Any = "cpu") -> Any:
    g = _C.Generator(device)
    g.set_state(state)
    return g

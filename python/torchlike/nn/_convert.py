"""Moving and converting all tensors of a module; ties and shared memory survive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import __future__ as future
from torchlike.nn.parameter import Parameter, UninitializedTensorMixin
from torchlike.utils._python_dispatch import is_traceable_wrapper_subclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TO_EMPTY_HINT = (
    "Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() "
    "when moving module from meta to a different device."
)


class Once:
    """A conversion that gives every tensor one result, however often it is met."""

    __slots__ = ("done", "fn")

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn
        # id of the old tensor -> (the old tensor, so that its id stays taken; the new one)
        self.done: dict[int, tuple[Any, Any]] = {}

    def __call__(self, tensor: Any) -> Any:
        return self.fn(tensor)


def apply_to_tensors(module: Any, fn: Any, recurse: bool) -> Any:
    """Replace each parameter, its gradient and each buffer by what ``fn`` makes of it."""
    once = fn if type(fn) is Once else Once(fn)
    state = module._state_
    kinds = state["_kinds"]
    if recurse:
        for name, kind in kinds.items():
            if kind == "module" and state[name] is not None:
                state[name]._apply(once)
    done = once.done
    for name, kind in list(kinds.items()):
        value = state[name]
        if value is None or kind == "module":
            continue
        known = done.get(id(value))
        if known is not None:
            state[name] = known[1]
        elif kind == "buffer":
            fresh = once.fn(value)
            done[id(value)] = (value, fresh)
            done.setdefault(id(fresh), (fresh, fresh))
            state[name] = fresh
        else:
            fresh = _convert_parameter(value, once.fn)
            done[id(value)] = (value, fresh)
            done.setdefault(id(fresh), (fresh, fresh))
            state[name] = fresh
    return module


def _convert_parameter(param: Any, fn: Callable[[Any], Any]) -> Any:
    """The parameter after ``fn``: itself with other data, or a new one across meta's border."""
    with torch.no_grad():
        applied = fn(param)
    grad = param.grad
    if applied is param and grad is None:
        return param
    if future.get_swap_module_params_on_conversion() or _has_parts(applied):
        return _swapped(param, applied, fn)
    keep = applied.is_meta == param.is_meta and applied.layout == param.layout
    if future.get_overwrite_module_params_on_conversion() and not torch._C._is_fake(param):
        keep = False
    if not keep:
        return _anew(param, applied, fn)
    param.data = applied
    if grad is not None:
        with torch.no_grad():
            applied_grad = fn(grad)
        if applied_grad.is_meta == grad.is_meta:
            grad.data = applied_grad
        else:
            param.grad = applied_grad.requires_grad_(grad.requires_grad)
    return param


def _has_parts(t: Any) -> bool:
    """Whether a tensor consists of others, which setting its data would leave as they are."""
    own_data = type(t).data is not torch.Tensor.data
    return is_traceable_wrapper_subclass(t) and not own_data


def _anew(param: Any, applied: Any, fn: Callable[[Any], Any]) -> Any:
    """A new parameter, and a new gradient."""
    out = Parameter(applied, param.requires_grad)
    if param.grad is not None:
        with torch.no_grad():
            out.grad = fn(param.grad).requires_grad_(param.grad.requires_grad)
    return out


def _swapped(param: Any, applied: Any, fn: Callable[[Any], Any]) -> Any:
    """The parameter itself, which is what a new one would be."""
    fresh = _anew(param, applied, fn)
    param.grad = None
    try:
        torch.utils.swap_tensors(param, fresh)
    except Exception as e:
        raise RuntimeError(f"_apply(): Couldn't swap a parameter of {tuple(param.shape)}") from e
    return param


def _tensors(module: Any, recurse: bool) -> Iterator[Any]:
    for part in module.modules() if recurse else (module,):
        state = part._state_
        for name, kind in state["_kinds"].items():
            if kind != "module" and state[name] is not None:
                yield state[name]


def _shared_storages(module: Any, recurse: bool) -> set[Any]:
    """Keys of the storages in which more than one distinct tensor of ``module`` lies."""
    owners: dict[Any, set[int]] = {}
    for tensor in _tensors(module, recurse):
        if not isinstance(tensor, UninitializedTensorMixin):
            owners.setdefault(tensor.untyped_storage()._cdata, set()).add(id(tensor))
    return {key for key, ids in owners.items() if len(ids) > 1}


def unfilled(module: Any, device: Any, recurse: bool) -> Callable[[Any], Any]:
    """A conversion to memory on ``device`` without contents; shared memory stays shared."""
    shared = _shared_storages(module, recurse)
    made: dict[Any, Any] = {}

    def convert(tensor: Any) -> Any:
        if shared and not isinstance(tensor, UninitializedTensorMixin):
            storage = tensor.untyped_storage()
            key = storage._cdata
            size = storage.nbytes()
            if key in shared and size % tensor.element_size() == 0:
                base = made.get(key)
                if base is None:
                    base = made[key] = torch.empty(size, dtype=torch.uint8, device=device)
                whole = base.view(tensor.dtype)
                return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return torch.empty_like(tensor, device=device)

    return convert


def emptied(module: Any, device: Any, recurse: bool, force: bool) -> Callable[[Any], Any]:
    """The conversion behind ``to_empty``: real tensors keep their values unless forced."""
    convert = unfilled(module, device, recurse)
    drop = force or (device is not None and torch.device(device).type == "meta")

    def empty(tensor: Any) -> Any:
        return convert(tensor) if drop or tensor.is_meta else tensor.to(device)

    return empty


_FORMS = (
    ("device", "dtype", "non_blocking", "copy"),
    ("dtype", "non_blocking", "copy"),
    ("tensor", "non_blocking", "copy"),
)
_KINDS: dict[str, tuple[Any, ...]] = {
    "device": (type(None), str, int, torch.device),
    "dtype": (torch.dtype,),
    "tensor": (torch.Tensor,),
    "non_blocking": (bool,),
    "copy": (bool,),
    "memory_format": (type(None), torch.memory_format),
}


#: Python's types that stand for dtypes.
_PYTHONS: dict[type, Any] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}


def _of_python(value: Any) -> bool:
    return isinstance(value, type) and value in _PYTHONS


def _form(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments by name, if they fit one of the forms."""
    for names in _FORMS:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if len(args) > len(names) or len(given) < len(args) + len(kwargs):
            continue
        if names[0] != "device" and names[0] not in given:
            continue
        if all(_suits(name, value, names) for name, value in given.items()):
            return given
    return None


def _suits(name: str, value: Any, names: tuple[str, ...]) -> bool:
    if name not in names and name != "memory_format":
        return False
    if name == "device" and isinstance(value, bool):
        return False
    if name == "dtype" and ((value is None and names[0] == "device") or _of_python(value)):
        return True
    return isinstance(value, _KINDS[name])


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """Device, dtype, non_blocking and memory format out of the forms that ``to`` takes.

    Raises:
        TypeError: for arguments of no form.
        RuntimeError: for ``copy``, which a module has not.
    """
    given = _form(args, kwargs)
    if given is None:
        shown = [_kind(a) for a in args] + [f"{k}={_kind(v)}" for k, v in kwargs.items()]
        raise TypeError(
            "to() received an invalid combination of arguments - got "
            f"({', '.join(shown)}{'' if args else ', '}), but expected one of:\n"
            " * (torch.device device = None, torch.dtype dtype = None, bool non_blocking = False, "
            "bool copy = False, *, torch.memory_format memory_format = None)\n"
            " * (torch.dtype dtype, bool non_blocking = False, bool copy = False, *, "
            "torch.memory_format memory_format = None)\n"
            " * (Tensor tensor, bool non_blocking = False, bool copy = False, *, "
            "torch.memory_format memory_format = None)\n"
        )
    if "copy" in given:
        raise RuntimeError(".to() does not accept copy argument")
    device, dtype = given.get("device"), given.get("dtype")
    dtype = _PYTHONS.get(dtype, dtype) if isinstance(dtype, type) else dtype
    tensor = given.get("tensor")
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    if device is not None and not isinstance(device, torch.device):
        device = torch.device(device)
    return device, dtype, given.get("non_blocking", False), given.get("memory_format")


def _kind(value: Any) -> str:
    """The type of an argument as messages name it."""
    kind = type(value)
    ours = kind in (torch.device, torch.dtype, torch.memory_format)
    return f"torch.{kind.__name__}" if ours else kind.__name__


torch._C._nn._parse_to = parse_to  # type: ignore[attr-defined]  # where libraries that wrap `Module.to` look


def to_conversion(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The conversion behind ``Module.to``."""
    device, dtype, non_blocking, memory_format = parse_to(*args, **kwargs)
    if dtype is not None:
        if not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, "
                f"but got desired dtype={dtype}"
            )
        if dtype.is_complex:
            import warnings

            warnings.warn(
                "Complex modules are a new feature under active development whose design may "
                "change, and some modules might not work as expected when using complex tensors "
                "as parameters or buffers. Please file an issue at "
                "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml "
                "if a complex module does not work as expected.",
                stacklevel=3,
            )
    if device is not None and device.type == "meta" and dtype is None and memory_format is None:
        drop = unfilled(module, device, True)
        return lambda tensor: tensor if tensor.is_meta else drop(tensor)

    def convert(tensor: Any) -> Any:
        wanted = dtype if tensor.is_floating_point() or tensor.is_complex() else None
        try:
            if memory_format is not None and tensor.dim() in (4, 5):
                return tensor.to(device, wanted, non_blocking, memory_format=memory_format)
            return tensor.to(device, wanted, non_blocking)
        except NotImplementedError as error:
            if str(error).startswith("Cannot copy out of meta tensor"):
                raise NotImplementedError(f"{error} {TO_EMPTY_HINT}") from None
            raise

    return convert


class Module:  # named as the class it is a part of, for messages name methods by it
    """Moving a module to other devices and types."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        return apply_to_tensors(self, fn, recurse)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Move to a device and convert floating-point tensors to a dtype, in place."""
        return self._apply(to_conversion(self, args, kwargs))

    def to_empty(self, *, device: Any, recurse: bool = True, force: bool = False) -> Any:
        """Give tensors memory on ``device`` without contents.

        Tensors on the meta device become real; ties and shared memory stay. Tensors that are
        real already keep their values, unless ``force`` is true or the device is meta.
        """
        return self._apply(emptied(self, device, recurse, force), recurse=recurse)

    def type(self, dst_type: Any) -> Any:
        """Convert all tensors to ``dst_type``."""
        return self._apply(lambda t: t.type(dst_type))

    def cuda(self, device: Any = None) -> Any:
        """Move to a CUDA device."""
        return self._apply(lambda t: t.cuda(device))

    def xpu(self, device: Any = None) -> Any:
        """Move to an Intel device, which torchlike has not: only a module without tensors can."""
        return self._apply(lambda t: t.to(torch.device("xpu", device or 0)))

    def mtia(self, device: Any = None) -> Any:
        """Move to an MTIA device, which torchlike has not: only a module without tensors can."""
        return self._apply(lambda t: t.to(torch.device("mtia", device or 0)))

    def ipu(self, device: Any = None) -> Any:
        """Move to a Graphcore device, which torchlike has not: only a module without tensors can."""
        return self._apply(lambda t: t.to(torch.device("ipu", device or 0)))

    def cpu(self) -> Any:
        """Move to the CPU."""
        return self._apply(lambda t: t.cpu())

    def float(self) -> Any:
        """Convert floating-point tensors to float32."""
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self) -> Any:
        """Convert floating-point tensors to float64."""
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self) -> Any:
        """Convert floating-point tensors to float16."""
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self) -> Any:
        """Convert floating-point tensors to bfloat16."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def share_memory(self) -> Any:
        """Move all tensors to memory that other processes can see."""
        return self._apply(lambda t: t.share_memory_())

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """There is no compiler: the module runs as it is, and a warning says so once."""
        from torchlike._tensor import say_that_nothing_is_compiled

        say_that_nothing_is_compiled()

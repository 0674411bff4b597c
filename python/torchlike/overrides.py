"""Taking calls over: objects with `__torch_function__`, and modes that see every call of a thread."""

from __future__ import annotations

import contextlib
import functools
import threading
import types
import warnings
from collections.abc import Hashable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._C import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]

_is_torch_function_enabled = _C._is_torch_function_enabled
_is_torch_function_mode_enabled = _C._is_torch_function_mode_enabled
_len_torch_function_stack = _C._len_torch_function_stack
_get_overloaded_args = _C._overloaded_args


class _Hop(threading.local):
    """Whether the next question of this thread whether a call is taken over is answered with no."""

    skipped = False


_hop = _Hop()


def _is_passed_over() -> bool:
    """True once for a call that `redispatch_function` makes: nobody takes it over."""
    skipped, _hop.skipped = _hop.skipped, False
    return skipped


def _asked(ask: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(ask)
    def answer(*args: Any) -> bool:
        return not _is_passed_over() and ask(*args)

    return answer


has_torch_function = _asked(_C._has_torch_function)
has_torch_function_unary = _asked(_C._has_torch_function_unary)
has_torch_function_variadic = _asked(_C._has_torch_function_variadic)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Asks a mode, then the relevant arguments, for the result of a call.

    Args:
        public_api: the function that was called, which handlers receive.
        relevant_args: the arguments that are asked.

    Raises:
        TypeError: if nobody answers.
    """
    name = f"{public_api.__module__}.{public_api.__name__}"
    return _C._handle(public_api, name, relevant_args, args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Any]) -> Any:
    """A decorator: calls of the function may be taken over.

    Args:
        dispatcher: takes the same arguments, and returns those that are asked.
    """

    def inner(func: Callable[..., Any]) -> Any:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return inner


def redispatch_function(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Calls the function that a handler was given: this call is not taken over again, those inside are."""
    kwargs = kwargs or {}
    inside = getattr(func, "__wrapped__", None)
    if _is_ours(func) and inside is not None:
        return inside(*args, **kwargs)
    if not isinstance(func, FunctionType):
        with _C.DisableTorchFunction():
            return func(*args, **kwargs)
    _hop.skipped = True
    try:
        return func(*args, **kwargs)
    finally:
        _hop.skipped = False


def _is_ours(func: Any) -> bool:
    """True for functions of this library that Python writes."""
    return str(getattr(func, "__module__", "")).partition(".")[0] in ("torchlike", "torch")


def is_tensor_like(inp: Any) -> bool:
    """True for tensors and for objects with a `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


# what can be overridden ----------------------------------------------------------------------

_IGNORED = """
typename is_tensor is_storage set_default_tensor_type set_default_device get_default_device set_rng_state get_rng_state
manual_seed initial_seed seed save load set_printoptions fork get_default_dtype get_num_interop_threads
get_num_threads import_ir_module init_num_threads is_anomaly_enabled is_grad_enabled merge_type_from_type_comment
parse_ir parse_schema parse_type_comment set_anomaly_enabled set_flush_denormal set_num_interop_threads set_num_threads
wait as_tensor from_numpy tensor default_generator has_cuda has_cudnn has_lapack device dtype finfo has_mkl has_mps
has_mkldnn has_openmp iinfo memory_format qscheme set_grad_enabled no_grad enable_grad inference_mode
is_inference_mode_enabled layout align_tensors arange bartlett_window blackman_window broadcast_shapes can_cast compile
cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution cudnn_grid_sampler cudnn_is_acceptable
empty empty_permuted
empty_strided empty_quantized eye from_file full fill hamming_window hann_window kaiser_window linspace logspace
mkldnn_adaptive_avg_pool2d mkldnn_convolution mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_linear_backward_weights
normal ones promote_types rand randn randint randperm range result_type scalar_tensor sparse_coo_tensor
sparse_compressed_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor tril_indices
triu_indices vander zeros zeros_like_ unify_type_list is_warn_always_enabled set_warn_always vitals_enabled set_vital
use_deterministic_algorithms is_deterministic_algorithms_warn_only_enabled are_deterministic_algorithms_enabled
set_deterministic_debug_mode get_device_module get_deterministic_debug_mode set_float32_matmul_precision
get_float32_matmul_precision is_autocast_enabled autocast_increment_nesting autocast_decrement_nesting
nn.functional.assert_int_or_pair nn.functional.upsample nn.functional.upsample_bilinear nn.functional.upsample_nearest
nn.functional.has_torch_function nn.functional.has_torch_function_unary nn.functional.has_torch_function_variadic
nn.functional.handle_torch_function nn.functional.sigmoid nn.functional.hardsigmoid nn.functional.tanh
nn.functional._canonical_mask nn.functional._none_or_dtype nn.init.calculate_gain
nn.init.uniform nn.init.normal nn.init.constant nn.init.eye nn.init.dirac nn.init.xavier_uniform
nn.init.xavier_normal nn.init.kaiming_uniform nn.init.kaiming_normal nn.init.orthogonal nn.init.sparse
Tensor.__delitem__ Tensor.__dir__ Tensor.__getattribute__ Tensor.__init__ Tensor.__iter__ Tensor.__init_subclass__
Tensor.__delattr__ Tensor.__setattr__ Tensor.__torch_function__ Tensor.__torch_dispatch__ Tensor.__new__
Tensor.__class__
Tensor.__subclasshook__ Tensor.__hash__ Tensor.as_subclass Tensor.reinforce Tensor.new Tensor.new_tensor
Tensor._make_wrapper_subclass Tensor.solve Tensor.symeig Tensor.stride Tensor.unflatten Tensor.to_sparse_coo
Tensor.to_sparse_csr Tensor._typed_storage Tensor._reduce_ex_internal Tensor._fix_weakref Tensor._view_func
Tensor._make_wrapper_subclass Tensor._make_subclass Tensor._make_dtensor
Tensor.eig Tensor.lstsq Tensor.new_empty Tensor.new_empty_strided Tensor.new_full Tensor.new_ones Tensor.new_zeros
Tensor.to_padded_tensor Tensor.to_sparse_bsc Tensor.to_sparse_bsr Tensor.to_sparse_csc Tensor._is_all_true
Tensor._is_any_true Tensor._conj Tensor._neg_view as_strided asarray clear_autocast_cache cond frombuffer
get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype
is_anomaly_check_nan_enabled is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_ipu_enabled
is_autocast_xla_enabled rand_like randint_like randn_like set_autocast_cache_enabled set_autocast_cpu_dtype
set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype set_autocast_ipu_dtype
set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled sym_constrain_range
sym_constrain_range_for_size sym_fresh_size vmap mkldnn_rnn_layer fft.fftfreq fft.rfftfreq nn.functional.hardswish
nn.functional.grouped_mm nn.functional.scaled_mm
"""


@functools.cache
def get_ignored_functions() -> set[Any]:
    """Public functions that cannot be overridden."""
    from torchlike._function import _public

    found = set()
    for name in _IGNORED.split():
        with contextlib.suppress(AttributeError, TypeError):
            found.add(_public(name))
    return found


@functools.cache
def get_default_nowrap_functions() -> set[Any]:
    """Attributes whose values keep their class under the default `__torch_function__`."""
    names = ("_base", "grad", "_grad")
    return {getattr(Tensor, n).__get__ for n in names if hasattr(Tensor, n)}


def _namespaces() -> Iterator[tuple[str, Any]]:
    import torchlike as torch

    yield "torch", torch
    yield "torch.functional", torch.functional
    yield "torch.nn.functional", torch.nn.functional
    yield "torch.nn.init", torch.nn.init
    yield "torch.Tensor", Tensor
    yield "torch.linalg", torch.linalg
    yield "torch.fft", torch.fft
    yield "torch.special", torch.special


def _functions_of(name: str, space: Any) -> Iterator[tuple[str, Any]]:
    for attribute in dir(space):
        if attribute.startswith("_") and (space is not Tensor or not attribute.endswith("__")):
            continue
        func = getattr(space, attribute)
        path = f"{name}.{attribute}"
        if space is Tensor and not callable(func) and hasattr(func, "__get__"):
            yield f"{path}.__get__", func.__get__
            yield f"{path}.__set__", getattr(func, "__set__", None)
            continue
        if isinstance(func, type | types.ModuleType) or not callable(func):
            continue
        if isinstance(func, Hashable) and getattr(object, attribute, None) is not func:
            yield path, func


@functools.cache
def _overridable() -> tuple[dict[Any, list[Any]], dict[Any, str]]:
    spaces: dict[Any, list[Any]] = {}
    names: dict[Any, str] = {}
    ignored = get_ignored_functions()
    for name, space in _namespaces():
        for path, func in _functions_of(name, space):
            if func is None:
                continue
            names[func] = path
            getter = getattr(getattr(func, "__self__", None), "__get__", None)
            if func not in ignored and getter not in ignored:
                spaces.setdefault(space, []).append(func)
    return spaces, names


def get_overridable_functions() -> dict[Any, list[Any]]:
    """The functions that can be overridden, by the module or class they are in."""
    return _overridable()[0]


def get_testing_overrides() -> dict[Any, Callable[..., Any]]:
    """For every function that can be overridden, one that takes any arguments and returns -1."""

    def dummy(*args: Any, **kwargs: Any) -> int:
        return -1

    return {f: dummy for functions in get_overridable_functions().values() for f in functions}


def resolve_name(f: Any) -> str | None:
    """The public name of a function that a handler received, or None."""
    if type(f).__name__ in ("OpOverload", "OpOverloadPacket"):
        return str(f)
    return _overridable()[1].get(f)


@functools.cache
def _tensor_methods() -> set[Any]:
    functions = get_overridable_functions()[Tensor]
    return {f for f in functions if getattr(f, "__name__", None) != "__set__"}


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """True for methods of Tensor and for what reads its attributes."""
    return func in _tensor_methods() or getattr(func, "__name__", None) == "__get__"


# modes ---------------------------------------------------------------------------------------


class TorchFunctionMode:
    """Inside, every call of this thread is shown to `__torch_function__` of the mode.

    While a mode is asked it is switched off, so it may call functions itself.
    """

    inner: TorchFunctionMode

    def __init__(self) -> None:
        pass

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        _C._push_on_torch_function_stack(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _C._pop_torch_function_stack()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchFunctionMode:
        """An old spelling of the constructor."""
        warnings.warn(
            "`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`",
            stacklevel=2,
        )
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls what it is shown."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> Any:
    count = _C._len_torch_function_stack()
    return _C._get_function_stack_at(count - 1) if count > 0 else None


def _get_current_function_mode_stack() -> list[Any]:
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


def _push_mode(mode: Any) -> None:
    _C._push_on_torch_function_stack(mode)


def _pop_mode() -> Any:
    return _C._pop_torch_function_stack()


@contextlib.contextmanager
def _pop_mode_temporarily() -> Iterator[Any]:
    mode = _pop_mode()
    try:
        yield mode
    finally:
        _push_mode(mode)


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Inside a dispatch handler: calls are seen again by the layers above dispatch modes."""
    yield

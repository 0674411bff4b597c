"""A tensor library in which every meta tensor knows how to become real."""

from math import e, inf, nan, pi
from typing import Any as _Any

from torchlike import _C, _lazy, _size
from torchlike._C import (
    CheckpointError,
    Generator,
    OutOfMemoryError,
    Tensor,
    as_tensor,
    can_cast,
    device,
    dtype,
    from_dlpack,
    from_numpy,
    frombuffer,
    get_default_device,
    get_default_dtype,
    get_num_threads,
    is_grad_enabled,
    is_inference_mode_enabled,
    is_tensor,
    layout,
    manual_seed,
    memory_format,
    promote_types,
    result_type,
    set_default_device,
    set_num_threads,
    tensor,
)
from torchlike._script_objects import ScriptObject as ScriptObject
from torchlike._size import Size
from torchlike._values import *

__version__ = "0.1.0"

_C._register_size(Size)


def _of_core(name: str) -> _Any:
    from torchlike._late import find

    return find(name)


def _of_core_nn(name: str) -> _Any:
    from torchlike._late import find_nn

    return find_nn(name)


_C.__getattr__ = _of_core  # type: ignore[method-assign]
_C._nn.__getattr__ = _of_core_nn  # type: ignore[method-assign]
_C.__path__ = [__file__.removesuffix("__init__.py") + "_core"]

# Modules that few programs use run when they are first asked for something. A module's own `__getattr__` would
# cost every look-up of a function: the interpreter does not specialise those of modules that have one.
overrides = _lazy.module("torchlike.overrides")
library = _lazy.module("torchlike.library")
jit = _lazy.module("torchlike.jit")
compiler = _lazy.module("torchlike.compiler")
backends = _lazy.module("torchlike.backends")
distributed = _lazy.module("torchlike.distributed")
distributions = _lazy.module("torchlike.distributions")
accelerator = _lazy.module("torchlike.accelerator")
xpu = _lazy.module("torchlike.xpu")
mps = _lazy.module("torchlike.mps")
mtia = _lazy.module("torchlike.mtia")
hub = _lazy.module("torchlike.hub")
quasirandom = _lazy.module("torchlike.quasirandom")
__config__ = _lazy.module("torchlike.__config__")
onnx = _lazy.module("torchlike.onnx")
types = _lazy.module("torchlike.types")
sparse = _lazy.module("torchlike.sparse")
nested = _lazy.module("torchlike.nested")
ao = _lazy.module("torchlike.ao")
classes = _lazy.module("torchlike.classes")
compat = _lazy.module("torchlike.compat")
_dynamo = _lazy.module("torchlike._dynamo")
_inductor = _lazy.module("torchlike._inductor")
_higher_order_ops = _lazy.module("torchlike._higher_order_ops")
profiler = _lazy.module("torchlike.profiler")
multiprocessing = _lazy.module("torchlike.multiprocessing")
func = _lazy.module("torchlike.func")
futures = _lazy.module("torchlike.futures")
fx = _lazy.module("torchlike.fx")
export = _lazy.module("torchlike.export")
masked = _lazy.module("torchlike.masked")
optim = _lazy.module("torchlike.optim")
from torchlike import plan  # noqa: E402

_optim = _lazy.module("torchlike._optim")
_ops = _lazy.module("torchlike._ops")
_utils = _lazy.module("torchlike._utils")
_late = _lazy.module("torchlike._late")
_elsewhere = _lazy.module("torchlike._elsewhere")
_guards = _lazy.module("torchlike._guards")
_VF = _lazy.module("torchlike._VF")
_custom_ops = _lazy.module("torchlike._custom_ops")
_functorch = _lazy.module("torchlike._functorch")
_jit_internal = _lazy.module("torchlike._jit_internal")
_subclasses = _lazy.module("torchlike._subclasses")
package = _lazy.module("torchlike.package")
monitor = _lazy.module("torchlike.monitor")
torch_version = _lazy.module("torchlike.torch_version")
quantization = _lazy.module("torchlike.quantization")
ops = _lazy.Operators()

from torchlike import (  # noqa: E402  (the names above are used by these modules while they load)
    _methods,
    _parts,
    _tensor,
    autograd,
    cuda,
    fft,
    linalg,
    random,
    return_types,
    serialization,
    signal,
    special,
    storage,
    version,
)
from torchlike._autocast import *  # noqa: E402
from torchlike._checks import *  # noqa: E402
from torchlike._composed import *  # noqa: E402
from torchlike._foreach import *  # noqa: E402
from torchlike._functions import *  # noqa: E402
from torchlike._legacy import *  # noqa: E402
from torchlike._limits import finfo, iinfo  # noqa: E402
from torchlike._linalg_utils import eig, lstsq, matrix_rank, solve, symeig  # noqa: E402
from torchlike._lowrank import lobpcg, pca_lowrank, svd_lowrank  # noqa: E402
from torchlike._mapped import from_file  # noqa: E402
from torchlike._old_functions import *  # noqa: E402
from torchlike._parts import (  # noqa: E402
    dequantize,
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qscheme,
    sparse_bsc_tensor,
    sparse_bsr_tensor,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    sparse_csc_tensor,
    sparse_csr_tensor,
)
from torchlike._quantized import *  # noqa: E402
from torchlike._settings import *  # noqa: E402
from torchlike._streams import *  # noqa: E402
from torchlike._symbolic import *  # noqa: E402
from torchlike._tensor import *  # noqa: E402
from torchlike._tensor_str import set_printoptions  # noqa: E402
from torchlike.context import (  # noqa: E402
    enable_grad,
    inference_mode,
    no_grad,
    set_default_dtype,
    set_default_tensor_type,
    set_grad_enabled,
)
from torchlike.functional import (  # type: ignore[no-redef]  # noqa: E402
    _weight_norm,
    broadcast_shapes,
    einsum,  # this and tensordot take the place of the ops, which know fewer forms of arguments
    meshgrid,  # its `__kwdefaults__` are read
    norm_except_dim,
    resize_as_,
    tensordot,
)
from torchlike.random import (  # noqa: E402
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    seed,
    set_rng_state,
)
from torchlike.serialization import load, save  # noqa: E402
from torchlike.storage import TypedStorage, UntypedStorage  # noqa: E402

from torchlike import amp, cpu, functional, nn, testing, utils  # noqa: E402  isort: skip

functional.F = nn.functional
from torchlike.amp import GradScaler, autocast  # noqa: E402  isort: skip
from torchlike.nn._native_attention import (  # noqa: E402  isort: skip
    _native_multi_head_attention,
    _nested_tensor_from_mask,
    _nested_tensor_from_mask_left_aligned,
    _transformer_encoder_layer_fwd,
)
from torchlike._vmap import vmap  # noqa: E402  isort: skip
from torchlike.deferred import (  # noqa: E402  isort: skip
    clear_meta_init_cache,
    is_meta_init,
    materialize,
    meta_init,
)

from torchlike._shell import (  # noqa: E402  isort: skip
    int1,
    int2,
    int3,
    int4,
    int5,
    int6,
    int7,
    uint1,
    uint2,
    uint3,
    uint4,
    uint5,
    uint6,
    uint7,
)
from torchlike._tags import Tag  # noqa: E402  isort: skip
from torchlike._zip_reader import PyTorchFileReader  # noqa: E402  isort: skip
from torchlike.futures import Future  # noqa: E402  isort: skip
from torchlike import _jit_types  # noqa: E402  isort: skip
from torchlike._jit_types import ScriptModule, TensorType  # noqa: E402  isort: skip

globals().update(_jit_types.NAMES)

StorageBase = UntypedStorage
to_dlpack = utils.dlpack.to_dlpack
BFloat16Storage = storage._own_storages["BFloat16Storage"]
BoolStorage = storage._own_storages["BoolStorage"]
ByteStorage = storage._own_storages["ByteStorage"]
CharStorage = storage._own_storages["CharStorage"]
ComplexDoubleStorage = storage._own_storages["ComplexDoubleStorage"]
ComplexFloatStorage = storage._own_storages["ComplexFloatStorage"]
DoubleStorage = storage._own_storages["DoubleStorage"]
FloatStorage = storage._own_storages["FloatStorage"]
HalfStorage = storage._own_storages["HalfStorage"]
IntStorage = storage._own_storages["IntStorage"]
LongStorage = storage._own_storages["LongStorage"]
ShortStorage = storage._own_storages["ShortStorage"]
QInt8Storage = storage._own_storages["QInt8Storage"]
QInt32Storage = storage._own_storages["QInt32Storage"]
QUInt8Storage = storage._own_storages["QUInt8Storage"]
QUInt4x2Storage = storage._own_storages["QUInt4x2Storage"]
QUInt2x4Storage = storage._own_storages["QUInt2x4Storage"]
Storage = FloatStorage
_storage_classes = {UntypedStorage, TypedStorage, *storage._own_storages.values()}


def __array_namespace_info__() -> _Any:
    """Devices and types, as the array API asks for them."""
    from torchlike._array_api import __array_namespace_info__ as info

    return info()


torch = __import__("sys").modules[__name__]  # PyTorch's module has its own name in it, too

# What a star import takes: modules apart, as in PyTorch.
__all__ = [n for n, v in globals().items() if n[0] != "_" and not isinstance(v, type(torch))]

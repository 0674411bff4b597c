"""Names that libraries import: they work, or say by name that torchlike has not what they stand for."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import torchlike as torch

# Names that raise NotImplementedError with themselves in the message, by modules.
ABSENT = {
    "nn.parallel": "gather parallel_apply replicate scatter",
    "distributed": "Logger ProcessGroupGloo ProcessGroupNCCL Reducer",
    "distributed.tensor.debug": "visualize_sharding",
    "distributed.tensor.experimental": "context_parallel",
    "_dynamo": "explain export lookup_backend",
    "_inductor": "compile standalone_compile",
    "onnx": "ExportableModule InputObserver ONNXProgram ExportOptions export dynamo_export",
    "onnx.symbolic_opset11": "squeeze unsqueeze select",
    "ao.quantization": "QConfigMapping get_default_qat_qconfig_mapping get_default_qconfig_mapping quantize_dynamic_jit "
    "quantize_jit",
    "ao.nn.quantized": "LSTM MultiheadAttention",
    "sparse": "SparseSemiStructuredTensor as_sparse_gradcheck to_sparse_semi_structured",
    "package": "PackageExporter PackageImporter",
    "utils.cpp_extension": "BuildExtension CUDAExtension CppExtension include_paths library_paths load load_inline",
    "utils.data.datapipes.iter.combinatorics": "SamplerIterDataPipe ShufflerIterDataPipe",
    "utils.mobile_optimizer": "optimize_for_mobile",
    "accelerator": "Graph current_stream set_stream",
    "backends.cuda": "SDPAParams",
    "cuda.memory": "MemPool change_current_allocator list_gpu_processes",
    "cuda": "CUDAGraph graph MemPool utilization current_blas_handle",
    "_custom_ops": "custom_op impl",
}


@pytest.mark.parametrize("module", ABSENT)
def test_what_is_absent_says_so_by_name(module: str) -> None:
    home = importlib.import_module(f"torchlike.{module}")
    for name in ABSENT[module].split():
        with pytest.raises(NotImplementedError) as e:
            getattr(home, name)()
        assert name in str(e.value) and "is not supported by torchlike: " in str(e.value)


# Collectives and questions that need a group, and what they are called with.
_ONE = torch.ones(1)
GROUP_CALLS: dict[str, tuple[Any, ...]] = {
    "barrier get_backend get_process_group_ranks get_rank get_world_size": (),
    "all_reduce broadcast gather recv reduce scatter send": (_ONE, 0),
    "all_gather": ([_ONE], _ONE),
    "all_gather_object all_to_all": ([_ONE], [_ONE]),
    "all_reduce_coalesced broadcast_object_list": ([_ONE],),
    "all_gather_into_tensor all_to_all_single reduce_scatter_tensor": (_ONE, _ONE),
    "reduce_scatter": (_ONE, [_ONE]),
    "new_group batch_isend_irecv recv_object_list scatter_object_list send_object_list": ([0],),
    "gather_object irecv isend": (_ONE,),
    "all_gather_coalesced get_backend_config monitored_barrier new_subgroups": (),
}


def test_distributed_without_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs a group says so in PyTorch's words; questions have PyTorch's answers."""
    dist = torch.distributed
    assert dist.is_available() and not dist.is_initialized() and dist.get_pg_count() == 0
    backends = "is_nccl_available is_mpi_available is_ucc_available is_xccl_available"
    assert not any(
        getattr(dist, name)() for name in backends.split()
    ) and not dist.is_backend_available("nccl")
    assert dist.is_gloo_available() and dist.is_backend_available("GLOO")
    for names, args in GROUP_CALLS.items():
        for name in names.split():
            with pytest.raises(ValueError, match="Default process group has not been initialized"):
                getattr(dist, name)(*args)
    with pytest.raises(NotImplementedError, match="the backend 'nccl' is not supported"):
        dist.init_process_group("nccl", rank=0, world_size=1)
    with pytest.raises(AssertionError, match="Process group cannot be None"):
        dist.destroy_process_group()
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert not dist.is_torchelastic_launched() and dist.get_node_local_rank(3) == 3
    with pytest.raises(RuntimeError, match="LOCAL_RANK is not in the environment"):
        dist.get_node_local_rank()
    assert dist.ReduceOp.SUM is dist.ReduceOp.RedOpType.SUM and dist.ReduceOp.MAX.value == 4
    assert (
        dist.Backend("GLOO") == dist.Backend.GLOO and dist.get_debug_level() is dist.DebugLevel.OFF
    )
    assert dist.GroupMember.WORLD is None and issubclass(dist.DistNetworkError, dist.DistError)
    assert issubclass(dist.DistBackendError, RuntimeError) and issubclass(
        dist.DistStoreError, dist.DistError
    )
    from torchlike.distributed.fsdp import MixedPrecisionPolicy, ShardingStrategy
    from torchlike.distributed.tensor import Partial, Replicate, Shard

    assert Shard(1) == Shard(1) != Shard(0) and Shard(1).is_shard(1) and not Shard(1).is_replicate()
    assert (repr(Shard(1)), str(Replicate()), repr(Partial())) == (
        "Shard(dim=1)",
        "R",
        "Partial(sum)",
    )
    assert MixedPrecisionPolicy().cast_forward_inputs and ShardingStrategy.NO_SHARD.value == 3
    assert not isinstance(torch.ones(1), dist.tensor.DTensor)


NO_XPU = (
    "init current_device set_device current_stream set_stream synchronize get_device_name mem_get_info "
    "get_device_capability get_device_properties get_rng_state set_rng_state initial_seed memory_stats "
    "reset_peak_memory_stats reset_accumulated_memory_stats can_device_access_peer MemPool XPUGraph Stream"
)
NO_MPS = (
    "compile_shader current_allocated_memory driver_allocated_memory recommended_max_memory empty_cache get_rng_state "
    "manual_seed seed set_per_process_memory_fraction set_rng_state synchronize Event"
)


def test_devices_that_are_not_there_answer_as_pytorch_without_them() -> None:
    xpu, mps = torch.xpu, torch.mps
    assert not (
        xpu.is_available() or mps.is_available() or xpu.is_initialized() or xpu.is_bf16_supported()
    )
    assert not (xpu.is_tf32_supported() or xpu.is_current_stream_capturing())
    assert xpu.device_count() == mps.device_count() == xpu.max_memory_reserved() == 0
    assert xpu.get_arch_list() == xpu.get_rng_state_all() == xpu.memory_snapshot() == []
    assert xpu.seed_all() is None and xpu.set_rng_state_all([]) is None
    for name in NO_XPU.split():
        with pytest.raises(AssertionError, match="Torch not compiled with XPU enabled"):
            getattr(xpu, name)()
    for name in NO_MPS.split():
        with pytest.raises(RuntimeError, match="without MPS backend"):
            getattr(mps, name)()


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_gpus_that_are_not_there() -> None:
    cuda, acc = torch.cuda, torch.accelerator
    assert acc.current_accelerator() is None and not acc.is_available() and acc.device_count() == 0
    assert acc.memory_allocated() == acc.max_memory_reserved() == acc.max_memory_allocated() == 0
    assert acc.memory_stats() == cuda.memory_stats() == {} and cuda.max_memory_reserved() == 0
    assert acc.empty_host_cache() is None and acc.reset_accumulated_memory_stats() is None
    assert not cuda.is_bf16_supported() and not cuda.is_current_stream_capturing()
    assert cuda.get_rng_state_all() == [] == cuda.get_arch_list() and cuda.seed_all() is None
    assert repr(cuda.Event()) == "<torch.cuda.Event uninitialized>"
    with cuda.stream(None), acc.device_index(None):
        pass
    for call in (
        cuda.current_stream,
        cuda.default_stream,
        cuda.Stream,
        acc.current_device_index,
        acc.current_device_idx,
        acc.get_memory_info,
        cuda.get_rng_state,
        cuda.streams.default_stream,
        lambda: acc.set_device_index(0),
        lambda: acc.set_device_idx(0),
    ):
        with pytest.raises((RuntimeError, AssertionError)):
            call()
    with pytest.raises(RuntimeError, match="invalid argument to reset_peak_memory_stats"):
        acc.reset_peak_memory_stats()
    with pytest.raises(NotImplementedError, match="ExternalStream is not supported"):
        cuda.streams.ExternalStream(0)
    with pytest.raises(
        AttributeError, match=r"module 'torchlike\.cuda' has no attribute 'nothing'"
    ):
        cuda.nothing  # noqa: B018


def test_switches_of_backends_are_kept() -> None:
    b = torch.backends
    for module, name in (
        (b.cudnn, "benchmark"),
        (b.mkldnn, "deterministic"),
        (b.miopen, "immediate"),
    ):
        assert getattr(module, name) is False
        with module.flags(**{name: True}):
            assert getattr(module, name) is True
        assert module.set_flags(**{name: True})[module._switches.names.index(name)] is False
        module.set_flags(**{name: False})
    with b.opt_einsum.flags(enabled=False, strategy="greedy"):
        assert b.opt_einsum.strategy == "greedy" and b.opt_einsum.get_opt_einsum() is None
    assert b.opt_einsum.set_flags(strategy="auto") == (True, "auto") and b.nnpack.set_flags(
        True
    ) == (True,)
    assert not (
        b.mps.is_built() or b.cudnn.is_acceptable(torch.ones(1)) or b.mkldnn.is_acl_available()
    )
    assert (
        b.mps.is_macos13_or_newer() == b.mps.is_macos_or_newer(13, 0) == (sys.platform == "darwin")
    )
    assert (
        b.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512", "NEON")
        and b.cusparselt.get_max_alg_id() is None
    )
    with b.mkldnn.verbose(1), b.mkl.verbose(0):
        pass
    b.mha.set_fastpath_enabled(False)
    assert not b.mha.get_fastpath_enabled()
    b.mha.set_fastpath_enabled(True)
    assert not b.flags_frozen() and callable(b.disable_global_flags)


def test_choices_of_attention_are_kept() -> None:
    c = torch.backends.cuda
    assert c.flash_sdp_enabled() and not c.enable_flash_sdp(True)
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        enabled, enable = getattr(c, f"{name}_sdp_enabled"), getattr(c, f"enable_{name}_sdp")
        assert enabled()
        enable(False)
        assert not enabled()
        enable(True)
    with pytest.warns(FutureWarning, match="sdp_kernel"), c.sdp_kernel(enable_flash=False):
        assert not c.flash_sdp_enabled() and c.math_sdp_enabled() and c.mem_efficient_sdp_enabled()
    assert (
        c.cudnn_sdp_enabled()
        and not c.is_flash_attention_available()
        and c.is_built() == torch.cuda.is_available()
    )
    assert not (
        c.can_use_flash_attention(0)
        or c.can_use_efficient_attention(0)
        or c.can_use_cudnn_attention(0)
    )
    c.allow_fp16_bf16_reduction_math_sdp(True)
    assert c.fp16_bf16_reduction_math_sdp_allowed()
    c.allow_fp16_bf16_reduction_math_sdp(False)
    assert (
        c.preferred_linalg_library().name == "Default"
        and c.preferred_blas_library().name == "Cublas"
    )
    assert not (
        c.enable_cudnn_sdp(True) or c.enable_mem_efficient_sdp(True) or c.enable_math_sdp(True)
    )


def test_compile_gives_the_function_back_and_says_so_once() -> None:
    code = "import warnings, torchlike as t\nwith warnings.catch_warnings(record=True) as w:\n"
    code += "    warnings.simplefilter('always')\n    f = lambda x: x\n"
    code += "    assert t.compile(f) is f and t.compile(mode='default')(f) is f and t.compile(f, disable=True) is f\n"
    code += "print(len(w), 'torch.compile' in str(w[0].message))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True"]
    d = torch._dynamo
    t = torch.ones(2)
    d.mark_static_address(t)
    assert t._dynamo_static_input_type == "guarded" and not d.is_compiling()  # type: ignore[attr-defined]
    with d.config.patch(cache_size_limit=3):
        assert d.config.cache_size_limit == 3
    assert d.config.cache_size_limit == 8 and torch._inductor.list_mode_options()["default"] == {}


def test_hub_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = torch.hub
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['math']\ndef model(a, b=2):\n    return a + b\nnumber = 3\n"
    )
    assert hub.load(str(tmp_path), "model", 1, source="local", b=5) == 6
    assert str(tmp_path) not in sys.path
    with pytest.raises(RuntimeError, match="Cannot find callable number in hubconf"):
        hub.load(str(tmp_path), "number", source="local")
    with pytest.raises(NotImplementedError, match=r"torch\.hub\.load from GitHub is not supported"):
        hub.load("a/b", "model")
    with pytest.raises(ValueError, match="Unknown source"):
        hub.load("a/b", "model", source="elsewhere")
    (tmp_path / "hubconf.py").write_text("dependencies = ['no_such_package']\ndef model(): ...\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package"):
        hub.load(str(tmp_path), "model", source="local")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert hub.get_dir() == str(tmp_path / "hub")
    source = tmp_path / "weights-0000.pt"
    torch.save({"w": torch.ones(2)}, source)
    hub.set_dir(tmp_path / "cache")
    try:
        found = hub.load_state_dict_from_url(source.as_uri())
        assert (
            found["w"].tolist() == [1.0, 1.0]
            and (tmp_path / "cache/checkpoints/weights-0000.pt").exists()
        )
    finally:
        monkeypatch.setattr(hub, "_dir", None)
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.download_url_to_file(source.as_uri(), str(tmp_path / "x"), hash_prefix="zz")
    assert not (tmp_path / "x").exists() and not list(tmp_path.glob("*.partial"))


def test_storages_over_files(tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(bytes(range(64)))
    storage = torch.UntypedStorage.from_file(str(file), False, 64)
    part = storage[2:5]
    assert (
        part.tolist() == [2, 3, 4] and part.data_ptr() - storage.data_ptr() == 2 and storage[7] == 7
    )
    assert storage.untyped() is storage and storage.filename is None
    with pytest.raises(RuntimeError, match="smaller than the required mapping size <640>"):
        torch.UntypedStorage.from_file(str(file), False, 640)
    with pytest.raises(RuntimeError, match="unable to open file"):
        torch.UntypedStorage.from_file(str(tmp_path / "none"), False, 4)
    with pytest.raises(RuntimeError, match="only a step of 1"):
        storage[::2]
    private = torch.from_file(str(file), size=2, dtype=torch.int16)
    assert private.tolist() == [256, 770]
    private.fill_(0)
    assert file.read_bytes()[:2] == b"\0\1"
    shared = torch.from_file(str(tmp_path / "new"), True, 2, dtype=torch.uint8)
    shared.fill_(5)
    del shared
    assert (tmp_path / "new").read_bytes() == b"\5\5"


def test_quantisation_stubs_and_functions() -> None:
    q = torch.ao.quantization
    x = torch.ones(2)
    assert (
        q.QuantStub()(x) is x
        and q.DeQuantStub()(x) is x
        and q.QuantWrapper(torch.nn.Identity())(x) is x
    )
    f = torch.nn.quantized.FloatFunctional()
    assert (
        f.add(x, x).tolist()
        == f.add_scalar(x, 1).tolist()
        == f.mul_scalar(x, 2).tolist()
        == [2.0, 2.0]
    )
    assert (
        f.cat([x, x]).shape == (4,)
        and f.add_relu(x, -x).sum() == 0
        and f.matmul(x, x) == 2
        and f.mul(x, x)[0] == 1
    )
    with pytest.raises(RuntimeError, match="not intended to use the 'forward'"):
        f(x)
    assert torch.nn.quantized.FXFloatFunctional().mul(x, x).tolist() == [1.0, 1.0]


def test_names_of_exporters_and_other_small_modules() -> None:
    onnx = torch.onnx
    assert not onnx.is_in_onnx_export() and issubclass(onnx.OnnxExporterError, RuntimeError)
    onnx.register_custom_op_symbolic("a::b", print, 11)
    onnx.unregister_custom_op_symbolic("a::b", 11)
    assert (
        onnx.TensorProtoDataType.INT64 == 7
        and onnx.symbolic_helper.parse_args("v")(len_of := lambda x: x) is len_of
    )
    with pytest.raises(OSError, match="cannot load libraries made for PyTorch"):
        torch.classes.load_library("x.so")
    with pytest.raises(OSError, match="cannot load libraries made for PyTorch"):
        torch.ops.load_library("x.so")
    with pytest.raises(RuntimeError, match=r"Class xielu\.XIELU not registered"):
        torch.classes.xielu.XIELU()
    assert torch.types.Storage is torch.UntypedStorage
    with torch.sparse.check_sparse_tensor_invariants():
        assert torch.sparse.check_sparse_tensor_invariants.is_enabled()
    assert torch.sparse_coo_tensor(size=(2, 3)).shape == (2, 3)
    empty = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) - torch._C.DispatchKeySet(
        torch._C.DispatchKey.AutocastCPU
    )
    assert not empty.has(torch._C.DispatchKey.AutocastCPU)


def test_nothing_warns_when_it_is_imported() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in ABSENT:
            importlib.import_module(f"torchlike.{module}")


def test_settings_of_sharding_are_plain_data() -> None:
    """Defaults as PyTorch has them."""
    f: Any = importlib.import_module("torchlike.distributed.fsdp")
    assert not f.MixedPrecision().cast_forward_inputs and f.MixedPrecision().param_dtype is None
    assert not f.CPUOffload().offload_params and f.CPUOffloadPolicy().pin_memory
    assert issubclass(f.CPUOffloadPolicy, f.OffloadPolicy) and issubclass(
        f.FullStateDictConfig, f.StateDictConfig
    )
    assert [m.value for m in f.StateDictType] == [1, 2, 3] and [
        m.value for m in f.BackwardPrefetch
    ] == [1, 2]
    assert f.OptimStateKeyType.PARAM_NAME.value == 1 and not f.FullStateDictConfig().rank0_only
    for name in ["FullOptimStateDictConfig", "ShardedOptimStateDictConfig", "OptimStateDictConfig"]:
        assert getattr(f, name)().offload_to_cpu
    for name in ["LocalOptimStateDictConfig", "LocalStateDictConfig", "ShardedStateDictConfig"]:
        assert not getattr(f, name)().offload_to_cpu
    settings = f.StateDictSettings(f.StateDictType.FULL_STATE_DICT, f.FullStateDictConfig())
    assert isinstance(settings.optim_state_dict_config, f.OptimStateDictConfig)
    state: Any = importlib.import_module("torchlike.distributed.checkpoint.state_dict")
    assert state.StateDictOptions().strict and not state.StateDictOptions().full_state_dict
    one, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    state.set_model_state_dict(other, state.get_model_state_dict(one))
    assert torch.equal(one.weight, other.weight)
    with pytest.raises(ValueError, match="broadcast_from_rank0"):
        state.get_model_state_dict(one, options=state.StateDictOptions(broadcast_from_rank0=True))
    hooks: Any = importlib.import_module("torchlike.distributed.algorithms.ddp_comm_hooks")
    assert callable(hooks.DDPCommHookType.NOOP.value) and hooks.DDPCommHookType["POWER_SGD"]
    placements: Any = importlib.import_module("torchlike.distributed.tensor")
    assert isinstance(placements.Shard(0), placements.Placement)


def test_old_names_are_the_new_ones() -> None:
    q, old = (importlib.import_module(f"torchlike.{n}quantization") for n in ("ao.", ""))
    for name in ["QConfig", "QuantType", "ObserverBase", "FakeQuantizeBase", "QuantStub"]:
        assert getattr(q, name) is getattr(old, name)
    assert (
        q.QConfig(1, 2).weight == 2
        and q.QuantType.STATIC == 1
        and q.NoopObserver(torch.int8).dtype == torch.int8
    )
    assert issubclass(q.FakeQuantizeBase, torch.nn.Module)
    fused, old = (importlib.import_module(f"torchlike.{n}nn.intrinsic") for n in ("ao.", ""))
    layers = "BNReLU2d BNReLU3d ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d ConvReLU1d ConvReLU2d "
    layers += "ConvReLU3d LinearBn1d LinearReLU"
    for name in layers.split():
        count = 3 if name.startswith("ConvBnReLU") else 2
        made = getattr(fused, name)(*(torch.nn.ReLU() for _ in range(count)))
        assert getattr(old, name) is type(made) and made(torch.tensor(-1.0)) == 0


def test_futures() -> None:
    futures: Any = importlib.import_module("torchlike.futures")
    first, second = futures.Future(), futures.Future()
    later = first.then(lambda f: f.value() + 1)
    both = futures.collect_all([first, second])
    assert not both.done() and not later.done()
    with pytest.raises(RuntimeError, match="not completed"):
        first.value()
    first.set_result(1)
    assert later.wait() == 2 and not both.done()
    second.set_result(5)
    assert futures.wait_all([first, second]) == [1, 5] and futures.collect_all([]).wait() == []
    with pytest.raises(RuntimeError, match="Attempting to mark a completed Future"):
        first.set_result(2)


def test_marks_for_profilers_of_gpus() -> None:
    nvtx: Any = importlib.import_module("torchlike.cuda.nvtx")
    assert (
        nvtx.range_push("a") == 0
        and nvtx.range_push("b") == 1
        and nvtx.range_pop() == 1
        and nvtx.range_pop() == 0
    )
    with nvtx.range("x {}", 1):
        nvtx.mark("here")
    nvtx.range_end(nvtx.range_start("c"))


def test_pipes_are_datasets() -> None:
    from torchlike.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

    class Three(IterDataPipe):
        def __iter__(self) -> Any:
            return iter([1, 2, 3])

    assert [int(x) for x in torch.utils.data.DataLoader(Three(), batch_size=None)] == [1, 2, 3]
    assert issubclass(MapDataPipe, torch.utils.data.Dataset)


def test_settings_of_files_are_kept() -> None:
    import mmap

    s = torch.serialization
    assert s.get_default_load_endianness() is None and s.get_crc32_options()
    s.set_default_load_endianness(s.LoadEndianness.LITTLE)
    assert s.get_default_load_endianness() is s.LoadEndianness.LITTLE
    s.set_default_load_endianness(None)
    with s.set_default_mmap_options(mmap.MAP_PRIVATE):
        assert s.get_default_mmap_options() == mmap.MAP_PRIVATE
    s.set_crc32_options(False)
    assert not s.get_crc32_options()
    s.set_crc32_options(True)
    with pytest.raises(TypeError, match="set_default_load_endianness"):
        s.set_default_load_endianness("big")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="but got 99"):
        s.set_default_mmap_options(99)
    for call in (lambda: s.set_default_mmap_options(mmap.MAP_SHARED),):
        with pytest.raises(NotImplementedError, match="not supported by torchlike"):
            call()
    assert torch.__config__.show()


def test_what_libraries_look_for_on_functions() -> None:
    assert torch.meshgrid.__kwdefaults__ == {"indexing": None}
    assert torch.meshgrid is torch.functional.meshgrid
    assert torch._C._is_tracing() is False

"""The small modules around tensors: datasets and samplers, markers for compilers, random state, hooks of all modules,
safe globals, CUDA queries without a GPU."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

import torchlike as torch
from torchlike import compiler, jit, library, nn, overrides
from torchlike.nn._hooks import everywhere
from torchlike.nn.modules import module as modules
from torchlike.nn.parameter import UninitializedBuffer, UninitializedTensorMixin, is_lazy
from torchlike.utils import data, dlpack

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Squares(data.Dataset):
    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        return i * i


class Countdown(data.IterableDataset):
    def __iter__(self):
        return iter([3, 2, 1])


def test_datasets_are_joined_and_cut() -> None:
    both = data.ConcatDataset([Squares(3), Squares(2)])
    assert [both[i] for i in range(len(both))] == [0, 1, 4, 0, 1]
    assert both[-1] == 1
    assert [*data.Subset(Squares(5), [4, 2])] == [16, 4]
    assert data.StackDataset(a=Squares(3), b=Squares(3))[2] == {"a": 4, "b": 4}
    assert [*data.ChainDataset([Countdown(), Countdown()])] == [3, 2, 1, 3, 2, 1]


def test_samplers_say_which_items_come_when() -> None:
    assert [*data.SequentialSampler(Squares(3))] == [0, 1, 2]
    assert sorted(data.RandomSampler(Squares(4))) == [0, 1, 2, 3]
    assert sorted(data.SubsetRandomSampler([5, 7])) == [5, 7]
    assert set(data.WeightedRandomSampler([0.0, 1.0], 8)) == {1}
    assert [*data.BatchSampler(data.SequentialSampler(Squares(5)), 2, False)] == [
        [0, 1],
        [2, 3],
        [4],
    ]
    assert issubclass(data.BatchSampler, data.Sampler)
    shares = [[*data.DistributedSampler(Squares(4), 2, rank, shuffle=False)] for rank in (0, 1)]
    assert shares == [[0, 2], [1, 3]]


def test_batches_are_collated() -> None:
    batch = data.default_collate(
        [{"x": 1.0, "y": (torch.ones(2), 3)}, {"x": 2.0, "y": (torch.zeros(2), 4)}]
    )
    assert batch["x"].dtype == torch.float64
    assert batch["y"][0].tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert batch["y"][1].tolist() == [3, 4]
    assert data.default_convert([1, "a"]) == [1, "a"]
    assert data.get_worker_info() is None


def test_markers_for_a_compiler_leave_functions_alone() -> None:
    def f(x: int) -> int:
        return x + 1

    for mark in (compiler.allow_in_graph, compiler.assume_constant_result, compiler.disable, jit.export, jit.unused,
                 jit.interface, jit.script_if_tracing):  # fmt: skip
        assert mark(f)(1) == 2
    assert compiler.substitute_in_graph(f)(f)(1) == 2
    assert not (
        compiler.is_compiling() or compiler.is_dynamo_compiling() or compiler.is_exporting()
    )
    assert not (jit.is_scripting() or jit.is_tracing())
    compiler.cudagraph_mark_step_begin()
    compiler.reset()
    assert isinstance(compiler.list_backends(), list)
    with compiler.set_stance("force_eager"):
        assert f(1) == 2
    assert jit.annotate(int, 3) == 3
    assert jit.Attribute(3, int).value == 3
    assert not jit.onednn_fusion_enabled()
    with jit.optimized_execution(True), jit.fuser("fuser1"):
        assert f(1) == 2


HOOKS = [
    ("register_module_forward_pre_hook", lambda module, args: None),
    ("register_module_forward_hook", lambda module, args, output: None),
    ("register_module_backward_hook", lambda module, grads, outputs: None),
    ("register_module_full_backward_hook", lambda module, grads, outputs: None),
    ("register_module_full_backward_pre_hook", lambda module, grads: None),
    ("register_module_buffer_registration_hook", lambda module, name, value: None),
    ("register_module_module_registration_hook", lambda module, name, value: None),
    ("register_module_parameter_registration_hook", lambda module, name, value: None),
]


@pytest.mark.parametrize(("name", "hook"), HOOKS)
def test_hooks_of_all_modules_can_be_removed(name: str, hook) -> None:
    handle = getattr(modules, name)(hook)
    assert isinstance(handle, torch.utils.hooks.RemovableHandle)
    handle.remove()
    everywhere.full = None  # the kind of hooks stays as it was once chosen
    assert nn.Linear(2, 2, device="meta")(torch.ones(1, 2, device="meta")).shape == (1, 2)


def test_uninitialised_parameters_are_known() -> None:
    buffer = UninitializedBuffer()
    assert isinstance(buffer, UninitializedTensorMixin)
    assert is_lazy(buffer)
    assert not is_lazy(torch.ones(1))
    state = {"module.weight": 1}
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert state == {"weight": 1}


def test_overrides_are_asked_for() -> None:
    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    assert overrides.is_tensor_like(Like())
    assert overrides.has_torch_function_unary(Like())
    assert overrides.has_torch_function_variadic(1, Like())
    assert overrides.handle_torch_function(torch.add, (Like(),), Like(), 1) == "add"
    assert torch.add in overrides.get_testing_overrides()
    assert torch.Tensor.grad.__get__ in overrides.get_default_nowrap_functions()


def test_libraries_infer_schemas() -> None:
    def f(x: torch.Tensor, n: int, scale: float = 2.0) -> torch.Tensor:
        return x

    assert (
        library.infer_schema(f, mutates_args=())
        == "(Tensor x, SymInt n, float scale=2.0) -> Tensor"
    )


def test_safe_globals_are_listed() -> None:
    torch.serialization.add_safe_globals([Squares])
    assert Squares in torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    assert Squares not in torch.serialization.get_safe_globals()


def test_memory_goes_through_dlpack() -> None:
    x = torch.arange(4)
    assert dlpack.from_dlpack(dlpack.to_dlpack(x)).data_ptr() == x.data_ptr()


def test_legacy_constructors_know_their_dtype() -> None:
    names = {"BFloat16Tensor": torch.bfloat16, "BoolTensor": torch.bool, "ByteTensor": torch.uint8,
             "CharTensor": torch.int8, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
             "IntTensor": torch.int32, "ShortTensor": torch.int16}  # fmt: skip
    for name, dtype in names.items():
        assert getattr(torch, name)(2, 3).dtype == dtype
    typed = torch.TypedStorage(wrap_storage=torch.ones(3).untyped_storage(), dtype=torch.float32)
    assert typed.size() == 3


def test_types_and_shapes_are_compared_without_tensors() -> None:
    assert torch.can_cast(torch.int64, torch.float32)
    assert not torch.can_cast(torch.float32, torch.int64)
    assert torch.broadcast_shapes((2, 1), (3,)) == (2, 3)
    assert torch.broadcast_shapes(None, 2, ()) == (2,)
    with pytest.raises(RuntimeError, match=r"had \[3\].*broadcastable to \[1, 1, 2\]"):
        torch.broadcast_shapes((2,), [3], (1, 1, 1))
    assert torch.bfloat16.to_complex() == torch.complex64
    for dtype in (torch.int8, torch.bool, torch.float8_e5m2, torch.quint8):
        with pytest.raises(RuntimeError, match="Unknown Complex ScalarType"):
            dtype.to_complex()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_cuda_says_that_it_is_not_there() -> None:
    assert torch.cuda.device_count() == 0
    assert torch.cuda.max_memory_allocated(0) == 0
    for query in (torch.cuda.get_device_properties, torch.cuda.get_device_capability, torch.cuda.mem_get_info,
                  torch.cuda.set_device):  # fmt: skip
        with pytest.raises(RuntimeError, match="NVIDIA driver"):
            query(0)


@needs_cuda
def test_cuda_answers_queries() -> None:
    assert torch.cuda.get_device_capability(0) >= (5, 0)
    assert torch.cuda.get_device_properties(0).total_memory > 0
    free, total = torch.cuda.mem_get_info(0)
    assert 0 < free <= total
    torch.cuda.set_device(0)
    with torch.cuda.device_of(torch.ones(1, device="cuda")):
        assert torch.cuda.current_device() == 0
    assert torch.cuda.max_memory_allocated(0) >= 0


def test_formats_are_recognised(tmp_path) -> None:
    path = tmp_path / "x.safetensors"
    torch.serialization.convert(saved(tmp_path), path)
    assert torch.serialization.file_format(path) == "safetensors"


def saved(folder):
    """A file of one tensor."""
    torch.save({"x": torch.ones(2)}, folder / "x.pt")
    return folder / "x.pt"


def kept(get, set, value) -> None:
    """A setting takes a value, says so, and is put back."""
    before = get()
    set(value)
    try:
        assert get() == value
    finally:
        set(before)


def test_settings_are_remembered() -> None:
    kept(torch.is_grad_enabled, torch.set_grad_enabled, False)
    kept(torch.get_default_dtype, torch.set_default_dtype, torch.float64)
    kept(torch.get_default_device, torch.set_default_device, torch.device("meta"))
    kept(torch.get_num_threads, torch.set_num_threads, 1)
    kept(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high")
    kept(torch.is_warn_always_enabled, torch.set_warn_always, True)
    kept(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True)
    kept(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    torch.set_num_interop_threads(torch.get_num_interop_threads())
    assert torch.get_num_interop_threads() >= 1
    assert isinstance(torch.set_flush_denormal(False), bool)
    with torch.enable_grad():
        assert torch.autograd.enable_grad is torch.enable_grad
        assert torch.is_grad_enabled()


def test_memory_that_nobody_wrote_is_marked_while_determinism_is_asked_for() -> None:
    made = {
        torch.float32: None, torch.bfloat16: None, torch.int32: 2**31 - 1, torch.int64: 2**63 - 1,
        torch.uint8: 255, torch.bool: True,
    }  # fmt: skip
    torch.use_deterministic_algorithms(True)
    try:
        for dtype, most in made.items():
            fresh = torch.ones(2).to(dtype)
            for t in (torch.empty(3, dtype=dtype), torch.empty_like(fresh), fresh.new_empty(2),
                      torch.empty_strided((2, 2), (1, 2), dtype=dtype), fresh.clone().resize_(5)[2:]):  # fmt: skip
                assert t.isnan().all() if dtype.is_floating_point else (t == most).all()
        assert torch.isnan(torch.Tensor(2)).all()
        assert torch.empty(2, device="meta").is_meta
        torch.utils.deterministic.fill_uninitialized_memory = False
        assert not torch.utils.deterministic.fill_uninitialized_memory
        with pytest.raises(RuntimeError, match="expected a bool, but got int"):
            torch.utils.deterministic.fill_uninitialized_memory = 1
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(False)


def test_what_is_switched_off_says_so() -> None:
    assert not torch.is_autocast_enabled()
    assert torch.is_autocast_cache_enabled()
    assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    assert not torch.is_anomaly_enabled()
    assert not torch.is_inference_mode_enabled()
    with torch.inference_mode():
        assert torch.is_inference(torch.ones(1))


def test_tensors_are_asked_about_themselves() -> None:
    x = torch.ones(2, 3)
    assert torch.is_tensor(x)
    assert torch.is_storage(x.untyped_storage())
    assert torch.is_same_size(x, torch.zeros(2, 3))
    assert not torch.is_distributed(x)
    assert torch.typename(x) == "torch.FloatTensor"
    assert torch.get_device(x) == -1
    assert torch.get_device_module("cuda") is torch.cuda
    assert torch.get_device_module(torch.device("cpu")) is torch.cpu
    with pytest.raises(RuntimeError, match="does not have a corresponding module"):
        torch.get_device_module("hpu")
    assert torch.promote_types(torch.int32, torch.float16) == torch.float16
    assert torch.result_type(x, 1) == torch.float32
    assert torch.norm_except_dim(x, 2, 0).flatten().tolist() == pytest.approx([3**0.5, 3**0.5])
    assert torch.functional.norm_except_dim is torch.norm_except_dim


def test_the_default_tensor_type_is_a_dtype_and_a_device() -> None:
    with pytest.warns(UserWarning, match="set_default_tensor_type"):
        torch.set_default_tensor_type(torch.DoubleTensor)
    try:
        assert torch.ones(1).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_functions_of_layers() -> None:
    logits = torch.zeros(4, 3)
    hard = nn.functional.gumbel_softmax(logits, hard=True)
    assert hard.sum(1).tolist() == [1.0] * 4
    a, b, c = torch.zeros(2, 3), torch.zeros(2, 3), torch.full((2, 3), 5.0)
    assert nn.functional.triplet_margin_with_distance_loss(a, b, c).item() == 0
    assert nn.init.trunc_normal_(torch.empty(100), a=-0.5, b=0.5).abs().max() <= 0.5
    layer = nn.MultiheadAttention(4, 2)
    x = torch.ones(3, 1, 4)
    out, weights = nn.functional.multi_head_attention_forward(
        x, x, x, 4, 2, layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0,
        layer.out_proj.weight, layer.out_proj.bias)  # fmt: skip
    assert (out.shape, weights.shape) == ((3, 1, 4), (1, 3, 3))


def test_gradients_that_were_set_are_clipped() -> None:
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.tensor([3.0, -4.0])
    nn.utils.clip_grads_with_norm_(p, 2.5, torch.tensor(5.0))
    assert p.grad.tolist() == pytest.approx([1.5, -2.0], rel=1e-5)
    nn.utils.clip_grad_value_(p, 1.0)
    assert p.grad.tolist() == [1.0, -1.0]


def test_modes_that_only_call_on() -> None:
    with overrides.BaseTorchFunctionMode(), overrides.enable_reentrant_dispatch():
        assert torch.add(torch.ones(1), 1).item() == 2
    assert overrides.redispatch_function(torch.add, (), (torch.ones(1), 1), {}).item() == 2


class Logged(torch.Tensor):
    """A tensor that notes which functions it was given to."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func.__name__)
        return overrides.redispatch_function(func, types, args, kwargs)


def scaled(a: Any, b: Any) -> Any:
    if overrides.has_torch_function((a, b)):
        return overrides.handle_torch_function(scaled, (a, b), a, b)
    return a * b + 1


def test_one_call_is_not_taken_over_again_and_those_inside_are() -> None:
    a, b = (torch.tensor([n]).as_subclass(Logged) for n in (3.0, 4.0))
    Logged.seen.clear()
    assert float(scaled(a, b)) == 13
    assert Logged.seen[:2] == ["scaled", "mul"]
    assert overrides.has_torch_function((a,))


def test_gradients_are_taken_over_once() -> None:
    w = torch.ones(2, requires_grad=True)
    loss = (w * 3).sum().as_subclass(Logged)
    Logged.seen.clear()
    (grad,) = torch.autograd.grad(loss, w, retain_graph=True)
    torch.autograd.backward(loss)
    assert grad.tolist() == [3, 3] and w.grad is not None
    assert [n for n in Logged.seen if n in ("grad", "backward")] == ["grad", "backward"]


def test_operators_of_libraries() -> None:
    @library.triton_op("torchlike_tests::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return library.wrap_triton(lambda x: x * 2)(x)

    assert double(torch.ones(1)).item() == 2
    assert library.get_kernel("torchlike_tests::double", "CPU")(torch.ones(1)).item() == 2
    library.impl_abstract("torchlike_tests::double")(torch.empty_like)
    assert double(torch.ones(3, device="meta")).shape == (3,)
    library.register_vmap("torchlike_tests::double", lambda info, dims, x: (x, 0))
    library.register_autocast("torchlike_tests::double", "cpu", torch.bfloat16)
    library.register_torch_dispatch("torchlike_tests::double", type(None), lambda *_: None)
    with pytest.raises(NotImplementedError, match="never be called"):
        library.fallthrough_kernel()
    space = library.Library("torchlike_tests", "IMPL")
    space.fallback(library.fallthrough_kernel, "CPU")
    with pytest.raises(NotImplementedError, match=r"Library\.fallback"):
        space.fallback(lambda *_: None, "CPU")


def test_whole_files_are_converted_and_verified(tmp_path) -> None:
    source, target = saved(tmp_path), tmp_path / "x.safetensors"
    done = torch.serialization.convert(source, target)
    assert isinstance(done, torch.serialization.Converted)
    assert (done.tensors, done.bytes) == (1, 8)
    assert isinstance(torch.serialization.verify(source), torch.serialization.Verified)


def test_names_of_other_protocols() -> None:
    assert dlpack.DLDeviceType.kDLCUDA == 2

    def f() -> None:
        pass

    torch.utils.set_module(f, "torchlike.somewhere")
    assert f.__module__ == "torchlike.somewhere"


def test_checks_that_are_operators() -> None:
    aten, x = torch.ops.aten, torch.ones(2, 3)
    same = {"size": [2, 3], "stride": [3, 1], "dtype": torch.float32, "device": "cpu"}
    for check in (torch._assert_tensor_metadata, aten._assert_tensor_metadata.default):
        assert check(x, **same, layout=torch.strided) is None
        with pytest.raises(
            RuntimeError, match=r"Tensor sizes mismatch! Expected: \[2, 4\], Got: \[2, 3\]"
        ):
            check(x, [2, 4])
        with pytest.raises(RuntimeError, match="Tensor device mismatch! Expected: meta, Got: cpu"):
            check(x, device="meta")
    assert aten.sym_constrain_range(3, min=2, max=4) is None
    with pytest.raises(RuntimeError, match=r"Invalid value range for 5 between \[2, 4\]"):
        aten.sym_constrain_range(5, min=2, max=4)
    with pytest.raises(RuntimeError, match="Max value to constrain_range_for_size must be greater"):
        aten.sym_constrain_range_for_size(3, max=1)
    with pytest.raises(RuntimeError, match="why"):
        aten._assert_scalar.default(0, "why")


def test_lists_of_tensors_by_device_and_type() -> None:
    from torchlike.utils._foreach_utils import _group_tensors_by_device_and_dtype as grouped

    a, b, c = torch.ones(1), torch.ones(2).double(), torch.ones(3)
    found = grouped([[a, b, c], [1, None, 3], []], with_indices=True)
    assert found.keys() == {(a.device, torch.float32), (a.device, torch.float64)}
    assert found[a.device, torch.float32] == ([[a, c], [1, 3], []], [0, 2])
    assert found[a.device, torch.float64] == ([[b], [None], []], [1])
    assert torch.optim.Optimizer._group_tensors_by_device_and_dtype([[a]])[
        a.device, torch.float32
    ] == ([[a]], [])


def test_switches_of_sparse_checks_are_kept() -> None:
    switch = torch.sparse.check_sparse_tensor_invariants
    with switch(False), switch():
        assert switch.is_enabled()
        switch.disable()
        assert not switch.is_enabled()
    assert switch(True)(switch.is_enabled)() and not switch.is_enabled()
    with (nested := switch()), pytest.raises(RuntimeError, match="already activated"):
        nested.__enter__()


def test_places_of_storages_have_names() -> None:
    places = torch.serialization
    storage = torch.ones(2).untyped_storage()
    assert places.location_tag(storage) == "cpu"
    assert places.default_restore_location(storage, "meta").device.type == "meta"
    with pytest.raises(RuntimeError, match=r"don't know how to restore .* \(tagged with moon\)"):
        places.default_restore_location(storage, "moon")
    with pytest.raises(RuntimeError, match="HPU device module is not registered"):
        places.validate_hpu_device("hpu:0")
    assert places.check_module_version_greater_or_equal(pytest, (1, 0))
    with pytest.warns(UserWarning, match="version string is malformed"):
        places.check_module_version_greater_or_equal(pytest, (1, 2, 3, 4, 5, 6), False)
    assert str(places.StorageType("HalfStorage")).endswith("float16)")


def test_results_have_classes_for_given_outputs() -> None:
    kinds = torch.return_types.all_return_types
    assert torch.return_types.max_out in kinds and len(kinds) == 67


def test_gradients_have_a_second_name() -> None:
    x = torch.ones(2, requires_grad=True)
    x._grad = torch.zeros(2)
    assert x.grad is x._grad

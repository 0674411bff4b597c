"""What few programs use of PyTorch's: switches, old names of checks, and what stands behind processes and scripts."""

from __future__ import annotations

import importlib
import os
import pickle
import threading
import time
import typing
import warnings
from datetime import datetime, timedelta
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

import torchlike as torch
from test_gloo import played
from torchlike import multiprocessing as mp

REDUCTIONS: Any = importlib.import_module("torchlike.multiprocessing.reductions")
CHECKS: Any = importlib.import_module("torchlike.autograd.gradcheck")
COMPILER: Any = importlib.import_module("torchlike.compiler")
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="says what is said without a GPU")


def sent(value: Any) -> Any:
    return pickle.loads(bytes(ForkingPickler.dumps(value)))


def _double(queue: Any, back: Any) -> None:
    for t in queue.get():
        (t._values() if t.layout is torch.sparse_coo else t).mul_(2)
    back.put(True)


def test_sparse_tensors_share_their_values_with_processes() -> None:
    context: Any = mp.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    sparse, plain = torch.eye(3).to_sparse(), torch.ones(2)
    process = context.Process(target=_double, args=(queue, back))
    process.start()
    queue.put((sparse, plain))
    assert back.get()
    process.join()
    assert torch.equal(plain, torch.full((2,), 2.0))
    assert torch.equal(sparse.to_dense(), 2 * torch.eye(3))


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "bsr", "bsc", "empty"])
def test_tensors_that_were_sent(kind: str) -> None:
    dense = torch.randn(4, 4).tril()
    blocks = {"blocksize": (2, 2)} if kind in ("bsr", "bsc") else {}
    given = torch.empty(0) if kind == "empty" else None
    if given is None:
        name = "to_sparse" if kind == "coo" else f"to_sparse_{kind}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = getattr(dense, name)(**blocks)
    made = sent(given)
    assert made.layout == given.layout and made.shape == given.shape
    assert kind == "empty" or torch.equal(made.to_dense(), dense)
    if kind == "coo":
        assert made.is_coalesced() is given.is_coalesced()
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf"):
        sent(given.clone().requires_grad_() * 2)


def test_storages_by_their_place() -> None:
    t = torch.ones(3)
    ref, other = (REDUCTIONS.StorageWeakRef(x.untyped_storage()) for x in (t, t.view(3, 1)))
    assert ref == other and hash(ref) == hash(other) == t.untyped_storage()._cdata
    assert ref != REDUCTIONS.StorageWeakRef(torch.ones(3).untyped_storage())
    with pytest.raises(NotImplementedError, match=r"StorageWeakRef\.expired"):
        ref.expired()
    assert REDUCTIONS.rebuild_storage_empty(torch.UntypedStorage).size() == 0
    with open(__file__) as a, open(__file__) as b, open(os.devnull) as c:
        assert REDUCTIONS.fd_id(a.fileno()) == REDUCTIONS.fd_id(b.fileno())
        assert REDUCTIONS.fd_id(a.fileno()) != REDUCTIONS.fd_id(c.fileno())
    for name in ("rebuild_cuda_tensor", "reduce_event"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(REDUCTIONS, name)()


@pytest.mark.filterwarnings("ignore:.*jacobian.*:FutureWarning")
def test_old_names_of_jacobians() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    z = torch.tensor([1 + 2j], requires_grad=True, dtype=torch.complex128)

    def product(inputs: Any) -> Any:
        return inputs[0] * inputs[1][0]

    wanted = torch.eye(2, dtype=torch.float64) * 3, torch.tensor([[1.0, 2.0], [0.0, 0.0]]).double()
    found = CHECKS.get_numerical_jacobian(product, (x, y))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    (found,) = CHECKS.get_numerical_jacobian(product, (x, y), target=y, eps=1e-6)
    torch.testing.assert_close(found, wanted[1])
    found, same, sizes, types = CHECKS.get_analytical_jacobian((x, y), product((x, y)))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert (same, sizes, types) == (True, True, True)
    two = CHECKS.get_numerical_jacobian_wrt_specific_input(
        lambda a, b: (a * b, a + 1), 1, (x, y), outputs=(x * y, x + 1), eps=1e-6
    )
    torch.testing.assert_close(two[0], torch.diag(x.detach()))
    assert torch.equal(two[1], torch.zeros(2, 2, dtype=torch.float64))

    def square(t: Any) -> Any:
        return (t[0] * t[0].conj()).real

    (found,) = CHECKS.get_numerical_jacobian(square, (z,), eps=1e-6)
    torch.testing.assert_close(found, CHECKS.get_analytical_jacobian((z,), square((z,)))[0][0])
    for call in (
        lambda: CHECKS.get_numerical_jacobian(product, (x, y), grad_out=2.0),
        lambda: CHECKS.get_analytical_jacobian((x, y), product((x, y)), grad_out=2.0),
    ):
        with pytest.raises(ValueError, match=r"Expected grad_out to be 1\.0"):
            call()
    with pytest.raises(ValueError, match="Expected output to be non-complex"):
        CHECKS.get_analytical_jacobian((z,), z * z)


def test_switches_of_the_compiler() -> None:
    assert COMPILER.get_default_backend() == "inductor"
    COMPILER.set_default_backend("eager")
    assert COMPILER.get_default_backend() == "eager"
    COMPILER.set_default_backend(None)
    assert COMPILER.get_default_backend() == "inductor"
    assert COMPILER.set_enable_guard_collectives(True) is False
    assert COMPILER.set_enable_guard_collectives(False) is True
    assert COMPILER.save_cache_artifacts() is None
    with pytest.raises(NotImplementedError, match=r"compiler\.load_cache_artifacts"):
        COMPILER.load_cache_artifacts(b"")
    assert COMPILER.skip_all_guards_unsafe([1, 2]) == [False, False]

    @COMPILER.nested_compile_region
    def twice(x: Any) -> Any:
        return x * 2

    assert twice(3) == 6 and COMPILER.nested_compile_region(max_reuse_entries=2)(twice) is twice

    @COMPILER.wrap_numpy
    def mean(x: Any, *, scale: Any) -> Any:
        assert type(x).__module__ == "numpy"
        return {"mean": x.mean(), "rows": x.sum(1) * scale}

    made = mean(torch.arange(6.0).view(2, 3), scale=2)
    assert made["mean"] == torch.tensor(2.5)
    assert torch.equal(made["rows"], torch.tensor([6.0, 24.0]))


def test_settings_of_the_compiler() -> None:
    settings = COMPILER.config
    assert settings.cache_key_tag == "" and settings.force_disable_caches is False
    dynamo: Any = importlib.import_module("torchlike._dynamo.config")
    assert settings.recompile_limit == dynamo.recompile_limit
    assert importlib.import_module("torchlike.compiler.config").job_id is None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = settings.nothing_of_the_kind


def test_steps_that_profiles_count() -> None:
    tracker = torch.autograd.profiler.KinetoStepTracker
    before = tracker.current_step()
    try:
        assert tracker.increment_step("a") == before + 1
        tracker.init_step_count("b")
        assert [tracker.increment_step(n) for n in "aba"] == [before + 2, before + 2, before + 3]
        assert tracker.current_step() == before + 3
    finally:
        assert tracker.erase_step_count("a") and tracker.erase_step_count("b")
    assert not tracker.erase_step_count("a")


def test_stores_and_backends() -> None:
    dist = torch.distributed
    store = dist.HashStore()
    twin = store.clone()
    came: list[str] = []

    def come(where: Any, name: str) -> None:
        where.barrier("here", 3, timedelta(seconds=20))
        came.append(name)

    threads = [threading.Thread(target=come, args=(s, n)) for s, n in ((store, "a"), (twin, "b"))]
    for t in threads:
        t.start()
    time.sleep(0.05)
    assert not came
    come(store, "c")
    for t in threads:
        t.join()
    assert sorted(came) == ["a", "b", "c"]
    with pytest.raises(dist.DistStoreError):
        store.barrier("there", 2, timedelta(milliseconds=10))
    assert dist.get_default_backend_for_device("cpu") == "gloo"
    assert dist.get_default_backend_for_device(torch.device("cuda:0")) == "nccl"
    with pytest.raises(ValueError, match="Default backend not registered for device : meta"):
        dist.get_default_backend_for_device("meta")
    assert dist.supports_complex(dist.ReduceOp.SUM) and not dist.supports_complex(dist.ReduceOp.MAX)
    assert dist.all_gather_single is dist.all_gather_into_tensor


def test_functions_by_their_text() -> None:
    unit = torch.jit.CompilationUnit(
        """
        def more(x, by: int = 2):
            return x + by

        def all(x, rows: List[int]):
            total = torch.zeros_like(x)
            for i in rows:
                total = total + more(x, i)
            return total
        """
    )
    x = torch.ones(3)
    assert torch.equal(unit.all(x, [1, 2]), x * 5) and torch.equal(unit.more(x), x * 3)
    assert unit.find_function("nothing") is None and len(unit.get_functions()) == 2
    unit.define("def less(x):\n    return more(x, -1)")
    assert torch.equal(unit.find_function("less")(x), x * 0)
    with pytest.raises(AttributeError, match="'CompilationUnit' has no attribute 'nothing'"):
        unit.nothing()
    with pytest.raises(RuntimeError, match="method 'less' already defined"):
        unit.define("def less(x):\n    return x")
    for text in ("import os", "@property\ndef f(x):\n  return x", "def f(x=print(3)):\n  return x"):
        with pytest.raises(torch.jit.NotSupportedError, match="CompilationUnit"):
            torch.jit.CompilationUnit(text)
    unit.drop_all_functions()
    assert unit.get_functions() == []


def test_switches_of_scripts() -> None:
    before = torch.jit.set_fusion_strategy([("STATIC", 1)])
    assert before == [("STATIC", 2), ("DYNAMIC", 10)]
    assert torch.jit.set_fusion_strategy(before) == [("STATIC", 1)]
    with pytest.raises(ValueError, match="only supported 'STATIC' or 'DYNAMIC', got: X"):
        torch.jit.set_fusion_strategy([("X", 2)])
    torch.jit.enable_onednn_fusion(True)
    assert torch.jit.onednn_fusion_enabled()
    torch.jit.enable_onednn_fusion(False)
    with pytest.warns(UserWarning, match="Only works in script mode"), torch.jit.strict_fusion():
        pass
    with pytest.raises(NotImplementedError, match=r"jit\.export_opnames"):
        torch.jit.export_opnames(None)
    kinds = torch.jit.annotations
    assert (
        kinds.is_list(list[int])
        and kinds.is_tuple(tuple[int, str])
        and kinds.is_dict(dict[str, int])
    )
    assert kinds.is_optional(int | None) and kinds.is_union(int | str)
    assert not kinds.is_optional(int | str) and not kinds.is_list(int)
    assert not kinds.is_optional(int | str | None) and not kinds.is_list(list)
    for ask, name in (
        (kinds.is_list, "List"),
        (kinds.is_tuple, "Tuple"),
        (kinds.is_union, "Union"),
        (kinds.is_optional, "Optional"),
    ):
        with pytest.raises(RuntimeError, match=f"use {name} without a contained type.*{name}.int"):
            ask(getattr(typing, name))
    with pytest.raises(RuntimeError, match=r"use Dict without contained types.*Dict.int, int"):
        kinds.is_dict(typing.Dict)  # noqa: UP006


@NO_GPU
def test_memory_without_a_gpu() -> None:
    memory = torch.cuda.memory
    assert memory.memory_stats_as_nested_dict() == {} == memory.host_memory_stats_as_nested_dict()
    assert memory.get_allocator_backend() == "native" and memory.memory_cached() == 0
    with memory.caching_allocator_disabled():
        memory.caching_allocator_enable(False)
    assert memory.memory_summary().splitlines()[4].split() == ["allocated", "0", "B", "0", "B"]
    for call in (
        lambda: memory.caching_allocator_alloc(16),
        memory.get_per_process_memory_fraction,
        lambda: torch.cuda.get_stream_from_external(0),
    ):
        with pytest.raises(RuntimeError, match="Found no NVIDIA driver"):
            call()
    with pytest.raises(RuntimeError, match="invalid device pointer: 0x4d2"):
        memory.caching_allocator_delete(1234)
    with pytest.raises(RuntimeError, match="invalid argument to reset_accumulated_memory_stats"):
        memory.reset_accumulated_memory_stats()
    torch.cuda.check_error(0)
    with pytest.raises(torch.cuda.CudaError, match=r"\(2\)"):
        torch.cuda.check_error(2)
    assert not hasattr(torch.cuda, "nothing")


TEXT = "alpha beta\ngamma delta\nalpha zeta\nend\n"


def checks() -> Any:
    return torch.testing.FileCheck()


@pytest.mark.parametrize(
    "made",
    [
        lambda: checks().check("beta").check("zeta"),
        lambda: checks().check("beta").check_not("omega").check("zeta"),
        lambda: checks().check("end").check_not("alpha"),
        lambda: checks().check("alpha").check_same("beta").check_next("gamma"),
        lambda: checks().check_count("alpha", 2, exactly=True).check("end"),
        lambda: checks().check_count("a", 2),
        lambda: checks().check_dag("delta").check_dag("beta").check("zeta"),
        lambda: checks().check_regex(r"g.*a\sd"),
    ],
)
def test_checks_of_texts_that_hold(made: Any) -> None:
    made().run(TEXT)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            lambda: checks().check("zeta").check("beta"),
            'Expected to find "beta" but did not find it',
        ),
        (
            lambda: checks().check("beta").check_not("gamma").check("zeta"),
            'to not find "gamma" but',
        ),
        (lambda: checks().check_not("end"), 'Expected to not find "end" but found it'),
        (lambda: checks().check("alpha").check_same("gamma"), "From CHECK-SAME: gamma"),
        (lambda: checks().check("alpha").check_next("zeta"), "From CHECK-NEXT: zeta"),
        (lambda: checks().check("alpha").check_next("beta"), "From CHECK-NEXT: beta"),
        (lambda: checks().check_count("alpha", 1, exactly=True), "From CHECK-NOT: alpha"),
        (lambda: checks().check_count("alpha", 3), "From CHECK-COUNT-3: alpha"),
        (lambda: checks().check_dag("zeta").check_dag("beta").check("gamma"), "From CHECK: gamma"),
        (lambda: checks().check_dag("delta").check_not("x").check_dag("beta"), "CHECK-DAG: beta"),
        (lambda: checks().check_regex("q+"), 'Expected to find regex "q\\+"'),
        (lambda: checks(), "No checks have been added"),
    ],
)
def test_checks_of_texts_that_do_not_hold(made: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        made().run(TEXT)


def test_checks_of_texts_by_lines_and_marks() -> None:
    checks().run("# CHECK: beta\n# CHECK-NEXT: gamma\n # CHECK-COUNT-2: a\n text", TEXT)
    checks().run("# CHECK-COUNT-EXACTLY-2: alpha", TEXT)
    with pytest.raises(RuntimeError, match="From CHECK-NOT: gamma"):
        checks().run("# CHECK: beta\n# CHECK-NOT: gamma\n# CHECK: zeta", TEXT)
    marked = checks().check_source_highlighted("beta")
    marked.run("beta alpha beta x\n           ~~~~ <--- HERE\n")
    for below, text in (("          ~~~~~", 'not find "~"'), ("", "highlighted but it is not")):
        with pytest.raises(RuntimeError, match=text):
            marked.run(f"beta alpha beta x\n{below}\n")
    graph = torch.fx.symbolic_trace(torch.nn.ReLU()).graph
    checks().check("placeholder").check("relu").check("return relu").run(graph)
    assert "CHECK: x" in str(checks().check("x")) and "not run" in str(checks())


def test_arguments_that_were_missing(tmp_path: Any) -> None:
    fused = torch.ao.nn.intrinsic
    conv, norm = torch.nn.Conv1d(2, 2, 1), torch.nn.BatchNorm1d(2)
    made = fused.ConvBn1d(conv, bn=norm)
    assert made[0] is conv and made[1] is norm
    with pytest.raises(TypeError, match="takes the layers conv, bn"):
        fused.ConvBn1d(conv)
    with torch.autograd.profiler.profile() as p:
        torch.ones(2) + 1
    p.export_chrome_trace(str(tmp_path / "trace.json"), metadata={"mine": 7})
    assert '"mine": 7' in (tmp_path / "trace.json").read_text()
    assert len(p.function_events.key_averages(group_by_input_shapes=True)) > 0
    assert not torch.xpu.is_bf16_supported(including_emulation=False)
    mode = torch.inference_mode(False).clone()
    with mode:
        assert not torch.is_inference_mode_enabled()
    with torch.no_grad().clone():
        assert not torch.is_grad_enabled()
    data = torch.utils.data.ConcatDataset([[1, 2], [3]])
    with pytest.warns(DeprecationWarning, match="renamed to cumulative_sizes"):
        assert data.cummulative_sizes == [2, 3]
    key = torch.ones(1)
    first = torch.utils.weak.WeakTensorKeyDictionary({key: 5})
    second = first.copy()
    second[key] = 6
    assert (first[key], second[key]) == (5, 6) and first.keyrefs()[0]() is key


def test_groups_in_an_order_of_their_own(tmp_path: Any) -> None:
    body = """
    begin()
    group = dist.new_group([1, 0], sort_ranks=False)
    assert dist.get_process_group_ranks(group) == [1, 0]
    assert dist.get_group_rank(group, rank) == 1 - rank
    found = [torch.zeros(1), torch.zeros(1)]
    dist.all_gather(found, torch.tensor([float(rank)]), group=group)
    assert [int(t) for t in found] == [1, 0]
    assert dist.get_process_group_ranks(dist.new_group([1, 0])) == [0, 1]
    dist.barrier(timeout=timedelta(seconds=20))
    if rank == 0:
        dist.send_object_list([{"a": 1}], dst=1, use_batch=True)
    else:
        given = [None]
        dist.recv_object_list(given, src=0, use_batch=True)
        assert given == [{"a": 1}]
    print("done")
    """
    assert [out.strip() for out in played(tmp_path, body)] == ["done", "done"]


def test_numbers_of_windows_are_told() -> None:
    monitor: Any = importlib.import_module("torchlike.monitor")
    kinds = monitor.Aggregation
    told: list[Any] = []
    handle = monitor.register_event_handler(told.append)
    try:
        stat = monitor.Stat("loss", tuple(kinds), timedelta(days=1000), max_samples=3)
        assert (stat.name, stat.count) == ("loss", 0)
        stat.add(1.0)
        stat.add(5)
        assert stat.count == 2 and stat.get()[kinds.SUM] == 0 and not told
        for late in (3, 100):  # the window is full with the first of them
            stat.add(late)
        wanted = {"value": 3.0, "mean": 3.0, "count": 3.0, "sum": 9.0, "max": 5.0, "min": 1.0}
        assert {k.name.lower(): v for k, v in stat.get().items()} == wanted
        assert [e.data for e in told] == [{f"loss.{k}": v for k, v in wanted.items()}]
        short = monitor.Stat("short", [kinds.SUM], timedelta(milliseconds=20))
        short.add(2)
        time.sleep(0.03)
        short.add(4)
        assert short.get() == {kinds.SUM: 2.0} and told[-1].data == {"short.sum": 2.0}
        del short  # what was not told yet
        assert told[-1].data == {"short.sum": 4.0}
        with pytest.raises(TypeError, match="is no number"):
            stat.add("1")
    finally:
        monitor.unregister_event_handler(handle)
    count = len(told)
    monitor.log_event(monitor.Event("more", datetime.now(), {"a": 1}))
    assert len(told) == count
    with pytest.raises(ValueError, match="not registered"):
        monitor.unregister_event_handler(handle)
    for wrong in (("a", 3, {}), ("a", datetime.now(), {"b": [1]})):
        with pytest.raises(TypeError, match="Event"):
            monitor.Event(*wrong)

    class Writer:
        def add_scalar(self, *args: Any, walltime: float) -> None:
            told.append((*args, walltime))

    curves = monitor.TensorboardEventHandler(Writer())
    event = monitor.Event("torch.monitor.Stat", datetime.now(), {"loss.sum": 2.0})
    curves(event)
    curves(monitor.Event("other", datetime.now(), {"x": 1}))
    assert told[count:] == [("loss.sum", 2.0, event.timestamp.timestamp())]


def test_files_that_one_process_holds(tmp_path: Any) -> None:
    baton: Any = importlib.import_module("torchlike.utils.file_baton").FileBaton
    path = str(tmp_path / "lock")
    first, second = baton(path), baton(path, wait_seconds=0.01, warn_after_seconds=0)
    assert first.try_acquire() and not second.try_acquire()
    later = threading.Timer(0.1, first.release)
    later.start()
    with pytest.warns(UserWarning, match="Waited on lock file"):
        second.wait()
    later.join()
    assert second.try_acquire()
    second.release()
    assert not os.path.exists(path)


def test_pools_by_their_old_path() -> None:
    pools: Any = importlib.import_module("torchlike.multiprocessing.pool")
    queues: Any = importlib.import_module("torchlike.multiprocessing.queue")
    with pools.Pool(1, context=mp.get_context("spawn")) as pool:
        assert torch.equal(pool.map(torch.neg, [torch.ones(2)])[0], -torch.ones(2))
    queue = queues.SimpleQueue(ctx=mp.get_context("spawn"))
    queue.put(torch.ones(2))
    assert torch.equal(queue.get(), torch.ones(2))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, or the emulated one")
def test_memory_of_a_gpu() -> None:
    memory = torch.cuda.memory
    place = memory.caching_allocator_alloc(1000)
    figures = memory.memory_stats_as_nested_dict()
    assert place > 0 and figures["allocated_bytes"]["all"]["current"] >= 1000
    assert memory.get_per_process_memory_fraction() == 1.0
    assert "KiB" in memory.memory_summary() or "MiB" in memory.memory_summary()
    memory.caching_allocator_delete(place)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        memory.caching_allocator_delete(place)
    memory.reset_accumulated_memory_stats()
    with pytest.raises(NotImplementedError, match="memory has one allocator"):
        memory.caching_allocator_enable(False)

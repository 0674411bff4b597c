"""The profiler: which events there are, how they nest, what tables and traces say."""

import gzip
import json

import pytest

import torchlike as torch
from torchlike.autograd import profiler as autograd_profiler
from torchlike.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)


def step(device="cpu"):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    model.to(device)
    x = torch.randn(5, 8, device=device)
    options = {"record_shapes": True, "profile_memory": True, "with_flops": True}
    with profile(activities=[ProfilerActivity.CPU], **options) as p:
        with record_function("forward"):
            y = model(x).sum()
        y.backward()
    return p


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_events(device):
    events = step(device).events()
    top = [e for e in events if e.cpu_parent is None]
    forward = top[0]
    assert forward.name == "forward" and forward.is_user_annotation
    assert [c.name for c in forward.cpu_children][:1] == ["aten::linear"]
    assert forward.cpu_memory_usage >= 320 + 320 + 80 + 4 and forward.self_cpu_memory_usage == 0
    for e in events:
        assert 0 <= e.self_cpu_time_total <= e.cpu_time_total
        for c in e.cpu_children:
            assert e.time_range.start <= c.time_range.start <= c.time_range.end <= e.time_range.end
            assert c.cpu_parent is e
    linear = forward.cpu_children[0]
    assert linear.input_shapes == [[5, 8], [16, 8], [16]]
    assert linear.input_types == ["float32"] * 3
    addmm = [e for e in events if e.name == "aten::addmm"]
    assert [e.flops for e in addmm] == [1280, 640]
    assert [e.cpu_memory_usage for e in addmm] == [320, 80]
    walked = "autograd::engine::evaluate_function: AddmmBackward0"
    back = [e for e in events if e.name == "AddmmBackward0"]
    assert [e.cpu_parent.name for e in back] == [walked] * 2
    assert [e.sequence_nr for e in back] == [e.sequence_nr for e in reversed(addmm)]
    assert back[0].input_shapes == [[5, 4]]


def test_tables():
    averages = step().key_averages()
    by_key = {e.key: e for e in averages}
    assert by_key["aten::addmm"].count == 2 and by_key["aten::addmm"].flops == 1920
    table = averages.table(sort_by="cpu_time_total", row_limit=3)
    lines = table.splitlines()
    assert lines[1].split("  ")[-2] == "Total KFLOPs" and "CPU Mem" in lines[1]
    assert len(lines) == 8 and lines[-1].startswith("Self CPU time total: ")
    longest = max(averages, key=lambda e: e.cpu_time_total)
    assert lines[3].split()[0] == longest.key.split()[0]
    shapes = step().key_averages(group_by_input_shape=True)
    assert [e.count for e in shapes if e.key == "aten::addmm"] == [1, 1]
    assert "Input Shapes" in shapes.table()
    with pytest.raises(AttributeError):
        averages.table(sort_by="nothing")
    total = averages.total_average()
    assert total.key == "Total" and total.count == sum(e.count for e in averages)
    assert abs(total.self_cpu_time_total - averages.self_cpu_time_total) < 1e-6


def test_traces(tmp_path):
    p = step()
    p.add_metadata_json("run", "[1, 2]")
    for name, opened in (("trace.json", open), ("trace.json.gz", gzip.open)):
        p.export_chrome_trace(str(tmp_path / name))
        with opened(tmp_path / name, "rt") as file:
            trace = json.load(file)
        calls = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        assert len(calls) == len(p.events()) and trace["run"] == [1, 2]
        assert {e["cat"] for e in calls} == {"cpu_op", "user_annotation"}
        arrows = [e["ph"] for e in trace["traceEvents"] if e.get("cat") == "fwdbwd"]
        assert arrows.count("s") == arrows.count("f") >= 3
    tensorboard_trace_handler(str(tmp_path / "logs"), "me")(p)
    (file,) = (tmp_path / "logs").iterdir()
    assert file.name.startswith("me.") and file.name.endswith(".pt.trace.json")


def test_schedules():
    says = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    names = [says(i).name for i in range(11)]
    cycle = ["NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"]
    assert names == ["NONE", *cycle, *cycle, "NONE", "NONE"]
    assert says(4) is ProfilerAction.RECORD_AND_SAVE
    with pytest.raises(AssertionError, match=r"^Invalid profiler schedule arguments\. Got wait=-1"):
        schedule(wait=-1, warmup=0, active=0)
    seen = []
    plan = schedule(wait=1, warmup=1, active=1)
    with profile(
        schedule=plan, on_trace_ready=lambda p: seen.append((p.step_num, p.events()))
    ) as p:
        for _ in range(7):
            torch.ones(1)
            p.step()
    assert [n for n, _ in seen] == [3, 6]
    assert [e.name for e in seen[0][1]][:2] == ["ProfilerStep*", "aten::ones"]


def test_what_is_refused():
    assert supported_activities() == {ProfilerActivity.CPU}
    with pytest.raises(AssertionError, match=r"^No valid profiler activities found$"):
        profile(activities=[]).start()
    with (
        pytest.warns(UserWarning, match=r"^CUDA is not available, disabling CUDA profiling$"),
        pytest.raises(AssertionError, match=r"^No activities specified for the profiler$"),
    ):
        profile(activities=[ProfilerActivity.CUDA]).start()
    with pytest.raises(
        AssertionError, match=r"^Profiler must be initialized before accessing events$"
    ):
        profile().events()
    with pytest.raises(NotImplementedError, match=r"stacks"):
        profile(with_stack=True).start()


def test_the_older_profiler():
    inner = autograd_profiler.profile()
    with autograd_profiler.profile() as p:
        torch.ones(2) + 1
        with pytest.warns(UserWarning, match=r"another profiler"):
            inner.__enter__()
        inner.__exit__()
    assert [e.name for e in p.function_events][:1] == ["aten::ones"] and not inner.function_events
    assert "aten::add" in str(p) and p.self_cpu_time_total > 0
    with autograd_profiler.profile(enabled=False) as off:
        assert off is None
    with pytest.raises(RuntimeError, match=r"Profiler didn't finish running"):
        autograd_profiler.profile().key_averages()


def test_marks_outside_of_a_profile_and_errors_inside():
    @record_function("named")
    def named():
        return torch.ones(2)

    named()
    with profile() as p:
        named()
        with pytest.raises(RuntimeError):
            torch.ones(2) @ torch.ones(3)
        torch.ones(1)
    names = [e.name for e in p.events() if e.cpu_parent is None]
    assert names == ["named", "aten::ones", "aten::ones", "aten::matmul", "aten::ones"]
    before = len(p.events())
    torch.ones(2)
    assert len(p.events()) == before

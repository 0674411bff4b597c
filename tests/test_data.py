"""Loaders with worker processes, shared memory, and `torch.multiprocessing`. Numbers are PyTorch 2.13's."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import torchlike as torch
import torchlike.multiprocessing as mp
from torchlike.utils import data
from torchlike.utils.data._utils.channel import Channel

WAYS = ["fork", "spawn", "forkserver"]


class Numbers(data.Dataset):
    """What a function makes of an index."""

    def __init__(self, n=6, make=None):
        self.n = n
        self.make = make

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i if self.make is None else self.make(i)


class Stream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        return iter(range(5) if info is None else range(info.id, 5, info.num_workers))


def loader(dataset, **options):
    return data.DataLoader(
        dataset, **{"num_workers": 2, "multiprocessing_context": "fork"} | options
    )


def row(i):
    return torch.full((3,), float(i)), str(i)


@pytest.mark.parametrize("way", WAYS)
def test_batches_of_workers(way):
    got = list(loader(Numbers(5, row), batch_size=2, multiprocessing_context=way))
    assert [x.tolist() for x, _ in got] == [
        [[0.0] * 3, [1.0] * 3],
        [[2.0] * 3, [3.0] * 3],
        [[4.0] * 3],
    ]
    assert [names for _, names in got] == [("0", "1"), ("2", "3"), ("4",)]
    assert all(x.is_shared() for x, _ in got)


def test_large_batches_are_stacked_where_the_main_process_maps_them():
    got = list(loader(Numbers(4, lambda i: torch.full((100, 100), i)), batch_size=2))
    assert [x.sum().item() for x in got] == [10_000, 50_000]


def test_views_of_one_tensor_arrive_as_views_and_only_their_span_is_sent():
    whole = torch.arange(1_000_000)

    def views(i):
        part = whole[1000 + i : 1010 + i]
        return part, part[::2], torch.empty(0), torch.nn.Parameter(torch.ones(2))

    for i, (a, b, c, d) in enumerate(loader(Numbers(3, views), batch_size=None)):
        assert a.tolist() == list(range(1000 + i, 1010 + i)) and b.tolist() == a.tolist()[::2]
        b[0] = -1
        assert a[0] == -1 and c.shape == (0,) and type(d) is torch.nn.Parameter
        assert a.untyped_storage().nbytes() < 4096


def drawn(i):
    info = data.get_worker_info()
    numbers = (random.random(), np.random.rand(), torch.rand(1).item())
    return (info.id, info.num_workers, info.seed, *numbers, torch.get_num_threads())


def test_seeds_of_workers():
    torch.manual_seed(0)
    assert list(loader(Numbers(2, drawn), batch_size=None)) == [
        [0, 2, 900450186894289455, 0.21315340548154382, 0.8371640508861415, 0.7821398973464966, 1],
        [1, 2, 900450186894289456, 0.7733861492043289, 0.6702704958690073, 0.6938178539276123, 1],
    ]
    assert torch.rand(1).item() == 0.08847743272781372
    assert data.get_worker_info() is None


def test_persistent_workers_draw_on():
    torch.manual_seed(1)
    passes = loader(
        Numbers(4, lambda i: torch.rand(1).item()), batch_size=None, persistent_workers=True
    )
    first, second = list(passes), list(passes)
    assert first == [0.5113104581832886, 0.3022708296775818, 0.2310420274734497, 0.8597546219825745]
    assert second == [
        0.6589738130569458,
        0.0776757001876831,
        0.7075021266937256,
        0.6678060293197632,
    ]
    assert torch.rand(1).item() == 0.40306925773620605
    assert iter(passes) is iter(passes)


def test_a_pass_that_was_given_up_leaves_nothing_behind():
    passes = loader(Numbers(20), batch_size=2, persistent_workers=True, prefetch_factor=3)
    for _ in range(3):
        assert next(iter(passes)).tolist() == [0, 1]
    assert [x.tolist() for x in passes] == [[i, i + 1] for i in range(0, 20, 2)]


def test_streams_are_split_by_the_workers():
    assert [x.tolist() for x in loader(Stream(), batch_size=2)] == [[0, 2], [1, 3], [4]]
    again = loader(Stream(), batch_size=2, persistent_workers=True)
    for _ in range(2):
        assert sorted(i for x in again for i in x.tolist()) == [0, 1, 2, 3, 4]


def test_answers_in_any_order():
    def slow(i):
        time.sleep(0.5 * (i == 0))
        return i

    got = list(loader(Numbers(6, slow), batch_size=None, in_order=False))
    assert sorted(got) == list(range(6)) and got[0] != 0
    assert list(loader(Numbers(6, slow), batch_size=None)) == list(range(6))


class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def test_exceptions_of_workers():
    def bad(i):
        raise KeyError("three") if i == 3 else Odd(1, 2)

    passes = iter(loader(Numbers(4, bad), batch_size=None))
    with pytest.raises(
        RuntimeError, match=r"^Caught Odd in DataLoader worker process 0\.\nOriginal"
    ):
        next(passes)
    for worker in (1, 0):
        with pytest.raises(RuntimeError, match=f"worker process {worker}"):
            next(passes)
    with pytest.raises(KeyError) as error:
        next(passes)
    assert str(error.value).startswith(
        "Caught KeyError in DataLoader worker process 1.\nOriginal Tr"
    )
    with pytest.raises(StopIteration):
        next(passes)

    def refused(i):
        raise RuntimeError("at the start")

    with pytest.raises(RuntimeError, match=r"at the start"):
        list(loader(Numbers(), worker_init_fn=refused))
    with pytest.raises(
        AttributeError, match=r"Caught AttributeError in DataLoader worker process 0"
    ):
        list(loader(Numbers(make=lambda i: lambda: i), batch_size=None))
    with pytest.raises(RuntimeError, match=r"Cowardly refusing to serialize non-leaf tensor"):
        list(loader(Numbers(make=lambda i: torch.ones(1, requires_grad=True) * 2), batch_size=None))


def shared_files():
    return set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()


def children():
    mine = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return set(mine.read_text().split())


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "is killed by signal: Killed. "),
        (
            lambda: os.kill(os.getpid(), signal.SIGUSR1),
            "is killed by signal: User defined signal 1. ",
        ),
        (lambda: os._exit(3), "exited unexpectedly with exit code 3. Details are lost due to"),
    ],
)
def test_a_worker_that_dies_is_an_error(end, why):
    before, files = children(), shared_files()

    def dies(i):
        if i == 3:
            end()
        return torch.ones(1000)

    passes = iter(loader(Numbers(40, dies), batch_size=1))
    with pytest.raises(
        RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpec"
    ) as e:
        for _ in passes:
            pass
    assert why in str(e.value.__cause__)
    assert not children() - before and shared_files() == files
    with pytest.raises(StopIteration):
        next(passes)


def test_workers_end_by_themselves_while_those_of_other_loaders_live():
    data = Numbers(8, lambda i: torch.ones(2))
    first, second = (loader(data, batch_size=1, persistent_workers=True) for _ in range(2))
    one, two = iter(first), iter(second)
    next(one), next(two)
    # Later workers were forked with copies of the ends of earlier ones.
    workers = [w.process for w in one._workers]
    one._shutdown_workers()
    assert [w.exitcode for w in workers] == [0] * len(workers)
    assert all(w.process.is_alive() for w in two._workers)
    assert len(list(two)) == 7


def test_a_fork_ends_no_workers_of_its_parent():
    passes = iter(loader(Numbers(40, lambda i: torch.ones(2)), batch_size=1))
    next(passes)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(AssertionError):
            passes._shutdown_workers()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(passes)) == 39


def test_a_worker_killed_from_outside():
    before = children()
    passes = iter(loader(Numbers(1000, lambda i: torch.ones(100_000)), batch_size=4))
    next(passes)
    os.kill(int((children() - before).pop()), signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"exited unexpectedly"):
        list(passes)
    assert not children() - before


def test_no_process_is_left():
    before = children()
    passes = iter(loader(Numbers(100), batch_size=1))
    next(passes)
    assert len(children() - before) == 2
    del passes
    assert not children() - before


def test_an_answer_that_is_late():
    with pytest.raises(RuntimeError, match=r"^DataLoader timed out after 0\.2 seconds$"):
        list(loader(Numbers(2, lambda i: time.sleep(1)), timeout=0.2))


def test_tasks_larger_than_the_way_holds():
    batches = [list(range(200_000)), list(range(5))]
    summed = loader(Numbers(200_000), batch_sampler=batches * 3, collate_fn=sum, prefetch_factor=4)
    assert list(summed) == [200_000 * 199_999 // 2, 10] * 3


def test_options_of_loaders():
    with pytest.raises(
        ValueError, match=r"start method in \['fork', 'spawn', 'forkserver'\], but got"
    ):
        loader(Numbers(), multiprocessing_context="nope")
    with pytest.raises(
        ValueError, match=r"^batch_size attribute should not be set after DataLoader"
    ):
        loader(Numbers()).batch_size = 3
    with pytest.raises(AssertionError, match=r"^prefetch_factor must be greater than 0"):
        iter(loader(Numbers(), prefetch_factor=0))
    with pytest.warns(UserWarning, match=r"no accelerator is found"):
        assert next(iter(data.DataLoader(Numbers(), pin_memory=True))).tolist() == [0]
    with pytest.warns(UserWarning, match=r"will create 5000 worker processes in total"):
        loader(Numbers(), num_workers=5000)
    assert (
        len(iter(loader(Numbers(7), batch_size=3))) == 3 and loader(Numbers()).prefetch_factor == 2
    )


def test_shared_memory():
    x = torch.arange(6.0)
    view = x[2:]
    assert x.share_memory_() is x and view.is_shared() and x.tolist() == [0, 1, 2, 3, 4, 5]
    view[0] = 9
    assert x[2] == 9
    fd, size = x.untyped_storage()._share_fd_cpu_()
    twin = torch.UntypedStorage._new_shared_fd_cpu(fd, size)._as_tensor().view(torch.float32)
    twin[0] = 7
    assert x[0] == 7 and twin.is_shared() and not x.clone().is_shared()
    with pytest.raises(RuntimeError, match=r"not resizable"):
        x.resize_(100)
    with pytest.raises(
        RuntimeError, match=r"a shared file of 24 bytes cannot be a storage of 25 bytes"
    ):
        torch.UntypedStorage._new_shared_fd_cpu(fd, 25)
    for wrong in (-1, 1_000_000):
        with pytest.raises((RuntimeError, OSError)):
            torch.UntypedStorage._new_shared_fd_cpu(wrong, 1)
    with pytest.raises(RuntimeError, match=r"^_share_fd_: only available on CPU$"):
        torch.empty(2, device="meta").share_memory_()
    array = np.ones(1000)
    lent = torch.from_numpy(array).share_memory_()
    lent[0] = 5
    assert array[0] == 1 and lent.is_shared()
    shown = torch.zeros(1000)
    seen = shown.numpy()
    shown.share_memory_()
    assert seen.sum() == 0
    model = torch.nn.Linear(2, 2)
    assert model.share_memory() is model and model.weight.is_shared()


def add_one(tensor, queue):
    tensor += 1
    queue.put((tensor, torch.nn.Parameter(tensor[1:])))
    queue.get()


@pytest.mark.parametrize("way", WAYS)
def test_tensors_between_processes(way):
    context = mp.get_context(way)
    x, queue = torch.zeros(3).share_memory_(), context.Queue()
    process = context.Process(target=add_one, args=(x, queue))
    process.start()
    whole, part = queue.get(timeout=60)
    whole *= 3
    assert x.tolist() == [3.0] * 3 and part.tolist() == [3.0] * 2 and part.requires_grad
    queue.put(None)
    process.join()
    assert process.exitcode == 0


def part_of_many(i, how, out):
    if how == "raise" and i == 1:
        raise ValueError("boom")
    if how == "exit" and i == 1:
        os._exit(7)
    out[i] = i + 10


def test_spawned_processes():
    out = torch.zeros(2)
    mp.start_processes(part_of_many, ("", out.share_memory_()), nprocs=2, start_method="fork")
    assert out.tolist() == [10, 11]
    with pytest.raises(
        mp.ProcessRaisedException, match=r"-- Process 1 terminated with the following"
    ):
        mp.spawn(part_of_many, ("raise", out), nprocs=2)
    with pytest.raises(mp.ProcessExitedException, match=r"^process 1 terminated with exit code 7$"):
        mp.spawn(part_of_many, ("exit", out), nprocs=2)


def test_names_of_sharing():
    assert mp.get_sharing_strategy() == "file_descriptor"
    for name in mp.get_all_sharing_strategies():
        mp.set_sharing_strategy(name)
        assert mp.get_sharing_strategy() == name
    mp.set_sharing_strategy("file_descriptor")
    with pytest.raises(AssertionError, match=r"^invalid sharing strategy 'x', expected one of"):
        mp.set_sharing_strategy("x")
    started = mp.start_processes(
        part_of_many, ("", torch.zeros(1)), join=False, start_method="fork"
    )
    assert isinstance(started, mp.SpawnContext) and isinstance(started, mp.ProcessContext)
    assert len(started.pids()) == 1 and started.join()


def test_collation():
    collate = data.default_collate
    assert collate([(1, "a"), (2, "b")])[1] == ("a", "b")
    assert data._utils.collate.collate(
        [{1}, {2}], collate_fn_map={set: lambda batch, *, collate_fn_map: set.union(*batch)}
    ) == {1, 2}
    with pytest.raises(
        RuntimeError, match=r"each element in list of batch should be of equal size"
    ):
        collate([[1], [1, 2]])
    stacked = data.StackDataset(x=range(4), y="abcd")
    assert stacked.__getitems__([3, 0]) == [{"x": 3, "y": "d"}, {"x": 0, "y": "a"}]


class Meeting:
    """Halts the reading of a message until another thread is within one, too."""

    both = threading.Barrier(2)

    def __reduce__(self):
        return _meet, ()


def _meet():
    Meeting.both.wait(10)


def test_messages_are_read_in_several_threads_at_once():
    found = {}

    def read(value):
        ours, theirs = Channel.pair()
        ours.send((Meeting(), torch.full((3,), value), Meeting()))
        found[value] = theirs.receive()[1].tolist()
        ours.close()
        theirs.close()

    threads = [threading.Thread(target=read, args=(value,)) for value in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == {1.0: [1.0] * 3, 2.0: [2.0] * 3}


def test_more_tensors_than_files_are_an_error_that_says_so():
    body = """
import resource, torchlike as torch
from torchlike.utils.data import DataLoader
kept, data = [], [torch.ones(2)] * 200
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    for batch in DataLoader(data, num_workers=1, multiprocessing_context="fork"):
        kept.append(batch)
except RuntimeError as error:
    assert "Too many open files" in str(error) and "set_sharing_strategy" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", body], check=True, timeout=60)


def facts(i):
    info = data.get_worker_info()
    with pytest.raises(RuntimeError, match="Cannot assign attributes to WorkerInfo objects"):
        info.id = 3
    return repr(info).partition("(")[0]


def test_workers_look_like_processes_and_their_facts_stay():
    batches = iter(loader(Numbers(4, facts)))
    workers = list(batches._workers)
    assert all(w.is_alive() and w.pid for w in workers)
    assert list(batches) == [["WorkerInfo"]] * 4
    for worker in workers:
        worker.join(10)
        assert worker.exitcode == 0


def test_what_one_process_and_streams_are_not_asked():
    with pytest.raises(AssertionError, match="requires timeout == 0"):
        iter(data.DataLoader(Numbers(2), timeout=1))
    with pytest.raises(TypeError, match="abstract"):
        data.IterableDataset()
    with pytest.raises(RuntimeError, match=r"handle them appropriately\.$"):
        data.default_collate([torch.eye(2).to_sparse()])


def test_a_distributed_sampler_asks_the_group():
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        torch.utils.data.DistributedSampler(range(4), num_replicas=2)


def test_others_may_say_which_worker_this_is(monkeypatch):
    from torchlike.utils.data._utils import worker

    info = worker.WorkerInfo(1, 2, 3, None)
    monkeypatch.setattr(worker, "_worker_info", info)
    assert data.get_worker_info() is info

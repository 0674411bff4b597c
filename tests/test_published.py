"""What published code asks of `torch`: its names, old and new ones, modules that are not there, and transformers."""

from __future__ import annotations

import importlib
import importlib.util
import io
import math
import pickle
import re
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torchlike as torch
from test_compat import installed
from torchlike.compat import _absent_modules

NAMES = Path(__file__).parent / "data/published_names.txt"
with_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)


def named_there() -> list[tuple[str, str]]:
    """Namespace and name of what published models use."""
    lines = NAMES.read_text().splitlines()[1:]
    return [(line.split(": ")[0], n) for line in lines for n in line.split(": ")[1].split()]


def there(path: str) -> bool:
    """Whether a path below `torch` leads to something."""
    found: object = torch
    parts = path.split(".")[1:]
    for i, part in enumerate(parts, 1):
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        own = "torchlike." + ".".join(parts[:i])
        if not hasattr(found, "__path__") or importlib.util.find_spec(own) is None:
            return False
        found = importlib.import_module(own)
    return True


def test_every_name_that_published_models_use_is_there() -> None:
    names = named_there()
    assert len(names) > 300
    assert not [f"{n}.{name}" for n, name in names if not there(f"{n}.{name}")]
    assert not there("torch.nothing_of_the_kind") and not there("torch.nn.Module.nothing")


def test_modules_that_are_not_there_say_so_when_they_are_used() -> None:
    assert len(_absent_modules.table()) > 100
    installed("""
        import importlib, types
        from torchlike.compat._absent_modules import table
        said = 0
        for module, (why, names) in table().items():
            made = importlib.import_module("torch." + module)
            assert made is importlib.import_module("torchlike." + module) and why in made.__doc__
            for name in names:
                value = getattr(made, name)
                if value.__class__ in (type, types.FunctionType) and why in (value.__doc__ or ""):
                    try:
                        value()
                    except NotImplementedError as e:
                        assert f".{name} is not supported by torchlike: {why}" in str(e), e
                        said += 1
                    else:
                        raise AssertionError(name)
        assert said > 500, said
        from torch.distributed.rpc import is_available
        assert is_available() is False
        try:
            import torch.distributed.nothing_of_the_kind
        except ImportError:
            pass
        else:
            raise AssertionError
    """)


def test_variables_are_tensors() -> None:
    data = torch.ones(2, requires_grad=True) * 2
    made = torch.autograd.Variable(data, requires_grad=True)
    assert made.is_leaf and made.requires_grad and made.data_ptr() == data.data_ptr()
    assert isinstance(data, torch.autograd.Variable) and not isinstance(3, torch.autograd.Variable)
    assert torch.autograd.Variable().numel() == 0
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got int"):
        torch.autograd.Variable(3)


def test_functions_in_place() -> None:
    class Double(torch.autograd.function.InplaceFunction):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            return grad * 2

    x = torch.ones(2, requires_grad=True)
    Double.apply(x.clone()).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2]


def cosines(n: int, *weights: float) -> list[float]:
    """A sum of cosines over one period of n steps."""
    return [
        sum(w * math.cos(2 * math.pi * k * i / n) for k, w in enumerate(weights)) for i in range(n)
    ]


def test_windows_of_a_period() -> None:
    for made, wanted in (
        (torch.hann_window(6), cosines(6, 0.5, -0.5)),
        (torch.hamming_window(6), cosines(6, 0.54, -0.46)),
        (torch.hamming_window(6, True, 0.5, 0.25), cosines(6, 0.5, -0.25)),
        (torch.blackman_window(6), cosines(6, 0.42, -0.5, 0.08)),
        (torch.bartlett_window(6), [0, 1 / 3, 2 / 3, 1, 2 / 3, 1 / 3]),
        (torch.bartlett_window(5, False), [0, 0.5, 1, 0.5, 0]),
        (torch.kaiser_window(6, True, 12.0), np.kaiser(7, 12.0)[:-1]),
        (torch.kaiser_window(6, False), np.kaiser(6, 12.0)),
    ):
        assert made.dtype == torch.float32
        assert torch.allclose(
            made.double(), torch.tensor(list(wanted), dtype=torch.float64), atol=1e-6
        )
    assert torch.hann_window(1).tolist() == [1] and torch.hann_window(0).shape == (0,)
    assert torch.kaiser_window(4, device="meta").shape == (4,)
    assert torch.hann_window(4, dtype=torch.float16, requires_grad=True).requires_grad
    with pytest.raises(
        RuntimeError, match="hann_window requires non-negative window_length, got window_length=-1"
    ):
        torch.hann_window(-1)
    with pytest.raises(
        RuntimeError, match=r"blackman_window expects floating point dtypes, got: .*dtype=long int"
    ):
        torch.blackman_window(4, dtype=torch.int64)
    with pytest.raises(TypeError, match="hamming_window"):
        torch.hamming_window(5, alpha=0.5)


def test_sizes_are_numbers() -> None:
    assert not isinstance(3, torch.SymInt | torch.SymFloat | torch.SymBool)
    assert (torch.sym_int(-3.7), torch.sym_float(3), torch.sym_not(True)) == (-3, 3.0, False)
    assert (torch.sym_max(3, 4.0), torch.sym_min(3, 4.0), torch.sym_sum([1, 2, 3])) == (4.0, 3.0, 6)
    assert isinstance(torch.sym_max(5, 4.0), float)
    assert torch.sym_ite(True, 1, 2) == 1 and torch.sym_sqrt(4) == 2
    with pytest.raises(NotImplementedError, match=r"torch\.sym_fresh_size"):
        torch.sym_fresh_size()
    with pytest.raises(AssertionError):
        torch.sym_ite(True, 1, 2.0)


def test_streams_of_the_host() -> None:
    stream = torch.Stream("cpu")
    event = stream.record_event(torch.Event("cpu", enable_timing=True))
    later = torch.Event("cpu", enable_timing=True)
    later.record(stream)
    stream.wait_event(event)
    stream.wait_stream(torch.Stream("cpu"))
    assert stream.query() and event.query() and stream == torch.Stream("cpu")
    assert event.elapsed_time(later) >= 0
    assert "device_type=cpu" in repr(stream) and "device_type=cpu" in repr(event)
    with pytest.raises(ValueError, match="enable_timing=True"):
        torch.Event("cpu").elapsed_time(later)
    with pytest.raises(RuntimeError, match="no streams"):
        torch.Stream("meta")
    assert issubclass(torch.cuda.Stream, torch.Stream) and issubclass(torch.cuda.Event, torch.Event)
    assert issubclass(torch.OutOfMemoryError, RuntimeError) and issubclass(
        torch.AcceleratorError, RuntimeError
    )
    assert torch.cuda.OutOfMemoryError is torch.OutOfMemoryError


def test_old_storages_and_types() -> None:
    made = torch.FloatStorage([1, 2])
    assert made.tolist() == [1, 2] and isinstance(made, torch.FloatStorage)
    assert not isinstance(made, torch.LongStorage) and isinstance(
        torch.ones(2).storage(), torch.FloatStorage
    )
    assert len(torch.LongStorage(3)) == 3 and torch.Storage is torch.FloatStorage
    for kind, dtype in (
        (torch.BFloat16Storage, torch.bfloat16),
        (torch.BoolStorage, torch.bool),
        (torch.CharStorage, torch.int8),
        (torch.ComplexDoubleStorage, torch.complex128),
        (torch.ComplexFloatStorage, torch.complex64),
        (torch.DoubleStorage, torch.float64),
        (torch.HalfStorage, torch.float16),
        (torch.IntStorage, torch.int32),
    ):
        assert kind(2).dtype == kind.dtype == dtype and isinstance(
            torch.zeros(2, dtype=dtype).storage(), kind
        )
    read = torch.ShortStorage._from_buffer(struct.pack("<3h", 1, 2, 3), "little")
    assert read.tolist() == [1, 2, 3]
    with pytest.raises(RuntimeError, match="Too many positional"):
        torch.ByteStorage(1, 2)
    assert torch.cuda.FloatTensor.is_cuda and not isinstance(torch.ones(2), torch.cuda.FloatTensor)
    if not torch.cuda.is_available():
        with pytest.raises((RuntimeError, AssertionError)):
            torch.cuda.FloatTensor(2)
    sparse = torch.sparse.FloatTensor(torch.tensor([[0], [1]]), torch.tensor([2.0]), (2, 2))
    assert sparse.to_dense().tolist() == [[0, 2], [0, 0]] and isinstance(
        sparse, torch.sparse.FloatTensor
    )


def test_small_names() -> None:
    assert torch._shape_as_tensor(torch.ones(2, 3)).tolist() == [2, 3]
    taken = torch.cond(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, (torch.ones(2),))
    assert taken.tolist() == [2, 2]
    assert torch._C._nn._parse_to("cpu", torch.float16) == (
        torch.device("cpu"),
        torch.float16,
        False,
        None,
    )
    assert not torch.mtia.is_available() and torch.mtia.device_count() == 0
    with pytest.raises(AssertionError, match="Torch not compiled with MTIA"):
        torch.mtia.synchronize()
    keys = torch.nn.modules.module._IncompatibleKeys(["a"], [])
    assert keys.missing_keys == ["a"]


def test_devices_that_are_not_there_have_names() -> None:
    device = torch.device("mps")
    assert device == torch.device("mps") != torch.device("cpu") and hash(device) == hash(
        torch.device("mps")
    )
    assert (device.type, device.index, str(device), repr(device)) == (
        "mps",
        None,
        "mps",
        "device(type='mps')",
    )
    assert torch.device("xpu", 1) == torch.device("xpu:1") and torch.device("xpu:1").index == 1
    assert pickle.loads(pickle.dumps(torch.device("xpu:1"))) == torch.device("xpu:1")
    assert torch.device(device) == device and torch.ones(2).device != device
    stream = io.BytesIO()
    torch.save({"where": device}, stream)
    stream.seek(0)
    assert torch.load(stream)["where"] == device
    for use in (
        lambda: torch.ones(2, device=device),
        lambda: torch.ones(2).to("mps"),
        lambda: torch.nn.Linear(2, 2).to(device),
        lambda: torch.set_default_device(device),
        device.__enter__,
    ):
        with pytest.raises(NotImplementedError, match="has no device of type 'mps'"):
            use()
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        torch.device("nothing")


@pytest.mark.parametrize(
    ("dims", "of_input", "of_weight"),
    [
        (1, "conv1d_input", "conv1d_weight"),
        (2, "conv2d_input", "conv2d_weight"),
        (3, "conv3d_input", "conv3d_weight"),
    ],
)
def test_gradients_of_convolutions_by_themselves(dims: int, of_input: str, of_weight: str) -> None:
    by_hand = torch.nn.grad
    size = [5] * dims
    x = torch.randn(2, 4, *size, requires_grad=True)
    w = torch.randn(6, 2, *[3] * dims, requires_grad=True)
    conv = getattr(torch.nn.functional, f"conv{dims}d")
    out = conv(x, w, None, 2, 1, 1, 2)
    grad = torch.randn_like(out)
    by_x, by_w = torch.autograd.grad(out, (x, w), grad)
    got_x = getattr(by_hand, of_input)(x.shape, w, grad, 2, 1, 1, 2)
    got_w = getattr(by_hand, of_weight)(x, w.shape, grad, 2, 1, 1, 2)
    assert torch.allclose(got_x, by_x) and torch.allclose(got_w, by_w, atol=1e-5)


def test_functions_are_pickled_as_pytorch_does() -> None:
    assert re.match(r"<built-in method ones of type object at 0x", repr(torch.ones))
    assert pickle.loads(pickle.dumps(torch.tanh)) is torch.tanh
    stream = io.BytesIO()
    torch.save({"f": torch.tanh, "m": torch.Tensor.add, "g": torch.nn.functional.gelu}, stream)
    assert b"_VariableFunctionsClass" in stream.getvalue()
    stream.seek(0)
    found = torch.load(stream, weights_only=False)
    assert found == {"f": torch.tanh, "m": torch.Tensor.add, "g": torch.nn.functional.gelu}
    stream.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="getattr"):
        torch.load(stream, weights_only=True)


def test_times_of_statements() -> None:
    benchmark = importlib.import_module("torchlike.utils.benchmark")
    made = benchmark.Timer(
        "x + 1", globals={"x": torch.ones(3)}, label="sum", sub_label="3", description="cpu"
    ).timeit(20)
    assert made.number_per_run == 20 and made.mean == made.median > 0 and made.iqr == 0
    assert made.title == "sum: 3" and "1 measurement" in repr(made)
    blocks = benchmark.Timer("torch.ones(2)").blocked_autorange(min_run_time=0.002)
    assert sum(blocks.raw_times) >= 0.002 and blocks.meets_confidence(1e9) == (
        len(blocks.times) > 2
    )
    assert benchmark.Timer().adaptive_autorange(max_run_time=0.01).median > 0
    four = benchmark.Measurement(
        10, [1.0, 2.0, 3.0, 2.5], benchmark.TaskSpec("x + 1", "pass", description="d")
    )
    assert (four.median, round(four.iqr, 9)) == (0.225, 0.0875) and "Median: 225.00 ms" in repr(
        four
    )
    table = benchmark.Compare([made, four])
    assert "sum" in str(table) and "Times are in" in str(table)
    assert benchmark.Measurement.merge([four, four])[0].times == four.times * 2
    assert benchmark.select_unit(3e-5) == ("us", 1e-6)
    with pytest.raises(NotImplementedError, match="collect_callgrind"):
        benchmark.Timer().collect_callgrind()


@with_transformers
def test_generation_with_every_cache_and_attention() -> None:
    installed("""
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
        config = LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, eos_token_id=None, pad_token_id=0)
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
        ids = torch.randint(3, 50, (2, 7))
        wanted = model.generate(ids, max_new_tokens=8, do_sample=False, use_cache=False)
        for cache in ("dynamic", "static"):
            made = model.generate(ids, max_new_tokens=8, do_sample=False, cache_implementation=cache)
            assert torch.equal(made, wanted), cache
        logits = model(ids).logits
        for kind in ("eager", "sdpa", "flex_attention"):
            model.set_attn_implementation(kind)
            assert torch.allclose(model(ids).logits, logits, atol=1e-5), kind
    """)


@with_transformers
def test_sharded_checkpoints_come_back(tmp_path: Path) -> None:
    installed(
        """
        import sys, torch
        from transformers import GPT2Config, GPT2LMHeadModel
        folder = sys.argv[1]
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32)).eval()
        ids = torch.randint(3, 50, (1, 5))
        model.save_pretrained(folder + "/shards", max_shard_size="10KB")
        model.config.save_pretrained(folder + "/bin")
        torch.save(model.state_dict(), folder + "/bin/pytorch_model.bin")
        for kind in ("shards", "bin"):
            again = GPT2LMHeadModel.from_pretrained(f"{folder}/{kind}").eval()
            assert torch.equal(again(ids).logits, model(ids).logits), kind
        """,
        str(tmp_path),
    )


def test_warnings_of_plain_handlers_name_their_place() -> None:
    class Plain(torch.Tensor):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def, override]
            return "plain"

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert torch.ones(2).as_subclass(Plain) + 1 == "plain"
    assert all("python_arg_parser.cpp" in str(w.message) for w in told)


def test_torchaudio_has_its_operators() -> None:
    from torchlike.compat import _torchaudio

    _torchaudio.register()
    ops = torch.ops.torchaudio
    x, a = torch.rand(2, 3, 9), torch.tensor([[0.2, -0.3, 1.0], [0.1, 0.4, 2.0], [0.0, 0.0, 1.0]])
    y = torch.zeros(2, 3, 11)
    ops._lfilter_core_loop(x, a, y)
    want = torch.zeros(2, 3, 11)
    for t in range(9):
        past = (want[:, :, t : t + 2] * a[:, :2]).sum(-1)
        want[:, :, t + 2] = (x[:, :, t] - past) / a[:, 2]
    torch.testing.assert_close(y, want)
    out = torch.zeros(2, 4)
    ops._overdrive_core_loop(
        torch.ones(2, 4), torch.ones(2, 4), torch.zeros(2), torch.zeros(2), out
    )
    torch.testing.assert_close(out[0, :2], torch.tensor([1.25, 0.5 + 0.75 * 0.995]))

    scores = torch.full((1, 5, 4), -9.0)
    for t, label in enumerate([1, 0, 1, 2, 0]):
        scores[0, t, label] = -0.1
    length = torch.tensor([5]), torch.tensor([3])
    path, _ = ops.forced_align(scores, torch.tensor([[1, 1, 2]]), *length, 0)
    assert path.tolist() == [[1, 0, 1, 2, 0]]
    with pytest.raises(RuntimeError, match="targets length is too long for CTC"):
        ops.forced_align(scores[:, :3], torch.tensor([[1, 1, 2]]), torch.tensor([3]), length[1], 0)


def test_the_loss_of_transducers_is_that_of_all_paths() -> None:
    from torchlike.compat import _torchaudio

    _torchaudio.register()
    torch.manual_seed(0)
    logits = torch.randn(1, 3, 3, 4, dtype=torch.float64, requires_grad=True)
    labels, sizes = torch.tensor([[1, 2]]), (torch.tensor([3]), torch.tensor([2]))
    costs, grads = torch.ops.torchaudio.rnnt_loss_forward(
        logits.detach(), labels, *sizes, 0, -1.0, True
    )
    log = logits.log_softmax(-1)[0]

    def paths(t: int, u: int) -> list[Any]:
        """The log probabilities of all ways from here to the end."""
        if t == 3:
            return [torch.zeros((), dtype=torch.float64)] if u == 2 else []
        moved = [log[t, u, labels[0, u]] + p for p in paths(t, u + 1)] if u < 2 else []
        return [log[t, u, 0] + p for p in paths(t + 1, u)] + moved

    want = -torch.logsumexp(torch.stack(paths(0, 0)), 0)
    want.backward()
    torch.testing.assert_close(costs[0], want.detach())
    torch.testing.assert_close(grads, logits.grad)
    small = torch.ops.torchaudio.rnnt_loss_forward(logits.detach(), labels, *sizes, 0, 0.01, True)[
        1
    ]
    assert small.abs().max() == 0.01

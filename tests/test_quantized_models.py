"""Models that are quantised: observed, trained with rounding, or with quantised weights alone."""

from __future__ import annotations

import importlib

import pytest

import torchlike as torch
from torchlike import nn

aq = torch.ao.quantization
pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.ao.quantization is deprecated", "ignore:Please use quant_min"
)


class Net(nn.Module):
    """Convolutions, a sum and linear layers between stubs."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = aq.QuantStub(), aq.DeQuantStub()
        self.conv, self.norm, self.relu = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
        )
        self.second, self.sum = nn.Conv2d(8, 8, 1), torch.ao.nn.quantized.FloatFunctional()
        self.pool, self.linear, self.last = nn.AdaptiveAvgPool2d(2), nn.Linear(32, 10), nn.ReLU()

    def forward(self, x):
        x = self.relu(self.norm(self.conv(self.quant(x))))
        x = self.sum.add(x, self.second(x))
        return self.dequant(self.last(self.linear(self.pool(x).flatten(1))))


PAIRS = [["conv", "norm", "relu"], ["linear", "last"]]


def images(seed=0):
    return torch.randn(4, 3, 10, 10, generator=torch.Generator().manual_seed(seed))


def observed():
    torch.manual_seed(0)
    net = Net().eval()
    model = aq.fuse_modules(net, PAIRS)
    model.qconfig = aq.get_default_qconfig("x86")
    prepared = aq.prepare(model)
    for seed in range(3):
        prepared(images(seed))
    return net, prepared


def test_a_model_that_is_observed_and_converted(tmp_path):
    net, prepared = observed()
    model = aq.convert(prepared)
    assert type(model.conv) is torch.ao.nn.intrinsic.quantized.ConvReLU2d
    assert type(model.linear) is torch.ao.nn.intrinsic.quantized.LinearReLU
    assert type(model.sum) is torch.ao.nn.quantized.QFunctional
    assert type(model.quant) is torch.ao.nn.quantized.Quantize
    made, want = model(images()), net(images())
    assert (made - want).abs().max() < 0.05 * want.abs().max()
    assert not any(hasattr(m, "qconfig") for m in model.modules())
    assert repr(model.conv).startswith(
        "QuantizedConvReLU2d(3, 8, kernel_size=(3, 3), stride=(1, 1), scale="
    )
    assert repr(model.linear).startswith(
        "QuantizedLinearReLU(in_features=32, out_features=10, scale="
    )
    keys = set(model.state_dict())
    assert {
        "conv.weight",
        "conv.scale",
        "linear._packed_params._packed_params",
        "sum.zero_point",
    } <= keys
    # Another model takes the state, from a file too.
    torch.save(model.state_dict(), tmp_path / "x.pt")
    other = aq.convert(observed()[1])
    other.conv.set_weight_bias(other.conv.weight(), torch.ones(8))
    assert not torch.equal(other(images()), made)
    other.load_state_dict(torch.load(tmp_path / "x.pt", weights_only=False))
    assert torch.equal(other(images()), made)
    net.qconfig = aq.default_qconfig
    whole = aq.quantize(net, lambda m: [m(images(i)) for i in range(3)], ())
    assert type(whole.conv) is torch.ao.nn.quantized.Conv2d


def test_a_model_that_is_trained_with_rounding():
    torch.manual_seed(0)
    net = Net().train()
    model = aq.fuse_modules_qat(net, PAIRS)
    assert type(model.conv) is torch.ao.nn.intrinsic.ConvBnReLU2d
    model.qconfig = aq.get_default_qat_qconfig("x86")
    prepared = aq.prepare_qat(model)
    assert type(prepared.conv) is torch.ao.nn.intrinsic.qat.ConvBnReLU2d
    assert type(prepared.second) is torch.ao.nn.qat.Conv2d
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = (prepared(images()) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    prepared.eval()
    model = aq.convert(prepared)
    assert type(model.conv) is torch.ao.nn.intrinsic.quantized.ConvReLU2d
    made, want = model(images()), prepared(images())
    assert (made - want).abs().max() < 0.1 * want.abs().max()
    back = prepared.conv.to_float()
    assert type(back) is torch.ao.nn.intrinsic.ConvReLU2d and back[0].bias is not None
    prepared.train()
    prepared.apply(torch.ao.nn.intrinsic.qat.freeze_bn_stats)
    assert not prepared.conv.bn.training and prepared.conv.freeze_bn
    with pytest.raises(AssertionError, match="training mode"):
        aq.prepare_qat(Net().eval())


class Words(nn.Module):
    """Recurrent layers and a linear one."""

    def __init__(self):
        super().__init__()
        self.words, self.lstm = nn.Embedding(10, 6), nn.LSTM(6, 5, 2, bidirectional=True)
        self.gru, self.linear = nn.GRU(10, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(self.gru(self.lstm(self.words(x))[0])[0])


@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
def test_a_model_whose_weights_are_quantised(dtype, tmp_path):
    torch.manual_seed(0)
    net, x = Words(), torch.arange(12).reshape(4, 3) % 10
    model = aq.quantize_dynamic(net, dtype=dtype)
    dynamic = torch.ao.nn.quantized.dynamic
    kinds = [type(m) for m in (model.lstm, model.gru, model.linear)]
    assert kinds == [dynamic.LSTM, dynamic.GRU, dynamic.Linear]
    made, want = model(x), net(x)
    assert (made - want).abs().max() < (0.05 if dtype == torch.qint8 else 1e-3)
    assert repr(model.lstm) == "DynamicQuantizedLSTM(6, 5, num_layers=2, bidirectional=True)"
    torch.save(model.state_dict(), tmp_path / "x.pt")
    other = aq.quantize_dynamic(Words(), dtype=dtype)
    other.load_state_dict(torch.load(tmp_path / "x.pt", weights_only=False), strict=False)
    other.words.load_state_dict(net.words.state_dict())
    assert torch.equal(other(x), made)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 3, 6), torch.tensor([4, 2, 1]))
    (got, _), (near, _) = model.lstm(packed), net.lstm(packed)
    assert (got.data - near.data).abs().max() < (0.05 if dtype == torch.qint8 else 1e-3)


def test_cells_and_embeddings():
    torch.manual_seed(0)
    for kind, state in [(nn.LSTMCell, 2), (nn.GRUCell, 1), (nn.RNNCell, 1)]:
        cell = nn.Sequential(kind(5, 4))
        made = aq.quantize_dynamic(cell)[0]
        hidden = [torch.randn(3, 4) for _ in range(state)]
        given = tuple(hidden) if state > 1 else hidden[0]
        x = torch.randn(3, 5)
        for got, want in zip(made(x, given), cell[0](x, given), strict=True):
            assert (got - want).abs().max() < 0.05
        made.load_state_dict(made.state_dict())
    bags = nn.Sequential(nn.EmbeddingBag(6, 4, mode="sum"), nn.Embedding(6, 4))
    made = aq.quantize_dynamic(bags, dtype=torch.quint8)
    x = torch.tensor([[1, 2], [5, 0]])
    assert (made[0](x) - bags[0](x)).abs().max() < 0.05 and (
        made[1](x) - bags[1](x)
    ).abs().max() < 0.02
    assert repr(made[1]).startswith("QuantizedEmbedding(num_embeddings=6, embedding_dim=4, dtype=")


def test_layers_by_themselves():
    nnq = torch.ao.nn.quantized
    q = torch.quantize_per_tensor(images(), 0.05, 60, torch.quint8)
    for layer in (
        nnq.ReLU6(),
        nnq.Hardswish(0.05, 3),
        nnq.ELU(0.05, 60),
        nnq.LeakyReLU(0.05, 60, 0.1),
        nnq.Sigmoid(1 / 256, 0),
        nnq.Softmax(1, 1 / 256, 0),
        nnq.PReLU(0.05, 60),
        nnq.Dropout(),
        nnq.BatchNorm2d(3),
        nnq.LayerNorm([10, 10], *(nn.Parameter(torch.ones(10, 10)) for _ in range(2)), 0.05, 60),
        nnq.GroupNorm(3, 3, nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3)), 0.05, 60),
        nnq.InstanceNorm2d(3, None, None, 0.05, 60),
        nnq.Conv2d(3, 4, 3),
        nnq.ConvTranspose2d(3, 4, 3, 2),
    ):
        layer.eval()
        made = layer(q)
        assert made.is_quantized and made.shape[:1] == (4,)
        layer.load_state_dict(layer.state_dict())
    mirrored = nnq.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")
    assert mirrored(q).shape == (4, 4, 10, 10)
    with pytest.raises(ValueError, match="Input shape must be"):
        nnq.Conv2d(3, 4, 3)(q[0])
    functional = nnq.functional
    weight = torch.quantize_per_tensor(torch.randn(4, 3, 3, 3), 0.05, 0, torch.qint8)
    assert functional.conv2d(q, weight, None, padding=1, scale=0.2).shape == (4, 4, 10, 10)
    assert functional.linear(
        q.flatten(1), torch.quantize_per_tensor(torch.ones(2, 300), 0.1, 0, torch.qint8)
    ).shape == (4, 2)
    for name in ("avg_pool2d", "max_pool2d"):
        assert getattr(functional, name)(q, 2).shape == (4, 3, 5, 5)
    with pytest.raises(ValueError, match="must be quantized"):
        functional.avg_pool2d(images(), 2)


def test_what_a_layer_cannot_be_made_of():
    nnq = torch.ao.nn.quantized
    for call, text in [
        (lambda: nnq.Linear.from_float(nn.Conv2d(1, 1, 1)), "only works for Linear"),
        (lambda: nnq.Linear.from_float(nn.Linear(1, 1)), "must have qconfig"),
        (lambda: nnq.Conv2d.from_float(nn.Linear(1, 1)), "only works for Conv2d"),
        (lambda: nnq.dynamic.LSTM.from_float(nn.Linear(1, 1)), "nn.LSTM and nn.GRU"),
        (lambda: torch.ao.nn.qat.Linear(1, 1), "qconfig must be provided"),
        (
            lambda: aq.fuse_modules(nn.Sequential(nn.ReLU(), nn.ReLU()), ["0", "1"]),
            "did not find fuser",
        ),
    ]:
        with pytest.raises(AssertionError, match=text):
            call()
    with pytest.raises(ValueError, match="Don't know how to quantize"):
        aq.quantize_dynamic(nn.Linear(1, 1), dtype=torch.qint32)


def test_old_names_are_the_modules_themselves():
    for old in (
        "nn.quantized.modules.conv",
        "nn.qat.modules",
        "nn.intrinsic.qat",
        "quantization.quantize",
    ):
        found = importlib.import_module(f"torchlike.{old}")
        assert found is importlib.import_module(f"torchlike.ao.{old}")
    assert torch.nn.quantized.dynamic.Linear is torch.ao.nn.quantized.dynamic.Linear
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("torchlike.nn.quantized.nothing")


def test_configurations():
    listed = aq.get_default_qconfig_propagation_list()
    assert nn.Linear in listed and nn.Sequential in listed
    assert aq.get_static_quant_module_class(nn.Conv2d) is torch.ao.nn.quantized.Conv2d
    assert aq.get_dynamic_quant_module_class(nn.LSTM) is torch.ao.nn.quantized.dynamic.LSTM
    assert aq.get_quantized_operator(nn.functional.elu) is torch.ops.quantized.elu
    assert aq.qconfig_equals(aq.get_default_qconfig(), aq.get_default_qconfig())
    assert not aq.qconfig_equals(aq.get_default_qconfig(), aq.default_qconfig)
    model = nn.Sequential(nn.Linear(2, 2), nn.ConvTranspose2d(1, 1, 1))
    aq.propagate_qconfig_(model, {"0": aq.default_qconfig})
    assert model[0].qconfig is aq.default_qconfig and model[1].qconfig is None
    with pytest.raises(AssertionError, match="ConvTranspose"):
        aq.propagate_qconfig_(nn.ConvTranspose2d(1, 1, 1), {"": aq.default_per_channel_qconfig})
    wrapped = nn.Sequential(nn.Linear(2, 2))
    wrapped[0].qconfig = aq.default_qconfig
    assert type(aq.add_quant_dequant(wrapped)[0]) is aq.QuantWrapper


class Held(nn.Module):
    """A quantised weight among the buffers."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x):
        return x @ self.weight.dequantize().t()


def test_plans_of_quantised_models():
    weight = torch.randn(3, 4)
    dynamic = aq.quantize_dynamic(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), {nn.Linear})
    models = [
        (dynamic, torch.zeros(2, 4)),
        (Held(torch.quantize_per_tensor(weight, 0.1, 3, torch.qint8)), torch.zeros(2, 4)),
    ]
    for model, x in models:
        plan = torch.plan(model, x)
        done = plan.verify()
        assert done.equal and not plan.unmeasured, (model, done, plan.unmeasured)
    plan = torch.plan(aq.convert(observed()[1]), images())
    # Which of them depends on the machine's instructions.
    steps = {plan.step(i).op for i in range(plan.steps)}
    assert steps & {"_quantized_windows", "_exact_convolution"} and not plan.unmeasured

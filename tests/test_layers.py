"""Layers: reprs, state dict keys, shapes and messages."""

import itertools
import math

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.nn import functional as F

REPRS = [
    (lambda: nn.Linear(2, 3, bias=False), "Linear(in_features=2, out_features=3, bias=False)"),
    (lambda: nn.Conv2d(4, 6, 3, 2, 1, groups=2, bias=False, padding_mode="circular"),
     "Conv2d(4, 6, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), groups=2, bias=False, "
     "padding_mode=circular)"),
    (lambda: nn.Conv1d(6, 15, 3, padding="valid"),
     "Conv1d(6, 15, kernel_size=(3,), stride=(1,), padding=valid)"),
    (lambda: nn.ConvTranspose2d(6, 15, 3, output_padding=0),
     "ConvTranspose2d(6, 15, kernel_size=(3, 3), stride=(1, 1))"),
    (lambda: nn.BatchNorm1d(3),
     "BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)"),
    (lambda: nn.LayerNorm(3), "LayerNorm((3,), eps=1e-05, elementwise_affine=True, bias=True)"),
    (lambda: nn.RMSNorm((2, 3)), "RMSNorm((2, 3), eps=None, elementwise_affine=True)"),
    (lambda: nn.GroupNorm(3, 18), "GroupNorm(3, 18, eps=1e-05, affine=True, bias=True)"),
    (lambda: nn.Embedding(4, 3, padding_idx=-1), "Embedding(4, 3, padding_idx=3)"),
    (lambda: nn.EmbeddingBag(4, 3), "EmbeddingBag(4, 3, mode='mean')"),
    (lambda: nn.Dropout(), "Dropout(p=0.5, inplace=False)"),
    (lambda: nn.ReLU(inplace=True), "ReLU(inplace=True)"),
    (lambda: nn.Hardswish(True), "Hardswish()"),
    (lambda: nn.LeakyReLU(), "LeakyReLU(negative_slope=0.01)"),
    (lambda: nn.GELU(), "GELU(approximate='none')"),
    (lambda: nn.Softmax(), "Softmax(dim=None)"),
    (lambda: nn.MaxPool2d(2),
     "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)"),
    (lambda: nn.AvgPool1d(2), "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))"),
    (lambda: nn.AdaptiveAvgPool2d((1, None)), "AdaptiveAvgPool2d(output_size=(1, None))"),
    (lambda: nn.ZeroPad2d(1), "ZeroPad2d((1, 1, 1, 1))"),
    (lambda: nn.ConstantPad1d(1, 2.0), "ConstantPad1d(padding=(1, 1), value=2.0)"),
    (lambda: nn.Upsample(scale_factor=2), "Upsample(scale_factor=2.0, mode='nearest')"),
    (lambda: nn.Flatten(), "Flatten(start_dim=1, end_dim=-1)"),
    (lambda: nn.LSTM(3, 4, 2, bidirectional=True), "LSTM(3, 4, num_layers=2, bidirectional=True)"),
    (lambda: nn.RNNCell(3, 4, nonlinearity="relu"), "RNNCell(3, 4, nonlinearity=relu)"),
    (lambda: nn.CrossEntropyLoss(), "CrossEntropyLoss()"),
    (lambda: nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh()]),
     "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n)"),
    (lambda: nn.Sequential(), "Sequential()"),
    (lambda: nn.ModuleList(), "ModuleList()"),
    (lambda: nn.MultiheadAttention(4, 2),
     "MultiheadAttention(\n  (out_proj): NonDynamicallyQuantizableLinear"
     "(in_features=4, out_features=4, bias=True)\n)"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "text"), REPRS, ids=[text.split("(")[0] for _, text in REPRS])
def test_repr(make, text):
    assert repr(make()) == text


ERRORS = [
    (lambda: nn.Conv2d(4, 5, 3, groups=3), ValueError, "in_channels must be divisible by groups"),
    (lambda: nn.Conv2d(4, 4, 3, 2, padding="same"), ValueError,
     "padding='same' is not supported for strided convolutions"),
    (lambda: nn.Dropout(1.5), ValueError,
     "dropout probability has to be between 0 and 1, but got 1.5"),
    (lambda: nn.GroupNorm(3, 4), ValueError,
     "num_channels (4) must be divisible by num_groups (3)"),
    (lambda: nn.Embedding(3, 4, padding_idx=5), AssertionError,
     "Padding_idx must be within num_embeddings"),
    (lambda: nn.LSTM(3, 4, num_layers=0), ValueError, "num_layers must be greater than zero"),
    (lambda: nn.RNN(3, 4, nonlinearity="foo"), ValueError,
     "Unknown nonlinearity 'foo'. Select from 'tanh' or 'relu'."),
    (lambda: nn.TransformerEncoderLayer(4, 2, activation="foo"), RuntimeError,
     "activation should be relu/gelu, not foo"),
    (lambda: nn.MultiheadAttention(8, 3), AssertionError,
     "embed_dim must be divisible by num_heads"),
    (lambda: nn.Unflatten(1, 3), TypeError,
     "unflattened_size must be a tuple of ints, but found type int"),
    (lambda: nn.BatchNorm1d(3)(torch.ones(2, 3, 4, 5)), ValueError,
     "expected 2D or 3D input (got 4D input)"),
    (lambda: nn.Sequential(3), TypeError, "int is not a Module subclass"),
    (lambda: nn.ModuleList([nn.ReLU()])[2], IndexError, "index 2 is out of range"),
    (lambda: nn.Identity()(1, 2), TypeError,
     "Identity.forward() takes 2 positional arguments but 3 were given"),
    (lambda: nn.LazyLinear(3).weight.shape, RuntimeError,
     "Can't access the shape of an uninitialized parameter or buffer. This error usually happens "
     "in `load_state_dict` when trying to load an uninitialized parameter into an initialized "
     "one. Call `forward` to initialize the parameters before accessing their attributes."),
]  # fmt: skip


@pytest.mark.parametrize(("act", "kind", "text"), ERRORS)
def test_messages(act, kind, text):
    with pytest.raises(kind) as caught:
        act()
    assert str(caught.value) == text


def test_keys():
    assert list(nn.BatchNorm2d(3).state_dict()) == [
        "weight", "bias", "running_mean", "running_var", "num_batches_tracked",
    ]  # fmt: skip
    assert list(nn.LSTM(3, 4, bidirectional=True, proj_size=2).state_dict()) == [
        "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0",
        "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
        "bias_hh_l0_reverse", "weight_hr_l0_reverse",
    ]  # fmt: skip
    assert list(nn.MultiheadAttention(4, 2, add_bias_kv=True, kdim=3).state_dict()) == [
        "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "bias_k", "bias_v",
        "out_proj.weight", "out_proj.bias",
    ]  # fmt: skip


def test_sequential_is_a_list():
    s = nn.Sequential(nn.ReLU(), nn.Tanh())
    s.append(nn.Sigmoid()).insert(0, nn.GELU())
    names = [type(m).__name__ for m in s]
    assert names == ["GELU", "ReLU", "Tanh", "Sigmoid"]
    del s[1]
    assert list(s._modules) == ["0", "1", "2"] and isinstance(s[-1], nn.Sigmoid)
    assert len(s[:2]) == 2 and len(s + s) == 6 and len(s * 2) == 6
    with pytest.raises(IndexError, match="index 5 is out of range"):
        s[5]


def test_dicts_and_parameter_containers():
    d = nn.ModuleDict({"a": nn.ReLU()})
    d["b"] = nn.Tanh()
    assert list(d) == ["a", "b"] and isinstance(d.pop("a"), nn.ReLU) and "a" not in d
    p = nn.ParameterList([torch.ones(2), nn.Parameter(torch.ones(3))])
    assert all(isinstance(v, nn.Parameter) for v in p) and len(p) == 2
    assert list(p.state_dict()) == ["0", "1"]
    q = nn.ParameterDict({"b": torch.ones(1), "a": torch.ones(1)})
    assert list(q) == ["a", "b"] and q.get("c", 3) == 3 and len(q | {"z": torch.ones(1)}) == 3


SHAPES = [
    (lambda: nn.Linear(4, 5, device="meta"), (3, 4), (3, 5)),
    (lambda: nn.Conv2d(3, 8, 3, padding=1, device="meta"), (2, 3, 9, 9), (2, 8, 9, 9)),
    (lambda: nn.BatchNorm2d(3, device="meta"), (2, 3, 4, 4), (2, 3, 4, 4)),
    (lambda: nn.LayerNorm(4, device="meta"), (2, 4), (2, 4)),
    (lambda: nn.MaxPool2d(2), (1, 3, 8, 8), (1, 3, 4, 4)),
    (lambda: nn.AdaptiveAvgPool2d(1), (1, 3, 8, 8), (1, 3, 1, 1)),
    (lambda: nn.TransformerEncoderLayer(8, 2, 16, device="meta"), (5, 3, 8), (5, 3, 8)),
    (lambda: nn.Sequential(nn.Linear(4, 2, device="meta"), nn.ReLU()), (3, 4), (3, 2)),
]


@pytest.mark.parametrize(("make", "given", "wanted"), SHAPES)
def test_shapes_on_meta(make, given, wanted):
    out = make()(torch.ones(given, device="meta"))
    assert tuple(out.shape) == wanted and out.is_meta


def test_lazy_layers_become_what_they_stand_for():
    m = nn.LazyLinear(3)
    assert repr(m.weight) == "<UninitializedParameter>"
    m(torch.ones(2, 5))
    assert type(m) is nn.Linear and tuple(m.weight.shape) == (3, 5)


def test_attention_weights_average_over_heads():
    m = nn.MultiheadAttention(4, 2, batch_first=True)
    out, weights = m(*[torch.ones(2, 5, 4)] * 3)
    assert tuple(out.shape) == (2, 5, 4) and tuple(weights.shape) == (2, 5, 5)
    assert m(*[torch.ones(2, 5, 4)] * 3, need_weights=False)[1] is None


def test_skip_init():
    m = nn.utils.skip_init(nn.Linear, 2, 3)
    assert not m.weight.is_meta and tuple(m.weight.shape) == (3, 2)
    with pytest.raises(RuntimeError, match="Module must support a 'device' arg"):
        nn.utils.skip_init(nn.ReLU)


def test_parameters_as_a_vector():
    m = nn.Linear(2, 1)
    v = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(v * 0 + 2, m.parameters())
    assert m.weight.tolist() == [[2.0, 2.0]] and m.bias.tolist() == [2.0]


def test_sequences_of_unequal_length():
    rnn = nn.utils.rnn
    packed = rnn.pack_sequence([torch.ones(1), torch.ones(3) * 2], enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [2, 1, 1]
    padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True)
    assert padded.tolist() == [[1.0, 0.0, 0.0], [2.0, 2.0, 2.0]] and lengths.tolist() == [1, 3]


def test_loader_batches():
    from torchlike.utils.data import DataLoader, TensorDataset, random_split

    data = TensorDataset(torch.arange(5), torch.ones(5))
    batches = [x.tolist() for x, _ in DataLoader(data, batch_size=2)]
    assert batches == [[0, 1], [2, 3], [4]] and len(DataLoader(data, 2, drop_last=True)) == 2
    assert sorted(i for part in random_split(data, [0.5, 0.5]) for i in part.indices) == [*range(5)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
@pytest.mark.parametrize("window", [(2, 2, 0, 1), (3, 2, 1, 1), (3, 1, 1, 2)])
def test_the_largest_of_a_window_is_the_first_of_its_equals(window, dtype):
    size, stride, padding, dilation = window
    torch.manual_seed(0)
    x = torch.randint(-2, 3, (2, 2, 9, 21)).to(dtype)
    if dtype.is_floating_point:
        x.view(-1)[::19] = math.nan
        x.view(-1)[7::11] = -0.0
        x[0, 0] = -math.inf
    made, at = F.max_pool2d(x, size, stride, padding, dilation, return_indices=True)
    for n, c, i, j in itertools.product(*map(range, made.shape)):
        rows = [i * stride - padding + k * dilation for k in range(size)]
        columns = [j * stride - padding + k * dilation for k in range(size)]
        seen = [(r, s) for r in rows if 0 <= r < 9 for s in columns if 0 <= s < 21]
        best, place = x[n, c][seen[0]].item(), seen[0]
        for r, s in seen:
            v = x[n, c, r, s].item()
            if v > best or v != v:
                best, place = v, (r, s)
        assert at[n, c, i, j].item() == place[0] * 21 + place[1]
        value = made[n, c, i, j].item()
        assert value == best or (value != value and best != best)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("statistics", [False, True])
def test_instance_norm_of_halves_takes_statistics_of_any_type(half, training, weights, statistics):
    x = torch.arange(48.0).mul(1.7).cos().reshape(2, 3, 8)

    def norm(x, weights, statistics):
        mean, var = torch.full((3,), 0.3, dtype=statistics), torch.full((3,), 1.7, dtype=statistics)
        w, b = torch.full((3,), 1.5, dtype=weights), torch.full((3,), 0.25, dtype=weights)
        return F.instance_norm(x, mean, var, w, b, use_input_stats=training), mean, var

    f32 = torch.float32
    got = norm(x.to(half), f32 if weights else half, f32 if statistics else half)
    for g, w in zip(got, norm(x, f32, f32), strict=True):
        assert torch.allclose(g.float(), w, atol=0.03)
    assert got[0].dtype == half

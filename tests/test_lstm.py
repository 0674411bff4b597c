"""Layers of an LSTM, which are one operator each on the host in single precision, beside the same made of steps."""

import copy

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.nn.utils import rnn

KINDS = [
    {},
    {"bidirectional": True},
    {"num_layers": 2, "batch_first": True},
    {"bias": False},
    {"num_layers": 2, "bidirectional": True},
]


def results(net, x, graph=False):
    y, (h, c) = net(x)
    loss = (y * torch.arange(y.numel(), dtype=y.dtype).view_as(y)).sum() / y.numel()
    loss = loss + (h * 1.5).sum() + (c * c).sum()
    grads = torch.autograd.grad(loss, [x, *net.parameters()], create_graph=graph)
    return [y, h, c, *grads]


def pair(kind, steps=4, batch=3):
    """A network in single precision and its copy in double, which is made of steps, with the same input."""
    torch.manual_seed(1)
    net = nn.LSTM(5, 7, **kind)
    x = torch.randn(steps, batch, 5)
    twin = copy.deepcopy(net).double()
    return (net, x.requires_grad_()), (twin, x.detach().double().requires_grad_())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_layers_are_what_their_steps_are(kind):
    single, double = pair(kind)
    for a, b in zip(results(*single), results(*double), strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("steps", [2, 5])
@pytest.mark.parametrize("batch", [1, 2, 8, 9, 16, 33, 70])
def test_any_number_of_examples(steps, batch):
    single, double = pair({}, steps, batch)
    for a, b in zip(results(*single), results(*double), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS[:2], ids=str)
def test_gradients_of_gradients(kind):
    def second(net, x):
        total = sum((t * t).sum() for t in results(net, x, graph=True)[3:])
        return torch.autograd.grad(total, [x, *net.parameters()])

    single, double = pair(kind)
    for a, b in zip(second(*single), second(*double), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


def test_states_are_passed_on():
    (net, x), _ = pair({})
    whole, (h, c) = net(x)
    first, state = net(x[:2])
    second, (later_h, later_c) = net(x[2:], state)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(later_h, h)
    torch.testing.assert_close(later_c, c)


def test_a_layer_is_one_node_of_pytorchs_name():
    (net, x), _ = pair({})
    y, (h, _) = net(x)
    assert type(y.grad_fn).__name__ == "MkldnnRnnLayerBackward0"
    assert type(h.grad_fn).__name__ == "StackBackward0"


def test_a_layer_that_kept_nothing_has_no_way_back():
    (net, x), _ = pair({})
    weights, state = [p.detach().requires_grad_() for p in net.parameters()], torch.zeros(3, 7)
    rest = (state, state, False, [], 2, 7, 1, True, False, False, False)
    out = torch.mkldnn_rnn_layer(x, *weights, *rest)[0]
    with pytest.raises(RuntimeError, match="kept nothing for its way back"):
        out.sum().backward()
    with pytest.raises(NotImplementedError, match="mode 1 is not that of an LSTM"):
        torch.mkldnn_rnn_layer(x, *weights, *rest[:4], 1, *rest[5:])
    with pytest.raises(RuntimeError, match="hx_ must be of shape"):
        torch.mkldnn_rnn_layer(x, *weights, state[:2], *rest[1:])


def test_recorded_networks_become_what_eager_ones_are():
    def made():
        torch.manual_seed(3)
        net = nn.LSTM(4, 6, num_layers=2, bidirectional=True)
        return net, net(torch.ones(3, 2, 4))[0]

    _, eager = made()
    with torch.meta_init():
        _, hollow = made()
    assert hollow.is_meta
    assert torch.equal(torch.materialize(hollow), eager)


def test_batched_networks_take_steps():
    (net, x), _ = pair({})
    examples = torch.stack([x.detach(), 2 * x.detach()])
    with torch.no_grad():
        mapped = torch.func.vmap(lambda x: net(x)[0])(examples)
        torch.testing.assert_close(mapped, torch.stack([net(e)[0] for e in examples]))


def test_lengths_of_packed_sequences_may_be_real_numbers():
    for lengths in ([2.0, 1.0], torch.tensor([2.0, 1.0])):
        packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(2, 2, 1), lengths)
        assert packed.batch_sizes.tolist() == [2, 1]


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("layers", [1, 2])
def test_last_states_are_stacked(kind, layers):
    net = kind(3, 4, layers, batch_first=True, dtype=torch.float64)
    for x in (torch.ones(2, 5, 3).double(), rnn.pack_sequence([torch.ones(1, 3).double()])):
        out, last = net(x)
        for state in last if kind is nn.LSTM else [last]:
            assert state.grad_fn.name() == "StackBackward0"
        if isinstance(out, rnn.PackedSequence):
            assert out.data.grad_fn.name() == "CatBackward0"
        else:
            turned = "TransposeBackward0" if kind is nn.LSTM else "TransposeBackward1"
            assert out.grad_fn.name() == turned


def test_outputs_without_examples_lie_as_others():
    assert nn.GRU(3, 4)(torch.ones(2, 0, 3))[0].stride() == (4, 4, 1)


def test_sequences_are_packed_and_padded_by_runs_of_steps():
    lengths = [5, 5, 3, 1]
    x = torch.arange(40.0).view(4, 5, 2)
    packed = rnn.pack_padded_sequence(x, lengths, batch_first=True)
    steps = [x[i, t] for t in range(5) for i in range(4) if t < lengths[i]]
    assert torch.equal(packed.data, torch.stack(steps))
    assert packed.batch_sizes.tolist() == [4, 3, 3, 2, 2]
    padded, sizes = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0)
    assert sizes.tolist() == lengths
    for row, whole, n in zip(padded, x, lengths, strict=True):
        assert torch.equal(row[:n], whole[:n]) and (row[n:] == -1).all()


def test_sequences_without_padding_are_copies():
    padded = torch.zeros(2, 3, 1, requires_grad=True)
    made = rnn.unpad_sequence(padded, torch.tensor([3, 1]), batch_first=True)
    assert [m.shape[0] for m in made] == [3, 1] and not made[0]._is_view()
    assert made[1].grad_fn.name() == "IndexBackward0"

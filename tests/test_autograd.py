"""The graph, the walk back, and what Python sees of both."""

from __future__ import annotations

import copy
import gc
import threading
import weakref

import pytest

import torchlike as torch
from derivatives import leaf


class Mark:
    """Something that lives as long as a node."""


def marked(t):
    mark = t.grad_fn.metadata["mark"] = Mark()
    return weakref.ref(mark)


class TestBackward:
    def test_gradients_are_gathered(self):
        x = leaf(1.0, 2.0, 3.0)
        (x * x).sum().backward()
        assert x.grad.tolist() == [2, 4, 6]
        (x * 3).sum().backward()
        assert x.grad.tolist() == [5, 7, 9]

    def test_the_same_graph_twice(self):
        x = leaf(2.0)
        y = (x * x).sum()
        y.backward(retain_graph=True)
        y.backward()
        assert x.grad.tolist() == [8]
        with pytest.raises(
            RuntimeError, match="Trying to backward through the graph a second time"
        ):
            y.backward()

    def test_second_and_third_derivatives(self):
        x = leaf(2.0)
        y = x.pow(4).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        (third,) = torch.autograd.grad(second.sum(), x)
        assert (first.item(), second.item(), third.item()) == (32, 48, 48)

    def test_grad_of_several(self):
        x, y = leaf(2.0), leaf(3.0)
        with pytest.raises(RuntimeError, match="appears to not have been used"):
            torch.autograd.grad((x * 2).sum(), [x, y])
        assert torch.autograd.grad((x * 2).sum(), [x, y], allow_unused=True)[1] is None
        zeros = torch.autograd.grad((x * 2).sum(), [x, y], materialize_grads=True)[1]
        assert zeros.tolist() == [0]
        assert x.grad is None

    def test_only_some_inputs(self):
        x, y = leaf(2.0), leaf(3.0)
        (x * y).sum().backward(inputs=[x])
        assert x.grad.tolist() == [3]
        assert y.grad is None

    def test_broadcast_and_types(self):
        x = torch.ones(2, 3, requires_grad=True)
        y = torch.ones(3, dtype=torch.float64, requires_grad=True)
        (x * y).sum().backward()
        assert x.grad.dtype == torch.float32
        assert y.grad.tolist() == [2, 2, 2]

    def test_strides_of_gradients_follow_the_leaf(self):
        w = torch.ones(2, 3, requires_grad=True)
        (g,) = torch.autograd.grad(w.sum(), w)
        assert g.stride() == (0, 0)
        w.sum().backward()
        assert w.grad.stride() == (3, 1)
        t = torch.ones(3, 2).t().requires_grad_()
        t.sum().backward()
        assert t.grad.stride() == t.stride()
        one = torch.ones(1, 2, 1, requires_grad=True)
        one.sum((0, 2)).pow(2).sum().backward()
        assert one.grad.stride() == (2, 1, 1)

    def test_messages(self):
        with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
            torch.ones(1).backward()
        with pytest.raises(RuntimeError, match="implicitly created only for scalar outputs"):
            torch.ones(2, requires_grad=True).backward()
        x = leaf(-1.0)
        with pytest.raises(RuntimeError, match="derivative for aten::floor_divide"):
            torch.floor_divide(x, 2).backward()
        with pytest.raises(RuntimeError, match="arguments don't support automatic"):
            torch.mul(x, 2, out=torch.empty(1))

    def test_long_chains(self):
        def work():
            x = leaf(1.0)
            y = x
            for _ in range(100_000):
                y = y * 1.0
            y.backward()
            assert x.grad.item() == 1
            del y

        threading.stack_size(256 * 1024)
        try:
            t = threading.Thread(target=work)
            t.start()
            t.join()
        finally:
            threading.stack_size(0)

    def test_several_threads(self):
        x = torch.ones(8, requires_grad=True)
        y = (x * 2).exp().sum()
        found = []
        threads = [
            threading.Thread(
                target=lambda: found.append(
                    torch.autograd.grad(y, x, retain_graph=True)[0].sum().item()
                )
            )
            for _ in range(4)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(set(found)) == 1
        assert len(found) == 4

    def test_on_meta(self):
        model = torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
        ).to("meta")
        model(torch.ones(5, 3, device="meta")).sum().backward()
        assert [p.grad.shape for p in model.parameters()] == [p.shape for p in model.parameters()]
        assert all(p.grad.is_meta for p in model.parameters())


class TestGraph:
    def test_nodes(self):
        x = leaf(1.0, 2.0)
        y = x * 2
        z = y.exp()
        assert z.grad_fn is z.grad_fn
        assert z.grad_fn.name() == "ExpBackward0"
        ((before, nr),) = z.grad_fn.next_functions
        assert (before.name(), nr) == ("MulBackward0", 0)
        gather = before.next_functions[0][0]
        assert gather.name() == "torch::autograd::AccumulateGrad"
        assert gather.variable.tolist() == [1, 2]
        assert z.grad_fn._saved_result.tolist() == z.tolist()
        assert repr(z).endswith("grad_fn=<ExpBackward0>)")
        assert not z.is_leaf
        assert x.is_leaf

    def test_modes(self):
        x = leaf(1.0)
        with torch.no_grad():
            assert not (x * 2).requires_grad
        assert (x * 2).requires_grad
        assert not torch.inference_mode()(lambda: x * 2)().requires_grad
        assert torch.enable_grad()(lambda: x * 2)().requires_grad

    def test_flags_of_results(self):
        x = leaf(1.0)
        y = x * 2
        with pytest.raises(RuntimeError, match="only change requires_grad flags of leaf"):
            y.requires_grad = False
        with pytest.raises(RuntimeError, match="graph leaves"):
            copy.deepcopy(y)
        with pytest.raises(RuntimeError, match="detach"):
            y.numpy()
        assert not y.detach().requires_grad

    def test_graphs_are_freed(self):
        x = leaf(1.0)
        y = [x * 2]
        y[0].register_hook(lambda g, y=y: None)
        mark = marked(y[0])
        gc.collect()
        assert mark() is not None
        del y
        gc.collect()
        assert mark() is None


class TestWrites:
    def test_of_results(self):
        x = leaf(1.0, 2.0)
        y = x * 3
        y.mul_(2)
        assert y.grad_fn.name() == "MulBackward0"
        y.sum().backward()
        assert x.grad.tolist() == [6, 6]

    def test_of_leaves(self):
        x = leaf(1.0, 2.0)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            x.mul_(2)
        with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
            x[0].mul_(2)
        with torch.no_grad():
            x.mul_(2)
        assert x.tolist() == [2, 4]

    def test_through_views(self):
        x, w = torch.zeros(3), torch.tensor(2.0, requires_grad=True)
        y = x[0]
        y.add_(w)
        assert x.grad_fn.name() == "torch::autograd::CopySlices"
        assert y.grad_fn.name() == "AsStridedBackward0"
        (x.sum() * 3).backward()
        assert w.grad.item() == 3

    def test_of_what_views_see(self):
        x, w = torch.ones(3), torch.tensor(2.0, requires_grad=True)
        y = x[1:]
        x.mul_(w)
        assert y.requires_grad
        assert y.grad_fn.name() == "AsStridedBackward0"
        y.sum().backward()
        assert w.grad.item() == 2

    def test_of_what_is_made_of_views(self):
        x = torch.ones(1, 4, 2, 2, requires_grad=True)
        torch.relu_(torch.nn.functional.pixel_shuffle(x, 2)).sum().backward()
        assert x.grad.sum().item() == 16

    def test_by_brackets(self):
        x = torch.zeros(3)
        w = leaf(1.0, 2.0)
        x[1:] = w * 2
        x.sum().backward()
        assert w.grad.tolist() == [2, 2]

    def test_of_what_was_saved(self):
        x = leaf(1.0, 2.0)
        y = x.exp()
        y.add_(1)
        with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*output 0 of"):
            y.sum().backward()

    def test_history_goes_with_the_last_tensor(self):
        w = leaf(1.0)
        x = torch.zeros(3)
        x[0] = w[0]
        x.view(-1).exp_()
        mark = marked(x)
        gc.collect()
        assert mark() is not None
        del x
        gc.collect()
        assert mark() is None


class TestHooks:
    def test_of_tensors(self):
        x = leaf(1.0, 2.0)
        y = x * 2
        y.register_hook(lambda g: g * 10)
        handle = x.register_hook(lambda g: g + 1)
        y.sum().backward()
        assert x.grad.tolist() == [21, 21]
        handle.remove()
        (x * 1).sum().backward()
        assert x.grad.tolist() == [22, 22]

    def test_of_nodes(self):
        x = leaf(1.0)
        y = x * 2
        seen = []
        y.grad_fn.register_prehook(lambda grads: seen.append(("pre", grads[0].item())))
        y.grad_fn.register_hook(lambda into, out: seen.append((into[0].item(), out[0].item())))
        y.backward()
        assert seen == [("pre", 1.0), (2.0, 1.0)]

    def test_after_gathering(self):
        x = leaf(1.0)
        seen = []
        x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
        (x * 3).backward()
        assert seen == [3]

    def test_retained(self):
        x = leaf(1.0)
        y = x * 2
        y.retain_grad()
        (y * 5).backward()
        assert y.grad.item() == 5
        assert y.retains_grad

    def test_of_modules(self):
        model = torch.nn.Linear(2, 3)
        seen = []
        model.register_full_backward_hook(
            lambda m, into, out: seen.append((into[0].shape, out[0].shape))
        )
        x = torch.ones(4, 2, requires_grad=True)
        model(x).sum().backward()
        assert seen == [((4, 2), (4, 3))]

    def test_of_saved_tensors(self):
        kept = []

        def pack(t):
            kept.append(t)
            return len(kept) - 1

        x = leaf(2.0)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda i: kept[i]):
            y = x * x
        y.backward()
        assert len(kept) == 2
        assert x.grad.item() == 4

    def test_errors_pass_through(self):
        x = leaf(1.0)
        x.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            (x * 2).backward()


class TestGraphTools:
    def test_edges_stand_for_tensors(self):
        x = leaf(2.0)
        y = x * 3
        edge = torch.autograd.graph.get_gradient_edge(y)
        assert isinstance(edge, torch.autograd.graph.GradientEdge)
        assert isinstance(edge.node, torch.autograd.graph.Node)
        z = y * y
        assert torch.autograd.grad(z, edge)[0].tolist() == [12]
        with pytest.raises(RuntimeError, match="does not require gradients"):
            torch.autograd.graph.get_gradient_edge(torch.ones(1))

    @pytest.mark.parametrize("mode", ["all", "any"])
    def test_hooks_of_several(self, mode):
        x, y = leaf(2.0), leaf(3.0)
        seen = []
        handle = torch.autograd.graph.register_multi_grad_hook([x, y], seen.append, mode=mode)
        (x * y).backward()
        assert len(seen) == 1
        handle.remove()
        (x * y).backward()
        assert len(seen) == 1

    def test_versions_can_be_counted_by_hand(self):
        x = torch.ones(2)
        torch.autograd.graph.increment_version(x)
        assert x._version == 1
        x.data.add_(1)
        assert x._version == 1

    def test_saved_tensors_on_the_host(self):
        x = leaf(2.0)
        with torch.autograd.graph.save_on_cpu():
            y = x * x
        y.backward()
        assert x.grad.tolist() == [4]
        with (
            torch.autograd.graph.disable_saved_tensors_hooks("not here"),
            pytest.raises(RuntimeError, match="not here"),
            torch.autograd.graph.save_on_cpu(),
        ):
            pass

    def test_anomaly_is_switched(self):
        with torch.autograd.set_detect_anomaly(True):
            assert torch._C._anomaly() == (True, True)
        assert torch._C._anomaly() == (False, False)


def test_leaves_of_a_node_are_met_in_their_order():
    layer, met = torch.nn.LayerNorm(3), []
    for name, p in layer.named_parameters():
        p.register_hook(lambda grad, name=name: met.append(name))
    layer(torch.ones(1, 3, requires_grad=True) * 2).sum().backward()
    assert met == ["weight", "bias"]

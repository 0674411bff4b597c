"""Objects that change what a call reads while they are asked for a value: no crash, and no foreign memory."""

import gc

import numpy as np
import pytest

import samples
import torchlike as torch
from torchlike.utils._python_dispatch import TorchDispatchMode
from torchlike.utils._pytree import tree_leaves

CALM = (AttributeError, TypeError, RuntimeError, ValueError, IndexError, RecursionError)


@pytest.fixture(scope="module", autouse=True)
def what_was_there_is_left_alone():
    """Collecting looks at what these tests make, not at all that the tests before them left."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Evil:
    """Runs `act` whenever it is asked for its value."""

    def __init__(self, act, value=0):
        self.act, self.value = act, value

    def __index__(self):
        self.act()
        return self.value

    __int__ = __index__

    def __float__(self):
        self.act()
        return float(self.value)

    def __bool__(self):
        self.act()
        return bool(self.value)

    def __eq__(self, other):
        self.act()
        return NotImplemented

    __hash__ = object.__hash__

    def __len__(self):
        self.act()
        return 2


def wipe(items):
    items.clear()
    gc.collect()
    return [torch.full((16,), 7.0) for _ in range(64)]


def calm(function, *args, **kwargs):
    """Calls; an ordinary exception is as good as a result."""
    try:
        return function(*args, **kwargs)
    except CALM:
        return None


@pytest.mark.parametrize("function", [torch.cat, torch.stack])
def test_items_of_a_list_live_while_the_call_lasts(function):
    items = [torch.ones(2), torch.full((2,), 2.0)]
    made = calm(function, items, Evil(lambda: wipe(items)))
    assert made is None or made.flatten().tolist() == [1.0, 1.0, 2.0, 2.0]


CALLS = {
    "int": lambda x, e: torch.narrow(x, 0, 0, e),
    "dim": lambda x, e: torch.softmax(x, e),
    "ints": lambda x, e: x.permute(e),
    "int items": lambda x, e: x.reshape((2, e)),
    "var ints": lambda x, e: x.view(2, e),
    "optional ints": lambda x, e: torch.sum(x, (0, e)),
    "float": lambda x, e: torch.nn.functional.dropout(x, e),
    "scalar": lambda x, e: x.fill_(e),
    "operand": lambda x, e: torch.add(x, e),
    "operator": lambda x, e: x + e,
    "reflected": lambda x, e: e - x,
    "in place": lambda x, e: x.add_(e),
    "comparison": lambda x, e: x == e,
    "bool": lambda x, e: torch.sum(x, 0, e),
    "keyword": lambda x, e: torch.sum(x, dim=e),
    "out": lambda x, e: torch.narrow(x, 0, e, 1),
    "index": lambda x, e: x[e],
    "indices": lambda x, e: x[e, 0],
    "slice": lambda x, e: x[0:e],
    "list index": lambda x, e: x[[0, e]],
    "set index": lambda x, e: x.__setitem__(e, 1.0),
    "set value": lambda x, e: x.__setitem__(0, e),
    "contains": lambda x, e: e in x,
    "size": lambda x, e: x.size(e),
    "strides": lambda x, e: x.as_strided((2, e), (4, 1)),
    "set": lambda x, e: x.set_(x.untyped_storage(), 0, (2, e), (4, 1)),
    "resize": lambda x, e: x.resize_(2, e),
    "new": lambda x, e: x.new_zeros((2, e)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("value", [0, 1, 3, 1000])
@pytest.mark.parametrize("act", ["shrink", "set", "turn", "raise"])
def test_tensors_that_change_while_arguments_are_read(call, value, act):
    x = torch.arange(16.0).reshape(4, 4)

    def change():
        if act == "shrink":
            x.resize_(0)
        elif act == "set":
            x.set_(torch.empty(0))
        elif act == "turn":
            x.t_() if x.dim() == 2 else x.resize_(1)
        else:
            raise ValueError("mine")
        gc.collect()

    calm(call, x, Evil(change, value))
    assert torch.cat([torch.ones(64), torch.ones(64)]).sum().item() == 128.0


CHANGES = {
    "shrink": lambda x: x.resize_(0),
    "grow": lambda x: x.resize_(1000),
    "set": lambda x: x.set_(torch.zeros(7)),
    "data": lambda x: setattr(x, "data", torch.ones(2, 2, 2)),
    "turn": lambda x: x.t_(),
    "free": lambda x: x.untyped_storage().resize_(0),
}

WATCHED = {
    "sum": lambda x: x + x.t(),
    "product": lambda x: x @ x.t(),
    "in place": lambda x: x.add_(x),
    "view in place": lambda x: x.unsqueeze_(0),
    "out": lambda x: torch.add(x, 1, out=x),
    "list": lambda x: torch.cat([x, x]),
    "index": lambda x: x[x > 0],
    "set index": lambda x: x.__setitem__(0, x[1]),
    "tangent": lambda x: torch.func.jvp(lambda t: t * x, (x,), (x,)),
    "examples": lambda x: torch.func.vmap(lambda t: t * t.sum())(x),
    "gradient": lambda x: torch.func.grad(lambda t: (t * x).sum())(x),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
@pytest.mark.parametrize("call", WATCHED.values(), ids=WATCHED)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_tensors_that_change_while_a_mode_is_shown_the_call(call, change):
    class Changes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            for t in tree_leaves(args):
                calm(change, t)
            return func(*args, **(kwargs or {}))

    def watched(x):
        with Changes():
            return call(x)

    x = torch.arange(16.0).reshape(4, 4)
    calm(str, calm(watched, x))
    calm(str, x)
    assert torch.cat([torch.ones(64), torch.ones(64)]).sum().item() == 128.0


def test_a_claimed_length_costs_no_memory():
    class Claims:
        def __len__(self):
            return 1 << 62

        def __getitem__(self, i):
            return 1.0

    for function in (torch.tensor, torch.as_tensor):
        with pytest.raises(ValueError, match="too many to read"):
            function(Claims())


def test_iterators_and_lists_that_lie():
    class Lies(list):
        def __len__(self):
            return 100

        def __iter__(self):
            return iter([])

        def __getitem__(self, i):
            raise KeyError(i)

    assert torch.cat(Lies([torch.ones(1), torch.ones(1)])).tolist() == [1.0, 1.0]
    assert torch.zeros(Lies([2, 3])).shape == (2, 3)


def test_keywords_are_compared_before_tensors_are_read():
    x = torch.ones(4)

    class Name(str):
        __slots__ = ()

        def __eq__(self, other):
            x.resize_(0)
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    calm(lambda: torch.sum(x, **{Name("dim"): 0}))


def test_overrides_that_call_themselves_end():
    class Endless:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with pytest.raises(RecursionError):
        torch.add(Endless(), 1)


def test_dimensions_and_counts_are_integers_but_sizes_are_asked():
    x = torch.ones(2, 3)
    index = Evil(lambda: None, 1)
    for call in (
        lambda: torch.chunk(x, index),
        lambda: x.unsqueeze(index),
        lambda: x.sum(index),
        lambda: x.transpose(0, index),
        lambda: torch.roll(x, index),
        lambda: torch.cat([x, x], index),
        lambda: torch.softmax(x, index),
    ):
        with pytest.raises(TypeError):
            call()
    assert (
        x.select(0, index).shape == (3,)
        and torch.zeros(index).shape == (1,)
        and x.narrow(0, 0, index).shape == (1, 3)
    )
    assert torch.roll(x, [index], [0]).shape == x.shape and x.topk(index)[0].shape == (2, 1)
    assert x.unsqueeze(np.int64(1)).shape == (2, 1, 3) and x.unsqueeze(torch.tensor(1)).shape == (
        2,
        1,
        3,
    )


def test_memory_that_others_see_stays_where_it_is():
    for show in (lambda t: t.numpy(), lambda t: t.__dlpack__()):
        x = torch.ones(3)
        seen = show(x)
        assert not x.untyped_storage().resizable()
        with pytest.raises(RuntimeError, match="storage that is not resizable"):
            x.resize_(1000000)
        del seen
    assert torch.ones(3).untyped_storage().resizable()


def test_gradients_of_sizes_that_no_memory_holds_are_refused_or_empty():
    aten, far, nothing = torch.ops.aten, 10**12, torch.empty(0)
    by_input = [True, False, False]
    rows = aten.embedding_dense_backward(torch.empty(1, 0), torch.tensor([1]), far, -1, True)
    assert rows.shape == (far, 0)
    x = torch.empty(0, far)
    args = (x, x, [far], nothing, nothing, None, None, by_input)
    assert aten.native_layer_norm_backward(*args)[0].shape == (0, far)
    x = torch.empty(0, far, 0)
    args = (x, x, nothing, nothing, None, 0, far, 0, 1, by_input)
    assert aten.native_group_norm_backward(*args)[0].shape == (0, far, 0)
    many, zero = torch.tensor([0]).expand(10 * far), torch.tensor([0])
    args = (torch.ones(1, 2), many, zero, zero[:0], zero, zero, 5, False, 0, False, None, -1)
    with pytest.raises((RuntimeError, MemoryError)):
        aten._embedding_bag_backward(*args)


ROWS_THAT_DO_NOT_FIT = """
_grad.cat_back f32[4], [0, 2], 0
_grad.many f32[()], []
_grad.repeat_back f32[4], [1, 1], [1, 1]
_grad.mm_left f32[()], [], [], f32[()], 1
_grad.mm_right f32[()], [], [], f32[()], 1
_grad.nll_loss_of_many f32[4], f32[4], i64[4], None, 1, -100, f32[()]
_grad.channel_shuffle_back f32[5, 5], 0
_grad.qr f32[4], f32[4], f32[4], f32[4], 'reduced'
_grad.svd f32[()], f32[()], f32[()], f32[()], f32[()], f32[()], False
_grad.learned_quantizer f32[4], f32[4], f32[4], f32[4], 1, 0, 255, 1.0
_grad.pinv f32[4], f32[4], f32[4]
_grad.matrix_exp f32[()], f32[()]
_grad.sparse_values f32[9], i64[9]
_nn.window_squares f32[9], 1
_nn.batch_norm_train f32[9], None, None, None, None, f32, 1e-5
_nn.batch_norm_eval f32[9], f32[9], f32[9], None, None, 1e-5
_nn.batch_norm_train f32[2, 3], f32[0], None, None, None, f32, 1e-5
_nn.batch_norm_eval f32[2, 3], f32[3], f32[3], None, f32[2], 1e-5
_lstsq f32[4], f32[4], None, 'gels'
_lstsq f32[4, 2], f32[3, 2], None, 'gels'
_entries_times i64[3], i64[3], f32[3], f32[3], 1
_entries_times i32[3], i64[3], f32[3], f32[3, 2], 1
_unpack_int4 u8[4]
unique_dim f32[()], 0
unique_dim_consecutive f32[()], 0
unique_dim f32[0, 3], 1
"""


@pytest.mark.parametrize("line", ROWS_THAT_DO_NOT_FIT.strip().splitlines())
def test_rows_by_hand_refuse_tensors_that_do_not_fit(line):
    row, _, text = line.partition(" ")
    (call,) = samples.calls(text)
    args, kwargs = samples.arguments(call, "cpu")
    with pytest.raises((RuntimeError, IndexError)) as refused:
        torch._C._call_row(row, False, tuple(args), kwargs)
    assert "internal error" not in str(refused.value)

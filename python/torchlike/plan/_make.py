"""Runs a step of a model on fake tensors and records it."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._parts import plain_parts
from torchlike._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torchlike._subclasses.meta_utils import Converter
from torchlike.nn._hooks import watched
from torchlike.overrides import TorchFunctionMode
from torchlike.plan._copy import fake_copy
from torchlike.plan._plan import ALLOCATORS, CLASSES, PHASES, Plan
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Twins(TorchFunctionMode):
    """While it is on, `copy.deepcopy` of tensors gives their twins."""

    def __init__(self, converter: Converter) -> None:
        self.converter = converter

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func == _C.Tensor.__deepcopy__:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = _parameter_as(tensor, self.converter.convert(tensor))
            return memo[id(tensor)]
        with _C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def _parameter_as(tensor: Any, made: Any) -> Any:
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made.detach(), tensor.requires_grad)
    return made


def twin(thing: Any) -> Any:
    """A tensor, a module or a tree of them on meta, as it is but for its elements: views, ties and flags stay.

    `torchlike.materialize(twin)` gives it the elements that the original has then.
    """
    converter = Converter()
    with _Twins(converter):
        return pytree.tree_map(
            lambda x: copy.deepcopy(x) if isinstance(x, (_C.Tensor, torch.nn.Module)) else x, thing
        )


class _Progress:
    """Tells a function which module begins to work, on the way to the recording."""

    def __init__(self, program: Any, progress: Callable[[str, int], None]) -> None:
        self.program = program
        self.progress = progress
        self.count = 0
        self.leave = program.leave

    def enter(self, module: Any) -> None:
        """A module begins to work."""
        self.program.enter(module)
        self.count += 1
        self.progress(self.program.module(), self.count)


class _Lines(TorchFunctionMode):
    """Tells a recording which line of the user's code calls, beside the module."""

    _only_notes = True

    def __init__(self, program: Any) -> None:
        self.program = program

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.program.scope(f"{self.program.module()}\0{_line()}")
        return func(*args, **(kwargs or {}))


_NOT_THE_USERS = (
    str(Path(__file__).resolve().parent.parent),
    str(Path(functools.__file__).parent) + "/",
)


def _line() -> str:
    """File and line of the innermost frame that is neither this library's nor Python's own."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def total(out: Any) -> Any:
    """A number that depends on all floating results: what is differentiated if no loss is given."""
    parts = [
        t.sum()
        for t in pytree.tree_leaves(out)
        if isinstance(t, _C.Tensor) and t.is_floating_point()
    ]
    if not parts:
        raise ValueError(
            "plan(step='train'): the model gives no floating point result, and no loss is given"
        )
    return sum(parts[1:], parts[0])


def optimizer_named(name: str) -> Any:
    """The class of optimizers of a name, in letters of any case.

    Raises:
        ValueError: if there is none, or it asks for values or sparse gradients.
    """
    # By name: modules of the package that nobody has used stay unread.
    names = {known.lower(): known for known in torch.optim.__all__ if not known.islower()}
    for known in ("optimizer", "lbfgs", "sparseadam"):
        names.pop(known)
    if name.lower() not in names:
        raise ValueError(f"unknown optimizer {name!r}: one of {', '.join(sorted(names))}")
    return getattr(torch.optim, names[name.lower()])


def make_optimizer(optimizer: Any, parameters: Any, model: Any) -> Any:
    """An optimizer for parameters, of a name, a class or function, or one like another optimizer.

    Args:
        parameters: those of a copy of `model`, in the same order.

    Raises:
        ValueError: for an unknown name, or an optimizer of parameters that the model has not.
    """
    if isinstance(optimizer, str):
        return optimizer_named(optimizer)(parameters)
    if isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer)
        taken = inspect.signature(kind).parameters
        options = {k: _own(v) for k, v in optimizer.defaults.items() if k in taken}
        return kind(_groups(optimizer, parameters, model), **options)
    return optimizer(parameters)


def _own(option: Any) -> Any:
    """An option of an optimizer; one that is a tensor as one of the mode that is on, with its value."""
    if not isinstance(option, _C.Tensor):
        return option
    with unset_fake_temporarily():
        value = option.item()
    return torch.tensor(value, dtype=option.dtype)


def _groups(optimizer: Any, parameters: Any, model: Any) -> list[Any]:
    """The groups of an optimizer, with the parameters of a copy in place of the model's.

    One of another model says its options alone: all parameters are a group, as they are if the copy has others.
    """
    parameters, own = list(parameters), list(model.parameters())
    copies = dict(zip(own, parameters, strict=True)) if len(own) == len(parameters) else {}
    groups = [
        {name: list(v) if name == "params" else _own(v) for name, v in group.items()}
        for group in optimizer.param_groups
    ]
    theirs = [p in copies for group in groups for p in group["params"]]
    if not any(theirs):
        return parameters
    if not all(theirs):
        raise ValueError("plan(optimizer=): the optimizer has parameters that the model has not")
    for group in groups:
        group.pop("param_names", None)
        group["params"] = [copies[p] for p in group["params"]]
    return groups


def run_step(
    model: Any,
    inputs: tuple[Any, ...],
    kwargs: dict[str, Any],
    loss: Callable[[Any], Any] | None,
    optimizer: Any,
    train: bool,
    phase: Callable[[int], None],
) -> Any:
    """One step of a model, told in phases."""
    phase(0)
    if not train:
        with torch.no_grad():
            return model(*inputs, **kwargs)
    out = model(*inputs, **kwargs)
    value = (loss or total)(out)
    del out
    phase(1)
    value.backward()
    if optimizer is not None:
        phase(2)
        optimizer.step()
    return value


def faked(model: Any, inputs: Any, kwargs: Any, device: Any) -> tuple[Any, Any, Any, Any, Any]:
    """A fake mode, a copy of a model and of what it is called with on fake tensors that claim a device, and the
    tensors that the model has besides its own."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    loose: list[Any] = []
    fake = fake_copy(model, mode, device, loose)
    made: dict[int, Any] = {}

    def there(x: Any) -> Any:
        if not isinstance(x, _C.Tensor):
            return x
        if id(x) not in made:  # models ask whether what they are given is the same
            made[id(x)] = mode.from_tensor(x).detach().to(device)
        return made[id(x)]

    args, named = pytree.tree_map(there, (_as_tuple(inputs), kwargs or {}))
    return mode, fake, args, named, loose


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Inside, nobody looks for cycles: when that happens to be is not to say how long tensors live."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@uncollected()
def make(
    model: Any,
    inputs: Any = (),
    *,
    kwargs: dict[str, Any] | None = None,
    step: str = "forward",
    optimizer: Any = None,
    loss: Callable[[Any], Any] | None = None,
    device: Any = None,
    allocator: str | None = None,
    lines: bool = False,
    progress: Callable[[str, int], None] | None = None,
    mesh: Any = None,
    parallel: Any = None,
) -> Plan:
    """What a step of a model needs: memory, FLOPs, by module and by operator. Nothing is computed, no memory taken.

    Args:
        model: a module, on any device; it is left as it is.
        inputs: a tensor or a tuple of what the model is called with; meta tensors are enough.
        kwargs: keyword arguments of that call.
        step: "forward" (without gradients) or "train" (forward, backward, and the optimizer's step if there is one).
        optimizer: a name as "adamw", an optimizer of the model (one of its class, with its groups, is made), or a
            function of the parameters.
        loss: what is differentiated, of the model's result; by default the sum of its floating tensors.
        device: where it is planned for, as "cuda": there need be no such device. By default where the model is;
            the CPU for one on meta.
        allocator: how bytes are counted: "torchlike-cpu", "torch-cuda" or "requested". By default as the device's
            allocator counts them.
        lines: note the line of the user's code for every step, which costs time.
        progress: called with the name of each module that runs, and how many did.
        mesh: sizes of a mesh of ranks by name, as `{"dp": 128, "tp": 8}`. The plan is that of one rank, whose
            inputs are `inputs`; what it sends is `Plan.comms`.
        parallel: how the model lies on the mesh: a function of model and mesh, or what is done along each dimension, as
            `{"tp": {"layers.*.q": "colwise"}, "dp": {"fsdp": ["layers.*"]}}`.

    Raises:
        ValueError: for another step, an unknown optimizer, or a mesh that does not fit.
    """
    if step not in ("forward", "train"):
        raise ValueError(f"plan(step=): expected 'forward' or 'train', got {step!r}")
    if allocator is not None and allocator not in ALLOCATORS:
        raise ValueError(f"no model of the allocator {allocator!r}: one of {', '.join(ALLOCATORS)}")
    first = next(iter(model.parameters()), None)
    if device is None:
        device = "cpu" if first is None or first.is_meta else first.device
    device = torch.device(device)
    mode, fake, args, named, loose = faked(model, inputs, kwargs, device)
    program = _C._Program()
    spread = None
    with _placed(mesh, device) as ranks, mode:
        if ranks is not None:
            from torchlike.plan import _mesh

            fake = _mesh.parallelize(fake, ranks, parallel)
            spread = _mesh.Spread(fake, ranks)
        program.start()
        try:
            _record(
                program,
                model,
                fake,
                loose,
                args,
                named,
                loss,
                optimizer,
                step == "train",
                lines,
                progress,
                spread,
            )
        finally:
            program.stop()
            if ranks is not None:
                _mesh.release(fake)
    question = {
        "model": model, "inputs": inputs, "kwargs": kwargs, "step": step, "optimizer": optimizer, "loss": loss,
        "device": device, "allocator": allocator, "lines": lines, "mesh": mesh, "parallel": parallel,
    }  # fmt: skip
    return Plan(program, question, spread.as_dict() if spread is not None else None)


def _placed(mesh: Any, device: Any) -> contextlib.AbstractContextManager[Any]:
    if mesh is None:
        return contextlib.nullcontext()
    from torchlike.plan import _mesh

    return _mesh.placed(mesh, device)


_INPUTS, _BUFFERS = CLASSES.index("inputs"), CLASSES.index("buffers")


def _label(program: Any, what: str, values: list[Any], kind: int) -> None:
    """Says what tensors are."""
    for i, t in enumerate(values):
        for part in plain_parts(t) if isinstance(t, _C.Tensor) else ():
            program.label(f"{what} {i}", part, kind)


def _record(
    program: Any, original: Any, model: Any, loose: list[Any], args: Any, kwargs: Any, loss: Any, optimizer: Any,
    train: bool, lines: bool, progress: Callable[[str, int], None] | None, spread: Any,
) -> None:  # fmt: skip
    parameters = program.label_model(model)
    _label(program, "attribute", loose, _BUFFERS)
    loose.clear()  # the model may put others in their place
    _label(program, "input", pytree.tree_leaves((args, kwargs)), _INPUTS)
    made = make_optimizer(optimizer, parameters, original) if optimizer is not None else None

    def phase(number: int) -> None:
        if spread is not None:
            spread.phase = PHASES[number][0]
        program.phase(PHASES[number][1])
        program.scope("")
        if number == 2:
            program.label_gradients(model)

    told = program if progress is None else _Progress(program, progress)
    watch = contextlib.nullcontext() if spread is None else spread.watch(program)
    with watched(told), watch, _Lines(program) if lines else contextlib.nullcontext():
        out = run_step(model, args, kwargs, loss, made, train, phase)
    program.label_gradients(model, made.state if made is not None else None)
    del out

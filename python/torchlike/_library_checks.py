"""`opcheck`: whether a custom operator does what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._ops import OpOverload, OpOverloadPacket, modes

if TYPE_CHECKING:
    from torchlike._ops.schema import Argument


class OpCheckError(Exception):
    """A check of an operator failed."""


ALL = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def opcheck(
    op: Any,
    args: Any,
    kwargs: Any = None,
    *,
    test_utils: Any = ALL,
    raise_exception: bool = True,
    **_: Any,
) -> dict[str, Any]:
    """Runs checks of an operator on sample arguments.

    Returns:
        for each check "SUCCESS", or the error.

    Raises:
        OpCheckError: at the first failure, unless `raise_exception` is false.
        ValueError: for what is no operator, and for other checks.
    """
    overload: OpOverload = getattr(op, "_opoverload", op)
    if isinstance(overload, OpOverloadPacket):
        overload = overload.default
    if not isinstance(overload, OpOverload):
        raise ValueError(
            "opcheck(op, ...): op must be instance of torch._ops.OpOverload, "
            f"e.g. torch.ops.aten.sin.default, got {type(op)}"
        )
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not set(names) <= set(_CHECKS):
        raise ValueError(
            f"opcheck(op, ..., test_utils={names}), expected test_utils to be subset of {tuple(_CHECKS)} "
            "but it was not"
        )
    results: dict[str, Any] = {}
    for name in names:
        try:
            _CHECKS[name](overload, tuple(args), dict(kwargs or {}))
            results[name] = "SUCCESS"
        except Exception as e:  # noqa: PERF203
            if raise_exception:
                raise OpCheckError(
                    f"opcheck(op, ...): {name} failed with {e} (scroll up for stack trace)"
                ) from e
            results[name] = e
    return results


def _copies(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def copy(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return type(x)(copy(v) for v in x)
        return x.detach().clone() if isinstance(x, _C.Tensor) else x

    return tuple(copy(a) for a in args), {k: copy(v) for k, v in kwargs.items()}


def _check_schema(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What the schema does not call mutable must not change, and results share only the memory it says."""
    mine, my_kwargs = _copies(args, kwargs)
    before = op.bind(*_copies(args, kwargs))
    after = op.bind(mine, my_kwargs)
    made = op(*mine, **my_kwargs)
    for argument in op._schema.arguments:
        changed = any(
            a.device.type != "meta" and not bool((a == b).all())
            for a, b in zip(
                modes.tensors([before[argument.name]]),
                modes.tensors([after[argument.name]]),
                strict=True,
            )
        )
        if changed and not (argument.alias_info and argument.alias_info.is_write):
            raise RuntimeError(
                f"Argument {argument.name} is not defined as mutable but was mutated"
            )
    _check_memory(op, after, made if len(op._schema.returns) > 1 else (made,))


def _check_memory(op: OpOverload, given: dict[str, Any], made: Any) -> None:
    results = [{_memory(t) for t in modes.tensors([r])} for r in made]
    for argument in op._schema.arguments:
        held = {_memory(t) for t in modes.tensors([given[argument.name]])}
        for result, declared in zip(results, op._schema.returns, strict=False):
            if held & result and not _may_share(argument, declared):
                raise RuntimeError(
                    f"Argument {argument.name} is not defined to alias output but was aliasing"
                )
    for j, second in enumerate(results):
        for i in range(j):
            if results[i] & second and not _may_share(op._schema.returns[i], op._schema.returns[j]):
                raise RuntimeError(f"Outputs {i} and {j} alias unexpectedly")


def _memory(t: Any) -> int:
    return int(t.untyped_storage()._cdata)


def _may_share(one: Argument, other: Argument) -> bool:
    """Whether the schema says that two values may lie in the same memory."""
    if one.alias_info is None or other.alias_info is None:
        return False
    mine, theirs = one.alias_info.before_set, other.alias_info.before_set
    return bool(mine & theirs) or "alias::*" in mine | theirs


def _check_autograd(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Results that want gradients must have them from a formula, not from what a kernel happens to call."""
    given = modes.tensors([args, kwargs])
    formulas = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
    told = op.definition is not None or any(key in op.kernels for key in formulas)
    if told or op.namespace == "aten" or not any(t.requires_grad for t in given):
        return
    made = modes.tensors([op(*args, **kwargs)])
    if any(t.requires_grad and not any(t is g for g in given) for t in made):
        raise AssertionError(
            f"{op.name()}: at least one output of this operator has requires_grad=True "
            "but the operator does not have an autograd kernel defined at an autograd "
            "key (e.g. DispatchKey::Autograd). This could mean that you have "
            "incorrectly registered an autograd kernel to a non-Autograd DispatchKey, "
            "which may lead to silently incorrect results. If your operator consists "
            "of regular PyTorch operations, consider not using an operator at all or "
            "registering your operator as CompositeImplicitAutograd. If you have "
            "an autograd.Function registered to a backend (CPU/CUDA/XPU) key, the correct "
            "location for it is the Autograd key."
        )


def _check_fake(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Fake results must look like those with data.

    Raises:
        MetadataMismatchError: if they look otherwise.
        AssertionError: if they are not as many.
    """
    from torchlike._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()

    def fake(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return type(x)(fake(v) for v in x)
        return mode.from_tensor(x.detach()) if isinstance(x, _C.Tensor) else x

    real_args, real_kwargs = _copies(args, kwargs)
    real = modes.tensors([op(*real_args, **real_kwargs)])
    fakes, fake_kwargs = fake(args), {k: fake(v) for k, v in kwargs.items()}
    with mode:
        made = modes.tensors([op(*fakes, **fake_kwargs)])
    head = f"When comparing the output of {op} on FakeTensor and concrete Tensors, found mismatch"
    if len(made) != len(real):
        raise AssertionError(f"{head} in number of returns {len(made)} != {len(real)}")
    for r, f in zip(real, made, strict=True):
        _check_looks(r, f, f"{head}ed tensor metadata: ")


def _check_looks(real: Any, fake: Any, head: str) -> None:
    from torchlike._subclasses.fake_tensor import MetadataMismatchError

    for what in ("shape", "dtype", "device"):
        one, other = getattr(real, what), getattr(fake, what)
        if one != other:
            raise MetadataMismatchError(
                f"{head}{what.capitalize()}s {one} and {other} are not equal!"
            )
    strides = zip(real.shape, real.stride(), fake.stride(), strict=True)
    apart = [i for i, (n, one, other) in enumerate(strides) if n > 1 and one != other]
    if real.numel() and apart:
        raise MetadataMismatchError(
            f"{head}Stride mismatch! Strides are {real.stride()} and {fake.stride()} (mismatched at {apart[0]})!"
        )


_CHECKS: dict[str, Any] = {
    "test_schema": _check_schema,
    "test_autograd_registration": _check_autograd,
    "test_faketensor": _check_fake,
    "test_aot_dispatch_static": _check_fake,
    "test_aot_dispatch_dynamic": _check_fake,
}

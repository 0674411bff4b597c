"""Styles: how a module's parameters are cut, and what its inputs and outputs are brought to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import nn
from torchlike.distributed.tensor._distribute import distribute_tensor, distributed, parameters_of
from torchlike.distributed.tensor._dtensor import DTensor, whole_of_piece
from torchlike.distributed.tensor.placement_types import (
    WHOLE,
    Placement,
    Replicate,
    Shard,
    shard,
)
from torchlike.nn.modules.linear import Linear
from torchlike.nn.modules.sparse import Embedding

if TYPE_CHECKING:
    from torchlike.distributed.device_mesh import DeviceMesh

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
]


# Every layer asks for the same ones.
_ROWS, _COLUMNS, _LAST = shard(0), shard(1), shard(-1)


class ParallelStyle(ABC):
    """How a module lies on a mesh. `src_data_rank` has the whole parameters."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module: ...

    def _distribute(
        self, module: nn.Module, name: str, old: Any, mesh: DeviceMesh, p: Placement
    ) -> None:
        """Makes a parameter one on the mesh."""
        made = distribute_tensor(old, mesh, (p,), src_data_rank=self.src_data_rank)
        own = nn.Parameter(made, old.requires_grad) if made is old else made._flagged()
        module.register_parameter(name, own)

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={v}" for n, v in self._shown().items())
        return f"{type(self).__name__}({shown})"

    def _shown(self) -> dict[str, Any]:
        return {}


def _one(layouts: Any) -> tuple[Any, ...] | None:
    return (layouts,) if isinstance(layouts, Placement) else layouts


def _counted(layouts: tuple[Placement, ...], ndim: int) -> tuple[Placement, ...]:
    """Placements whose dimensions are counted from the first."""
    return tuple(
        [shard(p.dim + ndim) if isinstance(p, Shard) and p.dim < 0 else p for p in layouts]
    )


def _brought(t: Any, mesh: DeviceMesh, lies: tuple[Placement, ...], wanted: Any) -> DTensor:
    """A tensor on the mesh, which lies as said, brought to where it is wanted."""
    if not isinstance(t, DTensor):
        t = whole_of_piece(t, mesh, lies)
    if wanted is not None and lies != wanted:
        t = t.redistribute(placements=wanted)
    return t


class _LinearStyle(ParallelStyle):
    input_layouts: tuple[Placement, ...]
    output_layouts: tuple[Placement, ...]
    desired_input_layouts: tuple[Placement, ...]
    use_local_output: bool

    def _take(self, module: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
        return _brought(inputs[0], mesh, self.input_layouts, self.desired_input_layouts)

    def _give(self, module: nn.Module, inputs: Any, outputs: Any, mesh: DeviceMesh) -> Any:
        wanted = _counted(self.output_layouts, outputs.ndim)
        if outputs._spec.placements != wanted:
            outputs = outputs.redistribute(placements=wanted)
        return outputs.to_local() if self.use_local_output else outputs

    def _cuts(self, module: nn.Module) -> dict[str, Placement]:
        """How each parameter is cut.

        Raises:
            NotImplementedError: for modules that are neither linear layers nor embeddings.
        """
        raise NotImplementedError

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        cuts = self._cuts(module)

        def partition(name: str, part: nn.Module, mesh: DeviceMesh) -> None:
            for parameter, p in parameters_of(part):
                self._distribute(part, parameter, p, mesh, cuts[parameter])

        before = partial(self._take, mesh=device_mesh)
        after = partial(self._give, mesh=device_mesh)
        return distributed(module, device_mesh, partition, before, after)

    def _shown(self) -> dict[str, Any]:
        return {
            "input_layouts": self.input_layouts,
            "output_layouts": self.output_layouts,
            "use_local_output": self.use_local_output,
        }


class ColwiseParallel(_LinearStyle):
    """Outputs of a linear layer, or columns of an embedding, are cut; the input is whole.

    Args:
        input_layouts: how the input lies; replicated by default.
        output_layouts: how the output is to lie; cut along the last dimension by default.
        use_local_output: whether the output is this rank's piece, or a `DTensor`.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = (input_layouts or WHOLE,)
        self.output_layouts = (output_layouts or _LAST,)
        self.desired_input_layouts = (WHOLE,)
        self.use_local_output = use_local_output

    def _cuts(self, module: nn.Module) -> dict[str, Placement]:
        if isinstance(module, Linear):
            return {"weight": _ROWS, "bias": _ROWS}
        if isinstance(module, Embedding):
            return {"weight": _COLUMNS}
        raise NotImplementedError(
            "ColwiseParallel currently only support nn.Linear and nn.Embedding!"
        )


class RowwiseParallel(_LinearStyle):
    """Inputs of a linear layer, or rows of an embedding, are cut; the output is a sum over the ranks.

    Args:
        input_layouts: how the input lies; cut along the last dimension by default.
        output_layouts: how the output is to lie; replicated by default.
        use_local_output: whether the output is this rank's piece, or a `DTensor`.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = (input_layouts or _LAST,)
        self.output_layouts = (output_layouts or WHOLE,)
        self.use_local_output = use_local_output

    def _cuts(self, module: nn.Module) -> dict[str, Placement]:
        if isinstance(module, Linear):
            self.desired_input_layouts = (_LAST,)
            return {"weight": _COLUMNS, "bias": WHOLE}
        if isinstance(module, Embedding):
            self.desired_input_layouts = (WHOLE,)
            return {"weight": _ROWS}
        raise NotImplementedError(
            "RowwiseParallel currently only support nn.Linear and nn.Embedding!"
        )


class SequenceParallel(ParallelStyle):
    """Parameters are replicated, and inputs cut along the dimension of the sequence."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _take(self, module: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
        t = inputs[0]
        if isinstance(t, DTensor):
            if t.placements == self.sequence_sharding:
                return t
            return t.redistribute(placements=self.sequence_sharding)
        if isinstance(t, torch.Tensor):
            return whole_of_piece(t, mesh, self.sequence_sharding)
        raise ValueError(
            f"expecting input of {module} to be a torch.Tensor or DTensor, but got {t}"
        )

    def _give(self, module: nn.Module, inputs: Any, outputs: Any, mesh: DeviceMesh) -> Any:
        return outputs.to_local() if self.use_local_output else outputs

    @staticmethod
    def _whole(name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        for parameter, p in parameters_of(module):
            made = DTensor.from_local(p, mesh, [Replicate()], run_check=False)
            module.register_parameter(parameter, nn.Parameter(made.detach()))

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        before = partial(self._take, mesh=device_mesh)
        after = partial(self._give, mesh=device_mesh)
        return distributed(module, device_mesh, self._whole, before, after)

    def _shown(self) -> dict[str, Any]:
        return {
            "sequence_dim": self.sequence_sharding[0].dim,
            "use_local_output": self.use_local_output,
        }


class PrepareModuleInput(ParallelStyle):
    """Inputs of a module are made tensors on the mesh, and brought to where they are wanted; None leaves one as it is.

    Args:
        input_layouts: how the positional inputs lie.
        desired_input_layouts: where they are wanted.
        input_kwarg_layouts: how inputs by name lie.
        desired_input_kwarg_layouts: where those are wanted.
        use_local_output: whether the module gets this rank's pieces.
    """

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = _one(input_layouts)
        self.desired_input_layouts = _one(desired_input_layouts)
        self.use_local_output = use_local_output
        self.with_kwargs = input_kwarg_layouts is not None
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise AssertionError(
                    "input_layouts and desired_input_layouts should have same length!"
                )
        if self.with_kwargs and len(self.input_kwarg_layouts) != len(
            self.desired_input_kwarg_layouts
        ):
            raise AssertionError(
                "input_kwarg_layouts and desired_input_kwarg_layouts should have same length!"
            )

    def _prepare(self, t: Any, mesh: DeviceMesh, lies: Any, wanted: Any) -> Any:
        if lies is None:
            return t
        if not isinstance(t, torch.Tensor):
            raise AssertionError("expecting input to be a torch.Tensor!")
        made = _brought(t, mesh, (lies,), None if wanted is None else (wanted,))
        return made.to_local() if self.use_local_output else made

    def _inputs(self, inputs: Any, mesh: DeviceMesh) -> Any:
        if self.input_layouts is None:
            return inputs
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        if len(inputs) != len(self.input_layouts):
            raise ValueError("module inputs and input_layouts should have same length!")
        pairs = zip(inputs, self.input_layouts, self.desired_input_layouts or (), strict=True)
        return tuple(self._prepare(t, mesh, lies, wanted) for t, lies, wanted in pairs)

    def _named(self, module: nn.Module, inputs: Any, kwargs: Any, mesh: DeviceMesh) -> Any:
        made = {
            name: self._prepare(
                t,
                mesh,
                self.input_kwarg_layouts.get(name),
                self.desired_input_kwarg_layouts.get(name),
            )
            for name, t in kwargs.items()
        }
        return self._inputs(inputs, mesh), made

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if self.with_kwargs:
            hook = partial(self._named, mesh=device_mesh)
            module.register_forward_pre_hook(hook, with_kwargs=True)
        else:
            module.register_forward_pre_hook(lambda _, inputs: self._inputs(inputs, device_mesh))
        return module

    def _shown(self) -> dict[str, Any]:
        return {
            "input_layouts": self.input_layouts,
            "desired_input_layouts": self.desired_input_layouts,
            "input_kwarg_layouts": self.input_kwarg_layouts,
            "desired_input_kwarg_layouts": self.desired_input_kwarg_layouts,
            "use_local_output": self.use_local_output,
        }


class PrepareModuleOutput(ParallelStyle):
    """Outputs of a module are made tensors on the mesh, and brought to where they are wanted; None leaves one as it is.

    Args:
        output_layouts: how the outputs lie.
        desired_output_layouts: where they are wanted.
        use_local_output: whether they are this rank's pieces then.
    """

    def __init__(
        self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True
    ) -> None:
        self.output_layouts = _one(output_layouts) or ()
        self.desired_output_layouts = _one(desired_output_layouts) or ()
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError(
                "output_layouts and desired_output_layouts should have same length!"
            )

    def _give(self, outputs: Any, mesh: DeviceMesh) -> Any:
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(outputs) != len(self.output_layouts):
            raise ValueError("module outputs and output_layouts should have same length!")
        made = []
        pairs = zip(outputs, self.output_layouts, self.desired_output_layouts, strict=True)
        for t, lies, wanted in pairs:
            if lies is None:
                made.append(t)
                continue
            t = _brought(t, mesh, (lies,), None if wanted is None else (wanted,))
            made.append(t.to_local() if self.use_local_output else t)
        return made[0] if len(made) == 1 else tuple(made)

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        module.register_forward_hook(lambda _, inputs, outputs: self._give(outputs, device_mesh))
        return module

    def _shown(self) -> dict[str, Any]:
        return {
            "output_layouts": self.output_layouts,
            "desired_output_layouts": self.desired_output_layouts,
            "use_local_output": self.use_local_output,
        }


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` at once."""

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Any,
        desired_output_layouts: Any,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        self.prepare_module_input._apply(module, device_mesh)
        self.prepare_module_output._apply(module, device_mesh)
        return module

    def _shown(self) -> dict[str, Any]:
        given = self.prepare_module_input._shown()
        given["use_local_input"] = given.pop("use_local_output")
        return {**given, **self.prepare_module_output._shown()}

"""What the inputs and outputs of an exported graph are."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

__all__ = [
    "ConstantArgument",
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
    "TensorArgument",
]


@dataclass
class TensorArgument:
    """A tensor, by the name of its node."""

    name: str


@dataclass
class ConstantArgument:
    """A value that became part of the program."""

    name: str
    value: Any


@dataclass
class ModuleCallSignature:
    """How a module is called: the structures of its inputs and outputs."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None


class InputKind(Enum):
    """Where an input comes from."""

    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()


class OutputKind(Enum):
    """What becomes of an output."""

    USER_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    USER_INPUT_MUTATION = auto()


@dataclass
class InputSpec:
    """One input: what it is, and the path of the parameter, buffer or constant."""

    kind: InputKind
    arg: TensorArgument | ConstantArgument
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclass
class OutputSpec:
    """One output: what it is, and the path of the buffer that it becomes."""

    kind: OutputKind
    arg: TensorArgument | ConstantArgument
    target: str | None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclass
class ExportBackwardSignature:
    """The outputs of a graph with gradients that are those of parameters and inputs, and its loss."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclass
class ExportGraphSignature:
    """The inputs and outputs of a graph, in order."""

    input_specs: list[InputSpec] = field(default_factory=list)
    output_specs: list[OutputSpec] = field(default_factory=list)

    def _inputs(self, kind: InputKind) -> dict[str, str]:
        return {s.arg.name: s.target or "" for s in self.input_specs if s.kind is kind}

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        """Paths of parameters, by the names of their inputs."""
        return self._inputs(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        """Paths of buffers, by the names of their inputs."""
        return self._inputs(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> dict[str, str]:
        """Names of constants, by the names of their inputs."""
        return self._inputs(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> dict[str, str]:
        """Nothing: programs hold tensors alone."""
        return {}

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        """Nothing: programs hold tensors alone."""
        return ()

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        """None: graphs compute no gradients."""
        return None

    @property
    def assertion_dep_token(self) -> dict[int, str] | None:
        """None: graphs make no assertions."""
        return None

    @property
    def input_tokens(self) -> tuple[str, ...]:
        """Nothing: graphs have no calls whose order tokens keep."""
        return ()

    output_tokens = input_tokens

    @property
    def parameters(self) -> tuple[str, ...]:
        """Paths of parameters."""
        return tuple(self.inputs_to_parameters.values())

    @property
    def buffers(self) -> tuple[str, ...]:
        """Paths of buffers."""
        return tuple(self.inputs_to_buffers.values())

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """Paths of buffers that no state dictionary has."""
        kept = (s for s in self.input_specs if s.kind is InputKind.BUFFER and not s.persistent)
        return tuple(s.target or "" for s in kept)

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """Names of constants."""
        return tuple(self.inputs_to_lifted_tensor_constants.values())

    @staticmethod
    def _shown(arg: Any) -> Any:
        return arg.value if isinstance(arg, ConstantArgument) else arg.name

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """Names of the inputs that the caller gives, or their values where they are constant."""
        mine = (s for s in self.input_specs if s.kind is InputKind.USER_INPUT)
        return tuple(self._shown(s.arg) for s in mine)

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """Names of the outputs that the caller gets, or their values where they are constant."""
        mine = (s for s in self.output_specs if s.kind is OutputKind.USER_OUTPUT)
        return tuple(self._shown(s.arg) for s in mine)

    def _outputs(self, kind: OutputKind) -> dict[str, str]:
        return {s.arg.name: s.target or "" for s in self.output_specs if s.kind is kind}

    @property
    def buffers_to_mutate(self) -> dict[str, str]:
        """Paths of buffers that a call changes, by the outputs that are their new values."""
        return self._outputs(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> dict[str, str]:
        """Nothing: programs that write parameters are refused."""
        return {}

    def replace_all_uses(self, old: str, new: str) -> None:
        """Puts a new name of a node in the place of an old one."""
        if not isinstance(old, str) or not isinstance(new, str):
            raise AssertionError(f"expected the names of nodes, got {old!r} and {new!r}")
        args = [s.arg for s in self.input_specs] + [s.arg for s in self.output_specs]
        for arg in args:
            if isinstance(arg, TensorArgument) and arg.name == old:
                arg.name = new
        for out in self.output_specs:
            if out.kind is OutputKind.USER_INPUT_MUTATION and out.target == old:
                out.target = new

    def get_replace_hook(self, replace_inputs: bool = False) -> Any:
        """A hook for graphs: names stay those of the nodes that take the place of others.

        Args:
            replace_inputs: for inputs, too; for outputs alone otherwise.
        """

        def hook(old: Any, new: str, user: Any) -> None:
            if user.op == "output" or (replace_inputs and old.op == "placeholder"):
                self.replace_all_uses(old.name, new)

        return hook

    @property
    def user_inputs_to_mutate(self) -> dict[str, str]:
        """Inputs that a call changes, by the outputs that are their new values."""
        return self._outputs(OutputKind.USER_INPUT_MUTATION)

    def __str__(self) -> str:
        rows = ["", "# inputs", *map(str, self.input_specs), "", "# outputs"]
        return "\n".join([*rows, *map(str, self.output_specs), ""])

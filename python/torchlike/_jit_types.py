"""TorchScript's types, as annotations have them: that of tensors, and the names of the others."""

from __future__ import annotations

from torchlike import _absent


class TensorType:
    """Any tensor."""

    @classmethod
    def get(cls) -> TensorType:
        """The type."""
        return cls()

    def __repr__(self) -> str:
        return "Tensor"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType)

    def __hash__(self) -> int:
        return hash(TensorType)


class ScriptModule:
    """TorchScript's own objects, below those of `torch.jit.ScriptModule`: there are none here."""


NAMES = _absent.names(
    "torchlike",
    "types of TorchScript are text here",
    "AnyType AwaitType BoolType ClassType ComplexType DeviceObjType DictType EnumType FloatType FutureType IntType "
    "InterfaceType ListType NoneType NumberType OptionalType PyObjectType RRefType StreamObjType StringType "
    "SymBoolType SymIntType TupleType UnionType",
)

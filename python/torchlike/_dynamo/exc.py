"""What a compiler may complain of."""


class TorchDynamoException(RuntimeError):
    """The compiler failed."""


class InternalTorchDynamoError(TorchDynamoException):
    """The compiler failed by its own fault."""


class Unsupported(TorchDynamoException):
    """The compiler does not know something."""


class UserError(Unsupported):
    """The code to be compiled is wrong."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend failed."""


class RecompileError(TorchDynamoException):
    """Something was compiled once too often."""


class TorchRuntimeError(TorchDynamoException):
    """The code failed while it was compiled."""

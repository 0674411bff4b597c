"""The launcher of processes: there are no groups for them."""

from torchlike import _absent

globals().update(
    _absent.names(__name__, "nothing connects processes yet", "main launch parse_args")
)

if __name__ == "__main__":
    raise NotImplementedError(
        "torch.distributed.launch is not supported by torchlike: nothing connects processes yet"
    )

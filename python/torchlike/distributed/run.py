"""The launcher of processes: there are no groups for them."""

from torchlike import _absent

globals().update(
    _absent.names(__name__, "nothing connects processes yet", "main run get_args_parser parse_args")
)

if __name__ == "__main__":
    raise NotImplementedError(
        "torch.distributed.run is not supported by torchlike: nothing connects processes yet"
    )

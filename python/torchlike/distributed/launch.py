"""The launcher by its older name: the same as `torchlike.distributed.run`."""

from __future__ import annotations

from torchlike.distributed.run import main, parse_args

__all__ = ["launch", "main", "parse_args"]

launch = main

if __name__ == "__main__":
    main()

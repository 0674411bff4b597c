"""`python -m torchlike`: the command line, and programs for PyTorch: `python -m torchlike script.py ...`."""

import sys

from torchlike._cli import main

sys.exit(main())

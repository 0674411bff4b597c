"""Modules below `_C`: this package is where `import torchlike._C.x` looks."""

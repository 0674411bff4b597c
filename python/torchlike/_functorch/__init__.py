"""The parts behind PyTorch's package `functorch`, which is `package`: names of its functions are modules here."""

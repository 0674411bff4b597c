"""What PyTorch's own tests use, and programs have come to import."""

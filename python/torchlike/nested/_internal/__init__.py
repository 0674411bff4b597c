"""The class of jagged tensors and their sizes, under the names that PyTorch's files and programs use."""

"""The folder in every runtime beside PyTorch, and what a precision cost."""

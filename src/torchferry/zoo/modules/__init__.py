"""Small modules of plain PyTorch, of the kinds that people write themselves."""

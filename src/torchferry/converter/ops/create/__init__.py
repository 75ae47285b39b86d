"""Lowerings of what makes tensors of sizes, numbers and chance."""

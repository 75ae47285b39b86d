"""Lowerings of quantized tensors, packed and fake ones too."""

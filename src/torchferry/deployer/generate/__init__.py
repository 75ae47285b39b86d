"""Deployed models in Python: transformers' ``generate`` over sessions of onnxruntime."""

"""Fusions into operators that onnxruntime has kernels for."""

from __future__ import annotations

__all__: list[str] = []

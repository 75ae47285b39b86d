"""Inputs and notes of the field cases."""

from __future__ import annotations

import torch


def make_notes(expect="equal", *, says=(), atol=1e-4, options=None, kind=""):
    return {"expect": expect, "says": says, "atol": atol, "options": options or {}, "kind": kind}


def rand(*shape):
    return torch.randn(*shape)

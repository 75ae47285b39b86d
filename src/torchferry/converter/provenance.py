"""Where each ONNX node came from, in metadata that viewers read and in ours."""

from __future__ import annotations

import os
import re
from pathlib import Path

import onnx_ir as ir
import torch

__all__ = ["SOURCE_KEY", "stamp", "user_line"]

SOURCE_KEY = "pkg.torchferry.source_line"
_STACK_KEY = "pkg.torch.onnx.stack_trace"
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<where>\S+)')
_TORCH = str(Path(torch.__file__).parent) + os.sep


def user_line(stack_trace: str | None) -> str | None:
    r"""``file:line`` of the innermost frame of a stack trace that is not torch's own.

    >>> user_line('File "/home/me/model.py", line 12, in forward\n    x = x + 1')
    '/home/me/model.py:12'
    """
    frames = [f for f in _FRAME.finditer(stack_trace or "") if not f["file"].startswith(_TORCH)]
    return f"{frames[-1]['file']}:{frames[-1]['line']}" if frames else None


def stamp(model: ir.Model) -> None:
    """Write the user's source line of every node that has a stack trace, in place."""
    for node in model.graph.all_nodes():
        line = user_line(node.metadata_props.get(_STACK_KEY))
        if line:
            node.metadata_props[SOURCE_KEY] = line

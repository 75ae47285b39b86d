"""torch.export on real models: strategies in order, every attempt kept, fixed dimensions named.

Read `capture` (the strategies in order) and `tracing` (one trace), then the folders: `patching`
and `patches` (library code that a trace cannot follow), `rewrite` (the user's control flow),
`state` (what is kept from call to call), `trial` (where a program is right), `depth` (identical
layers).
"""

from torchferry.capturer.capture import capture
from torchferry.capturer.fixed import Fixed, find_fixed
from torchferry.capturer.patching.huggingface import accept_aliases
from torchferry.capturer.patching.patch import Patch
from torchferry.capturer.patching.patching import (
    PatchRow,
    bypass_export_some_errors,
    patch_rows,
    torch_export_patches,
)
from torchferry.capturer.result import Attempt, Captured
from torchferry.capturer.rewrite.rewrite import rewritten
from torchferry.capturer.shapes import export_arguments
from torchferry.capturer.state.state import Change

__all__ = [
    "Attempt",
    "Captured",
    "Change",
    "Fixed",
    "Patch",
    "PatchRow",
    "accept_aliases",
    "bypass_export_some_errors",
    "capture",
    "export_arguments",
    "find_fixed",
    "patch_rows",
    "rewritten",
    "torch_export_patches",
]

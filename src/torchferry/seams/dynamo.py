"""What only the torch.compile backend needs of torch; importing it says when that is gone."""

from __future__ import annotations

from typing import Any

from torchferry.seams.table import reach

__all__ = [
    "OutputType", "TorchDynamoException", "aot_autograd", "is_preservable", "is_wrapper_subclass",
    "keep_composites",
]  # fmt: skip

aot_autograd: Any = reach("torch._dynamo.backends.common.aot_autograd")
is_preservable: Any = reach("torch._export.utils._is_preservable_cia_op")
OutputType: Any = reach("torch._functorch._aot_autograd.schemas.OutputType")
TorchDynamoException: Any = reach("torch._dynamo.exc.TorchDynamoException")
keep_composites: Any = reach("torch.export.exported_program._override_composite_implicit_decomp")
is_wrapper_subclass: Any = reach("torch.utils._python_dispatch.is_traceable_wrapper_subclass")

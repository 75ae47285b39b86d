"""torch's private names: types, attributes of objects, and small functions behind which they are.

What each is for and what happens without it stands in `torchferry.seams.table`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from torchferry.seams.table import lacking, probe, reach

if TYPE_CHECKING:
    from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode
else:
    HigherOrderOperator = reach("torch._ops.HigherOrderOperator")
    OpOverload = reach("torch._ops.OpOverload")
    OpOverloadPacket = reach("torch._ops.OpOverloadPacket")
    FakeTensor = reach("torch._subclasses.fake_tensor.FakeTensor")
    FakeTensorMode = reach("torch._subclasses.fake_tensor.FakeTensorMode")
    TorchDispatchMode = reach("torch.utils._python_dispatch.TorchDispatchMode")
    pytree = reach("torch.utils._pytree")

__all__ = [
    "BATCH_NORMS",
    "CHECKS",
    "DROPOUTS",
    "FORWARD",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "SpecViolationError",
    "TorchDispatchMode",
    "TracerWarning",
    "any_autocast",
    "buffers_of",
    "causal_mask_test",
    "decomposition_table",
    "dispatch_keys",
    "forget_dispatches",
    "from_dlpack",
    "guards_of",
    "has_hooks",
    "hooks_of",
    "is_boxed",
    "is_functorch_tensor",
    "is_inside_functorch",
    "is_static_input",
    "is_vmap_mark",
    "make_subclass",
    "mark_boxed",
    "may_decompose",
    "modules_of",
    "onnx_log_off",
    "operator_names",
    "original_of",
    "overload_name",
    "parameters_of",
    "patch_functorch",
    "pytree",
    "quantized_operators",
    "scan_operator",
    "schema_of",
    "set_buffer",
    "set_guards",
    "size_oblivious",
    "storage_number",
    "unset_fake",
    "version_of",
    "while_loop_operator",
    "without_modes",
]  # fmt: skip


# Public, though torch's annotations do not have them. The first also gives parameters.
from_dlpack: Any = vars(torch)["from_dlpack"]
TracerWarning: type[Warning] = vars(torch.jit)["TracerWarning"]


class _Never(Exception):  # noqa: N818  # stands for one that this torch does not raise
    pass


_FAKE = "torch._subclasses.fake_tensor"
DataDependentOutputException: Any = probe(f"{_FAKE}.DataDependentOutputException", _Never)
DynamicOutputShapeException: Any = probe(f"{_FAKE}.DynamicOutputShapeException", _Never)
SpecViolationError: Any = probe("torch._export.verifier.SpecViolationError", _Never)

# What modules of these kinds derive from is private; torch has no others.
BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d,
               torch.nn.SyncBatchNorm)  # fmt: skip
DROPOUTS = (torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d,
            torch.nn.AlphaDropout, torch.nn.FeatureAlphaDropout)  # fmt: skip
CHECKS = {torch._check, probe("torch._check_is_size", torch._check)}
"""Functions that stand in a program as assertions about its sizes."""


# Operators --------------------------------------------------------------------------------------


def schema_of(operator: Any) -> Any:
    """The schema of an overload; ``None`` of anything else."""
    found = getattr(operator, "_schema", None)
    if found is None and isinstance(operator, OpOverload):
        raise lacking("torch.ops.aten.relu.default._schema")
    return found


def overload_name(operator: OpOverload[..., Any]) -> str:
    """``default`` or ``Tensor``: the overload's name within its packet."""
    name: str = operator.name()  # type: ignore[no-untyped-call]  # of torch
    return name.partition(".")[2] or "default"


def may_decompose(operator: OpOverload[..., Any]) -> bool:
    """Whether torch makes an operator of others; True where that is not known."""
    known = getattr(operator, "_can_decompose", None)
    return known is None or bool(known())


def dispatch_keys() -> tuple[Any, Any]:
    """The keys under which kernels of composite operators are: in captures, and with gradients."""
    keys = reach("torch._C.DispatchKey")
    return keys.CompositeImplicitAutograd, keys.Autograd


def forget_dispatches(operator: OpOverload[..., Any]) -> None:
    """Have an operator look for its kernel again."""
    getattr(operator, "_dispatch_cache", {}).clear()


def decomposition_table() -> dict[Any, Callable[..., Any]]:
    """How torch makes operators of simpler ones, beyond torch.export's own decompositions."""
    return probe("torch._decomp.global_decomposition_table", {}).get("post_autograd", {})


def while_loop_operator() -> Callable[..., Any]:
    """``torch.while_loop``, also where it has no public name yet."""
    return getattr(torch, "while_loop", None) or reach(
        "torch._higher_order_ops.while_loop.while_loop"
    )


def is_vmap_mark(target: Any) -> bool:
    """Whether a call in a program says where vmap begins or ends."""
    return getattr(target, "__module__", "") == "torch._functorch.predispatch"


def scan_operator() -> Callable[..., Any]:
    """The operator of loops that collect a result for each step."""
    return reach("torch._higher_order_ops.scan.scan")


def operator_names() -> list[str]:
    """Every operator that torch knows, ``aten::add.Tensor``."""
    return reach("torch._C._dispatch_get_all_op_names")()


def causal_mask_test() -> Callable[..., Any]:
    """How torch's transformer layers look whether a mask is causal; False where they do not."""
    return probe("torch.nn.modules.transformer._detect_is_causal_mask", lambda *_: False)


def quantized_operators() -> None:
    """Register the operators of ``quantized_decomposed``, and the results of simulated ones.

    torch has no kernel that says what fake quantization returns of tensors without data, so it
    cannot be traced. One that torch or another library registered stays.
    """
    probe("torch.ao.quantization.fx._decomposed")
    has_kernel = probe("torch._C._dispatch_has_kernel_for_dispatch_key", lambda *_: None)
    for name in _FAKE_QUANTIZATIONS:
        if has_kernel(f"aten::{name}", "Meta") is False:
            _KERNELS.impl(name, _quantized if "learnable" in name else _quantized_and_mask)


_KERNELS: Any = vars(torch.library)["Library"]("aten", "IMPL", "Meta")  # torch has no types for it
_FAKE_QUANTIZATIONS = (
    "fake_quantize_per_tensor_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_learnable_per_tensor_affine",
    "_fake_quantize_learnable_per_channel_affine",
)


def _quantized(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x)


def _quantized_and_mask(x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


# Programs ---------------------------------------------------------------------------------------


def guards_of(program: torch.export.ExportedProgram) -> list[str]:
    """The conditions that torch found a program to be right under, as code."""
    found: list[str] | None = getattr(program, "_guards_code", None)
    if found is None:  # never as if there were none: the program would be called where it is wrong
        raise lacking("torch.export.ExportedProgram._guards_code")
    return found


def set_guards(program: torch.export.ExportedProgram, guards: list[str]) -> None:
    """Put other conditions in the place of a program's own."""
    guards_of(program)
    program._guards_code = guards


# Tensors ----------------------------------------------------------------------------------------


def storage_number(storage: torch.UntypedStorage) -> int:
    """A number that tensors have in common if and only if they share memory, while they live."""
    number: int = getattr(storage, "_cdata", id(storage))
    return number


_fresh = itertools.count(1)


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written to in place; another number each time if nobody counts."""
    found = getattr(tensor, "_version", None)
    return next(_fresh) if found is None else found


def make_subclass(cls: type[Any], tensor: torch.Tensor, requires_grad: bool) -> Any:
    """The tensor as a parameter of class ``cls``, whose constructor is not called."""
    make = probe("torch.Tensor._make_subclass")
    if make is None:
        return tensor.as_subclass(cls).requires_grad_(requires_grad)
    return make(cls, tensor, requires_grad)


def is_functorch_tensor(tensor: torch.Tensor) -> bool:
    """Whether torch.func works on a tensor, which then may have no memory of its own."""
    # PyTorch has no public name for this. It also holds in jvp, where a tensor has memory.
    return bool(probe("torch._C._functorch.is_functorch_wrapped_tensor", _no)(tensor))


def is_inside_functorch() -> bool:
    """Whether a transform of torch.func is under way."""
    return probe("torch._C._functorch.peek_interpreter_stack", _nothing)() is not None


def _no(_: Any) -> bool:
    return False


def _nothing() -> None:
    return None


# Modules ----------------------------------------------------------------------------------------


def buffers_of(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    """A module's own buffers."""
    named = module.named_buffers(recurse=False, remove_duplicate=False)
    return getattr(module, "_buffers", None) or dict(named)


def parameters_of(module: torch.nn.Module) -> dict[str, torch.nn.Parameter | None]:
    """A module's own parameters, also those that are None."""
    named = module.named_parameters(recurse=False, remove_duplicate=False)
    return getattr(module, "_parameters", None) or dict(named)


def modules_of(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    """A module's own children, also those that are None or have two names."""
    return getattr(module, "_modules", None) or dict(module.named_children())


def set_buffer(module: torch.nn.Module, name: str, value: Any) -> None:
    """Put a tensor in the place of a buffer; by assignment a trace would return it too."""
    buffers = getattr(module, "_buffers", None)
    if buffers is None:
        setattr(module, name, value)
    else:
        buffers[name] = value


def hooks_of(module: torch.nn.Module) -> tuple[tuple[str, dict[int, Any], Any], ...]:
    """Hooks around forward: how they are registered, by number, numbers that take keywords."""
    return (
        ("register_forward_pre_hook", getattr(module, "_forward_pre_hooks", {}),
         getattr(module, "_forward_pre_hooks_with_kwargs", {})),
        ("register_forward_hook", getattr(module, "_forward_hooks", {}),
         getattr(module, "_forward_hooks_with_kwargs", {})),
    )  # fmt: skip


FORWARD = "_call_impl" if hasattr(torch.nn.Module, "_call_impl") else "forward"
"""The method that runs a module's hooks and its forward."""


def original_of(module: torch.nn.Module) -> torch.nn.Module | None:
    """The module that ``torch.compile`` was given; ``None`` of any other."""
    found = getattr(module, "_orig_mod", None)
    return found if isinstance(found, torch.nn.Module) else None


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether calling a module does more than its forward, to inputs or outputs."""
    return any((
        *(hooks for _, hooks, _ in hooks_of(module)),
        probe("torch.nn.modules.module._global_forward_hooks"),
        probe("torch.nn.modules.module._global_forward_pre_hooks"),
    ))  # fmt: skip


# Tracing ----------------------------------------------------------------------------------------


def any_autocast() -> bool:
    """Whether autocast is on for some kind of device."""
    kinds = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "xla", "maia", "privateuseone")
    return any(map(torch.is_autocast_enabled, kinds))


def is_static_input(tensor: Any) -> bool:
    """Whether Dynamo knows an argument of its graph as a parameter or a buffer."""
    return hasattr(tensor, "_dynamo_static_input_type")


def mark_boxed(call: Callable[[list[Any]], Any]) -> None:
    """Say to AOTAutograd that a function takes one list, which it may empty."""
    vars(call)["_boxed_call"] = True


def is_boxed(call: Callable[..., Any]) -> bool:
    """Whether a function says that it takes one list."""
    return bool(getattr(call, "_boxed_call", False))


def unset_fake() -> AbstractContextManager[None]:
    """Tensors made in the block are not fake ones."""
    return reach("torch._subclasses.fake_tensor.unset_fake_temporarily")()


def without_modes() -> AbstractContextManager[None]:
    """Operators run in the block as if nothing traced or watched them."""
    return reach("torch.utils._python_dispatch._disable_current_modes")()


def size_oblivious(on: bool) -> AbstractContextManager[None]:
    """Whether a size of 0 or 1 in the example is dynamic as others are, where torch traces."""
    patch = probe("torch.fx.experimental._config.patch")
    return nullcontext() if patch is None else patch(backed_size_oblivious=on)


def patch_functorch(**settings: bool) -> AbstractContextManager[None]:
    """Settings of torch's tracers for the block."""
    patch = probe("torch._functorch.config.patch")
    return nullcontext() if patch is None else patch(**settings)


@contextmanager
def onnx_log_off() -> Iterator[None]:
    """Keep torch.onnx from printing graphs, which native code does whatever verbose says."""
    namespace = vars(torch._C)
    printed = namespace.get("_jit_onnx_log")
    if printed is None:
        yield
        return
    namespace["_jit_onnx_log"] = lambda *_: None
    try:
        yield
    finally:
        namespace["_jit_onnx_log"] = printed

"""Every private or version-dependent name of another library that torchferry uses.

A name is a dotted path; of an attribute of objects, through an example or their class. `reach`
raises a sentence when it is gone, `probe` has a default. The modules beside this one give the rest
of torchferry typed functions.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any

from torchferry.errors import UsageError
from torchferry.seams.versions import TESTED, installed

__all__ = [
    "GONE",
    "LOADED_LATE",
    "SEAMS",
    "SIZE_FUNCTIONS",
    "SIZE_LOGGER",
    "Seam",
    "find",
    "lacking",
    "probe",
    "reach",
]


@dataclass(frozen=True)
class Seam:
    """One name of another library. All were seen in every version of ``TESTED`` unless it says so.

    Attributes:
        purpose: what it is for, as an object of "torchferry needs it for".
        without: what happens when it is gone; empty when torchferry stops with a sentence.
    """

    purpose: str
    without: str = ""


_COMPILE = "the torch.compile backend"
_TORCHLIB = "operators that only onnxscript converts"
_TRANSFORMS = ("transforms of torch.func", "a trace that fails may leave some under way")
_SHARED = ("one symbol for sizes of one name", "each size has its own: traces take longer")
_REPEAT = ("identical layers", "each layer of a model is traced, though it is like another")
_OFF = "onnxscript's lowerings are off: such operators are reported as missing"

SEAMS: dict[str, Seam] = {
    # Types and functions that nothing public replaces.
    "torch.utils._pytree": Seam("nested arguments"),
    "torch._ops.OpOverload": Seam("telling operators apart"),
    "torch._ops.OpOverloadPacket": Seam("telling operators apart"),
    "torch._ops.HigherOrderOperator": Seam("control flow"),
    "torch.ops.aten.lift_fresh_copy.default": Seam(
        "tensors in attributes that decide a branch", "their values are not known to a trace"
    ),
    "torch.ops.aten.relu.default._schema": Seam("the arguments of operators"),
    "torch._subclasses.fake_tensor.FakeTensor": Seam("shapes without data"),
    "torch._subclasses.fake_tensor.FakeTensorMode": Seam("shapes without data"),
    "torch.utils._python_dispatch.TorchDispatchMode": Seam("watching operators run"),
    "torch.export.ExportedProgram._guards_code": Seam("the conditions of a captured program"),
    "torch._C.DispatchKey": Seam("patches of operators while a model is captured"),
    # A slower or plainer way.
    "torch._subclasses.fake_tensor.DataDependentOutputException": Seam(
        "models without data", "a size that depends on data is an error of another kind"
    ),
    "torch._subclasses.fake_tensor.DynamicOutputShapeException": Seam(
        "models without data", "a size that depends on data is an error of another kind"
    ),
    "torch.fx._symbolic_trace.is_fx_symbolic_tracing": Seam(
        "seeing torch.fx trace", "calls that torch.fx traces are recorded as if they ran"
    ),
    "torch.fx.experimental.proxy_tensor.get_proxy_mode": Seam(
        "seeing make_fx trace", "calls that make_fx traces are recorded as if they ran"
    ),
    "torch.fx.experimental.proxy_tensor.get_proxy_slot": Seam(
        "the values of constant buffers", "a branch on a constant buffer is refused"
    ),
    "torch._C._get_dispatch_mode": Seam(
        "seeing AOTAutograd trace", "calls that AOTAutograd traces are recorded as if they ran"
    ),
    "torch._C._TorchDispatchModeKey.FUNCTIONAL": Seam(
        "seeing AOTAutograd trace", "calls that AOTAutograd traces are recorded as if they ran"
    ),
    "torch.UntypedStorage._cdata": Seam("which tensors share memory", "the id of the storage"),
    "torch.Tensor._version": Seam("writes in place", "every tensor counts as written to"),
    "torch.Tensor._make_subclass": Seam("copies of parameters", "torch.Tensor.as_subclass"),
    "torch._C._functorch.is_functorch_wrapped_tensor": Seam(
        "tensors of torch.func", "they are refused where they are looked at"
    ),
    "torch._C._functorch.get_dynamic_layer_stack_depth": Seam(*_TRANSFORMS),
    "torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth": Seam(*_TRANSFORMS),
    "torch._C._functorch.peek_interpreter_stack": Seam(
        "copies inside torch.func", "torch.func may refuse them"
    ),
    "torch.ops.aten.relu.default._dispatch_cache": Seam(
        "patches of operators", "a patch may not reach an operator that has run before"
    ),
    "torch.ops.aten.relu.default._can_decompose": Seam(
        "views that schemas do not tell", "every operator is tried with fake tensors"
    ),
    "torch.fx.experimental._config.patch": Seam(
        "sizes of 0 and 1 in captures", "a size that is 1 in the example may become fixed"
    ),
    "torch._export.non_strict_utils": Seam(*_SHARED),
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.create_symbol": Seam(*_SHARED),
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.source_to_var": Seam(*_SHARED),
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.var_to_sources": Seam(*_SHARED),
    "torch.fx.experimental.proxy_tensor._ModuleStackTracer": Seam(*_REPEAT),
    "torch.overrides._get_current_function_mode_stack": Seam(*_REPEAT),
    "torch.utils._python_dispatch._get_current_dispatch_mode_stack": Seam(*_REPEAT),
    "torch.Tensor._make_wrapper_subclass": Seam(*_REPEAT),
    "torch._C.DisableTorchFunction": Seam(*_REPEAT),
    "torch.fx.Graph._graph_namespace": Seam(
        "names of nodes", "nodes of identical layers are numbered out of order"
    ),
    "torch._functorch.config.patch": Seam(
        "the lines that a failed capture could not decide", "they are not named"
    ),
    "torch._guards.TracingContext": Seam(
        "the user's line, and " + _COMPILE, "lines that Dynamo interprets are not named"
    ),
    "torch._decomp.global_decomposition_table": Seam(
        "operators made of simpler ones", "only torch.export's own decompositions are used"
    ),
    "torch._export.verifier.SpecViolationError": Seam(
        "operators of programs that torch refuses to decompose", "torch's own error is shown"
    ),
    "torch.ao.quantization.fx._decomposed": Seam(
        "quantized operators", "they are absent, as inspect ops says"
    ),
    "torch._C._dispatch_has_kernel_for_dispatch_key": Seam(
        "operators that cannot be traced", "fake quantization of tensors cannot be captured"
    ),
    "torch.nn.modules.transformer._detect_is_causal_mask": Seam(
        "attention that reads its mask", "the patch is not needed"
    ),
    "torch.nn.Module._buffers": Seam("the state of modules", "those that are None are not seen"),
    "torch.nn.Module._parameters": Seam(
        "the state of modules", "those that are None are not seen"
    ),
    "torch.nn.Module._modules": Seam("the parts of modules", "those that are None are not seen"),
    "torch.nn.utils.parametrize._cache_enabled": Seam(
        "weights with parametrizations", "a trace leaves tensors without data in their cache"
    ),
    "torch.nn.Module._forward_hooks": Seam("hooks of modules", "they are not seen"),
    "torch.nn.Module._forward_pre_hooks": Seam("hooks of modules", "they are not seen"),
    "torch.nn.Module._forward_hooks_with_kwargs": Seam("hooks of modules", "they are not seen"),
    "torch.nn.Module._forward_pre_hooks_with_kwargs": Seam(
        "hooks of modules", "they are not seen"
    ),
    "torch.nn.modules.module._global_forward_hooks": Seam("hooks of modules", "they are not seen"),
    "torch.nn.modules.module._global_forward_pre_hooks": Seam(
        "hooks of modules", "they are not seen"
    ),
    "torch.nn.Module._call_impl": Seam("modules with hooks", "hooks are not traced"),
    "torch._C._jit_onnx_log": Seam(
        "a quiet torch.onnx", "torch prints the graph of an export that fails"
    ),
    "torch._check_is_size": Seam("assertions of programs", "it stands in no program"),
    "torch.onnx._internal.exporter._registration.ONNXRegistry": Seam(_TORCHLIB, _OFF),
    "torch.onnx._internal.exporter._dispatching.dispatch": Seam(_TORCHLIB, _OFF),
    "torch.onnx._internal.exporter._building.OpRecorder": Seam(_TORCHLIB, _OFF),
    "torch.onnx._internal.exporter._tensors.SymbolicTensor": Seam(_TORCHLIB, _OFF),
    "onnxscript.values.Opset": Seam(_TORCHLIB, _OFF),
    "onnxscript.evaluator.default_as": Seam(_TORCHLIB, _OFF),
    "onnxscript.rewriter.ort_fusions.optimize_for_ort": Seam(
        "onnxscript's fusions for onnxruntime", "models are optimized without them"
    ),
    "onnxruntime.OrtValue._ortvalue": Seam(
        "results on a GPU as tensors", "results in the memory of the CPU are read as they are"
    ),
    "transformers.PreTrainedConfig._experts_implementation": Seam(
        "float64 runs of mixtures of experts", "the reference is not run in float64"
    ),
    "transformers.PreTrainedConfig._attn_implementation_internal": Seam(
        "the attention of reproduced models", "they have the default one"
    ),
    "transformers.AutoModel._model_mapping": Seam("the zoo's classes of models"),
    "transformers.exporters.exporter_dynamo": Seam(
        "transformers' own patches for export", "only ours are applied"
    ),
    "transformers.exporters.utils._PATCHES": Seam(
        "transformers' own patches for export", "only ours are applied"
    ),
    # One feature each, which says that it is off.
    "torch._subclasses.fake_tensor.unset_fake_temporarily": Seam("weights without data"),
    "torch.utils._python_dispatch._disable_current_modes": Seam("caches with sliding windows"),
    "torch._higher_order_ops.while_loop.while_loop": Seam("loops"),
    "torch._higher_order_ops.scan.scan": Seam("loops that collect"),
    "torch._higher_order_ops.scan.scan_op": Seam("loops over a size"),
    "torch._higher_order_ops.cond.cond_op": Seam("branches on values"),
    "torch._higher_order_ops.while_loop.while_loop_op": Seam("loops that values end"),
    "torch._guards.detect_fake_mode": Seam("loops and branches on values"),
    "torch.fx.experimental.proxy_tensor.disable_proxy_modes_tracing": Seam(
        "loops and branches on values"
    ),
    "torch._export.non_strict_utils._NonStrictTorchFunctionHandler": Seam(
        "loops and branches on values", "what a loop counts is no index in its body"
    ),
    "torch.fx.experimental.symbolic_shapes._constrain_range_for_size": Seam(
        "loops over a size", "torch does not know that what a loop counts is 0 or more"
    ),
    "torch.fx.experimental.proxy_tensor.make_fx": Seam("flex_attention"),
    "torch.fx.experimental.symbolic_shapes.ShapeEnv": Seam("flex_attention"),
    "torch.utils._sympy.printers.PythonPrinter": Seam("operators that torch decomposes by size"),
    "torch.fx.experimental.symbolic_shapes.statically_known_true": Seam("caches"),
    "torch.fx.experimental.symbolic_shapes.free_unbacked_symbols": Seam("Hugging Face's models"),
    "torch._dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex": Seam("flex_attention"),
    "torch._C._dispatch_get_all_op_names": Seam("inspect ops"),
    "torch._dynamo.backends.common.aot_autograd": Seam(_COMPILE),
    "torch._dynamo.exc.TorchDynamoException": Seam(_COMPILE),
    "torch._export.utils._is_preservable_cia_op": Seam(_COMPILE),
    "torch._functorch._aot_autograd.schemas.OutputType": Seam(_COMPILE),
    "torch.export.exported_program._override_composite_implicit_decomp": Seam(_COMPILE),
    "torch.utils._python_dispatch.is_traceable_wrapper_subclass": Seam(_COMPILE),
    "onnxruntime.InferenceSession._sess": Seam(_COMPILE),
    "onnxruntime.capi.onnxruntime_pybind11_state": Seam("its errors' kinds, and " + _COMPILE),
}

# Modules that torch.export and torch.onnx load when they are first called.
LOADED_LATE = ("torch._dynamo", "torch._export.non_strict_utils",
               "torch.onnx._internal.exporter._core")  # fmt: skip

# Where torch logs what it decides of sizes, and where its functions of symbolic numbers are from.
SIZE_LOGGER = "torch.fx.experimental.symbolic_shapes"
SIZE_FUNCTIONS = "torch.fx.experimental.sym_node"

# Operators that torchferry converts and torch removed, with the version that no longer has them.
GONE = {"aten.cholesky.default": "2.14", "aten.qr.default": "2.14"}


@cache
def find(name: str) -> Any:
    """What a dotted path leads to, importing what it must.

    An attribute that only instances have is given by its class, whose methods must name it; that
    it is there is all that is known then, and the value is ``None``.

    Raises:
        LookupError: nothing has that name.
    """
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            owner, value = value, getattr(value, part, None)
            if value is None and not (inspect.isclass(owner) and _sets(owner, part)):
                raise LookupError(name)
        return value
    raise LookupError(name)


def _sets(cls: type[Any], attribute: str) -> bool:
    """Whether the methods of a class name an attribute."""
    values = [value for base in cls.__mro__ for value in vars(base).values()]
    values = [v.fset if isinstance(v, property) else v for v in values]
    functions = filter(inspect.isfunction, map(inspect.unwrap, filter(callable, values)))
    return any(attribute in function.__code__.co_names for function in functions)


def reach(name: str) -> Any:
    """What a name of ``SEAMS`` leads to.

    Raises:
        UsageError: the installed version does not have it; says what needs it, and which versions
            are known to have it.
    """
    try:
        return find(name)
    except LookupError as error:
        raise lacking(name) from error


def probe(name: str, default: Any = None) -> Any:
    """What a name of ``SEAMS`` leads to, or the default where the installed version lacks it."""
    try:
        return find(name)
    except LookupError:
        return default


def lacking(name: str) -> UsageError:
    """The error that a name is gone."""
    library = name.split(".", maxsplit=1)[0]
    low, high = TESTED[library]
    return UsageError(
        f"{library} {installed(library)} has no {name}, which torchferry needs for "
        f"{SEAMS[name].purpose}: it was tested with {library} {low} to {high}, so "
        f'pip install "{library}>={low},<={high}.99" or a newer torchferry'
    )

"""An onnxruntime session over torch's own memory: tensors go in and come out uncopied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import torch

from torchferry.compiler.cuda import (
    FixedPlaces,
    Provider,
    captures_graphs,
    provider_name,
    run_options,
    stream_of,
    with_device,
)
from torchferry.errors import RunError, UsageError
from torchferry.optimizer import kernel_library
from torchferry.seams.ort import c_session, c_state, ort_errors, sharer
from torchferry.seams.pytorch import from_dlpack

__all__ = ["TensorSession", "providers_for"]

_STATE = c_state()
_share = sharer()
_ERRORS = ort_errors()
# The ways onnxruntime names the node it blames.
_NODE = re.compile(r"name:? ?'([^']+)'|in node \(([^)]+)\)", re.IGNORECASE)
_INLINE = 1024  # bytes; onnxruntime's shape inference reads small constants in the model
# Of onnxruntime's own: the kernel it fuses into is slower on a CPU than what it replaces.
_SLOWER = ["SkipLayerNormFusion"]
_BOOL = "tensor(bool)"
_QUIET = 4  # onnxruntime's log level: errors come back as exceptions


class TensorSession:
    """A loaded model.

    Attributes:
        proto: what was loaded. Weights over 1 KiB are not in it: onnxruntime reads them where
            torch keeps them.
        session: the ``onnxruntime.InferenceSession``.
        inputs: names of the graph's inputs.
        outputs: names of its outputs.
    """

    def __init__(
        self,
        model: ir.Model | onnx.ModelProto,
        providers: Sequence[Provider],
        device: torch.device,
        weights: Mapping[str, Any] | None = None,
        *,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Load a model.

        Args:
            model: its weights may be torch tensors, on any device; or another session's `proto`.
            providers: onnxruntime's execution providers. One for CUDA runs on the device and on
                torch's stream of this moment, and captures CUDA graphs if its options have
                ``enable_cuda_graph``.
            device: where outputs are wanted.
            weights: for a `proto`, the tensors that are only named in it.
            options: attributes of onnxruntime's ``SessionOptions``, and configuration entries.

        Raises:
            RunError: onnxruntime refuses the model.
            UsageError: it has no such option, or not with that value.
        """
        if isinstance(model, ir.Model):
            large = [v for v in model.graph.initializers.values() if _is_large(v)]
            self.proto = _proto_without(model, large)
            weights = {value.name or "": value.const_value for value in large}
        else:
            self.proto = model
        self._device, self._stream = device, stream_of(device)
        wanted = with_device(providers, device, self._stream)
        self.session = self._loaded(_options(model, options or {}), weights or {}, wanted)
        self.inputs = tuple(value.name for value in self.session.get_inputs())
        self.outputs = tuple(value.name for value in self.session.get_outputs())
        sizes = [size for value in self.session.get_outputs() for size in value.shape or ["?"]]
        # Before 1.32 onnxruntime's DLPack calls a bool uint8.
        self._bools = [i for i, v in enumerate(self.session.get_outputs()) if v.type == _BOOL]
        self._may_be_empty = not all(isinstance(size, int) and size for size in sizes)
        self._run = c_session(self.session).run_with_ort_values
        self._names = list(self.outputs)
        if device.type != "cpu":
            self._run = self._run_on_device
        self._fixed: FixedPlaces | None = None
        if captures_graphs(wanted):
            self._fixed = FixedPlaces(self.session, self._usual, self._wait)

    def _loaded(
        self, options: onnxruntime.SessionOptions, weights: Mapping[str, Any], providers: list[Any]
    ) -> onnxruntime.InferenceSession:
        if weights:
            values = [_ort_value(tensor) for tensor in weights.values()]
            options.add_external_initializers(list(weights), values)
        try:
            return onnxruntime.InferenceSession(
                self.proto.SerializeToString(),
                options,
                providers=providers,
                disabled_optimizers=_SLOWER if self._device.type == "cpu" else [],
            )
        except _ERRORS as error:
            named = _NODE.search(str(error))
            raise RunError(
                f"onnxruntime refuses the graph: {_short(error)}",
                node=(named[1] or named[2]) if named else None,
            ) from error

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the model.

        Args:
            tensors: contiguous, one for each input, of its dtype and rank.

        Returns:
            One tensor for each output, in memory of its own.

        Raises:
            RunError: onnxruntime failed.
        """
        try:
            return self._usual(tensors) if self._fixed is None else self._fixed(tensors)
        except _ERRORS as error:
            raise RunError(f"onnxruntime failed: {_short(error)}") from error

    def _usual(
        self, tensors: Sequence[torch.Tensor], options: onnxruntime.RunOptions | None = None
    ) -> list[torch.Tensor]:
        feeds = {name: _share(tensor) for name, tensor in zip(self.inputs, tensors, strict=True)}
        found = self._run(feeds, self._names, options)
        tensors_out: list[torch.Tensor] = found.to_dlpacks(from_dlpack)
        for i in self._bools:
            tensors_out[i] = tensors_out[i].view(torch.bool)
        if self._may_be_empty:  # such tensors come with strides of 0
            return [t if t.numel() else t.new_empty(t.shape) for t in tensors_out]
        return tensors_out

    def _run_on_device(self, feeds: dict[str, Any], names: list[str], options: Any) -> Any:
        """As ``run_with_ort_values``, with the outputs left where they are computed."""
        self._wait()
        options = options or run_options(wait=not self._shares_stream)
        given, found = _STATE.OrtValueVector(), _STATE.OrtValueVector()
        for value in feeds.values():
            given.push_back(value)
        device = _STATE.OrtDevice(
            _STATE.OrtDevice.cuda(), _STATE.OrtDevice.default_memory(), self._device.index or 0
        )
        c_session(self.session).run_with_ortvaluevector(
            options,
            list(feeds),
            given,
            names,
            found,
            [device] * len(names),
        )
        return found

    @property
    def _shares_stream(self) -> bool:
        """Whether torch is on the stream that onnxruntime was given."""
        return self._stream != 0 and self._stream == stream_of(self._device)

    def _wait(self) -> None:
        """Until torch has written what the run reads, if onnxruntime has another stream."""
        if self._device.type == "cuda" and not self._shares_stream:
            torch.cuda.current_stream(self._device).synchronize()


def _options(
    model: ir.Model | onnx.ModelProto, wanted: Mapping[str, Any]
) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = torch.get_num_threads()
    for name, value in wanted.items():
        if "." in name:
            options.add_session_config_entry(name, str(value))
            continue
        if not hasattr(options, name) or callable(getattr(options, name)):
            raise UsageError(f"onnxruntime's SessionOptions have no {name!r} to set")
        try:
            setattr(options, name, value)
        except TypeError as error:
            raise UsageError(f"session option {name}={value!r}: {_short(error)}") from error
    library = kernel_library(model)
    if library is None:
        return options
    try:
        options.register_custom_ops_library(str(library))
    except _ERRORS as error:
        raise RunError(
            f"onnxruntime cannot load the kernels {library}: {_short(error)}"
        ) from error
    return options


def providers_for(
    device: torch.device, wanted: Sequence[Provider] | None = None
) -> list[Provider]:
    """The execution providers for tensors of a device.

    Raises:
        RunError: onnxruntime has none for it here, or not the one that is wanted.
    """
    available = onnxruntime.get_available_providers()
    default = {"cpu": ["CPUExecutionProvider"],
               "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"]}  # fmt: skip
    chosen: list[Provider] = list(wanted or default.get(device.type, [f"{device.type} provider"]))
    for name in map(provider_name, chosen):
        if name not in available:
            raise RunError(f"onnxruntime has no {name} here: it has {', '.join(available)}")
    return chosen


def _is_large(value: ir.Value) -> bool:
    tensor = value.const_value
    return tensor is not None and tensor.nbytes > _INLINE and tensor.dtype != ir.DataType.STRING


def _ort_value(tensor: Any) -> onnxruntime.OrtValue:
    raw = getattr(tensor, "raw", tensor)
    if isinstance(raw, torch.Tensor):
        plain = raw.detach().cpu().contiguous()
        return onnxruntime.OrtValue(_share(plain))
    array = np.ascontiguousarray(tensor.numpy())
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, tensor.dtype.value)


def _proto_without(model: ir.Model, values: Sequence[ir.Value]) -> onnx.ModelProto:
    """The model with the weights only named; it is as before afterwards."""
    kept = list(_pairs(values))
    try:
        for value, tensor in kept:
            value.const_value = ir.ExternalTensor(
                "weights",
                0,
                tensor.nbytes,
                tensor.dtype,
                shape=ir.Shape(tensor.shape.numpy()),
                name=value.name or "",
            )
        return ir.to_proto(model)
    finally:
        for value, tensor in kept:
            value.const_value = tensor


def _pairs(values: Sequence[ir.Value]) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    for value in values:
        if value.const_value is not None:
            yield value, value.const_value


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:600]

"""An onnxruntime session that takes and returns what the PyTorch model does."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from torchferry.errors import RunError, UsageError
from torchferry.graph.outline import STATE_KEY, outline
from torchferry.graph.runtime import LEAST_KEY, REQUIREMENT, too_old
from torchferry.runner.feeds import Feeder, InputInfo
from torchferry.runner.outputs import to_tensor
from torchferry.seams.ort import ort_errors
from torchferry.values.signature import SIGNATURE_KEY, Signature
from torchferry.values.step import LIFTED, Step, read_state

if TYPE_CHECKING:
    import torch

__all__ = ["Session", "open_session", "run"]

# By the type onnxruntime prints: torch's dtype and ONNX's element type.
_TYPES = {
    "tensor(float)": ("float32", 1),
    "tensor(uint8)": ("uint8", 2),
    "tensor(int8)": ("int8", 3),
    "tensor(uint16)": ("uint16", 4),
    "tensor(int16)": ("int16", 5),
    "tensor(int32)": ("int32", 6),
    "tensor(int64)": ("int64", 7),
    "tensor(bool)": ("bool", 9),
    "tensor(float16)": ("float16", 10),
    "tensor(double)": ("float64", 11),
    "tensor(uint32)": ("uint32", 12),
    "tensor(uint64)": ("uint64", 13),
    "tensor(bfloat16)": ("bfloat16", 16),
    "tensor(float8e4m3fn)": ("float8_e4m3fn", 17),
    "tensor(float8e4m3fnuz)": ("float8_e4m3fnuz", 18),
    "tensor(float8e5m2)": ("float8_e5m2", 19),
    "tensor(float8e5m2fnuz)": ("float8_e5m2fnuz", 20),
}

# The ways onnxruntime names the node it blames.
_NODE = re.compile(
    r"Name:'([^']+)'|node with name '([^']+)'|[Ii]n [Nn]ode,? \(\"?([^\"),]+)|node \(([^)]+)\)"
)


class Session:
    """A loaded model.

    Called with the arguments of the original model (nested, caches included), it runs onnxruntime
    and returns what the original returns: torch tensors in, torch tensors out.

    Attributes:
        path: the model's file.
        signature: how its tensors stand in arguments and outputs.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        providers: Sequence[str] | None = None,
        conditions: bool = True,
        threads: int | None = None,
    ) -> None:
        """Load a model that torchferry wrote.

        Args:
            path: the ``.onnx`` file.
            providers: onnxruntime's execution providers; the CPU's when ``None``.
            conditions: whether calls are refused that nothing was proven of.
            threads: that it may use; as many as there are cores when ``None``.

        Raises:
            UsageError: the file does not exist, was not written by torchferry, or needs a newer
                onnxruntime; or onnxruntime has no such provider.
            RunError: onnxruntime cannot load it; names the node it blames.
        """
        self.path = Path(path)
        self._providers = providers
        self._threads = threads
        metadata = self.session.get_modelmeta().custom_metadata_map
        if SIGNATURE_KEY not in metadata:
            raise UsageError(
                f"{self.path} does not say how its inputs are nested: it was not written by "
                "torchferry. Run it with onnxruntime itself, or export the model again"
            )
        signature = Signature.from_json(metadata[SIGNATURE_KEY])
        if not conditions:
            signature = replace(signature, conditions=(), relies=(), unproven="")
        self.signature = signature
        inputs = {value.name: value.type for value in self.session.get_inputs()}
        self._outputs = [value.name for value in self.session.get_outputs()]
        known = {slot.name for slot in self.signature.inputs}
        if not inputs.keys() <= known or {*self._outputs} != {*self.signature.output_names}:
            raise UsageError(
                f"the signature in {self.path} names other inputs or outputs than the graph has: "
                "the file was changed; export the model again"
            )
        strange = {*inputs.values()} - _TYPES.keys()
        if strange:
            raise UsageError(f"{self.path} takes {strange.pop()}, which torchferry cannot feed")
        self._kinds = {name: _TYPES[kind][1] for name, kind in inputs.items()}

    @cached_property
    def session(self) -> onnxruntime.InferenceSession:
        """The session of onnxruntime, loaded again after `unload`; raises as `open_session`."""
        return open_session(self.path, providers=self._providers, threads=self._threads)

    def unload(self) -> None:
        """Free onnxruntime's memory; the next call loads the file again."""
        self.__dict__.pop("session", None)
        with suppress(AttributeError, OSError, TypeError):  # glibc keeps what was freed
            ctypes.CDLL(None).malloc_trim(0)

    def alone(self) -> Session:
        """The same model for a copy of this process: loaded again, on one thread, without limits.

        Raises:
            RunError: onnxruntime cannot load it.
        """
        return Session(self.path, threads=1, conditions=False)

    @cached_property
    def inputs(self) -> dict[str, InputInfo]:
        """Dtype and shape of every graph input; a shape holds sizes and names of dimensions."""
        import torch

        return {
            value.name: (getattr(torch, _TYPES[value.type][0]), value.shape)
            for value in self.session.get_inputs()
        }

    @cached_property
    def _feeder(self) -> Feeder:
        return Feeder(self.signature, self.inputs)

    @cached_property
    def initial(self) -> dict[str, torch.Tensor]:
        """The state before the first call, by name; empty if the model has no lifted state.

        Raises:
            UsageError: the metadata of the model cannot be read.
        """
        text = self.session.get_modelmeta().custom_metadata_map.get(STATE_KEY)
        return {} if text is None else read_state(text)

    def step(
        self, state: Mapping[str, torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Step:
        """Run a model whose state was lifted.

        Args:
            state: before the call, by name.
            args: positional arguments of the original model.
            kwargs: named ones.

        Raises:
            UsageError: the arguments or the state do not fit.
            RunError: onnxruntime failed; names the node.
        """
        if state.keys() != self.initial.keys():
            raise UsageError(
                f"the state has {', '.join(state) or 'nothing'}, and the model takes "
                f"{', '.join(self.initial)}: set these, or call reset()"
            )
        given = {
            name: value.item()
            if f"state.{name}" in self.signature.integers and value.ndim == 0
            else value
            for name, value in state.items()
        }
        step: Step = self(*args, **kwargs, **{LIFTED: given})
        return step

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model; one whose state was lifted begins with its initial state.

        Raises:
            UsageError: the arguments do not fit.
            RunError: onnxruntime failed; names the node.
        """
        if self.initial and LIFTED not in kwargs:
            return self.step(self.initial, args, kwargs).outputs
        return self.signature.nest(self.run(self._feeder(args, kwargs)))

    def run(self, feeds: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Run with one tensor per graph input; gives one tensor per graph output.

        Raises:
            RunError: onnxruntime failed; names the node.
        """
        # onnxruntime reads the arrays' memory and does not keep them alive.
        arrays = {name: _array(tensor) for name, tensor in feeds.items()}
        ort_feeds = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, self._kinds[name])
            for name, array in arrays.items()
        }
        try:
            results = self.session.run_with_ort_values(self._outputs, ort_feeds)
        except ort_errors() as error:
            node = _node(error) or ""
            if node.startswith(REQUIREMENT):
                why = node.removeprefix(REQUIREMENT).rpartition(" [")[0]
                raise UsageError(f"the model cannot be run on these values: {why}") from error
            shapes = ", ".join(f"{n} {tuple(t.shape)}" for n, t in feeds.items())
            said = f"onnxruntime failed: {_brief(error)}, on {shapes[:600]}"
            raise RunError(said, node=node or None) from error
        return dict(zip(self._outputs, map(_tensor, results), strict=True))


def open_session(
    path: Path, *, providers: Sequence[str] | None = None, threads: int | None = None
) -> onnxruntime.InferenceSession:
    """Load any ONNX model, as it stands.

    Args:
        path: the ``.onnx`` file.
        providers: onnxruntime's execution providers; the CPU's when ``None``.
        threads: that it may use; as many as there are cores when ``None``.

    Raises:
        UsageError: the file does not exist, or says that it needs a newer onnxruntime; or
            onnxruntime has no such provider.
        RunError: onnxruntime cannot load the model; names the node it blames.
    """
    if not path.is_file():
        raise UsageError(f"no model at {path}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors come back as exceptions
    options.intra_op_num_threads = threads or 0
    known = _known(providers or ["CPUExecutionProvider"])
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=known)
    except ort_errors() as error:
        if old := too_old(path, _least_onnxruntime(path)):
            raise UsageError(old) from error
        said = f"onnxruntime cannot load {path}: {_brief(error)}"
        raise RunError(said, node=_node(error)) from error
    if old := too_old(path, session.get_modelmeta().custom_metadata_map.get(LEAST_KEY)):
        raise UsageError(old)
    return session


def _least_onnxruntime(path: Path) -> str:
    """What a model's metadata say; empty if the file cannot be read."""
    try:
        return outline(path).least_onnxruntime
    except UsageError:
        return ""


def _known(providers: Sequence[str]) -> list[str]:
    available = onnxruntime.get_available_providers()
    unknown = {*providers} - {*available}
    if unknown:
        raise UsageError(
            f"onnxruntime has no {unknown.pop()} here: choose from {', '.join(available)}"
        )
    return list(providers)


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    import torch

    plain = tensor.detach().cpu().contiguous()
    # numpy has no bfloat16 or float8: hand over the bits.
    bits = {1: torch.uint8, 2: torch.int16}.get(plain.element_size())
    if plain.is_floating_point() and bits is not None:
        plain = plain.view(bits)
    return plain.numpy()


def _tensor(value: onnxruntime.OrtValue) -> torch.Tensor:
    tensor = to_tensor(value)
    if tensor is None:
        raise RunError(
            f"onnxruntime returns a {value.data_type()}, which PyTorch cannot hold: cast that "
            "output in the model"
        )
    return tensor


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:600]


def _node(error: Exception) -> str | None:
    """The node that onnxruntime blames."""
    node = _NODE.search(" ".join(str(error).split()))
    return next((group for group in node.groups() if group), None) if node else None


def run(path: Path | str, /, *args: Any, **kwargs: Any) -> Any:
    """Load a model that torchferry wrote and run it once with the original model's arguments.

    For several calls keep a `Session`.

    Args:
        path: the ``.onnx`` file.
        args: positional arguments, as for the original model.
        kwargs: named arguments, as for the original model.

    Raises:
        UsageError: the file or the arguments do not fit.
        RunError: onnxruntime failed; names the node.
    """
    return Session(path)(*args, **kwargs)

"""onnxruntime's CUDA provider beside torch: one device, one stream, and CUDA graphs on request.

Option names are those of onnxruntime's CUDA execution provider:
https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnxruntime
import torch

from torchferry.seams.ort import sharer

__all__ = ["FixedPlaces", "Provider", "captures_graphs", "provider_name", "run_options",
           "stream_of", "with_device"]  # fmt: skip

Provider = str | tuple[str, Mapping[str, Any]]
"""As onnxruntime takes it: a name, or a name and options."""

_share = sharer()
_CUDA = "CUDAExecutionProvider"
_NO_GRAPH = -1  # the id with which a run is not captured


def provider_name(provider: Provider) -> str:
    """The name of a provider that may come with options."""
    return provider if isinstance(provider, str) else provider[0]


def stream_of(device: torch.device) -> int:
    """The address of torch's current stream; 0 for its default one, and on a CPU.

    onnxruntime takes no default stream: it has one of its own then.
    """
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def with_device(providers: Sequence[Provider], device: torch.device, stream: int) -> list[Any]:
    """The providers, the CUDA one with the tensors' device and stream; given options stay.

    >>> with_device(["CUDAExecutionProvider"], torch.device("cuda", 1), 0)
    [('CUDAExecutionProvider', {'device_id': '1'})]
    """
    found: list[Any] = []
    for provider in providers:
        name = provider_name(provider)
        given = {} if isinstance(provider, str) else dict(provider[1])
        own: dict[str, Any] = {}
        if name == _CUDA:
            own["device_id"] = device.index or 0
            if stream:
                own["user_compute_stream"] = stream
        options = {key: _text(value) for key, value in (own | given).items()}
        found.append((name, options) if options else name)
    return found


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def captures_graphs(providers: Sequence[Any]) -> bool:
    """Whether a provider was asked to capture its kernels in a CUDA graph.

    Args:
        providers: as `with_device` gives them.
    """
    return any(
        not isinstance(provider, str) and provider[1].get("enable_cuda_graph", "0") != "0"
        for provider in providers
    )


def run_options(*, wait: bool = True, graph: int | None = None) -> onnxruntime.RunOptions:
    """How a session runs.

    Args:
        wait: for its kernels at the end; they need it where torch's stream is another.
        graph: number of the CUDA graph to capture or replay.
    """
    options = onnxruntime.RunOptions()
    if not wait:
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    if graph is not None:
        options.add_run_config_entry("gpu_graph_id", str(graph))
    return options


class FixedPlaces:
    """Runs a session with all tensors in the same memory at every call.

    A CUDA graph replays its kernels with the addresses that it was captured with, so what is given
    is copied there and what is returned is copied from there. Each combination of shapes has
    memory, and a graph, of its own; both are kept as long as the session is.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        run: Callable[[Sequence[torch.Tensor], onnxruntime.RunOptions], list[torch.Tensor]],
        wait: Callable[[], None],
    ) -> None:
        """Keep what is called later.

        Args:
            session: to be run.
            run: runs it as usual; gives the outputs.
            wait: until torch has written what the run reads.
        """
        self._session, self._run, self._wait = session, run, wait
        self._bound: dict[tuple[torch.Size, ...], tuple[Any, ...]] = {}

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run with tensors of any shapes the session takes; the results are copies."""
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._bound:
            self._bound[shapes] = self._bind(tensors, len(self._bound))
        binding, options, places, results = self._bound[shapes]
        for place, tensor in zip(places, tensors, strict=True):
            place.copy_(tensor)
        self._wait()
        self._session.run_with_iobinding(binding, options)
        return [result.clone() for result in results]

    def _bind(self, tensors: Sequence[torch.Tensor], graph: int) -> tuple[Any, ...]:
        places = [tensor.clone() for tensor in tensors]
        shown = self._run(places, run_options(graph=_NO_GRAPH))
        results = [torch.empty_like(tensor) for tensor in shown]
        binding = self._session.io_binding()
        for value, place in zip(self._session.get_inputs(), places, strict=True):
            binding.bind_ortvalue_input(value.name, _shared(place))
        for value, result in zip(self._session.get_outputs(), results, strict=True):
            binding.bind_ortvalue_output(value.name, _shared(result))
        return binding, run_options(graph=graph), places, results


def _shared(tensor: torch.Tensor) -> onnxruntime.OrtValue:
    return onnxruntime.OrtValue(_share(tensor))

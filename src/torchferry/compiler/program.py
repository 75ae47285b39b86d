"""A session as a function of a graph's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.compiler.session import TensorSession
from torchferry.compiler.weights import FrozenWeights
from torchferry.errors import RunError

__all__ = ["Feed", "Program", "Result"]

_LARGEST = 2**31  # of what is below, a product has its place in 64 bits


@dataclass(frozen=True)
class Feed:
    """An input of the ONNX graph.

    Attributes:
        name: in the ONNX graph.
        position: which argument of the compiled graph it is.
        size: it is a Python int, given as int64 of shape [1].
    """

    name: str
    position: int
    size: bool = False


@dataclass(frozen=True)
class Result:
    """Where a result of the compiled graph comes from.

    Attributes:
        output: number of the ONNX output, or ``None``.
        argument: number of the argument that is returned as it is, or ``None``.
        constant: what is returned when it is neither.
        number: the output has one element and is returned as a Python number.
        axes: the output is permuted so, which gives it the strides it has in PyTorch.
    """

    output: int | None = None
    argument: int | None = None
    constant: Any = None
    number: bool = False
    axes: tuple[int, ...] | None = None


class Program:
    """A session, and how the arguments and results of a graph meet its inputs and outputs.

    Attributes:
        weights: what was frozen into it.
    """

    def __init__(
        self,
        feeds: Sequence[Feed],
        results: Sequence[Result],
        session: TensorSession,
        weights: FrozenWeights,
        instance: dict[str, Any] | None = None,
    ) -> None:
        """Put a session to use.

        Args:
            feeds: one for each input of the session, in order.
            results: one for each result of the graph.
            session: runs it.
            weights: what was frozen into the session.
            instance: gets copies of what each call is given and returns.
        """
        self.weights = weights
        self._session = session
        self._feeds = [(feed.position, feed.size) for feed in feeds]
        self._results = tuple(results)
        # Most graphs return their outputs as they are, in order.
        outputs = [r.output for r in self._results if not r.number and r.axes is None]
        self._plain = outputs == list(range(len(self._results)))
        self._instance = instance

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Run the graph.

        Raises:
            RunError: onnxruntime failed, or would count otherwise than Python.
        """
        tensors = [
            _as_tensor(args[place]) if size else args[place].contiguous()
            for place, size in self._feeds
        ]
        found = self._session(tensors)
        results = found if self._plain else [self._result(r, args, found) for r in self._results]
        if self._instance is not None:
            self._instance["inputs"].append([tensor.clone() for tensor in tensors])
            self._instance["outputs"].append([tensor.clone() for tensor in found])
        return results

    @staticmethod
    def _result(result: Result, args: Sequence[Any], found: Sequence[torch.Tensor]) -> Any:
        if result.argument is not None:
            return args[result.argument]
        if result.output is None:
            return result.constant
        tensor = found[result.output]
        if result.number:
            return tensor.item()
        return tensor if result.axes is None else tensor.permute(result.axes)


def _as_tensor(integer: int) -> torch.Tensor:
    if abs(integer) >= _LARGEST:
        raise RunError(f"the integer {integer} may overflow the 64 bits that ONNX counts in")
    return torch.tensor([integer])

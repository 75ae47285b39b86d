"""The forms in which exporters store a parameter: transposed, with other gates first, packed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

__all__ = ["Form", "forms_of", "packed_forms", "recurrent_forms", "split_forms"]

# ONNX's order of the gates of an LSTM is i, o, f, c and PyTorch's i, f, c, o; of a GRU z, r, h and
# r, z, h. https://onnx.ai/onnx/operators/onnx__LSTM.html
_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
_PARTS = (2, 3)  # tensors that a model may keep in one: query, key, value; key, value; gate, up


@dataclass(frozen=True)
class Form:
    """What an initializer may hold of some parameters.

    Attributes:
        names: of the parameters.
        view: of their tensors, in this order: the tensor that the initializer should hold.
        exact: whether ``view`` is a view of one tensor, and no other form has its shape.
    """

    names: tuple[str, ...]
    view: Callable[..., torch.Tensor]
    exact: bool = False

    def place(
        self, shapes: Sequence[torch.Size], position: Sequence[int]
    ) -> tuple[str, tuple[int, ...]]:
        """Find where an element of the initializer stands in the parameters.

        Args:
            shapes: of the parameters.
            position: of the element in the initializer.

        Returns:
            Name of the parameter, and the element's index there.
        """
        if len(shapes) == 1 and self.exact:
            cell = self.view(torch.empty(shapes[0], device="meta"))[tuple(position)]
            return self.names[0], _unravel(int(cell.storage_offset()), shapes[0])
        ends = [0]
        for shape in shapes:
            ends.append(ends[-1] + shape.numel())
        numbers = [
            torch.arange(start, end).reshape(shape)
            for (start, end), shape in zip(pairwise(ends), shapes, strict=True)
        ]
        number = int(self.view(*numbers)[tuple(position)])
        which = next(index for index, end in enumerate(ends[1:]) if number < end)
        return self.names[which], _unravel(number - ends[which], shapes[which])


def _unravel(number: int, shape: torch.Size) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(number), shape)) if shape else ()


def forms_of(
    name: str, shape: torch.Size, stored: tuple[int, ...], *, turned: bool
) -> Iterator[Form]:
    """Forms of one parameter that have the shape of an initializer, the likeliest first.

    Args:
        name: of the parameter.
        shape: its sizes.
        stored: sizes of the initializer.
        turned: whether the reader of the initializer wants a matrix transposed.
    """
    plain, swapped = _without_ones(shape), [*shape[:-2], *shape[:-3:-1]]
    as_it_is = Form((name,), lambda tensor: tensor.reshape(stored), exact=True)
    transposed = Form((name,), lambda tensor: tensor.mT.reshape(stored))
    fits = plain == _without_ones(stored)
    turns = len(shape) >= 2 and min(shape[-2:]) > 1 and _without_ones(swapped) == (
        _without_ones(stored)
    )  # fmt: skip
    forms = [as_it_is] * fits + [transposed] * turns
    yield from reversed(forms) if turned else forms


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def recurrent_forms(
    module: str, shapes: Mapping[str, torch.Size], stored: tuple[int, ...], op_type: str
) -> Iterator[Form]:
    """Forms of the weights of a recurrent module, each layer's, that have a shape.

    Args:
        module: path of the module.
        shapes: sizes of all parameters by name.
        stored: sizes of the initializer: directions first.
        op_type: of the ONNX node that reads it: ``LSTM``, ``GRU`` or ``RNN``.
    """
    gates = _GATES[op_type]
    start = f"{module}." if module else ""
    ways = ("", "_reverse")[: stored[0]] if stored else ()

    def gather(*tensors: torch.Tensor) -> torch.Tensor:
        rows = [
            torch.cat([tensor.chunk(len(gates))[gate] for gate in gates]) for tensor in tensors
        ]
        return torch.cat(rows)

    def turn(*tensors: torch.Tensor) -> torch.Tensor:
        return gather(*tensors).reshape(stored[0], -1, stored[1]).mT

    for kinds in (("weight_ih",), ("weight_hh",), ("bias_ih", "bias_hh")):
        layer = 0
        while (first := f"{start}{kinds[0]}_l{layer}") in shapes:
            names = tuple(f"{start}{kind}_l{layer}{way}" for way in ways for kind in kinds)
            sizes = [shapes[name].numel() for name in names if name in shapes]
            if len(sizes) == len(names) and sum(sizes) == torch.Size(stored).numel():
                inner = shapes[first][-1]
                if len(stored) == 2 or stored[-1] == inner:
                    yield Form(names, lambda *tensors: gather(*tensors).reshape(stored))
                elif stored[1] == inner:  # as onnxruntime quantizes it
                    yield Form(names, turn)
            layer += 1


def packed_forms(
    module: str, shapes: Mapping[str, torch.Size], stored: tuple[int, ...]
) -> Iterator[Form]:
    """Forms that hold parameters of modules next to each other in one: query, key and value.

    Args:
        module: path of a module whose children's parameters may be packed.
        shapes: sizes of all parameters by name, in the order of the model.
        stored: sizes of the initializer.
    """
    start = f"{module}." if module else ""
    children = [n for n in shapes if n.startswith(start) and n[len(start) :].count(".") == 1]
    for kind in dict.fromkeys(name.rpartition(".")[2] for name in children):
        names = [name for name in children if name.endswith(f".{kind}")]
        for count in _PARTS:
            for first in range(len(names) - count + 1):
                chosen = tuple(names[first : first + count])
                sizes = [shapes[name] for name in chosen]
                rows = sum(size[0] for size in sizes if size)
                if any(size[1:] != sizes[0][1:] or not size for size in sizes):
                    continue
                if (rows, *sizes[0][1:]) == stored:
                    yield Form(chosen, lambda *tensors: torch.cat(tensors))
                if len(sizes[0]) == 2 and (sizes[0][1], rows) == stored:
                    yield Form(chosen, lambda *tensors: torch.cat(tensors).mT)


def split_forms(name: str, shape: torch.Size, stored: tuple[int, ...]) -> Iterator[Form]:
    """Forms that hold one of a few equal parts of a parameter: the query of a packed weight."""
    for count in _PARTS:
        if not shape or shape[0] % count or len(shape) > 2:
            continue
        part = (shape[0] // count, *shape[1:])
        for index in range(count):
            if part == stored:
                yield Form((name,), lambda t, n=count, i=index: t.chunk(n)[i])
            if part[::-1] == stored and len(part) == 2:
                yield Form((name,), lambda t, n=count, i=index: t.chunk(n)[i].mT)

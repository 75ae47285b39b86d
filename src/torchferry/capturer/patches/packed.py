"""Packed sequences: batches of unlike lengths in LSTM, GRU and RNN, of any batch and lengths.

Upstream's functions read the lengths as Python numbers. The same follows from a mask that says
which steps each sequence has. A recurrent layer over packed data stays one node of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from torchferry.capturer.patching.patch import Patch, find_copies
from torchferry.values.recurrent import compute_shapes_only

__all__ = ["PATCHES"]

Function = Callable[..., Any]

_LINK = "https://github.com/pytorch/pytorch/issues/155238"
_BATCH = "__torchferry_batch__"  # what batch_sizes knows: of how many sequences they are


def _packed(_: Function) -> Function:
    def pack_padded_sequence(
        input: Tensor,  # noqa: A002  (upstream's name)
        lengths: Any,
        batch_first: bool = False,
        enforce_sorted: bool = True,
    ) -> PackedSequence:
        """The steps that a mask of the lengths chooses, first those of all sequences."""
        lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
        steps = input.transpose(0, 1) if batch_first else input
        order = None
        if not enforce_sorted:
            lengths, order = torch.sort(lengths, descending=True)
            order = order.to(input.device)
            steps = steps.index_select(1, order)
        mask = torch.arange(steps.shape[0])[:, None] < lengths
        longest: Any = lengths.max().item()
        _state(longest >= 1, longest <= steps.shape[0])
        sizes = mask.sum(1)[:longest]
        setattr(sizes, _BATCH, steps.shape[1])
        return PackedSequence(steps[mask.to(input.device)], sizes, order)

    return pack_padded_sequence


def _padded(_: Function) -> Function:
    def pad_packed_sequence(
        sequence: PackedSequence,
        batch_first: bool = False,
        padding_value: float = 0.0,
        total_length: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """Each step from where the data have it, and the padding elsewhere."""
        data, sizes, _, back = sequence
        mask = sizes[:, None] > torch.arange(_batch_of(sequence))
        place = ((mask.cumsum(1) - 1) + (sizes.cumsum(0) - sizes)[:, None]) * mask
        place, shown = place.to(data.device), mask.to(data.device)
        shown = shown.reshape(*shown.shape, *(1 for _ in data.shape[1:]))
        padded = torch.where(shown, data[place], padding_value).to(data.dtype)
        if total_length is not None:
            missing = total_length - sizes.shape[0]
            _state(missing >= 0)
            filled = padded.new_full((missing, *padded.shape[1:]), padding_value)
            padded = torch.cat([padded, filled])
        lengths = mask.sum(0)
        if back is not None:
            padded, lengths = padded.index_select(1, back), lengths[back.cpu()]
        return padded.transpose(0, 1) if batch_first else padded, lengths

    return pad_packed_sequence


def _state(*bounds: Any) -> None:
    for holds in bounds:
        torch._check(holds)  # type: ignore[no-untyped-call]  # torch states no types for it


def _batch_of(sequence: PackedSequence) -> Any:
    """How many sequences there are."""
    known = getattr(sequence.batch_sizes, _BATCH, None)
    if known is None and sequence.sorted_indices is not None:
        known = sequence.sorted_indices.shape[0]
    return sequence.batch_sizes[0].item() if known is None else known


def _with_states(original: Function) -> Function:
    def forward(self: Any, input: PackedSequence, hx: Any = None) -> Any:  # noqa: A002  (as above)
        """With the states that upstream begins with, of a batch that is not read from a tensor."""
        if hx is None:
            count = self.num_layers * (2 if self.bidirectional else 1), _batch_of(input)
            hx = input.data.new_zeros((*count, self.proj_size or self.hidden_size))
            if self.mode == "LSTM":
                hx = hx, input.data.new_zeros((*count, self.hidden_size))
        return original(self, input, hx)

    return forward


def _unchecked(_: Function) -> Function:
    def check_forward_args(self: Any, _input: Tensor, _hidden: Any, _sizes: Tensor) -> None:
        """Nothing: the recorded calls passed, and upstream reads the batch from a tensor."""

    return check_forward_args


def _is_packed(_self: Any, sequence: Any = None, *_more: Any, **kwargs: Any) -> bool:
    return isinstance(kwargs.get("input", sequence), PackedSequence)


_RNN = "torch.nn.utils.rnn"
_WHY = "the lengths of packed sequences are read as numbers"
_patch = partial(Patch, why=_WHY, link=_LINK)

PATCHES = (
    *(
        _patch(f"{_RNN}.{name}", replace=replace, places=partial(find_copies, _RNN, name))
        for name, replace in (("pack_padded_sequence", _packed), ("pad_packed_sequence", _padded))
    ),
    *(
        _patch(f"torch.nn.{name}.forward", replace=_with_states, acts=_is_packed)
        for name in ("LSTM", "GRU", "RNN")
    ),
    _patch(
        "torch.nn.RNNBase.check_forward_args", replace=_unchecked,
        acts=lambda _self, _input, _hidden, batch_sizes=None: batch_sizes is not None,
    ),
    *(
        _patch(f"torch.ops.aten.{name}.data", replace=partial(compute_shapes_only, packed=True))
        for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    ),
)  # fmt: skip
"""Functions and layers of torch.nn, and the operators below."""

"""What to do about a line that torch.export cannot follow: a table of constructs."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torchferry.values.source_line import package_of

__all__ = ["Advice", "advise", "around"]


@dataclass(frozen=True)
class Advice:
    """A construct, what it does to an export, and how to write it instead.

    Attributes:
        reason: why it cannot be traced.
        rewrite: what to write.
        code: whether the line itself has to change, which is no way for a line of a library.
    """

    reason: str
    rewrite: str
    code: bool = True


# (pattern of the user's line, pattern of torch's error, advice); the first row that fits.
_DATA = "data-dependent|Data-dependent|unbacked|UserDefinedObject|Unsupported|failed to unpack"
_PACKED = Advice(
    "a packed sequence depends on the lengths' values",
    "Run the recurrent layer on the padded tensor, and take the last states with "
    "torch.gather at lengths - 1",
    code=False,
)
_ROWS: tuple[tuple[str, str, Advice], ...] = (
    (
        r"\.tolist\(\)",
        _DATA,
        Advice(
            "a tensor becomes a Python list, whose values no trace knows",
            "Compute what follows from it before the model and give that as an input, "
            "or keep it a tensor (arange, repeat_interleave, cumsum)",
        ),
    ),
    (
        r"pack_padded_sequence|PackedSequence|self\.\w*(rnn|lstm|gru)\w*\(",
        "failed to unpack|_pack_padded|batch_sizes|Unsupported",
        _PACKED,
    ),
    ("", r"_pack_padded|batch_sizes|(?s:failed to unpack.*\brnn\.py)", _PACKED),
    (
        "",
        r"unhashable type: .*Sym(Int|Bool|Float)",
        Advice(
            "a size is the key of a dictionary or a set, and no number while the model is traced",
            "Write the choice with if (``if x.shape[0] == 1:``), so that the export knows for "
            "which sizes it holds; or make the number an argument",
        ),
    ),
    (
        "",
        r"indices must be integers or slices, not Sym(Bool|Float)",
        Advice(
            "a comparison of sizes is the index of a list, and no number while it is traced",
            "Write ``a if test else b``, or int(test) for the index",
        ),
    ),
    (
        "",
        r"PendingUnbackedSymbolNotFound|Pending unbacked symbols",
        Advice(
            "a number or a size that data decides is read there, and nothing that comes out of it "
            "holds the number",
            "Keep it a tensor (index_select, torch.where, a mask) instead of x.item() and int(x)",
        ),
    ),
    (
        "",
        r"observer_enabled|activation_post_process",
        Advice(
            "a FakeQuantize still observes, and changes its scale in every call",
            "Call model.apply(torch.ao.quantization.disable_observer) before the export",
            code=False,
        ),
    ),
    (
        "",
        r"Expected FakeTensor, got <class 'torch\.Tensor'>",  # torch 2.12
        Advice(
            "a tensor of torch.func (grad, vmap, jacrev ...) is left when its transform has ended",
            "Compute the derivative outside of the model, or write it down by hand",
        ),
    ),
    (
        "",
        # torch 2.11 does not pass our message on, only where it was raised.
        r"only tensors can come out of torch\.cond|(?s:torch\.cond.*dispatch\.py.*in _tensors)",
        Advice(
            "a tensor decides what a name is that holds no tensor on one side",
            "Make it a tensor on both sides, of one shape and dtype (torch.where(test, 2, 3)), "
            "or write the whole without it",
        ),
    ),
    (
        "",
        r"torch\.jit\.",
        Advice(
            "a module of torch.jit is in the model, which torch.export cannot look into",
            "Use the module it was made of, before torch.jit.script or torch.jit.trace",
            code=False,
        ),
    ),
    (
        "",
        "PackedParamsBase",
        Advice(
            "it has layers of torch.ao.quantization, whose weights are packed",
            "Export the model as it was before quantize_dynamic or convert, and quantize the "
            "ONNX model, for example with onnxruntime.quantization",
            code=False,
        ),
    ),
    (
        r"^for .*\b(hit|nonzero|unique|where|expert\w*)\b",
        _DATA,
        Advice(
            "the loop runs over what a tensor holds: how often is not known",
            "Loop over all experts and weigh each by its mask, "
            'or, of transformers 5.10 or newer, set config._experts_implementation = "grouped_mm"',
            code=False,
        ),
    ),
    (
        r"^for ",
        _DATA,
        Advice(
            "the loop runs as often as a tensor says",
            "Write it with torch.while_loop or scan "
            "(from torch._higher_order_ops.scan import scan)",
        ),
    ),
    (
        r"^while ",
        _DATA,
        Advice(
            "the loop ends when a tensor says so",
            "Write it with torch._higher_order_ops.while_loop; "
            "simple ones are rewritten where rewrite is not False",
        ),
    ),
    (
        r"^(el)?if |^assert | if .* else ",
        _DATA,
        Advice(
            "the values of a tensor decide what the code does",
            "Write it with torch.where or torch.cond, or state what holds with torch._check; "
            "simple ones are rewritten where rewrite is not False",
        ),
    ),
    (
        r"\.item\(\)|\bint\(|\[.*:.*\]|range\(",
        _DATA,
        Advice(
            "a number read out of a tensor decides a size",
            "Select with a mask (torch.arange(n) < length) or index_select; or keep the slice "
            "and state its bounds: torch._check(0 <= n), torch._check(n <= x.shape[0])",
        ),
    ),
    (
        "",
        "not a known type|Unsupported input type|not supported as input|not in pytree",
        Advice(
            "it takes or returns an object of a class that PyTorch cannot look into",
            "Make it a dataclass, or teach it with torchferry.values.kinds.register",
            code=False,
        ),
    ),
    (
        "",
        "attribute .* assigned during export",
        Advice(
            "forward sets a tensor as an attribute, which no exported program can keep",
            "Register it with register_buffer and update it with copy_, or return it",
        ),
    ),
    (
        "",
        "data-dependent|Data-dependent",
        Advice(
            "the values of a tensor decide what the code does",
            "Write it with torch.where or torch.cond, or state what holds with torch._check",
        ),
    ),
)
_SETTINGS = str(Path("torch", "ao", "quantization"))
_RECURRENT = str(Path("torch", "nn", "modules", "rnn.py"))
_SWITCHES = {
    "transformers": ' (attn_implementation="eager", use_cache=False and the like)',
    "diffusers": " (return_dict=False, another attention processor and the like)",
    "torchvision": " (another size of the images and the like)",
}
_OTHER = Advice("it failed", "Change that line, or give inputs that do not reach it")


def advise(line: str | None, error: BaseException | None, said: str = "") -> Advice:
    """What to say about a failed trace.

    Args:
        line: ``file:line: code`` of the user's, where it is known.
        error: what torch.export raised.
        said: what else there is to go by, of other attempts.

    >>> advise("model.py:3: n = x.sum().item()", ValueError("data-dependent expression")).reason
    'a number read out of a tensor decides a size'
    """
    code = line.split(": ", 1)[1] if line and ": " in line else ""
    text = "\n".join([str(error), *_settings(error), said])
    for in_code, in_error, advice in _ROWS:
        if re.search(in_code, code) and re.search(in_error, text):
            return replace(advice, rewrite=around(line, advice.rewrite)) if advice.code else advice
    return replace(_OTHER, rewrite=around(line, _OTHER.rewrite))


def around(line: str | None, rewrite: str) -> str:
    """What to do about a line: as it is said, or, in an installed package, what a user can do.

    Args:
        line: ``file:line: code``, where it is known.
        rewrite: how to change the line.

    >>> around("/env/site-packages/timm/layers.py:3: x = int(n)", "Change that line")[:39]
    'That line is in the package timm, not i'
    """
    package = package_of(line)
    if not package:
        return rewrite
    switch = _SWITCHES.get(package, "")
    return (
        f"That line is in the package {package}, not in your code: give the model arguments that "
        f"lead around it{switch}, or replace the function during the capture "
        "(custom_patches; docs/extending.md shows how)"
    )


def _settings(error: BaseException | None) -> Iterator[str]:
    """Lines of PyTorch's quantization, and its file of LSTMs, that an exception went through."""
    for frame in traceback.extract_tb(error.__traceback__) if error else ():
        if _RECURRENT in frame.filename:
            yield frame.filename
        if _SETTINGS in frame.filename:
            yield frame.line or ""

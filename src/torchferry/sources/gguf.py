"""Models in one file of llama.cpp, ``.gguf``: weights, configuration and tokenizer."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch

from torchferry.errors import UsageError
from torchferry.sources.loaded import Loaded
from torchferry.sources.package import call_package, import_package
from torchferry.zoo.library import import_transformers, quiet

__all__ = ["is_gguf", "load_gguf"]


def is_gguf(text: str) -> bool:
    """Whether a text is the name of such a file."""
    return Path(text).suffix == ".gguf" and Path(text).is_file()


def load_gguf(text: str) -> Loaded:
    """A decoder whose weights are what the file's codes stand for, in float32, in eval mode.

    Args:
        text: the file.

    Raises:
        UsageError: a package is missing, the file is damaged, or transformers does not read its
            architecture.
    """
    path = Path(text)
    transformers = import_transformers(text)
    import_package("gguf", text)
    load = transformers.AutoModelForCausalLM.from_pretrained
    how: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    how |= {"dtype": torch.float32, "output_loading_info": True}
    with quiet(transformers), redirect_stderr(io.StringIO()):  # a bar that nothing turns off
        model, found = call_package(text, lambda: load(str(path.parent), **how))
    lost = sorted(found["missing_keys"])
    if lost:  # transformers goes on with random ones
        raise UsageError(
            f"{text} lacks {len(lost)} weights of {type(model).__name__}, the first is "
            f"{lost[0]!r}: convert the model again"
        )
    model.config.architectures = [type(model).__name__]
    return Loaded(model.eval())

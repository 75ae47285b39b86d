"""The files of a Hugging Face folder beside the graphs, as old and new readers want them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchferry.deployer.layout import Graph
from torchferry.errors import UsageError
from torchferry.sources.gguf import is_gguf
from torchferry.values.kinds import attempt
from torchferry.zoo.library import import_transformers

__all__ = [
    "copy_processor", "deployed_config", "read_tokenizer", "write_configs", "write_tokenizer",
]  # fmt: skip

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt",
                    "tokenizer_config.json")  # fmt: skip
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "modules.json",
                    "sentence_bert_config.json", "config_sentence_transformers.json",
                    "[0-9]_*/config.json")  # fmt: skip
_GENERIC = "PreTrainedTokenizerFast"
_DROPPED = ("quantization_config", "_attn_implementation_autoset", "_name_or_path",
            "_model_name_or_path")  # fmt: skip


def read_tokenizer(source: str) -> Any:
    """The tokenizer of a model folder or of a ``.gguf`` file; ``None`` if there is none.

    Raises:
        UsageError: there is one, and transformers cannot read it.
    """
    place = Path(source)
    how: dict[str, Any] = {"local_files_only": True}
    if is_gguf(source):
        place, how = place.parent, how | {"gguf_file": place.name}
    elif not place.is_dir() or not any((place / name).is_file() for name in _TOKENIZER_FILES):
        return None
    transformers = import_transformers(f"the tokenizer of {source}")
    load = transformers.AutoTokenizer.from_pretrained
    tokenizer, error = attempt(lambda: load(str(place), **how))
    if error is not None:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise UsageError(
            f"transformers cannot read the tokenizer of {source}: {reason}\n"
            "Copy its files again, or remove them and deploy --for onnxruntime"
        )
    return tokenizer


def write_tokenizer(tokenizer: Any, folder: Path, inputs: Sequence[str]) -> None:
    """Write the files of a tokenizer so that transformers 4.57, genai and JavaScript read them.

    Args:
        tokenizer: of transformers.
        folder: to write to.
        inputs: of the model's graph.

    Raises:
        UsageError: the tokenizer has no ``tokenizer.json``, which genai and JavaScript need.
    """
    tokenizer.save_pretrained(folder)
    if not (folder / "tokenizer.json").is_file():
        raise UsageError(
            f"{type(tokenizer).__name__} cannot be written as tokenizer.json, which the runtimes "
            "read: save it as a fast tokenizer of transformers first"
        )
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text("utf-8"))
    # transformers 5 names its own classes, which 4.57 does not know.
    if settings.get("tokenizer_class", "TokenizersBackend").endswith("Backend"):
        settings["tokenizer_class"] = _GENERIC
    for name in ("backend", "is_local", "local_files_only"):
        settings.pop(name, None)
    # Without it 4.57 adds token_type_ids, which a decoder's generate refuses.
    known = ("input_ids", "token_type_ids", "attention_mask")
    settings["model_input_names"] = [name for name in known if name in inputs]
    _write(path, settings)


def copy_processor(source: str, folder: Path) -> None:
    """Copy what a folder says of processing images, and of sentences if it is of those."""
    place = Path(source)
    if place.is_dir():
        for pattern in _PROCESSOR_FILES:
            for path in sorted(place.glob(pattern)):
                target = folder / path.relative_to(place)
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target)
        _split_processor(folder)


def _split_processor(folder: Path) -> None:
    """Write what older readers and JavaScript look for, where transformers 5 writes one file."""
    whole, part = folder / "processor_config.json", folder / "preprocessor_config.json"
    if not whole.is_file() or part.is_file():
        return
    settings, error = attempt(lambda: json.loads(whole.read_text("utf-8")))
    if error is not None or not isinstance(settings, dict):
        raise UsageError(f"{whole.name} of the model is no JSON object: copy it again")
    for name in ("feature_extractor", "image_processor"):
        if isinstance(settings.get(name), dict):
            kept = {"processor_class": settings.get("processor_class")} | settings[name]
            _write(part, {key: value for key, value in kept.items() if value is not None})


def write_configs(model: Any, folder: Path, graphs: Sequence[Graph]) -> None:
    """Write ``config.json`` and, if the model generates, ``generation_config.json``."""
    _write(folder / "config.json", deployed_config(model, folder, graphs))
    generation = getattr(model, "generation_config", None)
    if generation is not None and model.can_generate():
        generation.save_pretrained(folder)


def deployed_config(model: Any, folder: Path, graphs: Sequence[Graph]) -> dict[str, Any]:
    """The configuration of a model, with what older readers and JavaScript look for.

    Args:
        model: of transformers.
        folder: that holds the graphs, to see which of them have a file of weights.
        graphs: of the folder.
    """
    settings: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=False))
    settings.setdefault("architectures", [type(model).__name__])
    settings["architectures"] = settings["architectures"] or [type(model).__name__]
    _make_readable(settings)
    external = {
        path.name: 1
        for graph in graphs
        for path in graph.paths
        if (folder / path).with_name(f"{path.name}_data").is_file()
    }
    script: dict[str, Any] = {"use_external_data_format": external}
    halves = {graph.dtype: "float16" for graph in graphs if graph.floats == "fp16"}
    if halves:
        script["kv_cache_dtype"] = halves
    settings["transformers.js_config"] = script
    return settings


def _make_readable(settings: dict[str, Any]) -> None:
    """Write in place what transformers 4.57 and JavaScript read; nested configurations too."""
    for name in _DROPPED:  # the graph's weights are no longer the checkpoint's
        settings.pop(name, None)
    rope = settings.get("rope_parameters")
    if isinstance(rope, Mapping) and "rope_theta" in rope:
        settings["rope_theta"] = rope["rope_theta"]
        kind = rope.get("rope_type", "default")
        scaling = {name: value for name, value in rope.items() if name != "rope_theta"}
        settings["rope_scaling"] = None if kind == "default" else scaling
        if "partial_rotary_factor" in rope:
            settings["partial_rotary_factor"] = rope["partial_rotary_factor"]
    for value in settings.values():
        if isinstance(value, dict) and "model_type" in value:
            _make_readable(value)


def _write(path: Path, settings: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")

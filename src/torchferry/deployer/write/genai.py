"""``genai_config.json`` of onnxruntime-genai, whose parser refuses keys that it does not know.

https://onnxruntime.ai/docs/genai/reference/config.html; every key here is one that 0.18 reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from torchferry.deployer.layout import GENAI, Graph, genai_files
from torchferry.deployer.write.grouped import group_attention
from torchferry.deployer.write.merge import split_for_genai
from torchferry.errors import UsageError

__all__ = ["check_decoder_graph", "genai_config", "write_genai", "write_genai_speech"]

_INPUTS = ("input_ids", "attention_mask", "position_ids")
_PAST, _PRESENT = "past_key_values.{}.{}", "present.{}.{}"


def check_decoder_graph(graph: ir.Graph, title: str) -> int:
    """The number of layers of a decoder with a plain cache.

    Raises:
        UsageError: the graph has other inputs or outputs than keys and values of each layer.
    """
    inputs = {str(value.name) for value in graph.inputs}
    outputs = {str(value.name) for value in graph.outputs}
    pairs = [(i, part) for i in range(len(inputs)) for part in ("key", "value")]
    past = {name for i, part in pairs if (name := _PAST.format(i, part)) in inputs}
    present = {_PRESENT.format(i, part) for i, part in pairs}
    strange = sorted((inputs - past - {*_INPUTS}) | (outputs - present - {"logits"}))
    if strange or "logits" not in outputs or not past:
        what = f"has {strange[0]}" if strange else "has no keys and values of earlier tokens"
        raise UsageError(
            f"{title} {what}; a decoder that these runtimes run has input_ids, attention_mask, "
            "position_ids and past_key_values.N alone: use torchferry export"
        )
    return len(past) // 2


def write_genai(
    folder: Path, model: Any, graphs: Sequence[Graph], built: ir.Graph, pad: int
) -> str:
    """Write the file, and graphs with one buffer of keys and values, if they can have one.

    These graphs refer to the weights of the others, and hold none of their own.

    Args:
        folder: of the deployment.
        model: of transformers.
        graphs: the default first: genai runs it unless it is asked for another.
        built: that graph, whose inputs say how large the cache is.
        pad: the token that fills up shorter prompts.

    Returns: why there is no such buffer; nothing if there is.
    """
    settings = genai_config(model, graphs[0], built, pad)
    context, why = settings["model"]["context_length"], ""
    fast = [ir.load(folder / graph.path) for graph in graphs]
    for one in fast:
        why = why or group_attention(one, context)
    if not why:
        for graph, one in zip(graphs, fast, strict=True):
            ir.save(one, folder / replace(graph, parts=GENAI[1]).path)
        decoder = settings["model"]["decoder"]
        decoder["filename"] = genai_files(graphs[0], folder)["decoder"].as_posix()
        left = {str(value.name) for value in fast[0].graph.inputs}
        decoder["inputs"] = {
            name: value
            for name, value in decoder["inputs"].items()
            if name not in _INPUTS or name in left
        }
        settings["search"]["past_present_share_buffer"] = True
    _write_settings(folder, settings)
    return why


def _write_settings(folder: Path, settings: dict[str, Any]) -> None:
    (folder / "genai_config.json").write_text(json.dumps(settings, indent=4) + "\n", "utf-8")


def write_genai_speech(
    folder: Path, model: Any, graphs: Sequence[Graph], built: ir.Graph, pad: int
) -> None:
    """Write the graphs and the configuration that genai wants of Whisper.

    The graphs refer to the weights of the others, and hold none of their own.

    Args:
        folder: of the deployment, which holds the other graphs.
        model: of transformers.
        graphs: the default first.
        built: the decoder, whose inputs say how large the cache is.
        pad: the token that fills up shorter prompts.
    """
    for graph in graphs:
        parts = [ir.load(folder / path) for path in graph.paths]
        split_for_genai(*parts)
        for part, path in zip(parts, replace(graph, parts=GENAI[2]).paths, strict=True):
            ir.save(part, folder / path)
    files = [path.as_posix() for path in genai_files(graphs[0], folder).values()]
    _write_settings(folder, _speech_config(model, files, built, pad))


def _speech_config(model: Any, files: Sequence[str], built: ir.Graph, pad: int) -> dict[str, Any]:
    config, generation = model.config, model.generation_config
    shapes = {str(value.name): value.shape for value in built.inputs}
    own = "past_key_values.{}.decoder.{}"
    cache = shapes[own.format(0, "key")]
    heads, size = (int(str(cache[axis])) for axis in (1, 3)) if cache is not None else (1, 1)
    layers = sum(own.format(i, "key") in shapes for i in range(len(shapes)))
    context = int(config.max_target_positions)
    sizes = {"head_size": size, "hidden_size": int(config.d_model), "num_attention_heads": heads,
             "num_hidden_layers": layers, "num_key_value_heads": heads}  # fmt: skip
    options = {"session_options": {"log_id": "onnxruntime-genai", "provider_options": []}}
    parts = ("key", "value")
    past = {f"past_{p}_names": own.format("%d", p) for p in parts}
    crossed = {f"cross_past_{p}_names": f"past_key_values.%d.encoder.{p}" for p in parts}
    present = {f"present_{p}_names": f"present.%d.decoder.{p}" for p in parts}
    states = {f"cross_present_{p}_names": f"present.%d.encoder.{p}" for p in parts}
    eos = generation.eos_token_id
    return {
        "model": {
            "bos_token_id": _first(generation.bos_token_id, pad),
            "context_length": context,
            "decoder": {
                **options, "filename": files[1], **sizes,
                "inputs": {"input_ids": "input_ids"} | past | crossed,
                "outputs": {"logits": "logits"} | present,
            },
            "encoder": {
                **options, "filename": files[0], **sizes,
                "inputs": {"audio_features": "input_features"},
                "outputs": {"encoder_hidden_states": "last_hidden_state"} | states,
            },
            "eos_token_id": pad if eos is None else eos,
            "pad_token_id": pad,
            "type": "whisper",
            "vocab_size": int(config.vocab_size),
        },
        "search": _search(generation, context),
    }  # fmt: skip


def genai_config(model: Any, graph: Graph, built: ir.Graph, pad: int) -> dict[str, Any]:
    """What genai reads; the arguments are those of `write_genai`."""
    config = model.config.get_text_config(decoder=True)
    generation = getattr(model, "generation_config", config)
    shapes = {str(value.name): value.shape for value in built.inputs}
    layers = check_decoder_graph(built, type(model).__name__)
    cache = shapes[_PAST.format(0, "key")]
    heads, size = (int(str(cache[axis])) for axis in (1, 3)) if cache is not None else (1, 1)
    context = int(getattr(config, "max_position_embeddings", 0) or 2048)
    attention = int(getattr(config, "num_attention_heads", heads))
    used = [name for name in _INPUTS if name in shapes]
    past = {f"past_{p}_names": _PAST.format("%d", p) for p in ("key", "value")}
    present = {f"present_{p}_names": _PRESENT.format("%d", p) for p in ("key", "value")}
    eos = generation.eos_token_id
    return {
        "model": {
            "bos_token_id": _first(generation.bos_token_id, pad),
            "context_length": context,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": graph.path.as_posix(),
                "head_size": size,
                "hidden_size": int(getattr(config, "hidden_size", attention * size)),
                "inputs": {name: name for name in used} | past,
                "outputs": {"logits": "logits"} | present,
                "num_attention_heads": attention,
                "num_hidden_layers": layers,
                "num_key_value_heads": heads,
            },
            "eos_token_id": pad if eos is None else eos,
            "pad_token_id": pad,
            "type": "decoder",  # generic: other types expect other graphs, as gpt2's one cache
            "vocab_size": int(config.vocab_size),
        },
        "search": _search(generation, context),
    }


def _search(generation: Any, context: int) -> dict[str, Any]:
    """How tokens are chosen, as the model's own configuration says."""
    return {
        "diversity_penalty": 0.0,
        "do_sample": bool(generation.do_sample),
        "early_stopping": True,
        "length_penalty": 1.0,
        "max_length": context,
        "min_length": 0,
        "no_repeat_ngram_size": 0,
        "num_beams": 1,
        "num_return_sequences": 1,
        # The graph's cache is as long as the tokens seen; `write_genai` knows of another.
        "past_present_share_buffer": False,
        "repetition_penalty": float(generation.repetition_penalty or 1.0),
        "temperature": float(generation.temperature or 1.0),
        "top_k": int(generation.top_k or 50),
        "top_p": float(generation.top_p or 1.0),
    }


def _first(token: int | list[int] | None, default: int) -> int:
    token = token[0] if isinstance(token, list) and token else token
    return token if isinstance(token, int) else default

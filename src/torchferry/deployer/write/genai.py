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

from torchferry.deployer.kind import VISION_LANGUAGE
from torchferry.deployer.layout import GENAI, Graph, genai_files
from torchferry.deployer.write.grouped import group_attention
from torchferry.deployer.write.merge import split_for_genai
from torchferry.errors import UsageError
from torchferry.graph import io

__all__ = [
    "check_decoder_graph", "genai_config", "write_genai", "write_genai_speech",
    "write_genai_vision",
]  # fmt: skip

_INPUTS = ("input_ids", "inputs_embeds", "attention_mask", "position_ids")
IMAGES = "genai_images.json"
"""How genai prepares images: transformers has another file by the name that genai looks for."""
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
    _write(folder / "genai_config.json", settings)


def _write(path: Path, settings: dict[str, Any]) -> None:
    path.write_text(json.dumps(settings, indent=4) + "\n", "utf-8")


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


def write_genai_vision(
    folder: Path, model: Any, graphs: Sequence[Graph], built: ir.Graph, pad: int
) -> None:
    """Write the configuration, and how genai prepares images, of a vision-language model.

    Args:
        folder: of the deployment, which holds the graphs and the processor of transformers.
        model: of transformers.
        graphs: the default first.
        built: its decoder.
        pad: the token that fills up shorter prompts.
    """
    settings = genai_config(model, graphs[0], built, pad)
    options = {"session_options": settings["model"]["decoder"]["session_options"]}
    files = {name: path.as_posix() for name, path in genai_files(graphs[0], folder).items()}
    taken = [str(value.name) for value in io.load(folder / files["vision"]).graph.inputs]
    vision: dict[str, Any] = {
        **options, "filename": files["vision"], "inputs": {name: name for name in taken},
        "outputs": {"image_features": "image_features"},
    }  # fmt: skip
    config = model.config
    kind = VISION_LANGUAGE[config.model_type]
    tokens = {"image_token_id": config.image_token_id}
    if "image_grid_thw" in taken:
        seen = config.vision_config
        tokens |= {n: getattr(config, n) for n in ("video_token_id", "vision_start_token_id")}
        vision |= {
            "spatial_merge_size": seen.spatial_merge_size, "patch_size": seen.patch_size,
            "tokens_per_second": float(getattr(seen, "tokens_per_second", 1.0)),
        }  # fmt: skip
        transforms = _transforms(folder)
        if transforms:
            vision["config_filename"] = IMAGES
            _write(folder / IMAGES, {"processor": {"name": "images", "transforms": transforms}})
    settings["model"] |= {
        "type": kind, **tokens, "vision": vision,
        "embedding": {
            **options, "filename": files["embedding"],
            "inputs": {"input_ids": "input_ids", "image_features": "image_features"},
            "outputs": {"inputs_embeds": "inputs_embeds"},
        },
    }  # fmt: skip
    _write_settings(folder, settings)


def _transforms(folder: Path) -> list[dict[str, Any]]:
    """The steps of Qwen-VL's image processor, as genai's own reads them; empty without one."""
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        return []
    said: dict[str, Any] = json.loads(path.read_text("utf-8"))
    size = said.get("size") or {}
    patch, merge = said.get("patch_size", 14), said.get("merge_size", 2)
    side = {"patch_size": patch, "merge_size": merge}
    pixels = {
        "min_pixels": said.get("min_pixels") or size.get("shortest_edge", 56 * 56),
        "max_pixels": said.get("max_pixels") or size.get("longest_edge", 28 * 28 * 1280),
    }
    normal = {"mean": said["image_mean"], "std": said["image_std"], "qwen2_5_vl": 1}
    steps: dict[str, dict[str, Any]] = {
        "DecodeImage": {"color_space": "RGB"},
        "ConvertRGB": {},
        "Resize": {"width": 540, "height": 360, "smart_resize": 1, **pixels, **side},
        "Rescale": {"rescale_factor": said.get("rescale_factor", 1 / 255)},
        "Normalize": normal,
        "PatchImage": {"temporal_patch_size": said.get("temporal_patch_size", 2), **side},
    }
    return [
        {"operation": {"name": name.lower(), "type": name, "attrs": attributes}}
        for name, attributes in steps.items()
    ]


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

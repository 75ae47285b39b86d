"""Models of text and images together: one row each."""

from __future__ import annotations

from typing import Any

from torchferry.zoo.family import SIZES, Family

__all__ = ["MULTIMODAL"]

_COMPARE = ("zero-shot-image-classification",)
_ANSWER = ("image-text-to-text",)
_LAYERS: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
_VISION: dict[str, Any] = {**_LAYERS, "image_size": 24, "patch_size": 8, "projection_dim": 16}
_TEXT: dict[str, Any] = {
    **_LAYERS, "vocab_size": 99, "max_position_embeddings": 32, "projection_dim": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_QWEN_TEXT: dict[str, Any] = {
    **{key: value for key, value in SIZES.items() if key != "head_dim"},
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
}
_QWEN_VISION: dict[str, Any] = {
    "depth": 2, "num_heads": 4, "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2,
    "hidden_size": 32,
}  # fmt: skip
_QWEN_TOKENS = {
    "image_token_id": 90, "video_token_id": 91, "vision_start_token_id": 92,
    "vision_end_token_id": 93,
}  # fmt: skip

MULTIMODAL = (
    Family("clip", _COMPARE, sizes={
        "text_config": _TEXT, "vision_config": _VISION, "projection_dim": 16}),
    Family("llava", _ANSWER, sizes={
        "text_config": {**SIZES, "model_type": "llama"},
        "vision_config": {**_VISION, "model_type": "clip_vision_model"},
        "image_token_index": 90, "image_seq_length": 9}),
    Family("qwen2_5_vl", _ANSWER, since="5.0", sizes={
        **_QWEN_TOKENS, "text_config": _QWEN_TEXT, "vision_config": {
            **_QWEN_VISION, "intermediate_size": 48, "out_hidden_size": 32, "window_size": 16,
            "fullatt_block_indexes": [1]}}),
    Family("qwen2_vl", _ANSWER, since="5.0", sizes={
        **_QWEN_TOKENS, "text_config": _QWEN_TEXT, "vision_config": {
            **_QWEN_VISION, "embed_dim": 32, "mlp_ratio": 2}}),
    Family("siglip", _COMPARE, sizes={
        "text_config": {**_TEXT, "projection_size": 32}, "vision_config": _VISION}),
)  # fmt: skip

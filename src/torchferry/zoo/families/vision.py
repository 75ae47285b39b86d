"""Models of images: one row each."""

from __future__ import annotations

from typing import Any

from torchferry.zoo.family import Family

__all__ = ["VISION"]

_CLASSIFICATION = ("image-classification", "feature-extraction")
_PATCHES: dict[str, Any] = {"image_size": (24, 40), "patch_size": 8}
_STAGES: dict[str, Any] = {"hidden_sizes": [16, 32], "depths": [1, 1]}
_BACKBONE: dict[str, Any] = {
    "model_type": "resnet", "embedding_size": 16, "layer_type": "basic",
    "out_features": ["stage2"], **_STAGES,
}  # fmt: skip
_ANY = ((3, 48, 80), (2, 64, 48), (1, 32, 56))

VISION = (
    Family("convnext", _CLASSIFICATION, images=_ANY,
           sizes={**_STAGES, "num_stages": 2, "layer_scale_init_value": 1.0}),
    Family("deit", _CLASSIFICATION, sizes=_PATCHES),
    Family("detr", ("object-detection",), images=_ANY, since="5.10", sizes={
        "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48,
        "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48,
        "num_queries": 7, "backbone_config": _BACKBONE}),
    Family("dinov2", _CLASSIFICATION, images=((3, 24, 40), (2, 40, 32), (1, 32, 24)),
           sizes={"image_size": 32, "patch_size": 8, "mlp_ratio": 2}),
    Family("resnet", _CLASSIFICATION, images=_ANY,
           sizes={**_STAGES, "embedding_size": 16, "layer_type": "basic"}),
    Family("sam", ("mask-generation",), sizes={
        "vision_config": {
            "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64,
            "patch_size": 8, "output_channels": 32, "window_size": 3, "num_pos_feats": 16,
            "mlp_dim": 48, "global_attn_indexes": [1]},
        "prompt_encoder_config": {
            "hidden_size": 32, "image_size": 64, "patch_size": 8, "mask_input_channels": 4},
        "mask_decoder_config": {
            "hidden_size": 32, "mlp_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "iou_head_hidden_dim": 16}}),
    Family("segformer", ("image-segmentation", "image-classification"), images=_ANY, sizes={
        "num_encoder_blocks": 2, "depths": [1, 1], "hidden_sizes": [16, 32], "sr_ratios": [2, 1],
        "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [2, 4],
        "mlp_ratios": [2, 2], "decoder_hidden_size": 24}),
    # All are whole windows wide at the first stage, none is at the second: else other code runs.
    Family("swin", _CLASSIFICATION, images=((3, 48, 80), (2, 64, 48), (1, 48, 112)), sizes={
        "image_size": 64, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4],
        "window_size": 4, "mlp_ratio": 2.0}),
    Family("vit", _CLASSIFICATION, sizes=_PATCHES),
)  # fmt: skip
"""By name. deit, sam and vit take images of one size only; of deit and vit it is no square."""

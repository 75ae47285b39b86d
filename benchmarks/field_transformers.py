"""Models of transformers for field.py: codecs, detectors, a series and a step of a decoder."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from field_images import Factory, Made

__all__ = ["TRANSFORMERS"]


def of_library(name: str, config: str, size: dict[str, Any], sets: list[Any]) -> Made:
    library = importlib.import_module("transformers")
    return getattr(library, name)(getattr(library, config)(**size)), sets


def sounds() -> list[Any]:
    return [{"input_values": torch.rand(b, 1, n) - 0.5} for b, n in ((2, 320), (3, 480))]


def pixels(*shapes: tuple[int, ...]) -> list[Any]:
    return [{"pixel_values": torch.randn(*shape)} for shape in shapes]


def encodec() -> Made:
    size = {
        "num_filters": 4, "hidden_size": 8, "codebook_size": 16, "codebook_dim": 8,
        "upsampling_ratios": [4, 2], "num_lstm_layers": 1, "target_bandwidths": [12.0, 24.0],
    }  # fmt: skip
    return of_library("EncodecModel", "EncodecConfig", size, sounds())


def mimi() -> Made:
    size = {
        "num_filters": 4, "hidden_size": 16, "codebook_size": 16, "codebook_dim": 8,
        "upsampling_ratios": [4, 2], "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 2, "intermediate_size": 16, "head_dim": 8, "num_quantizers": 2,
        "num_semantic_quantizers": 1, "vector_quantization_hidden_dimension": 8,
        "frame_rate": 1500.0, "sampling_rate": 24000, "upsample_groups": 8,
    }  # fmt: skip
    return of_library("MimiModel", "MimiConfig", size, sounds())


def deformable_detr() -> Made:
    library = importlib.import_module("transformers")
    backbone = library.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    size = {
        "use_timm_backbone": False, "backbone": None, "backbone_config": backbone, "d_model": 32,
        "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
        "num_queries": 5,
    }  # fmt: skip
    sets = pixels((2, 3, 128, 192), (3, 3, 192, 160))
    return of_library("DeformableDetrModel", "DeformableDetrConfig", size, sets)


def superpoint() -> Made:
    size = {
        "encoder_hidden_sizes": [8, 8, 8, 8], "decoder_hidden_size": 8,
        "descriptor_decoder_dim": 8,
    }  # fmt: skip
    sets = pixels((1, 3, 32, 48), (1, 3, 48, 32))
    return of_library("SuperPointForKeypointDetection", "SuperPointConfig", size, sets)


def patch_series() -> Made:
    size = {
        "num_input_channels": 2, "context_length": 32, "patch_length": 8, "patch_stride": 8,
        "d_model": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 16,
        "prediction_length": 4,
    }  # fmt: skip
    sets = [{"past_values": torch.randn(b, 32, 2)} for b in (2, 3)]
    return of_library("PatchTSTForPrediction", "PatchTSTConfig", size, sets)


def segment_anything() -> Made:
    library = importlib.import_module("transformers")
    size = {
        "vision_config": {
            "hidden_size": 16, "output_channels": 8, "num_hidden_layers": 2,
            "num_attention_heads": 2, "image_size": 64, "patch_size": 16, "window_size": 2,
            "global_attn_indexes": [1], "mlp_dim": 16, "num_pos_feats": 4,
        },
        "prompt_encoder_config": {"hidden_size": 8, "image_size": 64, "mask_input_channels": 4},
        "mask_decoder_config": {
            "hidden_size": 8, "mlp_dim": 8, "num_attention_heads": 2, "iou_head_hidden_dim": 8,
        },
    }  # fmt: skip
    model = library.SamModel(library.SamConfig(**size))
    sets = [
        {"pixel_values": torch.randn(b, 3, 64, 64), "input_points": torch.rand(b, 1, n, 2) * 64}
        for b, n in ((2, 3), (3, 5))
    ]
    return model, sets


def dac() -> Made:
    size = {
        "encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "decoder_hidden_size": 16,
        "n_codebooks": 2, "codebook_size": 16, "codebook_dim": 4, "upsampling_ratios": [4, 2],
    }  # fmt: skip
    return of_library("DacModel", "DacConfig", size, sounds())


def vits() -> Made:
    size = {
        "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "ffn_dim": 16, "flow_size": 16, "spectrogram_bins": 9, "upsample_initial_channel": 16,
        "upsample_rates": [2, 2], "upsample_kernel_sizes": [4, 4], "resblock_kernel_sizes": [3],
        "resblock_dilation_sizes": [[1, 3]], "prior_encoder_num_flows": 2,
        "prior_encoder_num_wavenet_layers": 2, "posterior_encoder_num_wavenet_layers": 2,
        "duration_predictor_num_flows": 2, "depth_separable_num_layers": 1,
        "duration_predictor_filter_channels": 16, "noise_scale": 0.0,
        "noise_scale_duration": 0.0,
    }  # fmt: skip
    sets = [
        {"input_ids": torch.randint(1, 20, (b, n)), "attention_mask": torch.ones(b, n).long()}
        for b, n in ((2, 6), (3, 9))
    ]
    return of_library("VitsModel", "VitsConfig", size, sets)


def patch_mixer() -> Made:
    size = {
        "num_input_channels": 2, "context_length": 32, "patch_length": 8, "patch_stride": 8,
        "d_model": 8, "num_layers": 1, "prediction_length": 4,
    }  # fmt: skip
    sets = [{"past_values": torch.randn(b, 32, 2)} for b in (2, 3)]
    return of_library("PatchTSMixerForPrediction", "PatchTSMixerConfig", size, sets)


def qwen2_vision() -> Made:
    """Images of unlike sizes in one row of patches, as the processor hands them over."""
    library = importlib.import_module("transformers.models.qwen2_vl.modeling_qwen2_vl")
    config = importlib.import_module("transformers").Qwen2VLConfig(
        vision_config={"depth": 2, "embed_dim": 16, "num_heads": 2, "hidden_size": 16,
                       "patch_size": 4, "mlp_ratio": 2},
    ).vision_config  # fmt: skip
    grids = ([[1, 4, 6], [1, 6, 4]], [[1, 4, 4], [1, 8, 4], [1, 2, 6]])
    sets = [
        (torch.randn(sum(t * h * w for t, h, w in grid), 3 * 2 * 4 * 4), torch.tensor(grid))
        for grid in grids
    ]
    return library.Qwen2VisionTransformerPretrainedModel(config), sets


def one_token() -> Made:
    """A step of GPT-Neo, whose layers attend to windows."""
    caches = importlib.import_module("torchferry").make_dynamic_cache
    size = {
        "vocab_size": 50, "hidden_size": 16, "num_layers": 2, "num_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 64, "window_size": 4,
        "attention_types": [[["global", "local"], 1]], "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip

    def inputs(batch: int, past: int) -> dict[str, Any]:
        pairs = [(torch.rand(batch, 2, past, 8), torch.rand(batch, 2, past, 8)) for _ in range(2)]
        return {
            "input_ids": torch.randint(0, 50, (batch, 1)),
            "attention_mask": torch.ones(batch, past + 1, dtype=torch.int64),
            "past_key_values": caches(pairs),
        }

    return of_library("GPTNeoForCausalLM", "GPTNeoConfig", size, [inputs(2, 5), inputs(3, 8)])


TRANSFORMERS: dict[str, Factory] = {
    own.__name__: own
    for own in (
        encodec, mimi, deformable_detr, superpoint, patch_series, segment_anything, one_token,
        dac, vits, patch_mixer, qwen2_vision,
    )
}  # fmt: skip

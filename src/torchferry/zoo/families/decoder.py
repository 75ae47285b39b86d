"""Text decoders: one row each."""

from __future__ import annotations

from typing import Any

from torchferry.zoo.family import Family
from torchferry.zoo.library import OLDEST

__all__ = ["DECODERS"]

_GENERATION = ("text-generation",)
_EXPERTS: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
_WINDOW = 24  # more tokens than a plain decode has, fewer than one with a full window
_ALTERNATING = ["sliding_attention", "full_attention"]


def _decoder(name: str, *, kind: str = "", since: str = OLDEST, **sizes: Any) -> Family:
    return Family(name, _GENERATION, kind, sizes, since=since)


DECODERS = (
    _decoder("bamba", since="5.10", attn_layer_indices=[1], mamba_n_heads=8, mamba_d_head=8,
             mamba_d_state=8, mamba_chunk_size=4),
    _decoder("bloom"),
    _decoder("deepseek_v3", since="5.10", num_key_value_heads=4, moe_intermediate_size=24,
             n_routed_experts=8, num_experts_per_tok=2, n_group=2, topk_group=1,
             first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=24, qk_rope_head_dim=8,
             qk_nope_head_dim=12, v_head_dim=10),
    _decoder("falcon"),
    _decoder("gemma"),
    _decoder("gemma2", query_pre_attn_scalar=8, sliding_window=_WINDOW, layer_types=_ALTERNATING),
    _decoder("gemma3", kind="gemma3_text", query_pre_attn_scalar=8, sliding_window=_WINDOW,
             layer_types=_ALTERNATING),
    _decoder("gpt2"),
    _decoder("gpt_neox", since="5.10"),
    _decoder("gpt_oss", since="5.10", **_EXPERTS, sliding_window=_WINDOW, layer_types=_ALTERNATING,
             rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0,
                              "original_max_position_embeddings": 32, "truncate": False}),
    _decoder("granite", embedding_multiplier=2.0, residual_multiplier=0.5, logits_scaling=0.5,
             attention_multiplier=0.25),
    _decoder("jamba", since="5.10", num_experts=4, num_experts_per_tok=2, attn_layer_period=2,
             attn_layer_offset=1, mamba_d_state=8, mamba_dt_rank=6),
    _decoder("llama"),
    _decoder("mamba", since="5.10", state_size=8, time_step_rank=6),
    _decoder("mamba2", since="5.10", state_size=8, num_heads=8, n_groups=2, chunk_size=4),
    _decoder("mistral", sliding_window=_WINDOW),
    _decoder("mixtral", since="5.10", **_EXPERTS),
    _decoder("olmo2"),
    _decoder("opt", ffn_dim=48, word_embed_proj_dim=32),
    _decoder("phi", since="5.10", num_key_value_heads=4),
    _decoder("phi3", original_max_position_embeddings=64),
    _decoder("qwen2"),
    _decoder("qwen3"),
    _decoder("qwen3_moe", since="5.10", num_experts=4, num_experts_per_tok=2,
             moe_intermediate_size=24),
    _decoder("smollm3", no_rope_layers=[1, 0]),
    _decoder("starcoder2"),
)  # fmt: skip
"""By name. Mixture of experts: deepseek_v3, gpt_oss, jamba, mixtral, qwen3_moe."""

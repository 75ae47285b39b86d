"""A file of llama.cpp is read as its format defines it."""

import numpy as np
import pytest
import torch

from torchferry.errors import UsageError
from torchferry.sources.gguf import is_gguf
from torchferry.sources.kinds import read_model

gguf = pytest.importorskip("gguf")
pytest.importorskip("transformers")

WIDTH, INNER, WORDS = 64, 96, 50


def q4_0(rng, rows, columns):
    """Bytes of a matrix, and what they stand for: 32 codes of 4 bits and a half scale each."""
    scales = rng.uniform(0.02, 0.05, (rows, columns // 32)).astype(np.float16)
    codes = rng.integers(0, 16, (rows, columns // 32, 32)).astype(np.uint8)
    halves = codes[..., :16] | codes[..., 16:] << 4
    packed = np.concatenate([scales.view(np.uint8).reshape(rows, -1, 2), halves], -1)
    values = scales.astype(np.float32)[..., None] * (codes.astype(np.float32) - 8)
    return packed.reshape(rows, -1), values.reshape(rows, columns)


def write_gguf(path, *, lost=()):
    """A llama of one layer; returns its packed weights, by their names in llama.cpp."""
    rng, weights = np.random.default_rng(0), {}
    writer = gguf.GGUFWriter(path, "llama")
    for add, number in (
        (writer.add_context_length, 64), (writer.add_embedding_length, WIDTH),
        (writer.add_block_count, 1), (writer.add_feed_forward_length, INNER),
        (writer.add_head_count, 4), (writer.add_head_count_kv, 2),
        (writer.add_vocab_size, WORDS), (writer.add_layer_norm_rms_eps, 1e-5),
        (writer.add_rope_freq_base, 10000.0), (writer.add_rope_dimension_count, 16),
    ):  # fmt: skip
        add(number)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["w", "0", *(f"w{number}" for number in range(WORDS - 2))])
    writer.add_token_merges(["w 0"])
    shapes = {
        "attn_q": (WIDTH, WIDTH), "attn_k": (32, WIDTH), "attn_v": (32, WIDTH),
        "attn_output": (WIDTH, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_gate": (INNER, WIDTH),
        "ffn_down": (WIDTH, INNER),
    }  # fmt: skip
    for name, shape in shapes.items():
        packed, weights[name] = q4_0(rng, *shape)
        if name not in lost:
            kind = gguf.GGMLQuantizationType.Q4_0
            writer.add_tensor(f"blk.0.{name}.weight", packed, raw_dtype=kind)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    for name in ("token_embd", "output"):
        table = rng.standard_normal((WORDS, WIDTH)).astype(np.float32)
        writer.add_tensor(f"{name}.weight", table)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, weights


def test_weights_are_those_of_the_definition(tmp_path, capfd):
    path, weights = write_gguf(tmp_path / "tiny.gguf")
    assert is_gguf(str(path))
    model = read_model(str(path)).model
    layer = model.model.layers[0]
    for name, module in (
        ("ffn_up", layer.mlp.up_proj), ("ffn_down", layer.mlp.down_proj),
        ("attn_v", layer.self_attn.v_proj), ("attn_output", layer.self_attn.o_proj),
    ):  # fmt: skip
        assert module.weight.dtype == torch.float32
        assert np.array_equal(module.weight.detach().numpy(), weights[name]), name
    # llama.cpp turns neighbours, transformers halves: rows of a head are in another order.
    rows = weights["attn_q"].reshape(4, 8, 2, WIDTH).swapaxes(1, 2).reshape(WIDTH, WIDTH)
    assert np.array_equal(layer.self_attn.q_proj.weight.detach().numpy(), rows)
    assert not model.training
    assert model.config.architectures == ["LlamaForCausalLM"]
    assert capfd.readouterr().err == ""


def test_a_weight_that_is_lost_is_not_drawn(tmp_path):
    path, _ = write_gguf(tmp_path / "tiny.gguf", lost=("ffn_up",))
    with pytest.raises(UsageError, match=r"lacks 1 weights of LlamaForCausalLM.*up_proj"):
        read_model(str(path))


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(UsageError, match="cannot be loaded"):
        read_model(str(path))
    assert not is_gguf(str(tmp_path / "absent.gguf"))
    assert not is_gguf(str(tmp_path))

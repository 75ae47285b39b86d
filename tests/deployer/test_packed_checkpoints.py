"""A checkpoint that GPTQ or AWQ packed keeps its grid in the deployed graphs."""

import numpy as np
import onnx_ir as ir
import pytest
import torch

import torchferry as tf
from deployer_folders import save_wide_llama
from packed_folders import save_packed
from torchferry.deployer import deploy
from torchferry.errors import UsageError


def stored_weights(path):
    """Every matrix that MatMulNBits reads, (N, K), by the name of its codes."""
    found = {}
    for node in ir.load(path).graph:
        if node.op_type == "MatMulNBits":
            bits, block = (node.attributes.get_int(name) for name in ("bits", "block_size"))
            codes, scales, zeros = (value.const_value.numpy() for value in node.inputs[1:4])
            if bits == 4:
                codes = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:2], -1)
                zeros = np.stack([zeros & 15, zeros >> 4], -1).reshape(len(zeros), -1)
            zeros = zeros[:, : scales.shape[1]].astype(np.float32)
            values = (codes.astype(np.float32) - zeros[..., None]) * scales[..., None]
            assert codes.shape[2] == block
            found[node.inputs[1].name.removesuffix(".codes")] = values.reshape(len(codes), -1)
    return found


@pytest.mark.parametrize(
    ("method", "group"),
    # Inputs of 64 and of 96 numbers: the second is a group and one that is not full.
    [pytest.param("gptq", 64, marks=pytest.mark.slow), ("awq", 32)],
)
def test_the_grid_is_kept_to_the_last_bit(tmp_path, method, group):
    folder, weights = save_packed(tmp_path / "packed", method, group=group)
    out = tmp_path / "out"
    report = deploy(folder, out, precisions="int4,int8" + ",fp16,fp32" * (method == "gptq"))
    assert report.ok, report.problems
    assert (report.data["kept"], report.data["fitted"]) == (14, 0)
    for file in ("model_q4", "model_quantized"):
        found = stored_weights(out / f"onnx/{file}.onnx")
        rest = dict(weights)
        for names, values in found.items():
            parts = [name for name in names.split("+") if name in weights]
            if parts:
                wanted = torch.cat([rest.pop(name) for name in parts]).numpy()
                assert np.abs(values - wanted).max() <= 2**-23 * np.abs(wanted).max()
        assert not rest
    seen = report.data["agreements"]
    assert method == "awq" or seen["fp32"]["kl"] < 1e-6
    # What is left is the rounding of the embedding and of activations.
    assert seen["int4"]["kl"] < 1.5 * seen["int8"]["kl"] + 1e-4
    for batch in (1, 3):
        ids = torch.arange(5, 5 + 4 * batch).view(batch, 4)
        tokens = tf.load(out, precision="int4").generate(
            input_ids=ids, max_new_tokens=4, do_sample=False, pad_token_id=0
        )
        assert tokens.shape == (batch, 8)


def test_groups_that_no_kernel_has_are_refused_in_4_bits_alone(tmp_path):
    folder, _ = save_packed(tmp_path / "packed", "gptq", shuffled=True)
    with pytest.raises(UsageError, match=r"in groups whose columns are no runs of 32 \(desc_act"):
        deploy(folder, tmp_path / "out", precisions="fp32,int4")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_grid_of_torchao_is_kept(tmp_path):
    quantization = pytest.importorskip("torchao.quantization")
    transformers = pytest.importorskip("transformers")
    kinds = {"weight_dtype": torch.int4, "granularity": quantization.PerGroup(32)}
    config = transformers.TorchAoConfig(quantization.IntxWeightOnlyConfig(**kinds))
    source = save_wide_llama(tmp_path / "plain")
    read = transformers.LlamaForCausalLM.from_pretrained
    model = read(source, quantization_config=config, dtype=torch.float32)
    model.save_pretrained(tmp_path / "packed")
    report = deploy(tmp_path / "packed", tmp_path / "out", precisions="int4")
    assert report.ok, report.problems
    assert (report.data["kept"], report.data["fitted"]) == (14, 0)
    found = stored_weights(tmp_path / "out/onnx/model_q4.onnx")
    wanted = model.model.layers[1].mlp.down_proj.weight.dequantize().numpy()
    assert np.abs(found["model.layers.1.mlp.down_proj.weight"] - wanted).max() < 1e-6


@pytest.mark.slow
def test_scattered_groups_are_read_in_the_other_precisions(tmp_path):
    folder, _ = save_packed(tmp_path / "packed", "gptq", shuffled=True)
    report = deploy(folder, tmp_path / "out", precisions="int8,fp32")
    assert report.ok, report.problems

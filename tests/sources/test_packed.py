"""Weights of GPTQ and AWQ are read as their formats define them, and nothing else is."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from packed_folders import save_packed
from torchferry.errors import UsageError
from torchferry.sources.checkpoint import load_checkpoint, map_checkpoint
from torchferry.sources.packed import find_scattered, read_packing, unpack_parameters

CASES = {
    "gptq": {"method": "gptq"},
    "gptq v2": {"method": "gptq", "form": "gptq_v2"},
    "gptq symmetric": {"method": "gptq", "symmetric": True},
    "gptq one group": {"method": "gptq", "group": -1},
    "gptq desc_act": {"method": "gptq", "shuffled": True},
    "gptq 8 bits": {"method": "gptq", "bits": 8},
    "gptq 2 bits": {"method": "gptq", "bits": 2, "form": "gptq_v2"},
    "awq": {"method": "awq"},
    "awq group of 16": {"method": "awq", "group": 16},
}


@pytest.mark.parametrize("case", CASES)
def test_weights_are_those_of_the_definition(tmp_path, case):
    folder, weights = save_packed(tmp_path, **CASES[case])
    model = load_checkpoint(folder)
    loaded = model.state_dict()
    assert len(weights) == 14
    for name, weight in weights.items():
        assert loaded[name].dtype == torch.float32
        assert torch.equal(loaded[name], weight), name
    stored = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(loaded["model.embed_tokens.weight"], stored.float())
    assert not hasattr(model.config, "quantization_config")
    assert model(torch.tensor([[3, 4]])).logits.isfinite().all()


def test_zero_points_of_0_are_stored_with_a_borrow(tmp_path):
    """The first format makes a word less by 1 in every code: 0 borrows of the next."""
    folder, weights = save_packed(tmp_path, "gptq", form="gptq_v2")
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.0.self_attn.q_proj"
    zeros = tensors[f"{name}.qzeros"]
    zeros[:, 0] &= ~0xF0  # the second output's zero point is 0
    codes = weights[f"{name}.weight"]
    config = json.loads((folder / "config.json").read_text())
    wanted = load_checkpoint(save_again(folder, tensors, config)).state_dict()[f"{name}.weight"]
    assert not torch.equal(wanted, codes)
    for key in [key for key in tensors if key.endswith("qzeros")]:
        tensors[key] = tensors[key] - 0x11111111
    config["quantization_config"]["checkpoint_format"] = "gptq"
    ours = load_checkpoint(save_again(folder, tensors, config)).state_dict()[f"{name}.weight"]
    assert torch.equal(ours, wanted)


def save_again(folder, tensors, config):
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_mapped_weights_are_the_same_and_lie_in_memory(tmp_path):
    folder, weights = save_packed(tmp_path, "awq")
    mapped = map_checkpoint(folder)
    assert mapped.files == ()
    loaded = mapped.model.state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in weights.items())


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("gptq", {"bits": 3}, "gptq in 3 bits are not read, only those in 2, 4, 8"),
        ("awq", {"bits": 8}, "awq in 8 bits are not read"),
        ("gptq", {"checkpoint_format": "marlin"}, "in the format marlin are not read"),
        ("awq", {"version": "gemv"}, "in the format gemv are not read, only those in gemm"),
    ],
)
def test_other_formats_are_refused(tmp_path, method, changes, message):
    folder, _ = save_packed(tmp_path, method, changes=changes)
    with pytest.raises(UsageError, match=message):
        load_checkpoint(folder)


def test_parts_that_are_lost_or_do_not_fit_are_named(tmp_path):
    folder, _ = save_packed(tmp_path, "gptq")
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    owner = "model.layers.1.mlp.down_proj"
    lost = {name: x for name, x in tensors.items() if name != f"{owner}.scales"}
    with pytest.raises(UsageError, match=rf"{owner}.qweight without {owner}.scales"):
        load_checkpoint(save_again(folder, lost, config))
    for part, change in (
        ("scales", lambda x: x[:, :-8].contiguous()),
        ("qzeros", lambda x: x[:-1].contiguous()),
        ("g_idx", lambda x: x + 1),
        ("g_idx", lambda x: x[:-7].clone()),
        ("qweight", lambda x: x[0].clone()),
    ):
        name = f"{owner}.{part}"
        with pytest.raises(UsageError, match=rf"the parts of {owner} with shapes"):
            load_checkpoint(save_again(folder, tensors | {name: change(tensors[name])}, config))


def test_a_bias_that_the_model_has_not_is_refused_unless_it_is_0(tmp_path):
    folder, _ = save_packed(tmp_path, "gptq")
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    bias = {"model.layers.0.mlp.up_proj.bias": torch.zeros(96, dtype=torch.float16)}
    load_checkpoint(save_again(folder, tensors | bias, config))
    bias["model.layers.0.mlp.up_proj.bias"][3] = 1
    with pytest.raises(UsageError, match=r"holds model.layers.0.mlp.up_proj.bias"):
        load_checkpoint(save_again(folder, tensors | bias, config))


def test_weights_of_gpt2_are_refused(tmp_path):
    """Its layers keep (inputs, outputs): a square one would be read transposed."""
    transformers = pytest.importorskip("transformers")
    settings = {"n_embd": 64, "n_layer": 1, "n_head": 4, "vocab_size": 50, "n_positions": 32}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings))
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "transformer.h.0.attn.c_proj"
    assert tensors.pop(f"{name}.weight").shape == (64, 64)
    tensors |= {
        f"{name}.qweight": torch.zeros(8, 64, dtype=torch.int32),
        f"{name}.qzeros": torch.zeros(2, 8, dtype=torch.int32),
        f"{name}.scales": torch.ones(2, 64, dtype=torch.float16),
        f"{name}.g_idx": torch.arange(64, dtype=torch.int32) // 32,
    }
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    with pytest.raises(UsageError, match="has a Conv1D there, not a Linear"):
        load_checkpoint(save_again(tmp_path, tensors, config))


@pytest.mark.parametrize("case", CASES)
def test_groups_that_no_kernel_has_are_found(tmp_path, case):
    folder, _ = save_packed(tmp_path, **CASES[case])
    found = find_scattered(folder, 32)
    assert bool(found) == (case in ("gptq desc_act", "awq group of 16"))
    assert not found or found.endswith("_proj.weight")


def test_folders_of_other_kinds_are_left_to_transformers(tmp_path):
    assert read_packing(tmp_path) is None
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "hqq"}}')
    assert read_packing(tmp_path) is None
    assert find_scattered(tmp_path, 32) == ""


class Halves(torch.Tensor):
    """A weight as torchao's classes are made: whole numbers and a scale inside it."""

    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return cls(args[0].codes, args[0].scale)
        raise NotImplementedError(function)

    def dequantize(self):
        return self.codes * self.scale


def test_weights_made_of_tensors_become_floats():
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
    codes = torch.randint(-8, 8, (4, 4), generator=torch.Generator().manual_seed(0))
    packed = torch.nn.Parameter(Halves(codes, torch.tensor(0.25)), requires_grad=False)
    model[0].weight = model[2].weight = packed
    kept = model[1].weight
    unpack_parameters(model)
    assert type(model[0].weight) is torch.nn.Parameter
    assert torch.equal(model[0].weight, codes * 0.25)
    assert model[2].weight is model[0].weight
    assert model[1].weight is kept

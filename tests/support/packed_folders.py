"""Folders of small models whose weights are packed as GPTQModel and AutoAWQ do it.

Written from the definition of the formats: one code after the other, one word after the other.
"""

import json

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from deployer_folders import save_wide_llama

INTERLEAVED = (0, 2, 4, 6, 1, 3, 5, 7)


def pack(codes, bits, order=None):
    """Words (rows, columns * bits / 32) of codes (rows, columns); the first code is lowest."""
    count = 32 // bits
    order = order or range(count)
    words = np.zeros((codes.shape[0], codes.shape[1] // count), np.uint32)
    for row in range(words.shape[0]):
        for column in range(words.shape[1]):
            for place, which in enumerate(order):
                code = int(codes[row, column * count + which])
                words[row, column] |= np.uint32(code << (place * bits))
    return words


def tensor(words):
    return torch.from_numpy(np.ascontiguousarray(words).view(np.int32))


def grid(rng, inputs, outputs, *, bits, group, symmetric):
    """Codes (inputs, outputs); zero points and half scales (groups, outputs)."""
    groups = -(-inputs // group)
    codes = rng.integers(0, 2**bits, (inputs, outputs))
    zeros = rng.integers(1, 2**bits, (groups, outputs))
    if symmetric:
        zeros[:] = 2 ** (bits - 1)
    scales = rng.uniform(0.02, 0.05, (groups, outputs)) * 16 / 2**bits
    return codes, zeros, scales.astype(np.float16)


def by_definition(codes, zeros, scales, groups):
    """The weight (outputs, inputs), element by element, in float64."""
    weight = np.zeros(codes.shape[::-1])
    for k in range(codes.shape[0]):
        g = groups[k]
        weight[:, k] = scales[g].astype(np.float64) * (codes[k] - zeros[g])
    return torch.from_numpy(weight).float()


def save_packed(folder, method, *, form=None, bits=4, group=32, shuffled=False, symmetric=False,
                changes=None):  # fmt: skip
    """A llama with the linear weights of its layers packed.

    Returns: the folder, and each packed weight by name, as the format defines it.
    """
    form = form or {"gptq": "gptq", "awq": "gemm"}[method]
    save_wide_llama(folder)
    tensors = load_file(folder / "model.safetensors")
    rng, weights = np.random.default_rng(0), {}
    for name in [name for name in tensors if "_proj" in name]:
        outputs, inputs = tensors.pop(name).shape
        size = inputs if group < 0 else group
        codes, zeros, scales = grid(
            rng, inputs, outputs, bits=bits, group=size, symmetric=symmetric
        )
        groups = np.arange(inputs) // size
        if shuffled:
            groups = rng.permutation(groups)
        weights[name] = by_definition(codes, zeros, scales, groups)
        owner = name.removesuffix(".weight")
        tensors[f"{owner}.scales"] = torch.from_numpy(scales)
        if method == "awq":
            tensors[f"{owner}.qweight"] = tensor(pack(codes, bits, INTERLEAVED))
            tensors[f"{owner}.qzeros"] = tensor(pack(zeros, bits, INTERLEAVED))
        else:
            less = 1 if form == "gptq" else 0
            tensors[f"{owner}.qweight"] = tensor(pack(codes.T, bits).T)
            tensors[f"{owner}.qzeros"] = tensor(pack(zeros - less, bits))
            tensors[f"{owner}.g_idx"] = torch.from_numpy(groups.astype(np.int32))
    half = {name: x.half() if x.is_floating_point() else x for name, x in tensors.items()}
    save_file(half, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    said = {"quant_method": method, "bits": bits, "group_size": group, "desc_act": shuffled}
    said |= {"checkpoint_format": form} if method == "gptq" else {"version": form}
    config = json.loads(path.read_text()) | {"dtype": "float16"}
    path.write_text(json.dumps(config | {"quantization_config": said | (changes or {})}))
    return folder, weights

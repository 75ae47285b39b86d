"""bf16: weights and cache in bfloat16, run by onnxruntime, with float32 where it has no kernel."""

import onnx_ir as ir
import pytest
import torch

import torchferry as tf
from deployer_folders import save_wide_llama
from torchferry.deployer import deploy
from torchferry.deployer.generate.cache import as_value
from torchferry.deployer.kind import check_runtimes
from torchferry.errors import UsageError
from torchferry.runner import to_tensor


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("bfloat16")
    source = save_wide_llama(place / "llama")
    report = deploy(source, place / "out", precisions="bf16")
    assert report.ok, report.problems
    return source, place / "out", report


def test_weights_and_cache_are_bfloat16_and_products_are_not(folders):
    _, out, report = folders
    graph = ir.load(out / "onnx/model_bf16.onnx").graph
    kinds = {value.dtype for value in graph.initializers.values() if value.shape.rank() == 2}
    assert kinds == {ir.DataType.BFLOAT16}
    cache = [value for value in graph.inputs if value.name.startswith("past_key_values")]
    assert {value.dtype for value in cache} == {ir.DataType.BFLOAT16}
    assert [path.name for path in sorted((out / "onnx").iterdir())] == [
        "model_bf16.onnx", "model_bf16.onnx_data",
    ]  # fmt: skip
    assert 0 < report.data["agreements"]["bf16"]["kl"] < 0.01
    assert "onnxruntime has few kernels for it on a CPU" in (out / "README.md").read_text()


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_it_generates_is_as_likely_as_it_says(folders, rows, beams):
    """Reordering of beams moves a cache that numpy cannot hold; a wrong one has other scores."""
    source, out, _ = folders
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM.from_pretrained(source, dtype=torch.bfloat16).eval()
    ids = torch.randint(3, 99, (rows, 5), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1:, :2] = 0  # filled up on the left
    done = tf.load(out).generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=6, min_new_tokens=6, do_sample=False,
        pad_token_id=0, num_beams=beams, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    tokens = done.sequences
    assert tokens.shape == (rows, 11)
    longer = torch.cat([mask, torch.ones(rows, 6, dtype=mask.dtype)], 1)
    places = (longer.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = model(tokens, attention_mask=longer, position_ids=places).logits[:, 4:-1].float()
    logits[..., 2] = -torch.inf  # the end of a text: six tokens were asked for
    chosen = logits.log_softmax(-1).gather(-1, tokens[:, 5:, None])[..., 0]
    if beams == 1:
        assert (logits.log_softmax(-1).amax(-1) - chosen).max() < 0.3
    else:
        assert (done.sequences_scores - chosen.mean(-1)).abs().max() < 0.1


def test_a_value_has_the_dtype_that_the_graph_wants():
    x = torch.tensor([1.5, -0.25])
    for kind, dtype in (("float", torch.float32), ("float16", torch.float16),
                        ("bfloat16", torch.bfloat16)):  # fmt: skip
        value = as_value(x, f"tensor({kind})")
        assert value.data_type() == f"tensor({kind})"
        assert torch.equal(to_tensor(value), x.to(dtype))
    assert to_tensor(as_value(torch.tensor([1], dtype=torch.int32), "tensor(int64)")).dtype == (
        torch.int64
    )


@pytest.mark.parametrize("name", ["genai", "optimum", "transformers.js"])
def test_other_runtimes_are_refused(name):
    with pytest.raises(UsageError, match=f"{name} takes no tensors of bfloat16"):
        check_runtimes("decoder", ("onnxruntime", name), ("fp32", "bf16"), object(), title="it")

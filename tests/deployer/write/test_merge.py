"""A step and the states it attends to in one graph, and apart again: small graphs, in numbers."""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from torchferry.deployer.write.merge import merge_decoder, rename_sizes, split_for_genai
from torchferry.errors import UsageError
from torchferry.graph import io

STEP = """<ir_version: 10, opset_import: ["" : 20]>
step (float[b, 1, n, 2] "past_key_values.0.encoder.key", float[b, s] encoder_mask)
    => (float[b, 1, n, 2] logits) <float two = {2.0}> {
  h = Mul("past_key_values.0.encoder.key", two)
  logits = Add(h, two)
}"""
CROSS = """<ir_version: 10, opset_import: ["" : 20]>
cross (float[b, 1, s, 2] encoder_hidden_states)
    => (float[b, 1, s, 2] "present.0.encoder.key") <float two = {3.0}> {
  h = Mul(encoder_hidden_states, two)
  "present.0.encoder.key" = Neg(h)
}"""
ENCODER = """<ir_version: 10, opset_import: ["" : 20]>
encoder (float[b, 1, s, 2] input_features) => (float[b, 1, s, 2] last_hidden_state)
    <float two = {10.0}> {
  h = Mul(input_features, two)
  last_hidden_state = Identity(h)
}"""


def run(model, feeds):
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def numbers(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_the_flag_says_whether_the_states_are_read_or_their_keys_and_values():
    merged = merge_decoder(ir.from_onnx_text(STEP), ir.from_onnx_text(CROSS))
    states, held, mask = numbers(2, 1, 5, 2), numbers(2, 1, 5, 2) + 9, np.ones((2, 5), "f4")
    feeds = {"encoder_hidden_states": states, "encoder_mask": mask}
    empty = {"past_key_values.0.encoder.key": held[:, :, :0], "use_cache_branch": [False]}
    first = run(merged, feeds | empty)
    np.testing.assert_allclose(first["present.0.encoder.key"], -3 * states, rtol=1e-6)
    np.testing.assert_allclose(first["logits"], -6 * states + 2, rtol=1e-5)
    filled = {"past_key_values.0.encoder.key": held, "use_cache_branch": [True]}
    later = run(merged, feeds | filled)
    np.testing.assert_array_equal(later["present.0.encoder.key"], held)
    np.testing.assert_allclose(later["logits"], 2 * held + 2, rtol=1e-6)
    # An empty cache is as long as it is, whatever the encoder read.
    assert str(merged.graph.inputs[0].shape[2]) == "past_encoder_sequence_length"


def test_they_are_taken_apart_again_for_genai(tmp_path):
    merged = merge_decoder(ir.from_onnx_text(STEP), ir.from_onnx_text(CROSS))
    for name, model in (("decoder", merged), ("encoder", ir.from_onnx_text(ENCODER))):
        io.save(model, tmp_path / f"{name}.onnx")
    encoder, decoder = (ir.load(tmp_path / f"{name}.onnx") for name in ("encoder", "decoder"))
    split_for_genai(encoder, decoder)
    features, held = numbers(2, 1, 5, 2), numbers(2, 1, 5, 2) + 9
    got = run(encoder, {"input_features": features})
    np.testing.assert_allclose(got["last_hidden_state"], 10 * features, rtol=1e-6)
    np.testing.assert_allclose(got["present.0.encoder.key"], -30 * features, rtol=1e-6)
    mask = np.ones((2, 5), "f4")
    got = run(decoder, {"past_key_values.0.encoder.key": held, "encoder_mask": mask})
    assert [*got] == ["logits"]
    np.testing.assert_allclose(got["logits"], 2 * held + 2, rtol=1e-6)


def test_parts_of_different_opsets_are_refused():
    other = CROSS.replace(": 20]", ": 21]")
    with pytest.raises(UsageError, match="opsets 20 and 21"):
        merge_decoder(ir.from_onnx_text(STEP), ir.from_onnx_text(other))


def test_a_size_gets_its_new_name_in_every_shape():
    model = ir.from_onnx_text(STEP)
    rename_sizes(model.graph, {"n": "length"})
    assert str(model.graph.inputs[0].shape[2]) == "length"
    assert str(model.graph.outputs[0].shape[2]) == "length"
    assert model.graph.inputs[0].shape[3] == 2

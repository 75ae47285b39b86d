"""Models that torchao quantized: exported as they are, weights packed, numbers equal."""

import warnings

import onnx_ir as ir
import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.graph.packed import packed_weights

pytest.importorskip("torchao")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchao import quantization as ao

WIDE, HIDDEN, NARROW = 128, 160, 64
CONFIGS = {
    "int8": ao.Int8WeightOnlyConfig,
    "int8, dynamic": ao.Int8DynamicActivationInt8WeightConfig,
    "int4": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(32)),
    "int4, rows": lambda: ao.IntxWeightOnlyConfig(
        weight_dtype=torch.int4, granularity=ao.PerAxis(0)
    ),
    "int2": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int2, granularity=ao.PerGroup(32)),
    "float8": ao.Float8WeightOnlyConfig,
    "int4, dynamic": lambda: ao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=ao.PerGroup(32)
    ),
}
FOUR_BITS = {"int4", "int4, rows", "int2"}
WEIGHTS = WIDE * HIDDEN + HIDDEN * NARROW


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDE, HIDDEN)
        self.rest = nn.Sequential(nn.GELU(), nn.Linear(HIDDEN, NARROW, bias=False))

    def forward(self, x):
        return self.rest(self.first(x))


def quantized(name):
    torch.manual_seed(0)
    model = Model().eval()
    ao.quantize_(model, CONFIGS[name]())
    return model


def make_int8():
    """A factory, as the command line takes one."""
    return quantized("int8")


def make_inputs():
    return [(torch.randn(size, WIDE),) for size in (2, 5)]


def feed(size, *leading):
    return torch.randn(size, *leading, WIDE, generator=torch.Generator().manual_seed(size))


def close(got, want):
    # what is quantized as the model runs may fall to the other side of a tie
    error = (got - want).abs().max() / want.abs().max() if want.numel() else torch.tensor(0.0)
    assert error < 1e-5, error


pytestmark = pytest.mark.filterwarnings("ignore")  # torchao's


@pytest.mark.parametrize("target", ["onnx", "onnxruntime"])
@pytest.mark.parametrize("leading", [(), (3,)])
@pytest.mark.parametrize("name", CONFIGS)
def test_export(name, leading, target, tmp_path):
    model = quantized(name)
    with torch.no_grad(), tf.observe(model) as seen:
        model(feed(2, *leading)), model(feed(5, *leading))
    program = tf.export(model, seen, target=target)
    assert program.report.ok, program.report.problems
    found = packed_weights(program.model)
    assert sum(one.plain for one in found) == 4 * WEIGHTS
    assert sum(one.size for one in found) <= WEIGHTS
    if name in FOUR_BITS and target == "onnxruntime":
        names = [node.op_type for node in program.model.graph]
        assert names.count("MatMulNBits") == 2
        assert [(one.kind, one.size) for one in found] == [("int4", WEIGHTS // 2)]
    program.save(tmp_path / "model.onnx")
    held = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
    assert held < 1.5 * WEIGHTS, "floats would take 4 times the weights"
    for run in (program, tf.load(tmp_path)):
        for count in (1, 7):
            with torch.no_grad():
                close(run(feed(count, *leading)), model(feed(count, *leading)))


@pytest.mark.parametrize("name", CONFIGS)
def test_to_onnx_and_capture(name):
    model = quantized(name)
    program = tf.to_onnx(model, (feed(2),), dynamic_shapes=({0: "batch"},))
    with tf.observe(model) as seen:
        model(feed(2)), model(feed(5))
    again = tf.to_onnx(tf.capture(model, seen))
    for count in (1, 7):
        close(program(feed(count)), model(feed(count)))
        close(again(x=feed(count)), model(feed(count)))


@pytest.mark.parametrize("name", ["int8", "int4", "float8"])
def test_parameters_keep_their_names(name):
    program = tf.to_onnx(quantized(name), (feed(2),))
    names = {value.name.removesuffix(".T") for value in program.model.graph.initializers.values()}
    assert {"first.weight.qdata", "first.bias", "rest.1.weight.qdata"} <= names


def test_the_command_line(tmp_path):
    from typer.testing import CliRunner

    from torchferry.cli.main import app

    out, here = tmp_path / "out", __file__
    arguments = ["export", f"{here}:make_int8", "-o", str(out), "--inputs", f"{here}:make_inputs"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "kept in int8" in result.output
    model = ir.load(out / "model.onnx")
    assert [one.kind for one in packed_weights(model)] == ["int8"]


def test_training_that_knows_of_quantization():
    """The weights are floats that are quantized in every call, and inputs too."""
    from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

    torch.manual_seed(0)
    model = Model()
    config = QATConfig(
        activation_config=IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False),
        weight_config=IntxFakeQuantizeConfig(torch.int4, group_size=32),
        step="prepare",
    )
    ao.quantize_(model, config)
    model.eval()
    with torch.no_grad(), tf.observe(model) as seen:
        model(feed(2)), model(feed(5))
    program = tf.export(model, seen)
    assert program.report.ok, program.report.problems
    for count in (1, 7):
        with torch.no_grad():
            close(program(feed(count)), model(feed(count)))

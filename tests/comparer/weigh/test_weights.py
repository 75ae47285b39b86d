"""Weights of files, of several exporters, that are not the module's."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnxruntime.quantization import matmul_nbits_quantizer, quantize_dynamic

import torchferry
from families import in_turn
from torchferry.comparer import compare
from torchferry.comparer.weigh import weights as module_of_weights
from torchferry.converter import convert
from torchferry.converter.torch_onnx import Flat, export_program, export_script
from torchferry.graph import io
from torchferry.observer import steal_forward

INPUTS = (torch.arange(14).reshape(2, 7) % 10,)


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(12, 12) for _ in range(3))
        self.out = torch.nn.Linear(12, 12, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        return self.out(scores.softmax(-1) @ self.v(x))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = torch.nn.Embedding(10, 16)
        self.square = torch.nn.Linear(16, 16)
        self.wide = torch.nn.Linear(16, 12, bias=False)
        self.att = Attention()
        self.norm = torch.nn.LayerNorm(12)
        self.lstm = torch.nn.LSTM(12, 8, batch_first=True, bidirectional=True)
        self.conv = torch.nn.Conv1d(16, 4, 3)
        self.bn = torch.nn.BatchNorm1d(4)
        self.register_buffer("shift", torch.randn(4, 1))
        self.mix = torch.nn.Parameter(torch.randn(6, 4))

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        x = self.wide(torch.relu(self.square(self.emb(i))))
        x = self.norm(x + self.att(x))
        x = self.lstm(x)[0].transpose(1, 2)
        return self.mix @ (self.bn(self.conv(x)) + self.shift)


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    net = Net().eval()
    for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
        if tensor.dim() == 1 and tensor.dtype == torch.float32:  # no two alike, none is 0 or 1
            tensor.data = torch.rand_like(tensor) * (0.2 if "lstm" in name else 1) + 0.5
    return net


def cast(graph: ir.Graph, value: ir.Value) -> None:
    """Keep a weight in float16; its readers get it back in float32."""
    array = value.const_value.numpy().astype("f2")
    users = tuple(value.uses())
    value.const_value, value.type = ir.tensor(array), ir.TensorType(ir.DataType.FLOAT16)
    node = ir.node("Cast", [value], {"to": 1})
    graph.insert_before(graph[0], node)
    for user, index in users:
        user.replace_input_with(index, node.outputs[0])


@pytest.fixture(scope="module")
def files(net, tmp_path_factory):
    """Files that hold the weights in other forms, by what wrote them."""
    folder = tmp_path_factory.mktemp("files")
    paths = {
        name: folder / f"{name}.onnx"
        for name in ("ours", "torch", "script", "optimized", "int8", "int4", "int4 zeros", "half")
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(net, INPUTS, strict=False)
        io.save(convert(program), paths["ours"])
        ir.save(export_program(program, 20, optimize=True), paths["torch"])
        flat = Flat(net, (INPUTS, {}))
        ir.save(export_script(flat, ["i"], {}, 17), paths["script"])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(paths["optimized"])
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(paths["script"], options)
    quantize_dynamic(paths["script"], paths["int8"])
    for name, symmetric in (("int4", True), ("int4 zeros", False)):
        tool = matmul_nbits_quantizer.MatMulNBitsQuantizer(
            onnx.load(paths["script"]), block_size=16, is_symmetric=symmetric
        )
        tool.process()
        tool.model.save_model_to_file(str(paths[name]))
    half = ir.load(paths["script"])
    for value in half.graph.initializers.values():
        if value.dtype == ir.DataType.FLOAT:
            cast(half.graph, value)
    ir.save(half, paths["half"])
    return paths


FILES = ("ours", "torch", "script", "optimized", "int8", "int4", "int4 zeros", "half")


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "against"), in_turn(FILES, ["eager", "program"]))
def test_other_forms_are_no_fault(net, files, name, against):
    assert compare(net, files[name], INPUTS, against=against).weights == ()


FOLDED = {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "conv.bias"}
TENSORS = [*Net().named_parameters(), *Net().named_buffers()]
NAMES = [name for name, tensor in TENSORS if tensor.dim()]


def changed(net: Net, *names: str) -> tuple[Net, dict[str, tuple[int, ...]]]:
    """A copy with an element of each weight greater by 1, and where that is."""
    other = copy.deepcopy(net)
    tensors = dict([*other.named_parameters(), *other.named_buffers()])
    places = {name: tuple(size // 2 for size in tensors[name].shape) for name in names}
    with torch.no_grad():
        for name, place in places.items():
            tensors[name][place] += 1.0
    return other, places


@pytest.mark.parametrize("name", FILES)
def test_all_weights_that_changed_are_named(net, files, name):
    """All but those that the file has inside of others: a normalization, in the convolution."""
    # onnxruntime's optimizations add the buffer to the bias of the convolution.
    folded = FOLDED | ({"shift"} if name == "optimized" else set())
    names = [one for one in NAMES if name == "ours" or one not in folded]
    other, places = changed(net, *names)
    found = compare(other, files[name], INPUTS, against="eager")
    assert {one.name: one.index for one in found.weights} == places
    assert all(one.wrong == 1 for one in found.weights)
    assert all(0.7 < one.abs < 1.8 for one in found.weights)  # of what is scaled or quantized
    assert not found.ok


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("weight", NAMES)
def test_one_weight_that_changed_is_named(net, files, name, weight):
    other, places = changed(net, weight)
    found = compare(other, files[name], INPUTS, against="eager")
    named = [(one.name, one.index, one.wrong) for one in found.weights]
    wanted = [(weight, places[weight], 1)]
    hidden = name != "ours" and (weight in FOLDED or (name, weight) == ("optimized", "shift"))
    assert named in ([wanted, []] if hidden else [wanted]), str(found)
    if named:
        assert str(found).startswith(f"weight {weight}")


def test_the_sentence(net, files):
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.square.weight[3, 5] = 0.135
        other.square.weight[2, 1] += 1e-4
    model = io.load(files["ours"])
    value = model.graph.initializers["square.weight.T"]
    array = value.const_value.numpy().copy()
    array[5, 3] = 0.120
    value.const_value = ir.tensor(array)
    found = compare(other, model, INPUTS)
    assert str(found).splitlines()[0] == (
        "weight square.weight (initializer square.weight.T) differs at [3, 5]: 0.135 in the "
        "model, 0.12 in the ONNX file (max abs 0.015, in 2 of 256 elements)"
    )
    assert found.weights[0].node == next(node.name for node in model.graph if value in node.inputs)


def test_numbers_that_are_almost_equal_have_more_digits(net, files):
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.norm.weight[3] = 0.5
        other.norm.weight[3] += 1e-5
    model = io.load(files["ours"])
    value = model.graph.initializers["norm.weight"]
    array = value.const_value.numpy().copy()
    array[3] = 0.5
    value.const_value = ir.tensor(array)
    assert "0.50001 in the model, 0.5 in the ONNX file" in str(compare(other, model, INPUTS))


def test_a_weight_that_no_result_shows(net, files):
    """A row of an embedding that these inputs do not ask for; the values agree, not the models."""
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.emb.weight[9, 2] += 1
    inputs = (torch.zeros(2, 7, dtype=torch.int64),)
    found = compare(other, files["ours"], inputs)
    assert found.first is None
    assert not found.differing
    assert [one.name for one in found.weights] == ["emb.weight"]
    assert not found.ok


def test_each_is_looked_at_once(net, files, monkeypatch):
    seen = []
    measure = module_of_weights.measure

    def spy(expected, stored, **limits):
        seen.append(stored)
        return measure(expected, stored, **limits)

    monkeypatch.setattr(module_of_weights, "measure", spy)
    found = compare(net, files["ours"], [INPUTS, (INPUTS[0][:1, :5],)], against="eager")
    assert found.ok, str(found)
    assert len(seen) <= len(io.load(files["ours"]).graph.initializers) + 1  # one is square


def test_a_weight_replaced_after_the_export(net):
    module = copy.deepcopy(net)
    seen = [INPUTS, (torch.ones(3, 5, dtype=torch.int64),)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        onnx_program = torchferry.export(module, seen, check=False)
    assert compare(module, onnx_program, INPUTS).ok
    module.wide.weight = torch.nn.Parameter(torch.randn(12, 16))
    found = compare(module, onnx_program, INPUTS)
    assert [one.name for one in found.weights] == ["wide.weight"]
    assert found.weights[0].wrong == 12 * 16


def test_a_limit_of_the_user_counts(net, files):
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.mix[1, 1] += 0.01
    assert compare(other, files["ours"], INPUTS).weights
    assert not compare(other, files["ours"], INPUTS, atol=0.02).weights


def test_another_file(net, files, tmp_path):
    other = io.load(files["ours"])
    value = other.graph.initializers["wide.weight.T"]
    array = value.const_value.numpy().copy()
    array[2, 3] -= 0.5
    value.const_value = ir.tensor(array)
    io.save(other, tmp_path / "changed.onnx")
    assert compare(files["ours"], files["ours"], INPUTS).weights == ()
    found = compare(files["ours"], tmp_path / "changed.onnx")
    assert [(one.name, one.index) for one in found.weights] == [("wide.weight.T", (2, 3))]
    assert compare(files["script"], files["half"], INPUTS).weights == ()
    assert compare(files["script"], files["int8"], INPUTS).weights == ()


@pytest.mark.parametrize("numbers", ["same", "other"])
def test_names_with_numbers_may_be_of_other_things(net, files, numbers):
    """``onnx::MatMul_12`` of two files need not be one weight, if the numbers are others."""
    model = io.load(files["script"])
    value = next(v for n, v in model.graph.initializers.items() if n.startswith("onnx::MatMul"))
    array = value.const_value.numpy().copy()
    if numbers == "same":
        array[1, 2] += 1
    else:
        array = np.random.default_rng(0).standard_normal(array.shape).astype("f4")
    value.const_value = ir.tensor(array)
    found = compare(files["script"], model, INPUTS)
    assert not found.ok
    assert [one.name for one in found.weights] == ([value.name] if numbers == "same" else [])


def joined(model: ir.Model) -> ir.Model:
    """The file with query, key and value as one product, as optimizers write it."""
    graph = model.graph
    parts = [graph.initializers[f"att.{name}.weight.T"] for name in "qkv"]
    nodes = [value.uses()[0].node for value in parts]
    array = np.concatenate([value.const_value.numpy() for value in parts], axis=1)
    packed = ir.Value(name="packed", const_value=ir.tensor(array))
    packed.type, packed.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(array.shape)
    graph.register_initializer(packed)
    product = ir.node("MatMul", [nodes[0].inputs[0], packed], name="product")
    product.metadata_props.update(nodes[0].metadata_props)
    product.outputs[0].name = "product"
    split = ir.node("Split", product.outputs, {"axis": -1, "num_outputs": 3}, num_outputs=3)
    graph.insert_before(nodes[0], [product, split])
    for index, node in enumerate(nodes):
        split.outputs[index].name = f"part_{index}"
        for user, place in tuple(node.outputs[0].uses()):
            user.replace_input_with(place, split.outputs[index])
        graph.remove(node, safe=True)
    return model


def test_query_key_and_value_in_one(net, files):
    model = joined(io.load(files["ours"]))
    found = compare(net, model, INPUTS)
    assert found.ok, str(found)
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.att.k.weight[4, 7] += 1
    found = compare(other, model, INPUTS)
    assert [(one.name, one.index, one.initializer) for one in found.weights] == [
        ("att.k.weight", (4, 7), "packed")
    ]


class Pair(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (torch.nn.Parameter(torch.randn(s)) for s in ((6, 9), (9, 6)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.one @ self.two


@pytest.mark.parametrize("kind", ["scaled", "scaled channels", "in another order"])
def test_what_an_optimizer_may_do_is_not_guessed(kind):
    """Two weights that are others, and a module that is the same: no word of them."""
    module = torch.nn.Sequential(Pair(), torch.nn.ReLU())
    inputs = (torch.randn(4, 6),)
    model = convert(torch.export.export(module, inputs, strict=False))
    factor = {"scaled": np.full(9, 4.0), "scaled channels": np.arange(1.0, 10)}.get(kind)
    order = np.roll(np.arange(9), 4) if factor is None else np.arange(9)
    first, second = (model.graph.initializers[f"0.{name}"] for name in ("one", "two"))
    factor = np.ones(9) if factor is None else factor
    arrays = (
        (first.const_value.numpy() * factor)[:, order],
        ((second.const_value.numpy() / factor[:, None])[order]),
    )
    for index, (value, array) in enumerate(zip((first, second), arrays, strict=True)):
        other = ir.Value(name=f"fused_{index}", const_value=ir.tensor(array.astype("f4")))
        other.type, other.shape = value.type, value.shape
        model.graph.register_initializer(other)
        for user, place in tuple(value.uses()):
            user.replace_input_with(place, other)
    found = compare(module, model, inputs, against="eager")
    assert found.ok, str(found)
    with torch.no_grad():
        module[0].one[2, 3] += 5
    assert compare(module, model, inputs, against="eager").first is not None


def test_tied_weights():
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb = torch.nn.Embedding(10, 8)
            self.head = torch.nn.Linear(8, 10, bias=False)
            self.head.weight = self.emb.weight

        def forward(self, i: torch.Tensor) -> torch.Tensor:
            return self.head(self.emb(i))

    module = Tied().eval()
    model = convert(torch.export.export(module, INPUTS, strict=False))
    before = copy.deepcopy(module)
    assert compare(before, model, INPUTS).ok
    with torch.no_grad():
        before.emb.weight[3, 3] += 1
    found = compare(before, model, INPUTS)
    assert {one.index for one in found.weights} == {(3, 3)}
    assert len(found.weights) == 1


def test_weights_inside_a_branch():
    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, self.one, self.two, (x,))

    module = Branches().eval()
    inputs = (torch.ones(2, 4),)
    model = convert(torch.export.export(module, inputs, strict=False))
    assert compare(module, model, inputs).ok
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.one.weight[1, 2] += 1
    assert [one.name for one in compare(other, model, inputs).weights] == ["one.weight"]


def test_a_dump_says_nothing_of_weights(net, files, tmp_path):
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.norm.weight[3] += 1
        with steal_forward(other, dump_file=str(tmp_path / "dump.onnx")):
            other(*INPUTS)
    found = compare(tmp_path / "dump.onnx", files["ours"])
    assert found.first is not None
    assert found.weights == ()

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from torchferry.errors import UsageError
from torchferry.graph.diagram import diagrams_of


def titles(diagram):
    return [box.title for box in diagram.boxes]


def named(diagram, title):
    return next(box for box in diagram.boxes if box.title == title)


def model_of(nodes, *, inputs=("x",), outputs=("y",), weights=()):
    def value(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])

    graph = helper.make_graph(
        nodes, "g", [value(n) for n in inputs], [value(n) for n in outputs], initializer=weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_operators_are_boxes_and_values_arrows(control):
    main, function = diagrams_of(control)
    assert main.title == "main"
    assert titles(main) == [
        "x", "ReduceSum", "Greater", "Sqrt", "If", "Loop", "Split", "Concat", "out",
    ]  # fmt: skip
    names = {box.name: box.title for box in main.boxes}
    flows = [(names[a.source], names[a.target], a.label, a.implicit) for a in main.arrows]
    assert flows == [
        ("x", "ReduceSum", "x", False),
        ("ReduceSum", "Greater", "s", False),
        ("x", "Sqrt", "x", False),
        ("Greater", "If", "c", False),
        ("x", "If", "x", True),
        ("Sqrt", "If", "scale", True),
        ("x", "Loop", "x", False),
        ("If", "Loop", "z", True),
        ("Loop", "Split", "y", False),
        ("Split", "Concat", "b", False),
        ("Split", "Concat", "a", False),
        ("Concat", "out", "out", False),
    ]
    assert function.title == "function my::fn"
    assert titles(function) == ["a", "Sin", "Add", "b"]


def test_subgraphs_stand_inside(control):
    main = diagrams_of(control)[0]
    inner = {one.title: one for one in named(main, "If").inner}
    assert set(inner) == {"then_branch", "else_branch"}
    assert titles(inner["else_branch"]) == ["x", "scale", "Mul", "e"]
    assert [box.kind for box in inner["else_branch"].boxes[:2]] == ["outer", "outer"]
    (body,) = named(main, "Loop").inner
    assert named(body, "my::fn").kind == "extension"
    assert {box.kind for box in body.boxes if box.title in ("i", "c_in", "h")} == {"input"}


def test_boxes_have_names_of_their_own(control):
    names = []

    def collect(diagram):
        for box in diagram.boxes:
            names.append(box.name)
            for inner in box.inner:
                collect(inner)

    for diagram in diagrams_of(control):
        collect(diagram)
    assert len(names) == len(set(names)) == 30


def test_weights_constants_and_attributes_are_lines(control):
    main = diagrams_of(control)[0]
    assert named(main, "Loop").lines[0] == "M = 3"
    assert named(main, "Greater").lines == ("B = 0",)
    then = next(one for one in named(main, "If").inner if one.title == "then_branch")
    assert named(then, "Add").lines == ("B = [1, 2, 3, 4]",)
    assert named(main, "Split").lines == ("axis = 1", "num_outputs = 2", "a", "b")


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array(-0.5, np.float32), "B = -0.5"),
        (np.array([[1, 2], [3, 4]], np.int64), "B = [[1, 2], [3, 4]]"),
        (np.array([np.nan, np.inf], np.float16), "B = [nan, inf]"),
        (np.array([], np.float32), "B = []"),
        (np.array([True]), "B = [True]"),
        (np.ones((7, 2), np.int8), "B = w i8[7, 2]"),
    ],
)
def test_a_small_constant_is_written_out(array, text):
    weight = onnx.numpy_helper.from_array(array, "w")
    main = diagrams_of(model_of([helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight]))[0]
    assert named(main, "Add").lines == (text, "f32[2]")


def test_weights_in_a_file_that_is_missing_are_not_read(tmp_path):
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="gone")
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    for path in (tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        assert named(diagrams_of(path)[0], "Add").lines == ("B = w f32[2]", "f32[2]")


@pytest.mark.parametrize(
    ("attributes", "line"),
    [
        ({"alpha": 0.1}, "alpha = 0.1"),
        ({"mode": "linear"}, "mode = 'linear'"),
        ({"perm": list(range(9))}, "perm = [0, 1, 2, 3, 4, 5, …]"),
        ({"names": ["a", "b"]}, "names = [a, b]"),
        ({"t": helper.make_tensor("t", TensorProto.INT64, [1], [7])}, "t = [7]"),
    ],
)
def test_attributes(attributes, line):
    model = model_of([helper.make_node("Any", ["x"], ["y"], domain="d", **attributes)])
    assert named(diagrams_of(model)[0], "d::Any").lines[0] == line


def test_an_attribute_of_a_function_refers_to_its_caller():
    node = helper.make_node("Softmax", ["a"], ["b"])
    node.attribute.add(name="axis", ref_attr_name="along", type=onnx.AttributeProto.INT)
    opset = helper.make_opsetid("", 20)
    model = model_of([helper.make_node("f", ["x"], ["y"], domain="d", along=1)])
    model.functions.append(
        helper.make_function("d", "f", ["a"], ["b"], [node], [opset], attributes=["along"])
    )
    assert named(diagrams_of(model)[1], "Softmax").lines[0] == "axis = @along"


def test_an_initializer_or_a_constant_may_be_an_output():
    constant = helper.make_node("Constant", [], ["k"], value_ints=[1, 2])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2])
    main = diagrams_of(model_of([constant], outputs=("w", "k"), weights=[weight]))[0]
    assert [(box.title, box.kind) for box in main.boxes] == [
        ("x", "input"), ("Constant", "operator"), ("w", "weight"), ("w", "output"),
        ("k", "output"),
    ]  # fmt: skip


def test_an_input_may_be_an_output():
    main = diagrams_of(model_of([], outputs=("x",)))[0]
    assert [box.kind for box in main.boxes] == ["input", "output"]
    assert len(main.arrows) == 1


def test_an_unknown_shape_says_nothing_false(chain):
    model = chain("Relu", "Exp")
    relu = model.graph[0]
    assert named(diagrams_of(model)[0], "Relu").lines == ()
    relu.outputs[0].dtype = ir.DataType.FLOAT
    assert named(diagrams_of(model)[0], "Relu").lines == ("f32",)
    relu.outputs[0].shape = ir.Shape([None, "n", 3])
    assert named(diagrams_of(model)[0], "Relu").lines == ("f32[?, n, 3]",)


def test_a_program_is_taken_by_its_model(chain):
    class Program:
        model = chain("Relu")

    assert titles(diagrams_of(Program())[0])[:2] == ["x", "Relu"]


def test_long_texts_are_broken_and_cut(chain):
    model = chain("Relu")
    model.graph.inputs[0].shape = ir.Shape(["a_rather_long_name"] * 12)
    lines = diagrams_of(model)[0].boxes[0].lines
    assert len(lines) == 3
    assert max(map(len, lines)) <= 44
    assert lines[-1].endswith("…")


def test_what_is_no_model(tmp_path):
    with pytest.raises(UsageError, match="a dict is no ONNX model"):
        diagrams_of({})
    with pytest.raises(UsageError, match="there is no file"):
        diagrams_of(tmp_path / "no.onnx")
    (tmp_path / "x.onnx").write_text("nonsense")
    with pytest.raises(UsageError, match="no ONNX model"):
        diagrams_of(tmp_path / "x.onnx")

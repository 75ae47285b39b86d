"""Models that say what is not so: of their weights, their texts, their attributes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from torchferry.dumper import create_input_tensors_from_onnx_model
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.graph.draw import draw_svg
from torchferry.graph.outline import outline, read_proto

TEXT = """<ir_version: 10, opset_import: ["" : 20], metadata_props: ["some.key" : "text"]>
g (float[n, 4] x) => (float[n, 90] y) {
    z = MatMul(x, large)
    w = Add(z, small)
    y = Softmax <axis = 1> (w)
}"""


def write_export(folder: Path) -> None:
    model = ir.from_onnx_text(TEXT)
    for name, shape in (("large", (4, 90)), ("small", (90,))):
        value = next(v for n in model.graph for v in n.inputs if v is not None and v.name == name)
        array = np.ones(shape, "f4")
        given = ir.Value(
            name=name, const_value=ir.tensor(array), type=ir.TensorType(ir.DataType.FLOAT)
        )
        model.graph.register_initializer(given)
        for node, index in tuple(value.uses()):
            node.replace_input_with(index, given)
    io.save(model, folder / "model.onnx")


def with_place(path: Path, location: str, **numbers: str) -> None:
    """Change where the first external tensor of a model is."""
    model = onnx.load_model(path, load_external_data=False)
    tensor = next(t for t in model.graph.initializer if t.external_data)
    for entry in tensor.external_data:
        entry.value = {"location": location, **numbers}.get(entry.key, entry.value)
    path.write_bytes(model.SerializeToString())


PLACES = {
    "above": ("../secret", {}),
    "absolute": ("{folder}/../secret", {}),
    "far away": ("/etc/passwd", {}),
    "a folder": (".", {}),
    "nothing": ("", {}),
    "a link": ("link", {}),
    "a second name": ("second", {}),
    "a loop": ("loop", {}),
    "a link to a folder": ("door/secret", {}),
    "beyond the end": ("model.onnx_data", {"offset": "4096000"}),
    "longer": ("model.onnx_data", {"length": "1099511627776"}),
    "negative": ("model.onnx_data", {"offset": "-8"}),
    "a word": ("model.onnx_data", {"offset": "many"}),
}


@pytest.mark.parametrize("place", PLACES)
def test_weights_elsewhere_are_refused(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_export(folder)
    secret = tmp_path / "secret"
    shutil.copy(folder / "model.onnx_data", secret)
    (folder / "link").symlink_to(secret)
    (folder / "second").hardlink_to(secret)
    (folder / "loop").symlink_to("loop")
    (folder / "door").symlink_to(tmp_path)
    location, numbers = PLACES[place]
    with_place(folder / "model.onnx", location.format(folder=folder), **numbers)
    with pytest.raises(UsageError) as refused:
        io.load(folder / "model.onnx")
    assert "model.onnx" in str(refused.value)
    words = ("copy", "copies", "export the file again")
    assert any(word in str(refused.value) for word in words), refused.value


def test_a_link_inside_the_folder_is_read(tmp_path: Path) -> None:
    write_export(tmp_path)
    (tmp_path / "model.onnx_data").rename(tmp_path / "weights")
    (tmp_path / "model.onnx_data").symlink_to("weights")
    model = io.load(tmp_path / "model.onnx")
    assert all(v.const_value.numpy().size for v in model.graph.initializers.values())


def test_a_tensor_that_claims_to_be_huge_takes_no_memory(tmp_path: Path) -> None:
    write_export(tmp_path)
    path = tmp_path / "model.onnx"
    model = onnx.load_model(path, load_external_data=False)
    tensor = next(t for t in model.graph.initializer if t.raw_data)
    for dims in ([2**40], [2**20, 2**20], [-1], [2**62, 4], [0]):
        del tensor.dims[:]
        tensor.dims.extend(dims)
        path.write_bytes(model.SerializeToString())
        with pytest.raises(UsageError, match=f"numbers of {tensor.name} do not fit"):
            io.load(path)
    tensor.ClearField("raw_data")
    del tensor.dims[:]
    tensor.dims.append(2**40)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="do not fit"):
        io.load(path)


def test_a_text_that_is_none_is_named(tmp_path: Path) -> None:
    write_export(tmp_path)
    path = tmp_path / "model.onnx"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"some.key", b"some\xffkey"))
    for read in (io.load, read_proto, outline):
        with pytest.raises(UsageError, match="StringStringEntryProto has a key that is not text"):
            read(path)
    proto = onnx.load_model(path, load_external_data=False)
    with pytest.raises(UsageError, match="this model is damaged"):
        create_input_tensors_from_onnx_model(proto)


def test_an_attribute_of_another_type(tmp_path: Path) -> None:
    write_export(tmp_path)
    path = tmp_path / "model.onnx"
    model = onnx.load_model(path, load_external_data=False)
    node = next(node for node in model.graph.node if node.op_type == "Cast" or node.attribute)
    del node.attribute[:]
    name = {"Gemm": "transB", "Cast": "to"}.get(node.op_type, "axis")
    node.attribute.append(onnx.helper.make_attribute(name, 0.5))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match=f"attribute {name} of node {node.name} is FLOAT"):
        io.load(path)


def test_weights_of_no_type(tmp_path: Path) -> None:
    write_export(tmp_path)
    path = tmp_path / "model.onnx"
    good = path.read_bytes()
    for place in range(2):  # in the file, and beside it
        model = onnx.load_model_from_string(good)
        model.graph.initializer[place].data_type = 0
        path.write_bytes(model.SerializeToString())
        with pytest.raises(UsageError, match=r"damaged: (large|small) has no type"):
            io.load(path)


def test_a_drawing_of_numbers_that_do_not_fit(tmp_path: Path) -> None:
    write_export(tmp_path)
    model = onnx.load_model(tmp_path / "model.onnx", load_external_data=False)
    numbers = onnx.numpy_helper.from_array(np.arange(5), "five")
    numbers.dims[0] = 6
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["five"], value=numbers))
    model.graph.node.append(onnx.helper.make_node("Identity", ["five"], ["six"]))
    assert "damaged" in draw_svg(model)

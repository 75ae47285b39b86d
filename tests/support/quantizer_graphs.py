"""Small graphs with products and look-ups, and what onnxruntime computes with them."""

import numpy as np
import onnx_ir as ir
import onnxruntime

from torchferry.graph import io


def value(name, shape, kind=ir.DataType.FLOAT):
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(kind))


def weight(name, content):
    tensor = ir.Tensor(content, name=name)
    return ir.Value(name=name, const_value=tensor, shape=tensor.shape,
                    type=ir.TensorType(tensor.dtype))  # fmt: skip


def save_model(path, inputs, nodes, initializers, opset=20):
    """Save a graph whose output is that of its last node."""
    output = nodes[-1].outputs[0]
    output.name, output.type = "y", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        inputs, [output], nodes=nodes, initializers=initializers, opset_imports={"": opset},
        name="g",
    )  # fmt: skip
    io.save(ir.Model(graph, ir_version=10), path)
    return path


def save_language_model(path, rng, *, columns=64, tied=True, dtype=np.float32):
    """ids → rows of a table → a product → the head, which is the table if it is tied."""
    kind = ir.DataType.from_numpy(np.dtype(dtype))
    table = weight("embed.weight", rng.standard_normal((99, columns)).astype(dtype))
    inner = weight("layers.0.up.weight.T", rng.standard_normal((columns, 48)).astype(dtype))
    back = weight("layers.0.down.weight.T", rng.standard_normal((48, columns)).astype(dtype))
    head = (
        table if tied else weight("head.weight", rng.standard_normal((99, columns)).astype(dtype))
    )
    ids = value("ids", ["batch", "length"], ir.DataType.INT64)
    rows = ir.node("Gather", [table, ids], {"axis": 0})
    up = ir.node("MatMul", [rows.outputs[0], inner])
    down = ir.node("MatMul", [up.outputs[0], back])
    swapped = ir.node("Transpose", [head], {"perm": [1, 0]})
    logits = ir.node("MatMul", [down.outputs[0], swapped.outputs[0]])
    cast = ir.node("Cast", [logits.outputs[0]], {"to": ir.DataType.FLOAT})
    for node in (rows, up, down, swapped, logits):
        node.outputs[0].type = ir.TensorType(kind)
    initializers = list(dict.fromkeys([table, inner, back, head]))
    return save_model(path, [ids], [rows, up, down, swapped, logits, cast], initializers)


def run(path, **feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options)
    return session.run(None, feeds)[0]

"""Forms of parameters: the numbers that exporters store, and where each of them comes from."""

import numpy as np
import pytest
import torch

from torchferry.comparer.weigh.weight_form import (
    forms_of,
    packed_forms,
    recurrent_forms,
    split_forms,
)
from torchferry.converter import convert


def only(forms):
    (form,) = forms
    return form


@pytest.mark.parametrize(
    ("shape", "stored", "count"),
    [
        ((3, 4), (3, 4), 1), ((3, 4), (4, 3), 1), ((4, 4), (4, 4), 2), ((5,), (5, 1, 1), 1),
        ((), (1,), 1), ((2, 3, 4), (2, 4, 3), 1), ((3, 4), (3, 5), 0), ((1, 4), (4, 1), 1),
        ((6,), (2, 3), 0), ((4, 1, 3), (4, 1, 3), 1),
    ],
)  # fmt: skip
def test_shapes_that_fit(shape, stored, count):
    forms = [*forms_of("w", torch.Size(shape), stored, turned=False)]
    assert len(forms) == count
    assert all(form.view(torch.empty(shape)).shape == stored for form in forms)


@pytest.mark.parametrize("turned", [True, False])
def test_a_square_matrix_is_first_as_its_reader_wants_it(turned):
    matrix = torch.arange(9.0).reshape(3, 3)
    first = next(forms_of("w", matrix.shape, (3, 3), turned=turned))
    assert torch.equal(first.view(matrix), matrix.T if turned else matrix)


def test_an_element_is_placed_in_the_parameter():
    form = only(forms_of("w", torch.Size((3, 4)), (4, 3), turned=True))
    assert form.place([torch.Size((3, 4))], (3, 1)) == ("w", (1, 3))
    large = torch.Size((2**16, 2**16))  # no memory is needed for a form that is a view
    plain = next(forms_of("w", large, tuple(large), turned=False))
    assert plain.place([large], (7, 5)) == ("w", (7, 5))
    assert only(forms_of("s", torch.Size(()), (), turned=False)).place([torch.Size(())], ()) == (
        "s", (),
    )  # fmt: skip


SIZES = {
    f"a.{name}.{kind}": torch.Size((rows, 5) if kind == "weight" else (rows,))
    for name, rows in (("q", 4), ("k", 2), ("v", 2))
    for kind in ("weight", "bias")
}


@pytest.mark.parametrize("stored", [(8, 5), (5, 8)])
def test_query_key_and_value_in_one(stored):
    form = only(packed_forms("a", SIZES, stored))
    assert form.names == ("a.q.weight", "a.k.weight", "a.v.weight")
    tensors = [torch.randn(SIZES[name]) for name in form.names]
    packed = form.view(*tensors)
    assert packed.shape == stored
    position = (6, 3) if stored[0] == 8 else (3, 6)
    name, index = form.place([t.shape for t in tensors], position)
    assert (name, index) == ("a.v.weight", (0, 3))
    assert packed[position] == tensors[2][index]


def test_biases_in_one_and_two_of_three():
    assert only(packed_forms("a", SIZES, (8,))).names == ("a.q.bias", "a.k.bias", "a.v.bias")
    assert only(packed_forms("a", SIZES, (4, 5))).names == ("a.k.weight", "a.v.weight")
    assert not [*packed_forms("b", SIZES, (8,))]


@pytest.mark.parametrize("stored", [(4, 5), (5, 4)])
def test_a_part_of_a_packed_weight(stored):
    forms = [*split_forms("w", torch.Size((12, 5)), stored)]
    whole = torch.randn(12, 5)
    parts = [form.view(whole) for form in forms]
    assert len(forms) == 3
    assert all(tuple(part.shape) == stored for part in parts)
    assert forms[1].place([whole.shape], (1, 2)) == (
        ("w", (5, 2)) if stored == (4, 5) else ("w", (6, 1))
    )


@pytest.mark.filterwarnings("ignore:The tensor attribute")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("both", [False, True])
def test_gates_are_in_the_order_of_onnx(kind, both):
    """The conversion, which is checked against onnxruntime, says what the order is."""
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(3, 4, num_layers=2, bidirectional=both).eval()
    graph = convert(torch.export.export(module, (torch.randn(5, 2, 3),), strict=False)).graph
    weights = dict(module.named_parameters())
    shapes = {name: tensor.shape for name, tensor in weights.items()}
    nodes = [node for node in graph if node.op_type == kind]
    assert len(nodes) == 2
    for layer, node in enumerate(nodes):
        for value in node.inputs[1:4]:
            array = torch.from_numpy(constant(value).copy())
            forms = [*recurrent_forms("", shapes, tuple(array.shape), kind)]
            right = [form for form in forms if torch.equal(gathered(form, weights), array)]
            assert len(right) == 1
            assert all(f"_l{layer}" in name for name in right[0].names)
            last = tuple(size - 1 for size in array.shape)
            name, index = right[0].place([shapes[n] for n in right[0].names], last)
            assert weights[name][index] == array[last]


def gathered(form, weights):
    return form.view(*(weights[name].detach() for name in form.names))


def constant(value):
    """Its numbers, also when the graph puts them together."""
    if value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    assert node.op_type == "Concat", node.op_type
    return np.concatenate([constant(v) for v in node.inputs], node.attributes["axis"].as_int())

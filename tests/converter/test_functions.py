"""Module classes kept as functions: equal results, identical ones merged."""

import pytest
import torch
from op_case import export, run

from torchferry.converter.functions import DOMAIN, extract_functions
from torchferry.converter.translate import translate
from torchferry.errors import UsageError


class Half(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.linear(x)) * 0.5


class Block(torch.nn.Module):
    def __init__(self, width, extra=False):
        super().__init__()
        self.inner, self.extra = Half(width), extra

    def forward(self, x):
        y = self.inner(x).reshape(x.shape[0], 2, -1).reshape(x.shape)
        return x + y + 1 if self.extra else x + y


class Stack(torch.nn.Module):
    def __init__(self, *extras):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block(4, extra) for extra in extras)
        self.head = torch.nn.Linear(4, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x), x


class Branching(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x * self.w, lambda x: x - 1, (x,))


SETS = (torch.randn(3, 4),), (torch.randn(1, 4),), (torch.randn(5, 4),)


def functions(module, classes):
    """The model with functions, compared with eager."""
    model = translate(export(module, *SETS), 20)
    extract_functions(model, classes)
    for inputs in SETS:
        with torch.no_grad():
            expected = module(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for got, wanted in zip(run(model, inputs), expected, strict=True):
            torch.testing.assert_close(got, wanted.detach())
    return model


def called(graph):
    return [node.op_type for node in graph if node.domain == DOMAIN]


def test_identical_modules_share_one_function():
    model = functions(Stack(False, False, False), ["Block"])
    assert called(model.graph) == ["Block"] * 3
    assert [key[1] for key in model.functions] == ["Block"]
    names = {value.name for node in model.graph for value in node.inputs if value is not None}
    assert {"layers.0.inner.linear.bias", "layers.2.inner.linear.bias"} <= names


def test_modules_that_differ_get_functions_of_their_own():
    model = functions(Stack(False, True, False), [Block])
    assert called(model.graph) == ["Block", "Block_2", "Block"]


def test_functions_inside_functions():
    model = functions(Stack(False, False), ["Block", "Half"])
    assert called(model.graph) == ["Block", "Block"]
    (block,) = (f for key, f in model.functions.items() if key[1] == "Block")
    assert called(block) == ["Half"]


def test_a_class_by_its_full_name_and_several_places():
    model = functions(Stack(False, True), ["torch.nn.modules.linear.Linear"])
    assert called(model.graph) == ["Linear"] * 3


@pytest.mark.filterwarnings("ignore")  # eager torch.cond is compiled, which warns of itself
def test_bodies_of_branches_come_along():
    model = functions(torch.nn.Sequential(Branching(), Branching()), ["Branching"])
    assert len(called(model.graph)) == 2
    assert "If" not in {node.op_type for node in model.graph}


def test_a_call_says_which_module_it_is():
    model = functions(Stack(False, False), ["Block"])
    scopes = [
        node.metadata_props["pkg.torch.onnx.name_scopes"]
        for node in model.graph
        if node.domain == DOMAIN
    ]
    assert scopes == ["['', 'layers.0']", "['', 'layers.1']"]


def test_a_class_that_is_not_there_is_named():
    model = translate(export(Stack(False), *SETS), 20)
    with pytest.raises(UsageError, match=r"no module of class Bloc: choose among Block, Half"):
        extract_functions(model, ["Bloc"])
    assert not model.functions

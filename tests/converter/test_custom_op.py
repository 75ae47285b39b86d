"""A user's own operators: lowered by a function of theirs, to a domain of theirs, or named."""

import uuid

import pytest
import torch
from op_case import check, export

from torchferry.converter.lowering import lowers
from torchferry.converter.translate import translate
from torchferry.errors import MissingLowering, UsageError

SETS = (torch.randn(3, 4),), (torch.randn(1, 4),)


def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor + 1


@pytest.fixture
def custom():
    """An operator that torch knows nothing about but its result's shape; a new one each time."""
    name = f"torchferry_{uuid.uuid4().hex[:8]}::scaled"
    operator = torch.library.custom_op(name, scaled, mutates_args=())
    operator.register_fake(lambda x, factor: torch.empty_like(x))
    return operator


def target_of(operator):
    namespace, name = operator._qualname.split("::")
    return getattr(getattr(torch.ops, namespace), name).default


def test_a_function_lowers_it(custom):
    @lowers(target_of(custom))
    def lowered(b, x, factor):
        return b.Add(b.Mul(x, factor), 1)

    model = check(lambda x: custom(x, 2.5), *SETS, target=target_of(custom))
    assert [node.op_type for node in model.graph] == ["Mul", "Add"]


def test_it_goes_to_a_domain_of_its_own(custom):
    @lowers(target_of(custom))
    def lowered(b, x, factor):
        return b.add("MyOp", (x,), domain="my.domain", version=3, factor=factor)

    model = translate(export(lambda x: custom(x, 2.5), *SETS), 20)
    (node,) = model.graph
    assert (node.domain, node.op_type, node.attributes["factor"].as_float()) == (
        "my.domain", "MyOp", 2.5,
    )  # fmt: skip
    assert model.graph.opset_imports == {"": 20, "my.domain": 3}
    assert node.outputs[0].dtype is not None


def test_without_a_function_it_is_named_with_what_to_write(custom):
    program = export(lambda x: custom(custom(x, 2.5), 1.0), *SETS)
    with pytest.raises(MissingLowering) as caught:
        translate(program, 20)
    name = str(target_of(custom))
    assert caught.value.operators == {name: 2}
    assert f"{name} (2x)" in str(caught.value)
    assert "@torchferry.lowers(torch.ops" in str(caught.value)


def test_a_function_with_other_parameters_is_refused(custom):
    with pytest.raises(UsageError, match=r"lacks factor.*\n?.*schema is"):

        @lowers(target_of(custom))
        def lowered(b, x):
            return x


def test_a_second_function_is_refused(custom):
    lowers(target_of(custom))(lambda b, x, factor: x)
    with pytest.raises(UsageError, match="already"):
        lowers(target_of(custom))(lambda b, x, factor: x)

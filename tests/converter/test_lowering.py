"""The registry: what may be registered, and what a user's operator becomes."""

import pytest
import torch
from op_case import check

import torchferry
from torchferry.converter import lowering
from torchferry.converter.lowering import absent, changed, find_lowering, lowers, registered
from torchferry.errors import LoweringFailed, MissingLowering, UsageError
from torchferry.seams.operators import Absent

aten = torch.ops.aten
OPS = torch.library.Library("ferrylowering", "DEF")
for _name in ("twice", "scaled", "pair", "unknown", "grown", "shrunk"):
    returns = "(Tensor, Tensor)" if _name == "pair" else "Tensor"
    number = {"scaled": ", float by=2.0, *, int n=1", "grown": ", int new=0, float by=2.0"}
    number = number.get(_name, "")
    OPS.define(f"{_name}(Tensor x{number}) -> {returns}")
OPS.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
OPS.impl("unknown", lambda x: x * 2, "CompositeExplicitAutograd")
OPS.impl("scaled", lambda x, by=2.0, *, n=1: x * by * n, "CompositeExplicitAutograd")
OPS.impl("grown", lambda x, new=0, by=2.0: x * by + new, "CompositeExplicitAutograd")
OPS.impl("shrunk", lambda x: x * 2, "CompositeExplicitAutograd")
OPS.impl("pair", lambda x: (x + 1, x - 1), "CompositeExplicitAutograd")
ops = torch.ops.ferrylowering


@torchferry.lowers(ops.twice.default)
def twice(b, x):
    return b.Mul(x, 2)


@torchferry.lowers(ops.scaled.default)
def scaled(b, x, by=2.0, n=1):
    return b.Mul(b.Mul(x, by), n)


@torchferry.lowers(ops.pair.default)
def pair(b, x):
    return b.Add(x, 1), b.Sub(x, 1)


X = [(torch.randn(2, 3),), (torch.randn(1, 3),)]


@pytest.mark.parametrize(
    ("function", "target"),
    [
        (ops.twice, ops.twice.default),
        (lambda x: ops.scaled(x, 3.0, n=2), ops.scaled.default),
        (lambda x: ops.scaled(x, n=4), ops.scaled.default),
        (lambda x: ops.pair(x)[1], ops.pair.default),
        (ops.pair, ops.pair.default),
    ],
)
def test_an_operator_of_the_users(function, target):
    check(function, *X, target=target)


def test_one_without_a_lowering_is_named():
    with pytest.raises(MissingLowering, match=r"ferrylowering\.unknown\.default \(1x\)"):
        check(ops.unknown, *X)


def test_a_second_lowering_is_refused():
    with pytest.raises(UsageError, match=r"twice\.default is lowered by .*twice already"):
        lowers(ops.twice.default)(lambda b, x: x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda b, x, dimension=0: x, "has no argument dimension.*lacks dim, half_to_float"),
        (lambda b, x, dim: x, "lacks half_to_float"),
    ],
)
def test_parameters_that_are_not_the_schemas(function, message):
    with pytest.raises(UsageError, match=message):
        lowers(aten._sparse_softmax.default)(function)


def test_every_lowering_of_ours_is_found():
    assert find_lowering(aten.add.Tensor) is not None
    assert find_lowering(ops.unknown.default) is None
    assert len(registered()) > 20


# Other versions of torch ------------------------------------------------------------------------


@pytest.fixture
def ours(monkeypatch):
    """What a test registers counts as a lowering of torchferry's, for as long as the test."""
    find_lowering(aten.add.Tensor)  # the others are registered first
    for name in ("_PLAIN", "_ABSENT"):
        monkeypatch.setattr(lowering, name, dict(getattr(lowering, name)))
    monkeypatch.setattr(lowering, "_OURS", __name__)


def test_an_operator_that_this_torch_lacks_is_only_written_down(ours):
    missing = Absent("ferrylowering.gone.default")

    @lowers(missing, ops.unknown.default)
    def gone(b, x):
        return b.Mul(x, 2)

    assert absent()["ferrylowering.gone.default"] is gone
    assert missing not in registered()
    check(ops.unknown, *X, target=ops.unknown.default)


@pytest.mark.parametrize(
    "function", [ops.grown, lambda x: ops.grown(x, by=4.0), lambda x: ops.grown(x, 0, 4.0)]
)
def test_a_schema_that_gained_an_argument(function, ours):
    lowers(ops.grown.default)(lambda b, x, by=2.0: b.Mul(x, by))
    assert changed()["ferrylowering.grown.default"] == "the function lacks new"
    check(function, *X, target=ops.grown.default)


@pytest.mark.parametrize(
    "function", [lambda x: ops.grown(x, 3), lambda x: ops.grown(x, by=4.0, new=3)]
)
def test_an_argument_that_the_lowering_does_not_know_is_refused(function, ours):
    lowers(ops.grown.default)(lambda b, x, by=2.0: b.Mul(x, by))
    said = rf"schema in torch {torch.__version__.split('+')[0]}.* lacks new.* needs new: use"
    with pytest.raises(LoweringFailed, match=said):
        check(function, *X)


def test_a_schema_that_lost_an_argument(ours):
    lowers(ops.shrunk.default)(lambda b, x, by=2.0: b.Mul(x, by))
    assert changed()["ferrylowering.shrunk.default"] == "it has no argument by"
    check(ops.shrunk, *X, target=ops.shrunk.default)


def test_an_argument_that_nobody_gives_is_refused(ours):
    lowers(ops.shrunk.default)(lambda b, x, by: b.Mul(x, by))
    with pytest.raises(LoweringFailed, match=r"no argument by.* needs by: use a newer torchferry"):
        check(ops.shrunk, *X)


def test_what_this_torch_has_is_as_our_lowerings_say():
    """A typo in a name or in a parameter of ours would be taken for another version's."""
    assert changed() == {}
    assert set(absent()) <= {"aten.cholesky.default", "aten.qr.default"}  # gone in 2.14


@lowers(torch.ops.aten.gelu.default, override=True)
def sharp(b, x, approximate="none"):
    return b.Relu(x)


def converted():
    program = torchferry.to_onnx(torch.nn.GELU(), (torch.rand(2),))
    return [node.op_type for node in program.model.graph]


def test_a_lowering_is_replaced_for_a_while():
    before = converted()
    assert "Relu" not in before
    with sharp:
        assert converted() == ["Relu"]
        with sharp:
            assert converted() == ["Relu"]
        assert converted() == ["Relu"]
    assert converted() == before


def test_an_override_of_what_has_no_lowering_leaves_none():
    target = torch.ops.aten._assert_async.msg  # no value, so nobody lowers it
    assert find_lowering(target) is None
    with lowers(target, override=True)(lambda b, x, assert_msg: None) as nothing:
        assert nothing is None
        assert find_lowering(target) is not None
    assert find_lowering(target) is None


def test_an_override_has_the_parameters_of_the_schema():
    with pytest.raises(UsageError, match="it has no argument y"):
        lowers(torch.ops.aten.gelu.default, override=True)(lambda b, x, y: x)

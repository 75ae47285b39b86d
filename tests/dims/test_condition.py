import pytest

from torchferry.dims import Condition


@pytest.mark.parametrize(
    ("test", "sizes", "true", "false", "text"),
    [
        ("n0 > 5", ("batch",), {"batch": 6}, {"batch": 5}, "batch > 5"),
        ("n0 != n1", ("a", "b"), {"a": 1, "b": 2}, {"a": 2, "b": 2}, "a != b"),
        ("n0 * 3 % 4 == 0", ("a + b",), {"a": 1, "b": 3}, {"a": 1, "b": 2}, None),
        ("math.trunc(0.3*torch.sym_float(n0)) == 3", ("n",), {"n": 12}, {"n": 14}, None),
        ("math.trunc(n0 ** 0.5) == 3", ("n",), {"n": 15}, {"n": 16}, None),
        ("not (n0 < 2 or n0 > 4) and n0 // 2 == 1", ("n",), {"n": 3}, {"n": 4}, None),
        ("max(n0, -n1) <= 3", ("a", "my dim"), {"a": 3, "my dim": 0}, {"a": 4, "my dim": 0}, None),
        ("2 <= n0 < 4", ("n",), {"n": 3}, {"n": 4}, "2 <= n < 4"),
        ("n0 % n1 == 0", ("a", "b"), {"a": 4, "b": 2}, {"a": 4, "b": 0}, "a % b == 0"),
    ],
)
def test_holds_where_it_does(test, sizes, true, false, text):
    condition = Condition(test, sizes)
    assert condition.names == true.keys()
    assert condition.holds(true)
    assert not condition.holds(false)
    assert all(size in str(condition) for size in sizes)
    assert text in (None, str(condition))


@pytest.mark.parametrize(
    "test",
    ["__import__('os').getcwd()", "n0.real", "[n0]", "n0 if n0 else 1", "m0 > 2", "n0 >", "",
     "f(n0)", "'a' * n0", "n0 in n0", "(lambda: 1)()", "n0 @ n0"],
)  # fmt: skip
def test_any_other_text_is_refused(test):
    with pytest.raises(ValueError, match="no condition on sizes"):
        Condition(test, ("a",))


def test_a_hostile_power_is_not_computed():
    assert not Condition("9 ** 9 ** 9 > n0", ("a",)).holds({"a": 1})


@pytest.mark.parametrize(
    ("test", "sizes", "matters"),
    [
        ("n0 > 1", ("a",), False), ("n0 != 1", ("a",), False), ("1 < n0", ("a",), False),
        ("n0 - 2 != 1", ("a",), False), ("n0 // 2 >= 2", ("a",), False),
        ("n0 * n1 >= n0", ("a", "b"), False),
        ("n0 == 1", ("a",), True), ("n0 % 2 == 1", ("a",), True), ("n0 % 3 != 1", ("a",), True),
        ("n0 > 5", ("a",), True), ("n0 != 6", ("a",), True), ("n0 <= 8192", ("a",), True),
        ("n0 > n1", ("a", "b"), True), ("n0 + n1 != 9", ("a", "b + c"), True),
    ],
)  # fmt: skip
def test_what_fails_only_at_0_and_1_is_told_apart(test, sizes, matters):
    assert Condition(test, sizes).matters is matters

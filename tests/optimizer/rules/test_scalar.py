from rewriting import changes, keeps

from torchferry.optimizer.rules import scalar

FLOATS = "g (float[a,3] x) => (float[m,n] y) "
INTS = "g (int64[a] x) => (int64[a] y) "


def number(name, value, kind="value_float"):
    return f"{name} = Constant<{kind}={value}>() "


def test_two_factors_become_one():
    two, four = number("c", 2.0), number("d", 4.0)
    changes(
        scalar.RULES,
        FLOATS + "{" + two + four + "t = Mul(c, x) y = Mul(t, d) }",
        FLOATS + "{" + number("c", 8.0) + "y = Mul(x, c) }",
    )


def test_two_terms_become_one_for_integers():
    terms = number("c", 2, "value_int") + number("d", -5, "value_int")
    changes(
        scalar.RULES,
        INTS + "{" + terms + "t = Add(x, c) y = Add(d, t) }",
        INTS + "{" + number("c", -3, "value_int") + "y = Add(x, c) }",
    )
    terms = number("c", 2.0) + number("d", -5.0)
    keeps(scalar.RULES, FLOATS + "{" + terms + "t = Add(x, c) y = Add(d, t) }", "no integer")


def test_extreme_factors_stay():
    factors = number("c", "1.0e30") + number("d", "1.0e-30")
    keeps(scalar.RULES, FLOATS + "{" + factors + "t = Mul(c, x) y = Mul(t, d) }", "extreme")
    zero = number("c", 0.0) + number("d", 3.0)
    keeps(scalar.RULES, FLOATS + "{" + zero + "t = Mul(c, x) y = Mul(t, d) }", "extreme")


def test_a_product_that_is_read_elsewhere_stays():
    text = "g (float[a] x) => (float[a] t, float[a] y) {" + number("c", 2.0) + number("d", 4.0)
    keeps(scalar.RULES, text + "t = Mul(c, x) y = Mul(t, d) }", "is an output of the graph")

from rewriting import changes, keeps

from torchferry.optimizer.rules import cast

RULES = {rule.name: rule for rule in cast.RULES}


def test_a_cast_to_the_own_type_goes():
    changes(
        RULES["Cast"],
        "g (float[a] x) => (float[a] y) { t = Cast<to=1>(x) y = Relu(t) }",
        "g (float[a] x) => (float[a] y) { y = Relu(x) }",
    )
    keeps(RULES["Cast"], "g (float[a] x) => (float16[a] y) { y = Cast<to=10>(x) }", "type changes")


def test_two_casts_become_one():
    changes(
        RULES["CastCast"],
        "g (float16[a] x) => (int64[a] y) { t = Cast<to=1>(x) y = Cast<to=7>(t) }",
        "g (float16[a] x) => (int64[a] y) { y = Cast<to=7>(x) }",
    )


def test_a_cast_that_rounds_stays():
    text = "g (float[a] x) => (float[a] y) { t = Cast<to=10>(x) y = Cast<to=1>(t) }"
    keeps(RULES["CastCast"], text, "may round")


def test_the_inner_cast_may_be_read_elsewhere():
    changes(
        RULES["CastCast"],
        "g (float16[a] x) => (float[a] t, double[a] y) { t = Cast<to=1>(x) y = Cast<to=11>(t) }",
        "g (float16[a] x) => (float[a] t, double[a] y) { t = Cast<to=1>(x) y = Cast<to=11>(x) }",
    )


def test_cast_like():
    text = "g (int64[a] x, float[b] z) => (float[a] y) {{ y = {} }}"
    changes(
        RULES["CastLike"],
        text.format("CastLike<saturate=1>(x, z)"),
        text.format("Cast<saturate=1, to=1>(x)"),
    )
    keeps(RULES["CastLike"], text.format("CastLike(x, z)"), opset=18)


def test_what_hides_is_chosen_among_numbers():
    text = "g (float[a,3] x) => (float[a,3] z) {{ few = Constant<value_float=-9.0>() {} }}"
    chosen = "c = Cast<to=9>(x) z = Where(c, few, {})"
    changes(
        RULES["WhereNotZero"],
        text.format(chosen.format("x")),
        text.format("zero = Constant<value_float=0.0>() " + chosen.format("zero")),
    )
    keeps(RULES["WhereNotZero"], text.format("c = Cast<to=9>(x) z = Where(c, x, few)"))
    whole = "g (int64[a] x, int64[b] y) => (int64[m] z) { c = Cast<to=9>(x) z = Where(c, y, x) }"
    keeps(RULES["WhereNotZero"], whole, "no float")

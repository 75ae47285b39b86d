import pytest
from rewriting import changes, keeps

from torchferry.optimizer.rules import join

RULES = {rule.name: rule for rule in join.RULES}
FAR = 9223372036854775807


def test_a_slice_of_everything_goes():
    for end in (FAR, 3):
        vectors = f"s = Constant<value_ints=[0]>() e = Constant<value_ints=[{end}]>() "
        changes(
            RULES["SliceAll"],
            "g (float[a,3] x) => (float[a,3] y) { a1 = Constant<value_ints=[1]>() " + vectors
            + "t = Slice(x, s, e, a1) y = Relu(t) }",
            "g (float[a,3] x) => (float[a,3] y) { y = Relu(x) }",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(1, FAR, 1), (0, 2, 1), (0, FAR, 2), (-2, FAR, 1), (FAR, -FAR, -1), (0, -1, 1)],
)
def test_a_slice_of_a_part_stays(start, end, step):
    names = {"s": start, "e": end, "axes": 0, "steps": step}
    vectors = " ".join(f"{n} = Constant<value_ints=[{v}]>()" for n, v in names.items())
    text = "g (float[a,3] x) => (float[m,3] y) {" + vectors + "y = Slice(x, s, e, axes, steps) }"
    keeps(RULES["SliceAll"], text, "may take a part")


def test_a_slice_up_to_a_size_that_is_known():
    vectors = "s = Constant<value_ints=[0,0]>() w = Constant<value_ints=[1,0]>() "
    text = "g (float[a,b] x, float[a,b] k) => (float[?,?] y) {{ {} }}"
    sizes = "m = Shape<start=1>(k) n = Shape<start=0, end=1>(k) e = Concat<axis=0>({}) "
    cut = "t = Slice(x, s, e, w) y = Relu(t)"
    changes(
        RULES["SliceAll"],
        text.format(vectors + sizes.format("m, n") + cut),
        text.format("y = Relu(x)"),
    )
    keeps(RULES["SliceAll"], text.format(vectors + sizes.format("n, m") + cut), "take a part")


def test_a_slice_of_an_axis_that_is_computed_stays():
    text = """g (float[a,3] x, int64[1] axis) => (float[?,?] y) {
        s = Constant<value_ints=[0]>() e = Constant<value_ints=[2]>() y = Slice(x, s, e, axis) }"""
    keeps(RULES["SliceAll"], text, "is not known")


def test_split_and_concat():
    g = "g (float[a,4] x) => (float[m,n] y) "
    split = "p, q = Split<axis=1, num_outputs=2>(x) "
    changes(
        RULES["SplitConcat"],
        g + "{" + split + "t = Concat<axis=-1>(p, q) y = Relu(t) }",
        g + "{ y = Relu(x) }",
    )
    keeps(RULES["SplitConcat"], g + "{" + split + "y = Concat<axis=1>(q, p) }", "in order")
    keeps(RULES["SplitConcat"], g + "{" + split + "y = Concat<axis=0>(p, q) }", "another axis")


def test_concat_of_concat():
    g = "g (float[a,4] x, float[b,4] z) => (float[m,4] y) "
    changes(
        RULES["ConcatConcat"],
        g + "{ t = Concat<axis=0>(x, z) y = Concat<axis=0>(z, t, x) }",
        g + "{ y = Concat<axis=0>(z, x, z, x) }",
    )
    text = (
        "g (float[a,4] x) => (float[m,8] y) { t = Concat<axis=0>(x, x) y = Concat<axis=1>(t, t) }"
    )
    keeps(RULES["ConcatConcat"], text, "no part is a Concat")


def test_gather_from_a_shape():
    g = "g (float[a,b,4] x) => (int64[m] y) "
    changes(
        RULES["GatherShape"],
        g + "{ s = Shape(x) i = Constant<value_ints=[1,-1]>() y = Gather(s, i) }",
        g + "{ y = Shape<start=1, end=3>(x) }",
    )
    text = g + "{ s = Shape(x) i = Constant<value_ints=[2,1]>() y = Gather(s, i) }"
    keeps(RULES["GatherShape"], text, "not in order")
    text = g + "{ s = Shape<start=1>(x) i = Constant<value_ints=[0]>() y = Gather(s, i) }"
    keeps(RULES["GatherShape"], text, "a part of the shape")


def test_where():
    g = "g (bool[a,1] c, float[a,3] x, float[3] z) => (float[a,3] y) "
    changes(
        RULES["WhereNot"], g + "{ n = Not(c) y = Where(n, x, z) }", g + "{ y = Where(c, z, x) }"
    )
    changes(
        RULES["WhereSame"], g + "{ t = Where(c, x, x) y = Add(t, z) }", g + "{ y = Add(x, z) }"
    )
    keeps(RULES["WhereSame"], g + "{ t = Where(c, z, z) y = Add(t, x) }", "may stretch")
    keeps(RULES["WhereNot"], g + "{ y = Where(c, x, z) }")


def test_an_empty_part_goes():
    g = "g (float[a,3] x, float[a,0] z, float[a,b] v) => (float[a,n] y) "
    after = g + "{ y = Concat<axis=1>(x, v) }"
    changes(
        RULES["ConcatEmpty"], g + "{ y = Concat<axis=-1>(x, z, v) }", after.replace("=1", "=-1")
    )
    changes(
        RULES["ConcatEmpty"], g + "{ t = Concat<axis=1>(z, x) y = Neg(t) }", g + "{ y = Neg(x) }"
    )


@pytest.mark.parametrize("parts", ["z, z", "x, v"])
def test_parts_that_may_have_elements_stay(parts):
    g = "g (float[a,3] x, float[a,0] z, float[a,b] v) => (float[a,n] y) "
    keeps(RULES["ConcatEmpty"], g + f"{{ y = Concat<axis=1>({parts}) }}")

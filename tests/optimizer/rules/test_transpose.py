import pytest
from rewriting import changes, keeps

from torchferry.optimizer.rules import transpose

G = "g (float[a,b,3] x) => (float[m,n,p] y) "


def test_two_transposes_become_one():
    changes(
        transpose.RULES,
        G + "{ t = Transpose<perm=[0,2,1]>(x) y = Transpose<perm=[1,0,2]>(t) }",
        G + "{ y = Transpose<perm=[2,0,1]>(x) }",
    )


def test_or_none():
    changes(
        transpose.RULES,
        G + "{ t = Transpose<perm=[0,2,1]>(x) u = Transpose<perm=[0,2,1]>(t) y = Relu(u) }",
        G + "{ y = Relu(x) }",
    )
    changes(
        transpose.RULES,
        G + "{ t = Transpose(x) u = Transpose(t) y = Relu(u) }",
        G + "{ y = Relu(x) }",
    )


def test_the_first_may_be_read_elsewhere():
    g = "g (float[a,b] x) => (float[b,a] t, float[a,b] y) "
    changes(
        transpose.RULES,
        g + "{ t = Transpose(x) u = Transpose(t) y = Relu(u) }",
        g + "{ t = Transpose(x) y = Relu(x) }",
    )


def test_one_alone_stays():
    keeps(transpose.RULES, G + "{ t = Transpose(x) y = Relu(t) }")


HALF = "g (float16[t,b,2] x) => (float16[b,t,3] y) <float16[2,3] w = {1,2,3,4,5,6}> "


def test_a_product_in_half_precision_comes_first():
    # Neg, for onnxruntime ends the process that loads the graph without it.
    changes(
        transpose.RULES,
        HALF + "{ n = Neg(x) u = Transpose<perm=[1,0,2]>(n) y = MatMul(u, w) }",
        HALF + "{ n = Neg(x) u = MatMul(n, w) y = Transpose<perm=[1,0,2]>(u) }",
    )


@pytest.mark.parametrize(
    "text",
    [
        HALF.replace("float16", "float") + "{ u = Transpose<perm=[1,0,2]>(x) y = MatMul(u, w) }",
        (
            "g (float16[t,2,b] x) => (float16[t,b,3] y) <float16[2,3] w = {1,2,3,4,5,6}> "
            "{ n = Neg(x) u = Transpose<perm=[0,2,1]>(n) y = MatMul(u, w) }"
        ),
        (
            "g (float16[t,b,2] x, float16[b,2,3] w) => (float16[b,t,3] y) "
            "{ n = Neg(x) u = Transpose<perm=[1,0,2]>(n) y = MatMul(u, w) }"
        ),
    ],
    ids=["float32", "the last axis", "a matrix for each"],
)
def test_other_products_stay(text):
    keeps(transpose.RULES, text)

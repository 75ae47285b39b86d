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

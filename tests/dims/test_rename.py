from torchferry.dims import Dim, solve_renaming

S = Dim.of


def test_names_symbols_through_sums():
    renaming = solve_renaming(
        [
            ("mask axis 1", S("s53"), S("past") + S("seq")),
            ("ids axis 1", S("s70"), S("seq")),
            ("key axis 2", S("s10"), S("past")),
        ]
    )
    assert renaming.conflicts == ()
    assert str(renaming.apply(S("s10") + S("s70"))) == "past + seq"
    assert str(renaming.apply(S("s53"))) == "past + seq"


def test_a_derived_axis_names_its_symbol():
    renaming = solve_renaming(
        [("mask axis 1", S("s1") + S("s2"), S("p") + S("q")), ("x axis 0", S("s1"), S("p"))]
    )
    assert str(renaming.apply(S("s2"))) == "q"
    assert renaming.conflicts == ()


def test_two_sizes_made_one_are_a_conflict():
    renaming = solve_renaming(
        [("a axis 0", S("s0"), S("rows")), ("b axis 0", S("s0"), S("columns"))]
    )
    assert renaming.conflicts == (("b axis 0", S("rows"), S("columns")),)


def test_a_fixed_size_is_a_conflict():
    renaming = solve_renaming([("a axis 0", 4, S("rows"))])
    assert renaming.conflicts == (("a axis 0", 4, S("rows")),)


def test_unknown_symbols_stay():
    assert solve_renaming([]).apply(S("u0")) == S("u0")

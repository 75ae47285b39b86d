from torchferry.capturer.fixed import Fixed


def test_a_fixed_dimension_is_told_with_its_line():
    fixed = Fixed("x", 1, "length", 7, "/a/m.py:3: for t in range(x.shape[1]):")
    assert str(fixed) == (
        "dimension length (x axis 1) was fixed to 7 by /a/m.py:3: for t in range(x.shape[1]):"
    )
    assert "tied to batch" in str(Fixed("x", 1, "length", "batch", None))

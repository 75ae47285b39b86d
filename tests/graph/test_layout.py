import itertools

import pytest

from torchferry.errors import UsageError
from torchferry.graph.diagram import Arrow, Box, Diagram, diagrams_of
from torchferry.graph.layout import SIZE, TITLE, place, stack, text_width


def boxes_of(placed):
    for box in placed.boxes:
        yield box
        for inner in box.inner:
            yield from boxes_of(inner)


def overlap(one, other):
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def within(inner, outer):
    return (
        inner.x >= outer.x
        and inner.y >= outer.y
        and inner.x + inner.width <= outer.x + outer.width + 1e-6
        and inner.y + inner.height <= outer.y + outer.height + 1e-6
    )


def diagrams_in(placed):
    yield placed
    for box in placed.boxes:
        for inner in box.inner:
            yield from diagrams_in(inner)


def test_nothing_overlaps_and_all_is_inside(control):
    placed = stack(diagrams_of(control))
    for one, other in itertools.combinations(placed, 2):
        assert not overlap(one, other)
    for diagram in (d for one in placed for d in diagrams_in(one)):
        for one, other in itertools.combinations(diagram.boxes, 2):
            assert not overlap(one, other), (one.box.title, other.box.title)
        for box in diagram.boxes:
            assert within(box, diagram)
            for inner in box.inner:
                assert within(inner, box)
        for route in diagram.routes:
            for x, _ in route.points:
                assert diagram.x <= x <= diagram.x + diagram.width


def test_texts_fit_their_boxes(control):
    for diagram in stack(diagrams_of(control)):
        for placed in boxes_of(diagram):
            assert text_width(placed.box.title, TITLE) < placed.width
            assert all(text_width(line, SIZE) < placed.width for line in placed.box.lines)


def test_arrows_go_from_box_to_box_and_over_none(control):
    for diagram in (d for one in stack(diagrams_of(control)) for d in diagrams_in(one)):
        at = {box.box.name: box for box in diagram.boxes}
        for route in diagram.routes:
            source, target = at[route.arrow.source], at[route.arrow.target]
            (x, y), (u, v) = route.points[0], route.points[-1]
            assert source.x < x < source.x + source.width
            assert y == source.y + source.height
            assert target.x < u < target.x + target.width
            assert v == target.y
            assert len(set(route.points)) == len(route.points)
            for one in diagram.boxes:
                if one not in (source, target):
                    assert not any(
                        one.x < x < one.x + one.width and one.y < y < one.y + one.height
                        for x, y in route.points
                    )


def test_a_diagram_of_nothing():
    placed = place(Diagram("empty", (), ()))
    assert placed.boxes == ()
    assert placed.width > text_width("empty", SIZE)


def test_many_arrows_meet_within_the_side_of_a_box():
    sources = [Box(f"s{n}", "input", "x") for n in range(30)]
    sink = Box("t", "operator", "Concat")
    arrows = tuple(Arrow(box.name, "t", box.name) for box in sources)
    placed = place(Diagram("g", (*sources, sink), arrows))
    target = placed.boxes[-1]
    ends = sorted(route.points[-1][0] for route in placed.routes)
    assert target.x < ends[0] < ends[-1] < target.x + target.width
    assert len(set(ends)) == 30


def test_wide_letters_are_wide():
    assert text_width("\N{CJK UNIFIED IDEOGRAPH-56FE}", 10) == 2 * text_width("a", 10)


def test_a_cycle_is_refused():
    loop = (Arrow("a", "b", "x"), Arrow("b", "a", "y"))
    boxes = (Box("a", "operator", "Add"), Box("b", "operator", "Mul"))
    with pytest.raises(UsageError, match="g: a value depends on itself, around Add"):
        place(Diagram("g", boxes, loop))

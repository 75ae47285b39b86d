import itertools
import random

import pytest

from torchferry.graph.diagram import Arrow
from torchferry.graph.layers import Net, arrange


def net_of(*pairs):
    names = sorted({name for pair in pairs for name in pair})
    return Net.of(names, [Arrow(one, other, one) for one, other in pairs])


def test_a_box_stands_below_all_it_takes_from():
    net = net_of(("a", "b"), ("b", "c"), ("a", "c"), ("d", "c"))
    assert {name: net.layer[name] for name in "abcd"} == {"a": 0, "b": 1, "c": 2, "d": 1}
    assert net.rows[1] == ["b", "d", "a|a|1"]
    assert dict.fromkeys(path[1] for _, path in net.paths if len(path) == 3) == {"a|a|1": None}


def test_arrows_of_one_value_share_their_places():
    net = net_of(("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("a", "c"))
    assert sum(name.startswith("a|") for name in net.layer) == 2


def test_a_cycle_is_named():
    assert net_of(("a", "b"), ("b", "c"), ("c", "b")).cyclic in {"b", "c"}
    assert net_of(("a", "a")).cyclic == "a"


def test_nothing_to_arrange():
    assert arrange(Net.of([], []), {}, 10) == {}
    assert arrange(Net.of(["a"], []), {"a": 30}, 10) == {"a": 0.0}


def test_arrows_are_untangled():
    pairs = [("a", "z"), ("b", "y"), ("c", "x")]
    net = net_of(*pairs)
    arrange(net, dict.fromkeys("abcxyz", 20), 10)
    above, below = net.rows
    assert [dict(pairs)[name] for name in above] == below


def test_a_chain_is_straight():
    net = net_of(("a", "b"), ("b", "c"), ("c", "d"))
    x = arrange(net, {"a": 90, "b": 20, "c": 50, "d": 30}, 10)
    assert len({round(place, 6) for place in x.values()}) == 1


@pytest.mark.parametrize("seed", range(5))
def test_boxes_keep_their_distance(seed):
    rng = random.Random(seed)  # noqa: S311  (it draws graphs)
    names = [f"b{number:02}" for number in range(40)]
    arrows = [
        Arrow(rng.choice(names[:index]), name, "v")
        for index, name in enumerate(names[1:], 1)
        for _ in range(rng.randint(1, 3))
    ]
    widths = {name: rng.uniform(10, 200) for name in names}
    net = Net.of(names, arrows)
    x = arrange(net, widths, 15)
    for row in net.rows:
        for one, other in itertools.pairwise(row):
            between = x[other] - x[one] - (widths.get(one, 0) + widths.get(other, 0)) / 2
            assert between >= 7.49
            if one in widths or other in widths:
                assert between >= 14.99


def test_thousands_of_boxes_take_seconds():
    names = [f"b{number}" for number in range(3000)]
    arrows = [Arrow(one, other, "v") for one, other in itertools.pairwise(names)]
    arrows += [Arrow("b0", name, "mask") for name in names[2::100]]
    x = arrange(Net.of(names, arrows), dict.fromkeys(names, 50), 10)
    assert len(x) == 3000 + 2901

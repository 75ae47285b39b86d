import torch

from torchferry.capturer.rewrite.joined import joined_leaves


def test_entries_of_a_field_come_one_after_the_other():
    parts = [torch.arange(4.0).reshape(2, 2), torch.ones(1, 2), torch.zeros(0, 2)]
    (whole,) = joined_leaves({"out": {"parts": parts}}, ("parts",))
    path, tensor = whole
    assert path == ("out", "parts", 0)
    torch.testing.assert_close(tensor, torch.cat(parts))


def test_all_else_stays_as_it_is():
    one, pair = torch.ones(2), (torch.zeros(1), torch.zeros(3))
    value = {"parts": [one], "pair": pair, "count": 3}
    leaves = dict(joined_leaves(value, ("parts",)))
    assert leaves["parts", 0] is one
    assert leaves["pair", 0] is pair[0]
    assert leaves["pair", 1] is pair[1]
    assert leaves["count",] == 3
    assert len(leaves) == 4


def test_a_field_of_other_things_is_not_joined():
    assert joined_leaves({"parts": [1, 2]}, ("parts",)) == [(("parts", 0), 1), (("parts", 1), 2)]
    assert joined_leaves((), ("parts",)) == []


def test_places_stay_in_order():
    value = {"a": torch.ones(1), "parts": (torch.ones(1), torch.ones(2)), "z": torch.ones(1)}
    assert [path for path, _ in joined_leaves(value, ("parts",))] == [
        ("a",), ("parts", 0), ("z",),
    ]  # fmt: skip

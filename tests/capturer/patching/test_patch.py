import sys
import types

import pytest
import torch

from torchferry.capturer.patching.patch import Attribute, Kernel, Patch, fingerprint, source_of


class Thing:
    def plain(self):
        return "plain"

    @staticmethod
    def static():
        return "static"

    @classmethod
    def bound(cls):
        return cls.__name__


class Child(Thing):
    pass


def patch(subject, **more):
    return Patch(subject, "why", "link", lambda found: lambda *args: ("new", found(*args)), **more)


@pytest.mark.parametrize("name", ["plain", "static", "bound"])
@pytest.mark.parametrize("owner", [Thing, Child])
def test_an_attribute_is_replaced_and_put_back(owner, name):
    before = dict(vars(owner))
    undo = Attribute(owner, name).write(lambda *_: "other")
    assert getattr(owner(), name)() == "other"
    undo()
    assert dict(vars(owner)) == before


def test_the_kernels_of_an_operator_are_replaced_and_put_back():
    op = torch.ops.aten.gru.input
    place, before = Kernel(op), dict(op.py_kernels)
    undo = place.write(print)
    assert place.read() is print
    undo()
    assert op.py_kernels == before


def test_what_a_name_leads_to():
    assert patch("torch.ops.aten.gru.input").find() == (Kernel(torch.ops.aten.gru.input),)
    assert patch(f"{__name__}.Thing.plain").library == __name__.split(".")[0]
    assert patch("torch.nn.Linear.forward").find() == (Attribute(torch.nn.Linear, "forward"),)
    assert patch("torch.nn.Linear.backward").find() == ()
    assert patch("nowhere.module.function").find() == ()


def test_a_lazy_module_is_not_made_to_import(monkeypatch):
    lazy = types.ModuleType("lazy")
    lazy.__getattr__ = lambda _: pytest.fail("it was imported")
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    assert patch("lazy.sub.function").find() == ()
    assert patch("lazy.function").find() == ()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"since": "99"}, "is older than 99"),
        ({"until": "2.0"}, "does not need it since 2.0"),
        ({"fingerprints": ("0" * 12,)}, "is not the one it was written for"),
        ({"fingerprints": (fingerprint(torch.nn.Linear.forward),)}, None),
        ({"since": "2.0", "until": "99"}, None),
    ],
)
def test_whether_it_fits(more, reason):
    found = patch("torch.nn.Linear.forward", **more).misfit()
    assert found is None if reason is None else reason in (found or "")


def test_what_is_not_there_does_not_fit():
    assert patch("nowhere.function", since="1").misfit() == "nowhere is not installed"
    assert patch("nowhere.function").misfit() == "it is not imported"
    assert patch("torch.nn.Linear.backward").misfit() == ("it is not imported")


def test_a_probe_is_asked_once():
    asked = []

    def probe():
        asked.append(1)
        return False

    one = patch("torch.nn.Linear.forward", probe=probe)
    assert not one.needed()
    assert not one.needed()
    assert asked == [1]
    assert patch("torch.nn.Linear.forward").needed()


def test_a_diff_shows_both_sources():
    diff = patch("torch.nn.Linear.forward").diff()
    assert diff.startswith("--- torch.nn.Linear.forward\n+++ torch.nn.Linear.forward, patched")
    assert "-    return F.linear(input, self.weight, self.bias)" in diff.replace(
        "-        ", "-    "
    )
    assert patch("nowhere.function").diff() == ""


def test_a_source_without_decorators_and_blank_lines():
    def one(x):
        return x

    @torch.no_grad()
    def two(x):
        return x

    assert fingerprint(one) != fingerprint(two)  # the names differ
    assert source_of(two).startswith("@torch.no_grad()\ndef two")
    assert source_of(len) == ""
    assert len(fingerprint(one)) == 12


def test_what_a_probe_draws_is_not_missed():
    def probe():
        return bool(torch.rand(1) < 2)

    before = torch.get_rng_state()
    assert patch("torch.nn.Linear.forward", probe=probe).needed()
    assert torch.equal(before, torch.get_rng_state())

"""Names that are one tensor: rewritten code keeps what each sees, or says why it cannot."""

from __future__ import annotations

import copy
import importlib.util
import re
import textwrap
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree

from families import slow_among
from torchferry.capturer import capture
from torchferry.capturer.rewrite.aliases import find_lost
from torchferry.errors import CaptureError
from torchferry.observer import Observation

TEXT = (Path(__file__).parents[1] / "cases" / "aliases.txt").read_text("utf-8")
CASES = {name: (wanted, body) for name, wanted, body in
         re.findall(r"^## (\w+): (.*)\n((?:(?!## ).*\n?)*)", TEXT, re.MULTILINE)}  # fmt: skip
SLOW = [  # another case has the same way through the code
    "branch_aug_alias", "condexp_fresh", "clone_written", "branch_fresh_then_writes",
    "mixed_fresh", "branch_mixed_fresh", "branch_returns_aug", "genexp_now", "alias_attr",
    "alias_list", "alias_closure_inside", "alias_inside2", "alias_view_read_inside", "mixed",
    "mul_matmul", "branch_aug_alias2", "branch_aug_both", "branch_mixed",
    "branch_sets_alias_then_writes_source", "branch_sets_view_then_writes",
    "branch_sets_alias_inplace_module", "branch_two_outputs_one", "returns_rest_aug",
    "nested_if", "if_in_loop", "unpack_star", "shadow_enumerate", "shadow_len", "row_alias",
    "list_aug", "aug_after_only", "identity", "while_views", "while_pop", "collect",
    "list_of_rows", "genexp_lazy", "match_",
]  # fmt: skip
HEAD = """import torch
SCALE = 0.5

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.relu, self.same = torch.nn.ReLU(inplace=True), torch.nn.Identity()
        self.drop, self.flag, self.t = torch.nn.Dropout(0.5), True, None
        self.register_buffer("buf", torch.zeros(2))

    def forward(self, x, y):
"""


def model_of(body, folder):
    file = folder / "model.py"
    file.write_text(HEAD + textwrap.indent(body, " " * 8), "utf-8")
    spec = importlib.util.spec_from_file_location("model", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model().eval()


def sets(*lengths):
    generator = torch.Generator().manual_seed(0)
    return [
        (sign * torch.rand(n, 2, generator=generator), torch.rand(2, generator=generator))
        for n in lengths
        for sign in (1, -1)
    ]


def equal(model, program, arguments):
    """Whether a program refuses a call, or gives what the model gives and changes what it does."""
    given, same = copy.deepcopy(arguments), copy.deepcopy(arguments)
    with torch.no_grad():
        want = copy.deepcopy(model)(*given)
        try:
            got = copy.deepcopy(program).module()(x=same[0], y=same[1])
        except AssertionError as error:
            if "Guard failed" not in str(error):
                raise
            return False
    torch.testing.assert_close(pytree.tree_leaves((got, same)), pytree.tree_leaves((want, given)))
    return True


@pytest.mark.sample(14)
@pytest.mark.parametrize("name", slow_among(CASES, SLOW))
def test_every_name_sees_what_it_sees_in_python(name, tmp_path):
    wanted, body = CASES[name]
    model = model_of(body, tmp_path)
    seen = Observation.from_inputs(model, sets(3, 5))
    try:
        found = capture(copy.deepcopy(model), seen, rewrite=True)
    except CaptureError as error:
        if wanted not in ("refused", "sound") and (
            wanted in ("right", "left") or wanted not in str(error)
        ):
            raise
        return
    taken = [equal(model, found.program, one) for one in sets(3, 4, 7, 1)]
    if wanted == "right":
        assert all(taken)
        assert not found.fixed
        assert "rewritten" in found.rewritten
    elif wanted not in ("left", "sound"):  # refused up to torch 2.13, and right after it
        assert wanted in "\n".join(found.declined)
        assert found.fixed


def test_a_branch_of_another_method_is_followed_too():
    class Picks(torch.nn.Module):
        def pick(self, h, x):
            if x.max() > 50:
                return h
            return h.clone()

        def forward(self, x, y):
            h = y * 1
            g = self.pick(h, x)
            g.mul_(2)
            return h, g

    model = Picks()
    with pytest.raises(CaptureError, match="changed in place"):
        capture(model, Observation.from_inputs(model, sets(3, 5)), rewrite=True)


def test_control_flow_of_the_user_s_own_is_as_it_is():
    class Own(torch.nn.Module):
        def forward(self, x):
            (y,) = torch.cond(x.sum() > 0, lambda x: (x.clone(),), lambda x: (x + 1,), (x,))
            return y.add_(1), x

    program = torch.export.export(Own(), (torch.ones(2),))
    assert find_lost(program, ()) == ()
    assert find_lost(program, ("model.py:1",)) == ()

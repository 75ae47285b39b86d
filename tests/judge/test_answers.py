from __future__ import annotations

import torch
from torch import nn

from torchferry.judge import Reference
from torchferry.judge.answers import Answers, Chosen, flat
from torchferry.judge.apart import Apart


def answers(model, x, recorded=None):
    return Answers(lambda m, given: m(given), model, x, flat, recorded)


def test_each_run_is_made_once_and_only_when_it_is_needed():
    runs = []

    class Counted(nn.Module):
        def forward(self, x):
            runs.append(x.dtype)
            return x * 2

    found = answers(Counted(), torch.ones(3))
    assert runs == []
    for _ in range(2):
        assert found.right[()].tolist() == [2, 2, 2]
        assert found.exact[()].dtype == torch.float64
        assert len(found.rounded(3)) == 3
        assert len(found.seeds(2)) == 2
        assert found.chosen == Chosen()
        assert found.coarse == set()
    assert len(found.rounded(5)) == 5
    assert len(runs) == 1 + 1 + 5 + 2 + 1 + 1
    known = answers(Counted(), torch.ones(3), torch.zeros(3))
    assert known.right[()].tolist() == [0, 0, 0]
    assert known.seeded[()].tolist() == [2, 2, 2]


def test_the_seed_decides_and_drawing_is_seen():
    found = answers(nn.Dropout(0.5), torch.ones(50))
    assert not found.draws
    assert torch.equal(found.seeded[()], found.same_seed[()])
    assert found.draws
    assert not torch.equal(found.seeded[()], found.seeds(1)[0][()])
    still = answers(nn.Dropout(0.5).eval(), torch.ones(50))
    assert still.right
    assert not still.draws


def test_a_model_that_cannot_be_run_again_has_no_more_answers():
    class Once(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls > 1:
                raise RuntimeError("once only")
            return x

    found = answers(Once(), torch.ones(2))
    assert found.right
    assert found.same_seed == {}
    assert found.rounded(1) == [{}]


def test_inputs_buffers_and_threads_stay():
    norm, x = nn.BatchNorm1d(4), torch.rand(5, 4)
    before, threads = x.clone(), torch.get_num_threads()
    found = answers(nn.Sequential(norm, nn.Identity()), x)
    assert found.right
    assert found.other_threads
    assert norm.num_batches_tracked == 0
    assert torch.get_num_threads() == threads
    written = answers(nn.ReLU(inplace=True), x - 1)
    assert written.right
    assert torch.equal(x, before)


def test_branches_of_torch_cond_run_under_every_mode():
    class Branch(nn.Module):
        def forward(self, x):
            other = lambda t: t[:2].clone()  # noqa: E731  (the other branch)
            return torch.cond(x.sum() > 0, lambda t: t.topk(2).values, other, (x,))

    found = answers(Branch(), torch.tensor([1.0, 1.0, 2.0]))
    assert found.rounded(1)[0][()].tolist() == [2, 1]
    assert found.coarse == set()
    assert torch.export.export(Branch(), (torch.rand(3),), strict=False)


def test_choices_say_where_they_are_made():
    assert "a tie) at topk, m.py:3: either" in Chosen([{}], ("topk, m.py:3",), ("empty",)).evidence
    assert Chosen([{}], (), ("empty, m.py:3",)).evidence.endswith("(empty, m.py:3)")


def test_a_copy_of_the_process_takes_no_more_threads():
    """OpenMP would wait in it for threads that were not copied, as long as it is let."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (torch.randn(512, 512) @ torch.randn(512, 512)).sum()
        layer = torch.nn.Linear(512, 512)

        def answer(question, note):
            inputs = torch.randn(question, 512)
            return str(Reference(lambda model, x: model(x), layer, inputs).contradicts())

        with Apart(answer, forks=True) as apart:
            assert apart.ask(512, 60.0) == "None"
    finally:
        torch.set_num_threads(threads)

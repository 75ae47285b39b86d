"""Top-1, KL divergence and perplexity, against their definitions in float64."""

import numpy as np
import pytest
import torch

from torchferry.deployer.prove.reference import measure, record_logits


def test_the_figures_are_their_definitions(tmp_path):
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(11, (1, n), generator=generator) for n in (5, 3)]
    theirs = {n: torch.randn(1, n, 11, generator=generator) for n in (5, 3)}
    ours = {n: theirs[n] + 0.5 * torch.randn(1, n, 11, generator=generator) for n in (5, 3)}
    logits = record_logits(lambda ids: theirs[ids.shape[1]], rows, tmp_path / "logits")
    seen = measure(lambda ids: ours[ids.shape[1]], logits)

    def probabilities(logits):
        values = np.exp(logits[0].double().numpy())
        return values / values.sum(-1, keepdims=True)

    kl, same, loss = [], [], []
    for row in rows:
        p, q = probabilities(theirs[row.shape[1]]), probabilities(ours[row.shape[1]])
        kl += list((p * np.log(p / q)).sum(-1))
        same += list(p.argmax(-1) == q.argmax(-1))
        loss += [-np.log(q[i, row[0, i + 1]]) for i in range(row.shape[1] - 1)]
    assert seen.tokens == 8
    assert seen.kl == pytest.approx(np.mean(kl), rel=1e-4)
    assert seen.top1 == np.mean(same)
    assert seen.perplexity == pytest.approx(np.exp(np.mean(loss)), rel=1e-4)
    worst = max((ours[n] - theirs[n]).abs().max().item() for n in (5, 3))
    assert seen.largest == pytest.approx(worst)
    exact = measure(lambda ids: theirs[ids.shape[1]], logits)
    assert (exact.kl, exact.top1, exact.perplexity) == (0, 1, exact.reference)

"""Fixtures of the quantizer's tests; `quantizer_graphs` makes the graphs."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(0)

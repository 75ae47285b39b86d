from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels and graphs of these tests are kept where nobody else looks for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHFERRY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def fresh() -> Iterator[None]:
    """Random numbers from the start, and nothing that dynamo has compiled before."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()

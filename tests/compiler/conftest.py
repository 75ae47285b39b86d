from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels and graphs of these tests are kept where nobody else looks for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHFERRY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield

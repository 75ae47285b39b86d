"""What may be asked for together."""

import pytest

from torchferry.deployer.options import check_choices
from torchferry.errors import UsageError


@pytest.mark.parametrize(
    ("size", "nbytes"), [("100 MiB", 100 * 2**20), ("1.5GB", 1.5e9), (7.0, 7.0), (None, None)]
)
def test_choices_are_read(size, nbytes):
    asked = {"runtimes": "genai,onnxruntime", "precisions": ["int4"], "target_size": size}
    assert check_choices(asked) == (("genai", "onnxruntime"), ("int4",), nbytes)


def test_a_text_is_for_four_bits_alone():
    with pytest.raises(UsageError, match="are for int4: add it to --precision"):
        check_choices({"precisions": "fp32", "calibrate": "hqq"})
    check_choices({"precisions": "fp32,int4", "calibrate": "hqq"})

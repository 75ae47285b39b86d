import pytest

from torchferry.errors import UsageError
from torchferry.exporter.plan import check_options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"exporter": "onnx_dynamo"}, "needs exporter to_onnx"),
        ({"state": "lift"}, "state refuse"),
    ],
)  # fmt: skip
def test_layers_need_our_exporter_and_a_model_without_state(options, said) -> None:
    given = {"target": "onnx", "exporter": "to_onnx", "opset": None, "verify": "layers"}
    with pytest.raises(UsageError, match=said):
        check_options(**{**given, **options})
    check_options(**given)

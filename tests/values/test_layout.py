import pytest
import torch

from torchferry.values.layout import why_not_plain, why_not_shaped


@pytest.mark.parametrize(
    "x", [torch.zeros(2), torch.tensor(1), torch.zeros(0, 3), torch.nn.Parameter(torch.ones(1))]
)
def test_plain_memory(x):
    assert why_not_plain(x) is why_not_shaped(x) is None


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (torch.eye(2).to_sparse(), "of layout torch.sparse_coo"),
        (torch.eye(2).to_mkldnn(), "of layout torch._mkldnn"),
        (torch.zeros(2, device="meta"), "without data"),
    ],
)
def test_other_memory_has_a_shape(x, reason):
    assert reason in why_not_plain(x)
    assert why_not_shaped(x) is None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_no_shape():
    parts = [torch.zeros(2), torch.zeros(3)]
    for x in (
        torch.nested.nested_tensor(parts),
        torch.nested.nested_tensor(parts, layout=torch.jagged),
    ):
        assert (
            why_not_plain(x)
            == why_not_shaped(x)
            == ("nested; give its parts, as unbind() has them")
        )
    assert "shape" in why_not_shaped(torch.nn.UninitializedParameter())


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_tensors_that_torch_func_works_on():
    found = []

    def note(x):
        found.append(why_not_plain(x))
        return x.sum()

    x = torch.ones(2, 3)
    torch.func.vmap(note)(x)
    torch.func.grad(note)(x)
    torch.func.jvp(note, (x,), (x,))
    torch.func.functionalize(note)(x)
    assert len(found) == 4
    assert all("torch.func" in reason for reason in found)

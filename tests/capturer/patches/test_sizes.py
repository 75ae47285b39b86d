import pytest
import torch

from torchferry.capturer import capture
from torchferry.capturer.patches.sizes import PATCHES
from torchferry.observer import Observation

TENSORS = {
    "as_tensor": lambda x, h, w: torch.as_tensor([(h, w)], dtype=torch.long),
    "as_tensor of a shape": lambda x, h, w: torch.as_tensor(x.shape[-2:]),
    "as_tensor of one": lambda x, h, w: torch.as_tensor(h),
    "asarray": lambda x, h, w: torch.asarray([h, w], dtype=torch.float32),
    "new_tensor": lambda x, h, w: x.new_tensor([h, w * 2]),
    "new": lambda x, h, w: x.new([h, w]),
    "_shape_as_tensor": lambda x, h, w: torch._shape_as_tensor(x)[1:],
    "tensor": lambda x, h, w: torch.tensor([[h // 2, w], [3, h]]),
    "numbers alone": lambda x, h, w: torch.as_tensor([1.5, 2]) * x.new_tensor(3.0) + h,
}


class Divides(torch.nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        made = self.make(x, *x.shape[-2:])
        return x / made.sum(), made


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_sizes_has_those_of_the_call(captured, name):
    sets = [(torch.rand(b, h, w),) for b, h, w in ((2, 5, 6), (3, 7, 9), (1, 11, 4))]
    found = captured(Divides(TENSORS[name]), sets)
    with torch.no_grad():
        want = Divides(TENSORS[name])(torch.ones(2, 2, 3))
    got = found.program.module()(x=torch.ones(2, 2, 3))
    torch.testing.assert_close(got, want)


class Pooled(torch.nn.Module):
    """Sizes that are computed: no dimension shows that they are fixed."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 1, 3, 2)

    def forward(self, x):
        y = self.conv(x)
        return y / torch.as_tensor([tuple(y.shape[-2:])]).sum()


def test_sizes_that_are_computed(captured):
    sets = [(torch.rand(b, 1, h, w),) for b, h, w in ((2, 8, 12), (3, 12, 9), (1, 6, 5))]
    captured(Pooled(), sets)


class Spaces(torch.nn.Module):
    def __init__(self, start, end, dtype=None):
        super().__init__()
        self.start, self.end, self.dtype = start, end, dtype

    def forward(self, x):
        return torch.linspace(self.start, self.end, x.shape[0], dtype=self.dtype) + x * 0


@pytest.mark.parametrize(
    ("start", "end", "dtype"),
    [(0, 1, None), (-1.5, 7.25, None), (2, -2, torch.float64), (0, 9, torch.int64)],
)
def test_evenly_spaced_numbers_of_any_count(captured, start, end, dtype):
    counts = (5, 8, 1, 2, 33)
    found = captured(Spaces(start, end, dtype), [(torch.zeros(n),) for n in counts])
    for count in (3, 64):
        got = found.program.module()(x=torch.zeros(count))
        torch.testing.assert_close(got, Spaces(start, end, dtype)(torch.zeros(count)))


class Reads(torch.nn.Module):
    def __init__(self, text):
        super().__init__()
        self.text = text

    def forward(self, x):
        return x * len(self.text(x))  # text


@pytest.mark.parametrize(
    "text",
    [
        lambda x: str(x.shape[0]),
        lambda x: f"{x.shape[0]}",
        lambda x: repr(x.shape),
        pytest.param(
            lambda x: "{}".format(x.shape[0]),  # noqa: UP032  (one of the spellings)
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_size_as_text_is_fixed_and_its_line_is_named(text):
    model = Reads(text)
    found = capture(model, Observation.from_inputs(model, [(torch.ones(n),) for n in (3, 400)]))
    assert [(one.name, one.size) for one in found.fixed] == [("batch_size", 3)]
    assert found.fixed[0].line.startswith(f"{__file__}:")
    with pytest.raises(AssertionError, match="Guard failed"):
        found.program.module()(x=torch.ones(12))


def test_a_text_for_people_fixes_nothing(captured):
    class Shows(torch.nn.Module):
        def forward(self, x):
            print("shape", x.shape, f"{x.shape[0]}")  # noqa: T201  (what the test is about)
            return x + x.shape[0]

    captured(Shows(), [(torch.ones(n),) for n in (3, 5, 1)])
    assert all(one.subject.startswith("torch.") for one in PATCHES)


def test_a_text_within_a_check_over_several_lines_fixes_nothing(captured):
    def require_check(condition, message):
        assert condition, message

    class Checks(torch.nn.Module):
        def forward(self, x):
            require_check(
                x.shape[0] > 0,
                f"rows: {x.shape[0]}",
            )
            return x + x.shape[0]

    found = captured(Checks(), [(torch.ones(n),) for n in (3, 5, 1)])
    assert not found.fixed


def test_a_text_within_torchs_own_assertion_fixes_nothing(captured):
    class Asserts(torch.nn.Module):
        def forward(self, x):
            torch._assert(
                len(x.shape) == 2,
                f"expected rows of one length, not {x.shape[-2:]}",
            )
            return x + x.shape[0]

    found = captured(Asserts(), [(torch.ones(n, 2 * n),) for n in (3, 5, 1)])
    assert not found.fixed

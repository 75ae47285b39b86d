import contextlib

import pytest
import torch

from families import slow_among
from torchferry.converter import convert
from torchferry.converter.program.mutation import refuse_mutations
from torchferry.errors import ConversionError
from torchferry.values import max_diff


class State(torch.nn.Module):
    """Holds one of everything that a forward could write to."""

    def __init__(self, body):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.plain = torch.zeros(3)
        self.body = body

    def forward(self, x):
        return self.body(self, x)


def in_place(_, x):
    x.add_(1)
    return x * 2


def through_chunks(_, x):
    x.chunk(2, dim=1)[1].add_(1)
    return x * 2


def through_a_chain_of_views(_, x):
    x.split(1, dim=1)[1].squeeze(1).unsqueeze(0).clamp_(0)
    return x + 1


def through_a_reshape_that_is_a_view(_, x):
    x.reshape(-1).mul_(2)
    return x + 1


def through_contiguous_of_what_is_so(_, x):
    x.contiguous().mul_(2)
    return x + 1


def through_a_cast_to_the_same_type(_, x):
    x.to(torch.float32).mul_(2)
    return x + 1


def through_detach(_, x):
    x.detach().zero_()
    return x + 1


def by_index(_, x):
    x[x > 0] = 0
    return x + 1


def by_a_list_of_tensors(_, x):
    torch._foreach_add_([x], 1.0)
    return x + 1


def by_out(_, x):
    return torch.add(x, 1, out=x)


def by_relu(_, x):
    return torch.nn.functional.relu(x, inplace=True)


def inside_a_block(_, x):
    rows = x.view(-1)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        rows.add_(1)
    return x * 2


def through_a_view_that_left_a_block(_, x):
    with torch.no_grad():
        rows = x.view(-1)
    rows.add_(1)
    return x * 2


def buffer_in_place(state, x):
    state.total.add_(1)
    return x + state.total


def buffer_by_index(state, x):
    state.total[0] = 1
    return x + state.total


def buffer_through_statistics(state, x):
    ones = torch.ones(3)
    return torch.nn.functional.batch_norm(x, state.total, ones, training=True)


def constant_in_place(state, x):
    state.plain += 1
    return x + state.plain


def constant_through_a_view(state, x):
    state.plain.view(-1)[0] = 1
    return x + state.plain


VIEWS = [  # as `in_place`, once it is known whose memory it is
    through_chunks, through_a_reshape_that_is_a_view, through_contiguous_of_what_is_so,
    through_a_cast_to_the_same_type, through_detach,
]  # fmt: skip
REFUSED = {
    "input x": [
        in_place, through_chunks, through_a_chain_of_views, through_a_reshape_that_is_a_view,
        through_contiguous_of_what_is_so, through_a_cast_to_the_same_type, through_detach,
        by_index, by_a_list_of_tensors, inside_a_block, through_a_view_that_left_a_block,
    ],
    "buffer total": [buffer_in_place, buffer_by_index, buffer_through_statistics],
    "tensor plain": [constant_in_place, constant_through_a_view],
}  # fmt: skip


def fresh(_, x):
    y = x * 2
    y.view(-1).add_(torch.tensor(1.0))
    y[:, 0] = torch.tensor([2.0])[0]
    return torch.nn.functional.relu(y, inplace=True)


def a_constant_made_in_forward(_, x):
    offset = torch.tensor([1.0, 2.0, 3.0])
    offset += 1
    offset.view(-1)[0] = 3
    return x + offset


def a_copy_by_reshape(_, x):
    x.t().reshape(-1).mul_(2)
    return x + 1


def a_copy_by_contiguous(_, x):
    x.t().contiguous().mul_(2)
    return x + 1


def a_copy_by_cast(_, x):
    return x.to(torch.float64).mul_(2)


def a_copy_by_indexing(_, x):
    x[torch.tensor([0, 1])].zero_()
    return x + 1


def an_output_made_before(_, x):
    made = torch.empty_like(x)
    torch.add(x, 1, out=made)
    return made


def fresh_inside_a_block(_, x):
    y = x * 2
    with torch.no_grad():
        y.add_(1)
        y.view(-1).mul_(2)
    return y + 1


def fresh_in_a_branch(_, x):
    return torch.cond(x.sum() > 2, lambda a: a.clone().add_(1), lambda a: a - 1, (x,))


def a_norm_that_does_not_train(state, x):
    return torch.nn.functional.batch_norm(x, state.total, state.weight.detach() * 1)


FINE = [
    fresh, a_constant_made_in_forward, a_copy_by_reshape, a_copy_by_contiguous, a_copy_by_cast,
    a_copy_by_indexing, an_output_made_before, a_norm_that_does_not_train, fresh_inside_a_block,
    fresh_in_a_branch,
]  # fmt: skip


def program(body):
    return torch.export.export(
        State(body), (torch.randn(4, 3),), dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}}
    )


def functionalized(exported):
    """As torch itself sees the writes: they become outputs. None where it refuses them."""
    with contextlib.suppress(RuntimeError):  # "Constant plain is mutated in the forward method"
        return exported.run_decompositions({})
    return None


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("body", "target"),
    slow_among(
        [(body, target) for target, bodies in REFUSED.items() for body in bodies],
        [(body, "input x") for body in VIEWS],
    ),
)
def test_a_write_that_would_be_lost_is_refused_by_name(body, target):
    exported = program(body)
    with pytest.raises(ConversionError, match=f"forward writes to {target}[ ,.]") as caught:
        refuse_mutations(exported)
    assert caught.value.node
    functional = functionalized(exported)
    assert (functional is None) == (target == "tensor plain")
    if functional is not None:  # the write is an output now, and would be lost too
        with pytest.raises(ConversionError, match=f"forward writes to {target}[ ,.]"):
            refuse_mutations(functional)


@pytest.mark.sample(3)
@pytest.mark.parametrize("body", FINE)
def test_a_write_to_what_was_made_on_the_way_is_fine(body):
    exported = program(body)
    refuse_mutations(exported)
    refuse_mutations(functionalized(exported))


@pytest.mark.parametrize(
    "body",
    [through_chunks, through_a_reshape_that_is_a_view, buffer_by_index, constant_through_a_view,
     fresh, a_copy_by_reshape, a_copy_by_cast],
)  # fmt: skip
def test_a_saved_program_does_not_know_which_tensors_share_memory(body, tmp_path):
    torch.export.save(program(body), tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2")
    expected = contextlib.nullcontext() if body in FINE else pytest.raises(ConversionError)
    with expected:
        refuse_mutations(loaded)


def test_every_target_is_named_and_the_first_line_told():
    class Both(State):
        def forward(self, x):
            self.total.add_(1)
            x.add_(1)
            return x

    with pytest.raises(ConversionError) as caught:
        refuse_mutations(torch.export.export(Both(None), (torch.ones(3),)))
    assert "forward writes to buffer total, input x, at " in str(caught.value)
    assert caught.value.source_line.startswith(f"{__file__}:")
    assert "x = x.clone()" in str(caught.value)


def test_a_model_in_training_is_told_to_evaluate():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3)).train()
    with pytest.raises(ConversionError, match=r"buffer 0.num_batches_tracked.*model.eval\(\)"):
        refuse_mutations(torch.export.export(model, (torch.ones(2, 3),)))
    refuse_mutations(torch.export.export(model.eval(), (torch.ones(2, 3),)))


class Keeps(torch.nn.Module):
    """Writes its state in place, as caches of convolution and recurrence do, and returns it."""

    def forward(self, x, state, unused):
        state.copy_(state * 0.5 + x)
        return state.sum(-1), state


def test_a_write_to_an_input_that_is_returned_is_not_lost(session):
    program = torch.export.export(Keeps(), tuple(torch.randn(3, 2, 3)))
    run = session(convert(program))
    x, state, unused = torch.randn(3, 2, 3)
    expected = Keeps()(x, state.clone(), unused)
    assert max_diff(expected, run(x, state, unused)).abs <= 1e-6


def test_one_that_is_not_returned_is_refused():
    class Loses(torch.nn.Module):
        def forward(self, x, state):
            state.add_(x)
            return state * 2

    with pytest.raises(ConversionError, match="forward writes to input state"):
        convert(torch.export.export(Loses(), tuple(torch.randn(2, 2, 3))))

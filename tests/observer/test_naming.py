import pytest

from torchferry.observer.naming import (
    cache_name,
    conventional_name,
    in_cache,
    input_name,
    made_name,
    pick_name,
    unaliased,
)


@pytest.mark.parametrize(
    ("path", "axis", "rank", "name"),
    [
        (("input_ids",), 0, 2, "batch_size"),
        (("input_ids",), 1, 2, "sequence_length"),
        (("inputs_embeds",), 2, 3, None),
        (("pixel_values",), 3, 4, "width"),
        (("decoder_input_ids",), 1, 2, "decoder_sequence_length"),
        (("encoder_outputs", "last_hidden_state"), 1, 3, "encoder_sequence_length"),
        (("cache_position",), 0, 1, "sequence_length"),
        (("past_key_values", "value_cache", 3), 0, 4, "batch_size"),
        (("past_key_values", "value_cache", 3), 1, 4, None),
        (("cache", "key_cache", 0), 2, 4, "past_sequence_length"),
        (
            ("past_key_values", "cross_attention_cache", "key_cache", 0),
            2,
            4,
            "encoder_sequence_length",
        ),
        (("anything",), 0, 1, "batch_size"),
        (("anything",), 1, 2, None),
        ((0,), 0, 1, "batch_size"),
        (("lifted_state", "encoder.tail"), 0, 2, None),
    ],
)
def test_the_names_people_expect(path, axis, rank, name):
    assert conventional_name(path, axis, rank) == name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("input_ids",), "input_ids"),
        (("lifted_state", "encoder.tail"), "state.encoder.tail"),
        (("lifted_state", "key_cache"), "state.key_cache"),
        (("past_key_values", "key_cache", 0), "past_key_values.0.key"),
        (("cache", "value_cache", 11), "past_key_values.11.value"),
        (
            ("past_key_values", "self_attention_cache", "key_cache", 1),
            "past_key_values.1.decoder.key",
        ),
        (
            ("past_key_values", "cross_attention_cache", "value_cache", 1),
            "past_key_values.1.encoder.value",
        ),
        (("batch", "images", 0), "batch.images.0"),
        ((2, "mask"), "args.2.mask"),
    ],
)
def test_inputs_are_called_as_optimum_calls_them(path, name):
    assert input_name(path) == name


def test_only_a_cache_has_a_cache_name():
    assert cache_name("present", ("logits",)) is None
    assert cache_name("present", ("past_key_values", "key_cache", 2)) == "present.2.key"
    assert not in_cache(("keys", 0))


def test_an_alias_is_the_first_part_of_a_path_only():
    assert unaliased(("cache", "key_cache", 0)) == ("past_key_values", "key_cache", 0)
    assert unaliased(("model", "cache")) == ("model", "cache")
    assert unaliased(()) == ()


def test_a_dimension_takes_the_first_usual_name_that_is_free():
    places = [(("x",), 1, 2), (("input_ids",), 1, 2)]
    assert pick_name(places, ()) == "sequence_length"
    assert pick_name(places, {"sequence_length"}) == "x_dim_1"
    assert pick_name(places, {"sequence_length", "x_dim_1", "x_dim_1_2"}) == "x_dim_1_3"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("x", 1), "x_dim_1"),
        ((0, 1), "args_0_dim_1"),
        (("cache", "key_cache", 3, 2), "past_key_values_3_key_dim_2"),
        (("out", "last hidden", 0), "out_last_hidden_dim_0"),
    ],
)
def test_made_name(path, name):
    assert made_name(path) == name


def test_an_integer_is_called_by_its_name():
    assert pick_name([(("input_ids",), 0, 0)], ()) == "input_ids"
    assert pick_name([(("sizes", 1), 0, 0)], {"sizes_1"}) == "sizes_1_2"
    assert conventional_name(("x",), 0, 0) is None

"""The counts of layers and blocks, the published ones beside ours."""

import pytest

from headcount.papers.hardmax import interpolation_blocks, interpolation_layers, our_interpolation_blocks


def test_the_published_counts_are_those_of_the_paper():
    for count in (1, 7, 40):
        assert interpolation_blocks([1] * count).value == 4 * count + 1
        assert interpolation_blocks([1] * count, weigh="softmax").value == 5 * count
    assert [interpolation_blocks(m).value for m in ((1, 2, 3, 2, 1), (2, 2, 3, 2, 2), (3, 2, 3, 2, 3))] == [29, 33, 37]


def test_our_counts_and_a_total_say_the_same():
    assert interpolation_layers([1] * 6).value == 19 and our_interpolation_blocks([1] * 6).value == 18
    assert interpolation_layers([2, 3]) == interpolation_layers(5, 2)
    assert interpolation_layers(5, 2).value == 20 and our_interpolation_blocks(5, 2).value == 18


def test_one_output_each_takes_fewer_blocks_than_published_and_sets_take_more():
    assert our_interpolation_blocks([1] * 12).value < interpolation_blocks([1] * 12).value
    assert our_interpolation_blocks([3] * 12).value > interpolation_blocks([3] * 12).value


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([1, 0],), "outputs of sequence 1 must be at least 1"),
        ((5,), "needs the number of sequences"),
        ((2, 3), "outputs must be at least 3"),
        (([1, 1], 3), "given for 2 sequences"),
        (([1], None, "argmax"), "weigh must be"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        interpolation_blocks(*arguments)

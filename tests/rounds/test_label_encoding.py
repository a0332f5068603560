"""Labels to class numbers and back."""

import pytest

from labelwise.errors import BadInput
from labelwise.rounds import LabelEncoding


def test_given_classes_keep_their_order():
    encoding = LabelEncoding.from_labels([], classes=("wren", "owl"))
    assert encoding.encode(["owl", "wren"]).tolist() == [1, 0]
    assert encoding.decode(0) == "wren"


def test_numbers_and_values_are_used_as_they_are():
    assert LabelEncoding.from_labels([3, 1]).encode([3, 1]).tolist() == [3, 1]
    values = LabelEncoding.from_labels([0.5], regression=True)
    assert values.encode([0.5]).tolist() == [0.5] and values.decode(0.5) == 0.5


def test_names_and_numbers_cannot_be_mixed():
    with pytest.raises(BadInput, match=r"some labels are names \('owl'\) and some are numbers"):
        LabelEncoding.from_labels(["owl", 3])


@pytest.mark.parametrize("labels", [[1, 2_000_000_000], [3, 10_001]])
def test_a_huge_number_is_a_class_only_if_it_is_listed(labels):
    with pytest.raises(BadInput, match=r"would need a model with .* classes; set the classes"):
        LabelEncoding.from_labels(labels)
    encoding = LabelEncoding.from_labels(labels, classes=labels)
    assert encoding.encode(labels).tolist() == [0, 1]


def test_a_label_that_is_not_a_class_any_more_is_rejected():
    with pytest.raises(BadInput, match="label 'owl' is not one of the classes any more"):
        LabelEncoding(False, ("wren",)).encode(["owl"])

"""What commands share."""

import doctest

from labelwise.cli import console


def test_names_are_cut_at_commas():
    found = doctest.testmod(console)
    assert found.attempted > 0 and found.failed == 0

"""Runs the examples in the docstrings of a module."""

import doctest


def run_examples(module):
    """All examples give what they say, and there are some."""
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0

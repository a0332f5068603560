"""What errors say as a part of a sentence."""

import pytest

from labelwise.errors import first_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (" \n ", "ValueError"),
        ("no route.\nmore", "no route"),
        ("it failed:\n  no port is free.\nmore", "it failed: no port is free"),
        (
            "it failed:\nTraceback (most recent call last):\n  a\nOSError: b",
            "it failed: OSError: b",
        ),
        ("it ended with:", "it ended with"),
    ],
)
def test_what_an_error_says_is_one_line(text, line):
    assert first_line(ValueError(text)) == line

"""The names of the package."""

import pytest

from labelwise import theory


@pytest.mark.parametrize("name", theory.__all__)
def test_every_name_is_found(name):
    assert callable(getattr(theory, name))


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no 'nothing'"):
        theory.nothing  # noqa: B018

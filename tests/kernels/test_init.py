"""The kernels' public names."""

import pytest

from labelwise import kernels


def test_every_public_name_is_there():
    assert all(getattr(kernels, name).__name__ == name for name in kernels.__all__)


def test_an_unknown_name_is_an_error():
    with pytest.raises(AttributeError, match=r"labelwise.kernels has no 'leverages'"):
        kernels.leverages  # noqa: B018

"""A user's function by its name."""

import pytest

from labelwise.errors import BadInput, MissingDependency
from labelwise.media.functions import import_function


def test_a_name_that_is_not_a_function_is_one_line(tmp_path):
    (tmp_path / "uses_torch.py").write_text("raise ImportError('no torch', name='torch')\n")
    with pytest.raises(BadInput, match="name a function as"):
        import_function("math", "add")
    with pytest.raises(BadInput, match="math:pi is not a function; it must add"):
        import_function("math:pi", "add")
    with pytest.raises(MissingDependency, match=r"uses_torch:f needs torch; run pip install"):
        import_function("uses_torch:f", "add", places=[tmp_path])

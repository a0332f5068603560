"""What users call: every function and class explains itself, with an example."""

import doctest
import importlib
import importlib.metadata
import inspect

import pytest

import labelwise
import labelwise.kernels
import labelwise.theory

WITHOUT = {
    # Errors, protocols and base classes: there is nothing to call.
    *("BadInput", "Conflict", "LabelwiseError", "LabelwiseWarning", "MissingDependency"),
    *("StorageFailed", "UnknownName"),
    *("Learner", "Rows", "Shards", "Strategy"),
    # Answers and forms whose example is that of the function or page that makes them.
    *("Choice", "GreedyStrategy", "PassStrategy"),
    *("Agreement", "Budget", "Discrepancy", "Distortion", "Explanation", "Finding"),
    "NearOrthonormality",
    *("ModelPlan", "Plan", "Spectrum"),
}
PUBLIC = {
    f"{module.__name__}.{name}": (module, name)
    for module in (labelwise, labelwise.kernels, labelwise.theory)
    for name in module.__all__
    if name not in WITHOUT
}


@pytest.mark.parametrize("path", PUBLIC)
def test_everything_that_a_user_calls_has_an_example(path):
    """Examples run in tests/test_docstrings.py."""
    module, name = PUBLIC[path]
    thing = getattr(module, name)
    home = importlib.import_module(thing.__module__)
    tests = doctest.DocTestFinder(recurse=False).find(thing, name, module=home)
    assert any(test.examples for test in tests), f"{path} has no example"


@pytest.mark.parametrize("path", PUBLIC)
def test_everything_that_a_user_calls_has_a_docstring(path):
    module, name = PUBLIC[path]
    assert len(inspect.getdoc(getattr(module, name)) or "") > 40


def test_dir_lists_the_public_names_and_the_version():
    assert set(dir(labelwise)) == {*labelwise.__all__, "__version__"}
    assert labelwise.__version__ == importlib.metadata.version("labelwise")

"""The default model of every kind of items, with and without torch."""

import subprocess
import sys

import numpy as np
import pytest

from labelwise.errors import UnknownName
from labelwise.learners.default_network import DefaultLearner
from labelwise.learners.defaults import default_learner, load_builder
from labelwise.learners.linear_probe import LinearProbe
from labelwise.learners.table_model import TableModel

ROWS = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "inputs", "expected"),
    [
        ("images", ROWS, LinearProbe),
        ("texts", ROWS, LinearProbe),
        ("numbers", ROWS, TableModel),
        ("images", np.zeros((5, 3, 8, 8), np.uint8), DefaultLearner),
    ],
)
@pytest.mark.parametrize("regression", [False, True])
def test_every_kind_has_its_model(kind, inputs, expected, regression):
    learner = default_learner(kind, inputs, None if regression else 3, regression=regression)
    assert isinstance(learner, expected)


def test_networks_have_short_names():
    learner = default_learner("numbers", ROWS, 2, module=load_builder("perceptron"))
    learner.fit(ROWS[:6], [0, 1, 0, 1, 0, 1], seed=0)
    assert learner.represent(ROWS, ["features"])["features"].shape == (30, 128)


def test_labels_may_need_more_classes_than_are_given():
    for kind in ("texts", "numbers"):
        learner = default_learner(kind, ROWS, 2)
        learner.fit(ROWS[:6], np.array([0, 1, 2, 0, 1, 2]), seed=0)
        assert learner.represent(ROWS, ["logits"])["logits"].shape == (30, 3)


def test_unknown_kinds_are_refused():
    with pytest.raises(UnknownName, match="no kind of items is called 'sounds'"):
        default_learner("sounds", ROWS)


def test_the_default_models_need_no_torch_and_a_network_names_the_extra():
    code = """
import sys
from importlib.abc import MetaPathFinder

class NoTorch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("no module named torch", name="torch")

sys.meta_path.insert(0, NoTorch())
import numpy as np
from labelwise.errors import MissingDependency
from labelwise.learners.defaults import default_learner, load_builder
rows = np.random.default_rng(0).normal(size=(20, 3))
for kind in ("images", "texts", "numbers"):
    default_learner(kind, rows, 2).fit(rows, np.arange(20) % 2, seed=0)
pictures = np.zeros((2, 3, 8, 8))
for use, *given in ((default_learner, "images", pictures), (load_builder, "perceptron")):
    try:
        use(*given)
    except MissingDependency as error:
        assert "labelwise[torch]" in str(error), error
    else:
        raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""Adding a strategy takes two files: its module and its test. Everything else discovers it."""

import importlib
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.campaign.explanations import explain_pick
from labelwise.record.events import Asked
from labelwise.record.storage import MemoryStorage
from labelwise.strategy import PickFacts
from tests.campaign.toys import answer, make_campaign
from tests.cli.pools import answer as run_command
from tests.cli.pools import picked

package = importlib.import_module("labelwise.strategies")  # the name is also a function
NAME = "largest_first_feature"
MODULE = '''
"""Largest first feature: pick the items whose first feature is largest.

Reference: A. Nobody, "An Example of a Strategy", Journal of Tests 2026.
"""

from labelwise.kernels.checks import check_choice
from labelwise.strategy import ScoreStrategy, read_reference


def score_feature(rows, labelled, *, order="largest"):
    """The first feature, or its negative."""
    values = rows["features"][:, 0]
    return values if order == "largest" else -values


STRATEGY = ScoreStrategy(
    name="largest_first_feature",
    needs=("features",),
    score=score_feature,
    check=lambda job: check_choice("order", job.options["order"], ("largest", "smallest")),
    adapt=lambda history: {"order": "smallest"} if history.trained else {},
    explain="Its first feature is larger than that of most other items.",
    good_for="tests of discovery",
    reference=read_reference(__doc__),
)
'''
TEST = f'''
import numpy as np

import labelwise


def test_the_largest_first_feature_is_picked():
    picks = labelwise.select("{NAME}", 1, features=np.array([[1.0], [3.0], [2.0]]))
    assert picks.ids.tolist() == [1]
'''
FEATURES = np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0], [0.0, 9.0]])


@pytest.fixture(autouse=True)
def newcomer(tmp_path, monkeypatch):
    """The two files; modules are found in one more folder."""
    folder = tmp_path / "strategies"
    folder.mkdir()
    (folder / f"{NAME}.py").write_text(MODULE)
    (tmp_path / f"test_{NAME}.py").write_text(TEST)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    package.names.cache_clear()
    yield tmp_path / f"test_{NAME}.py"
    package.names.cache_clear()
    sys.modules.pop(f"{package.__name__}.{NAME}", None)


def load_module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_library_finds_it(newcomer):
    assert labelwise.strategies()[NAME].reference.startswith("A. Nobody")
    picks = labelwise.select(NAME, 2, features=FEATURES, labelled=[1])
    assert picks.ids.tolist() == [2, 0]
    load_module(newcomer).test_the_largest_first_feature_is_picked()


def test_its_options_are_checked_and_its_picks_explained():
    with pytest.raises(labelwise.BadInput, match="order must be one of largest, smallest"):
        labelwise.select(NAME, 1, features=FEATURES, order="middle")
    sentence = package.get(NAME).explain_pick(PickFacts(rank=0, batch_size=1, trained=True))
    assert sentence == "Its first feature is larger than that of most other items."


def test_a_bandit_can_draw_it():
    picks = labelwise.select("bandit", 1, features=FEATURES, arms=[NAME])
    assert picks.ids.tolist() == [1] and picks.info["arm"] == NAME


def test_the_command_line_lists_and_runs_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("features.npy", FEATURES)
    code, out, _ = run_command(capsys, "strategies")
    assert code == 0 and NAME in out.replace("\n", "")
    options = ["--strategy", NAME, "--budget", "2", "--out", "picks.csv"]
    assert run_command(capsys, "select", "features.npy", *options)[0] == 0
    assert picked("picks.csv") == [1, 2]


def test_the_table_of_the_documentation_has_it():
    update = load_module(Path(__file__).parents[2] / "docs" / "update.py")
    page = update.updated("<!-- strategies -->\n<!-- end -->")
    assert f"| `{NAME}` | features |  | tests of discovery |" in page


def test_a_campaign_asks_with_it_adapts_its_options_and_explains_its_picks():
    storage = MemoryStorage()
    campaign, truth = make_campaign(storage, strategy=NAME)
    campaign.ask()
    answer(campaign, truth)
    campaign.train()
    campaign.ask()
    asked = [event for event in storage.read("toys") if isinstance(event, Asked)][-1]
    assert asked.strategy == NAME and asked.options["order"] == "smallest"
    assert explain_pick(asked, 0).startswith("Its first feature is larger")


def test_a_simulation_compares_it():
    from labelwise.simulate import simulate
    from tests.simulate.digits import DIGITS, KINDS, TINY

    options = {"strategies": [NAME], "seeds": 1, **TINY}
    found = simulate(DIGITS[:200], KINDS[:200], **options)
    assert {line.strategy for line in found.rounds} == {"random", NAME}


def test_a_benchmark_runs_it():
    pytest.importorskip("torch")
    from labelwise.benchmark.benchmark_run import BenchmarkRun, play_benchmark_runs
    from labelwise.benchmark.devices import find_benchmark_device
    from labelwise.benchmark.protocol import Entrant
    from labelwise.benchmark.splits import SplitCache
    from tests.benchmark.tiny_runs import tiny

    stage = SplitCache(tiny(rounds=1), find_benchmark_device("cpu"))
    lines = list(play_benchmark_runs([BenchmarkRun(stage, Entrant(NAME), 0)]))
    assert [line.strategy for line in lines] == [NAME, NAME] and len(lines[0].picks) == 10

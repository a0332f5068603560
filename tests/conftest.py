"""Rows that look like those of a trained network, for all tests."""

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

# make test tries the same few cases every time, so that a failure points to the last change;
# make test-all searches for new ones. No deadlines: a busy machine is not a failure.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("exploring", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.hookimpl(trylast=True)  # the terminal is there by then
def pytest_configure(config: pytest.Config) -> None:
    """Tell failures at once, and let Ctrl-C reach the processes that tests start.

    A shell in the background and nohup have it ignored, which children inherit.
    """
    if terminal := config.pluginmanager.get_plugin("terminalreporter"):
        config.pluginmanager.register(_Failures(terminal))
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _Failures:
    """Prints what failed when it fails: a run that is cut off has said it by then."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\n{report.nodeid} failed ({report.when}):")
            self._terminal.write_line(report.longreprtext)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests may take an hour; some of them install a server first."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(autouse=True)
def no_fetched_encoders(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Campaigns encode texts by their words, whatever encoders were fetched on this machine."""
    if {"campaign", "cli", "label_studio", "web"} & set(request.path.parts):
        monkeypatch.setenv("LABELWISE_DATA", str(tmp_path_factory.getbasetemp() / "no-data"))


@pytest.fixture
def double_precision() -> Iterator[None]:
    """New networks compute in float64, so that the order of sums does not show in a training."""
    torch = pytest.importorskip("torch")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute on one thread, as worker processes do, so that sums have the same order."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(before)


def make_features(n: int, d: int, seed: int = 0, clusters: int = 5) -> NDArray[np.float64]:
    """``(n, d)`` features in a few clusters."""
    generator = np.random.default_rng(seed)
    centres = 2 * generator.normal(size=(clusters, d))
    return centres[generator.integers(clusters, size=n)] + generator.normal(size=(n, d))


def make_probabilities(n: int, k: int, seed: int = 0) -> NDArray[np.float64]:
    """``(n, k)`` class probabilities, from certain to undecided."""
    generator = np.random.default_rng([seed, 1])
    return generator.dirichlet(np.full(k, 0.5), size=n)

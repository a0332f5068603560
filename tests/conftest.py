"""Rows that look like those of a trained network, for all tests."""

import os
import signal

import numpy as np
from hypothesis import settings
from numpy.typing import NDArray

# make test tries the same cases every time, so that it fails for those who broke something;
# make test-all looks for new ones.
# No deadlines: machines that are busy are not wrong.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("exploring", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start.

    A shell in the background and nohup have it ignored, which children inherit.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def make_features(n: int, d: int, seed: int = 0, clusters: int = 5) -> NDArray[np.float64]:
    """``(n, d)`` features in a few clusters."""
    generator = np.random.default_rng(seed)
    centres = 2 * generator.normal(size=(clusters, d))
    return centres[generator.integers(clusters, size=n)] + generator.normal(size=(n, d))


def make_probabilities(n: int, k: int, seed: int = 0) -> NDArray[np.float64]:
    """``(n, k)`` class probabilities, from certain to undecided."""
    generator = np.random.default_rng([seed, 1])
    return generator.dirichlet(np.full(k, 0.5), size=n)

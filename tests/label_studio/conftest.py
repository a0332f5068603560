"""Stand-in servers for the tests of the bridge."""

import pytest

from tests.label_studio.twin import TEXTS, Twin, texts


@pytest.fixture
def make_twin():
    """Start servers: ``make_twin()`` has no tasks yet."""
    made = []

    def make(config=TEXTS):
        made.append(Twin(config))
        return made[-1]

    yield make
    for twin in made:
        twin.close()


@pytest.fixture
def twin(make_twin):
    """A server with a project of 30 texts."""
    made = make_twin()
    made.add(*texts(30))
    return made

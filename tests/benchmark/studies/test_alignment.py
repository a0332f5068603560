"""The study of picks by the tangent kernel."""

import numpy as np

from labelwise.benchmark.devices import find_benchmark_device
from labelwise.benchmark.protocol import Entrant, change_protocol
from labelwise.benchmark.protocols import get_experiment
from labelwise.benchmark.studies.alignment import study_alignment

CPU = find_benchmark_device("cpu")
TINY = change_protocol(
    get_experiment("dynamics-fig1-mmd").at("small").on("digits"),
    networks=("mlp",),
    pool=200,
    test=50,
    start=20,
    learner={"optimizer": "adam", "lr": 0.01, "batch_size": 32, "epochs": 3},
    settings={"batches": [10, 20], "draws": 8},
)


def values(quantity, strategy="dynamics"):
    return dict(study_alignment(TINY, Entrant(strategy, {"quantity": quantity}), 0, CPU))


def test_every_quantity_is_measured_for_every_size_of_batch():
    mmd, bound = values("mmd"), values("bound")
    assert list(mmd) == list(bound) == [10, 20]
    assert all(np.isfinite(value) and value >= 0 for value in [*mmd.values(), *bound.values()])
    assert all(-1 <= value <= 1 for value in values("agreement", "random").values())

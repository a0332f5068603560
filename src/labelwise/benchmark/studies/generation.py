"""Study of generated inputs: gradient ascent on the predicted dual variables of images.

A network is trained under constraints on the first labels. The starts are the unlabelled items of
its smallest predicted duals. The option ``quantity`` of an entrant is ``"dual"`` (mean predicted
dual of the generated images) or ``"entropy"`` (their mean entropy by a network that is trained on
the same labels without constraints, and so does not know what was maximized).
"""

from collections.abc import Iterator

import numpy as np

from labelwise.arrays import to_numpy
from labelwise.benchmark.devices import Device
from labelwise.benchmark.labelling_run import PICKING, TRAINING, mix_run_seed
from labelwise.benchmark.models import make_picker_network, train_on_first_labels
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.splits import split_dataset
from labelwise.kernels.information.uncertainty import entropy
from labelwise.learners.primal_dual.generation import GenerationPath, generate_items
from labelwise.learners.torch_learner import TorchLearner


def study_generation(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[tuple[int, float]]:
    """One value per number of steps, in the protocol's setting ``steps``."""
    path, plain = generate_dual_ascent(protocol, entrant.strategy, seed, device)
    for step in protocol.settings["steps"]:
        if entrant.options["quantity"] == "dual":
            values = path.duals[step]
        else:
            rows = plain.represent(path.inputs[step], ["probabilities"])
            values = np.asarray(entropy(to_numpy(rows["probabilities"])))
        yield step, float(values.mean())


def generate_dual_ascent(
    protocol: Protocol, strategy: str, seed: int, device: Device
) -> tuple[GenerationPath, TorchLearner]:
    """Train both networks and generate images; with the network without constraints.

    Settings of the protocol:
        steps: numbers of steps that are measured; the last one is the largest.
        starts: number of images.
        step_size: length of a step relative to the norm of the start.
    """
    split = split_dataset(protocol, seed)
    entrant = Entrant(strategy, learner={"epsilon": protocol.settings["epsilon"]})
    models = train_on_first_labels(protocol, split, device, mix_run_seed(seed, 0, TRAINING))
    (plain,) = models.learners.values()
    picker = make_picker_network(protocol, entrant, split, device)
    assert picker is not None  # the strategy reads duals
    places = split.find_positions(split.first)
    picker.fit(split.inputs[places], split.targets[places], seed=mix_run_seed(seed, 0, PICKING))
    duals = to_numpy(picker.represent(split.inputs, ["duals"])["duals"])
    order = np.argsort(duals, kind="stable")
    starts = order[~np.isin(order, places)][: protocol.settings["starts"]]
    path = generate_items(
        picker,
        split.inputs[starts],
        steps=protocol.settings["steps"][-1],
        step_size=protocol.settings["step_size"],
        box=(float(split.inputs.min()), float(split.inputs.max())),
    )
    return path, plain

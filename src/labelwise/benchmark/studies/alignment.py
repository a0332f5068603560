"""Study of picks by the tangent kernel: MMD, generalization bound, and agreement of two scores.

The option ``quantity`` of an entrant is ``"mmd"`` (between the labelled items and these with the
picks), ``"bound"`` (`labelwise.theory.alignment_bounds.generalisation_bound` of both together), or
``"agreement"`` (Kendall's correlation of training dynamics and alignment over random batches).
"""

from collections.abc import Iterator

import numpy as np

from labelwise.arrays import to_numpy
from labelwise.benchmark.benchmark_run import BatchSelector
from labelwise.benchmark.devices import Device
from labelwise.benchmark.labelling_run import PICKING, TRAINING, mix_run_seed
from labelwise.benchmark.models import train_on_first_labels
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.splits import split_dataset
from labelwise.learners.tangent_kernel import tangent_kernel
from labelwise.theory.alignment_bounds import generalisation_bound
from labelwise.theory.dynamics import dynamics_agreement, one_hot
from labelwise.theory.mmd import subset_mmd


def study_alignment(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[tuple[int, float]]:
    """One value per size of the batch, in the protocol's setting ``batches``."""
    split = split_dataset(protocol, seed)
    models = train_on_first_labels(protocol, split, device, mix_run_seed(seed, 0, TRAINING))
    (learner,) = models.learners.values()
    places = split.find_positions(split.first)
    quantity = entrant.options["quantity"]
    reader = BatchSelector(protocol, Entrant(entrant.strategy), split, models.pool)
    rows = {} if quantity == "agreement" else reader.represent(learner)
    for number, batch in enumerate(protocol.settings["batches"]):
        own_seed = mix_run_seed(seed, number, PICKING)
        if quantity == "agreement":  # batches are drawn from four times as many items
            left = np.setdiff1d(np.arange(len(split.ids)), places)
            chosen = np.random.default_rng(own_seed).permutation(left)[: 4 * batch]
        else:
            picked = reader.select(learner, rows, split.first, batch, seed=own_seed)
            chosen = split.find_positions(picked.ids)
        both = np.concatenate([places, chosen])
        kernel = tangent_kernel(learner.module, split.inputs[both])
        targets = one_hot(split.targets[both], split.outputs)
        if quantity == "mmd":
            value = subset_mmd(kernel, len(places)).value
        elif quantity == "bound":
            value = generalisation_bound(kernel, targets)
        else:
            outputs = to_numpy(learner.represent(split.inputs[both], ["logits"])["logits"])
            draws = protocol.settings["draws"]
            value = dynamics_agreement(
                kernel, outputs, targets, batch=batch, labelled=len(places), draws=draws, seed=seed
            ).correlation
        yield batch, value

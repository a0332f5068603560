"""Studies: experiments other than rounds of buying labels, with results of the same form.

==============  =====================  =======================  ==================================
study           ``labels`` of a line   ``metric``               content
==============  =====================  =======================  ==================================
first_query     labels at the start    seconds                  time of the first batch
growth          number of models       lewis_total              total weight, or sum of the ranks
encoder_growth  number of encoders     lewis_total              the same for frozen encoders
shared_items    percent of the pool    shared_share             items of high leverage in common
encoder_heads   labels                 accuracy                 linear layers on encoders
frozen          labels                 accuracy or rmse         a head on frozen features
ratio           epochs of training     approximation_ratio      R of random batches
recovery        labels                 excess_error             least squares on few labels
network         labels                 excess_error             a network on few labels
alignment       labels of a batch      kernel_quantity          MMD, bound or agreement
generation      steps of ascent        generated_quantity       dual or entropy of images
==============  =====================  =======================  ==================================
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from labelwise.benchmark.devices import Device, DeviceClock, make_study_line
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.studies.alignment import study_alignment
from labelwise.benchmark.studies.encoded import study_encoder_heads
from labelwise.benchmark.studies.frozen import study_frozen
from labelwise.benchmark.studies.generation import study_generation
from labelwise.benchmark.studies.growth import (
    study_encoder_growth,
    study_growth,
    study_shared_items,
)
from labelwise.benchmark.studies.network import study_network
from labelwise.benchmark.studies.query import study_first_query
from labelwise.benchmark.studies.ratio import study_ratio
from labelwise.benchmark.studies.recovery import study_recovery

LineStudy = Callable[[Protocol, Entrant, int, Device], Iterator[RoundResult]]
ValueStudy = Callable[[Protocol, Entrant, int, Device], Iterator[tuple[int, float]]]


class Study(NamedTuple):
    """A function ``lines(protocol, entrant, seed, device)``, and its number of lines."""

    lines: LineStudy
    count_rounds: Callable[[Protocol], int]


def _study_values(study: ValueStudy, setting: str) -> Study:
    """A study that gives ``labels`` and value per entry of a setting or field; times its lines."""

    def iterate_study_lines(
        protocol: Protocol, entrant: Entrant, seed: int, device: Device
    ) -> Iterator[RoundResult]:
        clock = DeviceClock(device)
        for number, (labels, value) in enumerate(study(protocol, entrant, seed, device)):
            seconds = clock.lap()
            yield make_study_line(protocol, entrant, seed, device, number, labels, value, seconds)

    def count_rounds(protocol: Protocol) -> int:
        return len(protocol.settings.get(setting) or getattr(protocol, setting))

    return Study(iterate_study_lines, count_rounds)


STUDIES = {
    "first_query": Study(study_first_query, lambda protocol: 1),
    "growth": _study_values(study_growth, "networks"),
    "encoder_growth": _study_values(study_encoder_growth, "encoders"),
    "shared_items": _study_values(study_shared_items, "percents"),
    "encoder_heads": Study(study_encoder_heads, lambda protocol: protocol.rounds + 1),
    "frozen": Study(study_frozen, lambda protocol: protocol.rounds + 1),
    "ratio": _study_values(study_ratio, "epochs"),
    "recovery": _study_values(study_recovery, "budgets"),
    "network": _study_values(study_network, "budgets"),
    "alignment": _study_values(study_alignment, "batches"),
    "generation": _study_values(study_generation, "steps"),
}
"""All studies by name."""

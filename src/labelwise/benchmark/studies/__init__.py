"""Experiments that are no rounds of buying labels, with lines of the same form.

Every study is a function of its name in a module of this package.

==============  =========================  =======================  ==============================
study           ``labels`` of a line is    ``metric``               what
==============  =========================  =======================  ==============================
first_query     labels at the start        seconds                  how long the first batch takes
growth          the number of models       lewis_total              T, or the sum of the ranks
encoder_growth  the number of encoders     lewis_total              the same, of frozen encoders
encoder_heads   labels                     accuracy                 linear layers on encoders
ratio           the epochs of training     approximation_ratio      R of random batches
recovery        labels                     excess_error             least squares on few labels
network         labels                     excess_error             a network on few labels
==============  =========================  =======================  ==============================
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from labelwise.benchmark.devices import Device
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.studies import encoders, growth, network, query, ratio, recovery


@dataclass(frozen=True)
class Study:
    """A runner: ``lines(protocol, entrant, seed, device)``, and how many lines it gives."""

    lines: Callable[[Protocol, Entrant, int, Device], Iterator[RoundResult]]
    rounds: Callable[[Protocol], int]


def _budgets(protocol: Protocol) -> int:
    return len(protocol.settings["budgets"])


STUDIES = {
    "first_query": Study(query.first_query, lambda protocol: 1),
    "growth": Study(growth.growth, lambda protocol: len(protocol.networks)),
    "encoder_growth": Study(encoders.encoder_growth, lambda it: len(it.settings["encoders"])),
    "encoder_heads": Study(encoders.encoder_heads, lambda protocol: protocol.rounds + 1),
    "ratio": Study(ratio.ratio, lambda protocol: len(protocol.settings["epochs"])),
    "recovery": Study(recovery.recovery, _budgets),
    "network": Study(network.network, _budgets),
}
"""All studies by name."""

"""One selection for several real encoders: Figures 1 and 2 with pretrained, frozen networks.

S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight Sampling for
Multiple Deep Models", ICLR 2024. In place of its 50 once-for-all networks there are the pretrained
encoders of `labelwise.benchmark.encoders`, each with a linear layer that is trained on the labels.
`lewis` picks everything at once; the others buy batch after batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from labelwise.benchmark.protocol import Entrant, Protocol, Scale
from labelwise.benchmark.protocols.lewis import ENTRANTS, PAPER

IMAGES = (
    "efficientnet_lite0",
    "efficientnet_lite1",
    "efficientnet_lite2",
    "resnet50",
    "mobilenet",
    "squeezenet",
    "vgg16",
    "alexnet",
)
FEW_IMAGES = ("efficientnet_lite0", "resnet50", "mobilenet", "squeezenet", "alexnet")
"""Those that are quick to encode on a CPU, and ResNet-50."""
TEXTS = ("minilm", "glove", "tfidf_50", "tfidf_100", "tfidf_200", "letters_200")

TRAINING: Mapping[str, Any] = {
    "optimizer": "adam",
    "lr": 3e-3,
    "weight_decay": 1e-2,
    "batch_size": 128,
    "epochs": 40,
}

COMPONENTS = 64
"""Directions of largest spread that are kept where features are made narrow."""


@dataclass(frozen=True, kw_only=True)
class EncoderProtocol(Protocol):
    """An experiment whose models are linear layers on the encoders of ``settings``."""

    @property
    def network(self) -> str:
        """How many encoders there are.

        >>> EXPERIMENTS["lewis-fig2-encoders-cifar10"].network
        '8 encoders'
        """
        return f"{len(self.settings['encoders'])} encoders"


def few(encoders: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the small scale, which are the quickest."""
    return (FEW_IMAGES if encoders == IMAGES else encoders)[-3:]


def fewer(encoders: tuple[str, ...]) -> dict[str, Scale]:
    """The medium scale of an experiment on images."""
    if encoders != IMAGES:
        return {}
    changes = {"settings": {"encoders": FEW_IMAGES}, "seeds": 3}
    return {"medium": Scale(f"{len(FEW_IMAGES)} encoders", changes)}


def heads(dataset: str, encoders: tuple[str, ...], **changes: Any) -> Protocol:
    """Figure 2 on a data set."""
    made: dict[str, Any] = {
        "name": f"lewis-fig2-encoders-{dataset}",
        "paper": f"{PAPER}, Figure 2",
        "about": f"mean accuracy of linear layers on {len(encoders)} frozen encoders of {dataset}",
        "dataset": f"{dataset}_encoded",
        "networks": (),
        "learner": TRAINING,
        "start": 200,
        "batch": 200,
        "rounds": 4,
        "weights": "sum",
        "study": "encoder_heads",
        "settings": {"encoders": encoders},
        "entrants": ENTRANTS,
        "seeds": 3,
        "reduced": f"linear layers on {len(encoders)} pretrained encoders in place of 50 "
        "once-for-all networks; 200 labels at a time in place of 3,000",
        "scales": {
            "small": Scale(
                "3 encoders, 100 labels at a time, 2 rounds",
                {
                    "settings": {"encoders": few(encoders)},
                    "start": 100,
                    "batch": 100,
                    "rounds": 2,
                },
            ),
            **fewer(encoders),
        },
    }
    return EncoderProtocol(**{**made, **changes})


def growth(dataset: str, encoders: tuple[str, ...], **changes: Any) -> Protocol:
    """Figure 1 on a data set."""
    made: dict[str, Any] = {
        "name": f"lewis-fig1-growth-encoders-{dataset}",
        "paper": f"{PAPER}, Figure 1 and Table 2",
        "about": f"how the labels that are needed grow with frozen encoders, on {dataset}",
        "dataset": f"{dataset}_encoded",
        "networks": (),
        "learner": {},
        "start": 1,
        "batch": 1,
        "rounds": 0,
        "metric": "lewis_total",
        "study": "encoder_growth",
        "settings": {"encoders": encoders},
        "entrants": (
            Entrant("lewis", {"p": 2.0}),
            Entrant("lewis", {"p": 2.0, "curve": "ranks"}),
            Entrant("lewis", {"p": 1.0}),
        ),
        "seeds": 3,
        "reduced": f"{len(encoders)} pretrained encoders in place of 50 once-for-all networks",
        "scales": {
            "small": Scale("3 encoders", {"settings": {"encoders": few(encoders)}}),
            **fewer(encoders),
        },
    }
    return EncoderProtocol(**{**made, **changes})


def narrow(protocol: Protocol, name: str) -> Protocol:
    """The experiment with few features of every encoder, where a budget exceeds their number."""
    return replace(
        protocol,
        name=name,
        settings={**protocol.settings, "components": COMPONENTS},
        reduced=f"{protocol.reduced}; the {COMPONENTS} directions of largest spread of each",
    )


GROWTH = growth("cifar10", IMAGES, name="lewis-fig1-growth-encoders")
CIFAR10 = heads("cifar10", IMAGES)

EXPERIMENTS = {
    protocol.name: protocol
    for protocol in (
        GROWTH,
        narrow(GROWTH, "lewis-fig1-growth-encoders-64"),
        growth("newsgroups", TEXTS),
        CIFAR10,
        narrow(CIFAR10, "lewis-fig2-encoders-cifar10-64"),
        heads("newsgroups", TEXTS),
    )
}

"""Training dynamics: Tables 2 to 5 on CIFAR-10, 6 and 7 on SVHN, Table 1, and Figures 4 and 5.

H. Wang, W. Huang, Z. Wu, A. Margenot, H. Tong, J. He, "Deep Active Learning by Leveraging Training
Dynamics", NeurIPS 2022. Networks are trained on, not anew, with a new Adam every round. The authors
end a round by its training accuracy and report its best test accuracy; here a round has a fixed
number of epochs and the last one is measured, so our numbers are the smaller ones.
"""

from collections.abc import Mapping
from typing import Any

from labelwise.benchmark.protocol import Entrant, Protocol, Scale

PAPER = "Wang et al. 2022, Deep Active Learning by Leveraging Training Dynamics"

TRAINED_ON: Mapping[str, Any] = {
    "optimizer": "adam",
    "lr": 1e-3,
    "batch_size": 128,
    "epochs": 50,
    "warm_start": True,
}

NAMES = ("random", "margin", "entropy", "k_center", "confidence", "bandit", "badge", "dynamics")

REDUCED = "50 epochs a round, the last one measured"

SMALL: Mapping[str, Any] = {
    "networks": ("cnn",),
    "pool": 5000,
    "test": 2000,
    "start": 200,
    "batch": 100,
    "rounds": 4,
    "learner": {"epochs": 30, "batch_size": 64},
}
SMALL_WORDS = (
    "a pool of 5,000, 2,000 test images, 200 labels at the start, 100 at a time, 4 rounds of 30 "
    "epochs"
)


def scales(network: str) -> dict[str, Scale]:
    """The reductions of an experiment with a network."""
    words = (
        SMALL_WORDS if network == "cnn" else f"the small CNN in place of {network}, {SMALL_WORDS}"
    )
    medium: dict[str, Any] = {"pool": 20_000, "rounds": 4}
    narrow = ""
    if network == "resnet18":
        medium |= {"networks": ("resnet18_narrow",), "learner": {"epochs": 30}}
        narrow = "a ResNet-18 of a quarter of the width, 30 epochs a round, "
    return {
        "small": Scale(words, SMALL),
        "medium": Scale(f"{narrow}a pool of 20,000 and 4 rounds", medium),
    }


def table(number: int, dataset: str, network: str, batch: int, rounds: int) -> Protocol:
    """A table of the appendix."""
    return Protocol(
        name=f"dynamics-table{number}",
        paper=f"{PAPER}, Table {number}",
        about=f"{network} on {dataset}, {batch} labels at a time, trained on rather than anew",
        dataset=dataset,
        networks=(network,),
        learner=TRAINED_ON,
        start=500,
        batch=batch,
        rounds=rounds,
        entrants=tuple(map(Entrant, NAMES)),
        reduced=REDUCED,
        scales=scales(network),
    )


TABLES = (
    table(2, "cifar10", "cnn", 250, 4),
    table(3, "cifar10", "cnn", 500, 4),
    table(4, "cifar10", "resnet18", 500, 9),
    table(5, "cifar10", "resnet18", 1000, 9),
    table(6, "svhn", "vgg11", 500, 9),
    table(7, "svhn", "vgg11", 1000, 9),
)

SHAPES = tuple(
    Protocol(
        name=f"dynamics-table1-{batch}",
        paper=f"{PAPER}, Table 1",
        about=f"a small CNN on CIFAR-10, 1,000 labels bought {batch} at a time",
        dataset="cifar10",
        networks=("cnn",),
        learner=TRAINED_ON,
        start=500,
        batch=batch,
        rounds=1000 // batch,
        entrants=(Entrant("random"), Entrant("dynamics")),
        reduced=REDUCED,
        scales={
            "small": Scale(
                "a pool of 5,000, 2,000 test images, 30 epochs a round",
                {"pool": 5000, "test": 2000, "learner": {"epochs": 30, "batch_size": 64}},
            )
        },
    )
    for batch in (100, 250, 500, 1000)
)

RATIO = Protocol(
    name="dynamics-fig4-ratio",
    paper=f"{PAPER}, Figure 4",
    about="the gain of a batch item by item over that of the batch, while training goes on",
    dataset="cifar10",
    networks=("cnn",),
    learner={**TRAINED_ON, "warm_start": False},
    start=500,
    batch=1,
    rounds=0,
    metric="approximation_ratio",
    study="ratio",
    settings={"epochs": (1, 2, 5, 10, 20, 50, 100, 200, 400), "draws": 20},
    entrants=tuple(Entrant("random", {"b": size}) for size in (50, 100, 250, 500)),
    scales={
        "small": Scale(
            "200 labels, up to 60 epochs, 5 batches drawn",
            {"start": 200, "settings": {"epochs": (1, 5, 20, 60), "draws": 5}, "pool": 3000},
        ),
        "medium": Scale(
            "up to 200 epochs", {"settings": {"epochs": (1, 2, 5, 10, 20, 50, 100, 200)}}
        ),
    },
)

GAMMA = Protocol(
    name="dynamics-fig5-gamma",
    paper=f"{PAPER}, Figure 5",
    about="how much the interaction with the labelled items counts",
    dataset="cifar10",
    networks=("cnn",),
    learner=TRAINED_ON,
    start=500,
    batch=500,
    rounds=4,
    entrants=(
        Entrant("random"),
        *(Entrant("dynamics", {"gamma": gamma}) for gamma in (0.0, 1.0, 2.0, float("inf"))),
    ),
    reduced=REDUCED,
    scales=scales("cnn"),
)

EXPERIMENTS = {protocol.name: protocol for protocol in (*SHAPES, *TABLES, RATIO, GAMMA)}

"""Randomized BSS: how well few weighted labels recover what all of them say.

"Sample Complexity of Deep Active Learning", submitted to ICLR 2022, which has no experiments of its
own, with X. Chen, E. Price, "Active Regression via Linear-Sample Sparsification", COLT 2019.
"""

from labelwise.benchmark.protocol import Entrant, Protocol, Scale

PAPER = "Sample Complexity of Deep Active Learning, 2022, with Chen and Price 2019"

ENTRANTS = (
    Entrant("random"),
    Entrant("lewis", {"p": 2.0}),
    Entrant("bss", {"bias": False}),
    Entrant("design"),
    Entrant("k_center"),
    Entrant("lewis", {"p": 2.0}, weights="none"),
)
"""Uniform, leverage scores, BSS; experimental design and k-center in the place of volumes."""


def recovery(name: str, dataset: str, about: str, **changes: object) -> Protocol:
    """The error against the labels, as multiples of the features' dimension."""
    made: dict[str, object] = {
        "name": name,
        "paper": f"{PAPER}, Theorem 4.1",
        "about": about,
        "dataset": dataset,
        "networks": (),
        "learner": {},
        "start": 1,
        "batch": 1,
        "rounds": 0,
        "metric": "excess_error",
        "weights": "sum",
        "study": "recovery",
        "settings": {"items": 10_000, "columns": 20, "budgets": (2, 4, 8, 16, 32, 64)},
        "entrants": ENTRANTS,
        "seeds": 30,
        "scales": {
            "small": Scale(
                "2,000 items and up to 16 labels a column",
                {"settings": {"items": 2000, "budgets": (2, 4, 8, 16)}, "seeds": 10},
            )
        },
    }
    return Protocol(**{**made, **changes})  # type: ignore[arg-type]


TRAINED = recovery(
    "bss-recovery-trained",
    "mnist",
    "one-hot classes from the last hidden layer of LeNet-5, trained on 500 labels",
    networks=("lenet5",),
    learner={"optimizer": "adam", "lr": 1e-3, "batch_size": 32, "epochs": 50},
    start=500,
    seeds=5,
    settings={"budgets": (2, 4, 8, 16, 32)},
    scales={
        "small": Scale(
            "a pool of 4,000, 200 labels, 20 epochs, up to 8 labels a column",
            {
                "pool": 4000,
                "start": 200,
                "learner": {"epochs": 20},
                "settings": {"budgets": (2, 4, 8)},
            },
        )
    },
)

EXPERIMENTS = {
    protocol.name: protocol
    for protocol in (
        recovery("bss-recovery", "heavy_tailed", "features of Student's t, 2 degrees of freedom"),
        recovery(
            "bss-recovery-one-hot",
            "one_hot",
            "one-hot features, groups of uneven sizes",
            entrants=tuple(e for e in ENTRANTS if e.strategy != "k_center"),  # all ties
        ),
        TRAINED,
        recovery(
            "bss-teacher-student",
            "teacher_student",
            "a network with two layers learns from another, picks by its first gradients",
            study="network",
            seeds=10,
            settings={
                "items": 4000,
                "columns": 5,
                "hidden": 10,
                "teacher": 5,
                "scale": 3.0,
                "noise": 0.3,
                "budgets": (2, 4, 8, 16, 32),
            },
            scales={
                "small": Scale(
                    "1,000 items and up to 8 labels a parameter",
                    {"settings": {"items": 1000, "budgets": (2, 4, 8)}, "seeds": 5},
                )
            },
        ),
    )
}

r"""Active learning by learning (ALBL): draw one of several strategies, which chooses the batch.

The strategies are the *arms* of a bandit. In every round one arm is drawn and chooses the whole
batch; arms after which the model does well gain weight (`labelwise.kernels.bandit`).

A strategy is stateless, so the past is an option: ``rounds`` lists earlier draws and their rewards.
One round of a campaign is

>>> import labelwise
>>> import numpy as np
>>> from labelwise.kernels.bandit import importance_weighted_accuracy
>>> H = np.random.default_rng(0).normal(size=(30, 4))
>>> P = np.full((30, 2), 0.5)
>>> rounds = []
>>> picks = labelwise.select("bandit", 5, features=H, probabilities=P, labelled=[0, 1],
...                          rounds=rounds, seed=0)
>>> chances = [1, 1] + 5 * [picks.info["probability"]]   # seed labels count with 1
>>> correct = [1, 1, 1, 0, 1, 1, 0]                      # by the model trained on these labels
>>> reward = importance_weighted_accuracy(correct, chances)
>>> rounds.append({"arm": picks.info["arm"], "probability": picks.info["probability"],
...                "reward": reward})

and the next call gets these ``rounds``.

Cost: that of the arm, and one pass that validates all rows: whether a pool is rejected must not
depend on the draw.

Reference: W.-N. Hsu, H.-T. Lin, "Active Learning by Learning", AAAI 2015; one draw per batch as in
Ash et al., "Deep Batch Active Learning by Diverse, Uncertain Gradient Lower Bounds", ICLR 2020.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labelwise.arrays import row_noise
from labelwise.errors import BadInput
from labelwise.files import Json
from labelwise.kernels.bandit import arm_probabilities, importance_weighted_accuracy
from labelwise.kernels.loop.picking import pick
from labelwise.pool.blocks import Shards, read_all_rows
from labelwise.pool.rows import Rows
from labelwise.strategies import get, names
from labelwise.strategy import (
    Choice,
    Cost,
    History,
    Job,
    Options,
    PassStrategy,
    PickFacts,
    Strategy,
    read_reference,
)

NAME = "bandit"
ARMS = ("k_center", "confidence")
NOISE_STREAM = 22

Arms = str | Sequence[str] | Mapping[str, Options]


def choose_bandit_batch(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    arms: Arms = ARMS,
    rounds: Sequence[Mapping[str, Json]] | str = (),
    delta: float = 0.1,
    p_min: float | None = None,
) -> Choice:
    """Draw an arm and let it choose.

    Options:
        arms: names of strategies (as text, separated by commas), or a mapping from names to their
            options.
        rounds: past rounds, oldest first, each ``{"arm": name, "probability": p, "reward": r}``;
            text is read as JSON.
        delta: confidence level of an arm's bound.
        p_min: smallest probability of an arm; 1/(10 N) for N arms if None.

    Returns:
        The arm's choice. ``info`` holds ``arm``, its ``probability``, the ``probabilities`` of all
        arms by name, and the arm's own info as ``arm_info``.
    """
    opened, past = _open_bandit_arms(arms), _read_bandit_rounds(rounds)
    shards.map(read_all_rows)
    chances = arm_probabilities(past, list(opened), p_min=p_min, delta=delta)
    noise = float(row_noise(seed, np.array([len(past)]), NOISE_STREAM)[0])
    drawn = min(int(np.searchsorted(np.cumsum(chances), noise, side="right")), len(opened) - 1)
    arm = list(opened.values())[drawn]
    choice = pick(arm, shards, labelled, budget, seed)
    facts = {
        "arm": arm.name,
        "probability": float(chances[drawn]),
        "probabilities": dict(zip(opened, chances.tolist(), strict=True)),
        "arm_info": dict(choice.info),
    }
    return choice._replace(info=facts)


def check_bandit_job(job: Job) -> None:
    """Reject bad options and past rounds, and arms that could not choose if they were drawn."""
    options = job.options
    arms = _open_bandit_arms(options["arms"])
    arm_probabilities(
        _read_bandit_rounds(options["rounds"]),
        list(arms),
        p_min=options["p_min"],
        delta=options["delta"],
    )
    for arm in arms.values():
        if not any(set(names) <= set(job.shapes) for names in arm.input_sets):
            wanted = ", or ".join(" and ".join(names) for names in arm.input_sets)
            given = " and ".join(job.shapes)
            raise BadInput(f"bandit's arm {arm.name} needs {wanted}; got {given}")
        if arm.check is not None:
            arm.check(job._replace(options=arm.options))


def adapt_bandit_rounds(history: History) -> Options:
    """The rounds of this bandit so far, with the reward of the last one.

    The reward is the accuracy of the current model on all labelled items, each divided by the
    probability of the arm that picked it; items that no arm picked count with probability 1.
    """
    if not history.trained or "rounds" in history.options:
        return {}
    past = [batch for batch in history.batches if batch.strategy == NAME and "arm" in batch.info]
    hits = history.evaluate_labelled() if past and history.labelled else None
    if hits is None:
        return {"rounds": []}
    drawn = {item: batch.info["probability"] for batch in past for item in batch.ids}
    last = past[-1]
    reward = importance_weighted_accuracy(hits, [drawn.get(i, 1.0) for i in history.labelled])
    latest = {name: last.info[name] for name in ("arm", "probability")}
    return {"rounds": [*last.options.get("rounds", []), {**latest, "reward": reward}]}


def _read_bandit_rounds(rounds: Sequence[Mapping[str, Json]] | str) -> Sequence[Mapping[str, Json]]:
    if isinstance(rounds, str):
        try:
            rounds = json.loads(rounds)
        except ValueError as error:
            raise BadInput(f"rounds is not readable as JSON ({error})") from error
    if not isinstance(rounds, list | tuple):
        raise BadInput(f"rounds must be a list of past rounds; got {rounds!r}")
    return rounds


def _open_bandit_arms(arms: Arms) -> dict[str, Strategy]:
    """The strategies by name, in the given order."""
    if isinstance(arms, str):
        arms = [name.strip() for name in arms.split(",")]
    if not isinstance(arms, Mapping | list | tuple) or not all(isinstance(a, str) for a in arms):
        raise BadInput(f"arms must be names of strategies; got {arms!r:.60}")
    if not isinstance(arms, Mapping):
        if len(set(arms)) < len(arms):
            raise BadInput(f"every arm can be given once; got {', '.join(arms)}")
        arms = {name: {} for name in arms}
    if not arms:
        raise BadInput("bandit needs one arm or more; name strategies in arms")
    if NAME in arms:
        raise BadInput("bandit cannot be an arm of itself; name other strategies in arms")
    return {name: get(name).with_options(**options) for name, options in arms.items()}


class BanditStrategy(PassStrategy):
    """A pass strategy that reads the representations of its arms."""

    def with_options(self, **options: Any) -> "BanditStrategy":
        """The same strategy with some options set; other arms may need other representations."""
        changed = super().with_options(**options)
        if "arms" not in options:
            return changed
        arms = list(_open_bandit_arms(options["arms"]).values())
        first, *others = _join_arm_needs(arms)
        return replace(
            changed,
            needs=first,
            or_needs=tuple(others),
            several=all(arm.several for arm in arms),
            weighted=any(arm.weighted for arm in arms),
            draws=True,
        )


def _join_arm_needs(arms: Sequence[Strategy]) -> list[tuple[str, ...]]:
    """All sets of representations that serve every arm, without duplicates."""
    sets = itertools.product(*(arm.input_sets for arm in arms))
    unions = [tuple(dict.fromkeys(itertools.chain(*names))) for names in sets]
    return list(dict.fromkeys(unions))


def estimate_bandit_cost(job: Job) -> Cost:
    """The cost of the most expensive arm, after a pass of validation."""
    arms = _open_bandit_arms(job.options["arms"]).values()
    costs = [arm.costs(job._replace(options=arm.options)) for arm in arms]
    return Cost(
        passes=(
            1 + min(cost.passes[0] for cost in costs),
            1 + max(cost.passes[1] for cost in costs),
        ),
        usual=1 + max(cost.expected for cost in costs),
        columns=max(cost.columns for cost in costs),
        item_bytes=max(cost.item_bytes for cost in costs),
        state_bytes=min(cost.state_bytes for cost in costs),
        held_bytes=max(cost.held_bytes for cost in costs),
        holds=next((cost.holds for cost in costs if cost.holds), ""),
    )


def explain_bandit_pick(facts: PickFacts) -> str:
    """Let the arm that was drawn say why it picked an item."""
    arm = facts.info.get("arm")
    if not isinstance(arm, str) or arm not in names():
        return f"Pick {facts.rank + 1} of {facts.batch_size} by a strategy drawn at random."
    sentence = get(arm).explain_pick(replace(facts, info=facts.info.get("arm_info", {})))
    return f"It was the turn of {arm}. {sentence}"


STRATEGY = BanditStrategy(
    name=NAME,
    needs=("features", "probabilities"),
    or_needs=(("features", "member_probabilities"),),
    choose=choose_bandit_batch,
    draws=True,
    good_for="not knowing which strategy suits: several take turns, and the better ones gain",
    reference=read_reference(__doc__),
    cost=estimate_bandit_cost,
    check=check_bandit_job,
    adapt=adapt_bandit_rounds,
    repeats_batches=True,
    explain=explain_bandit_pick,
)

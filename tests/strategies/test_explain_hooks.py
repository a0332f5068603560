"""Every strategy says in one sentence why an item was picked, from what the batch stored."""

from dataclasses import replace

import pytest

from labelwise.strategies import get, names
from labelwise.strategy import PickFacts

FACTS = PickFacts(
    rank=0, batch_size=4, trained=True, score=-0.034, weight=31.4, confidence=0.515, info={}
)
BARE = PickFacts(rank=1, batch_size=4, trained=False)


def explain(name, **facts):
    return get(name).explain_pick(replace(FACTS, **facts))


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("facts", [FACTS, BARE], ids=["all facts", "rank alone"])
def test_every_strategy_has_a_short_sentence_of_its_own(name, facts):
    info = {"arm": "k_center"} if name == "bandit" else {}
    sentence = get(name).explain_pick(replace(facts, info=info))
    assert sentence[0].isupper() and sentence.endswith(".") and len(sentence) < 130
    assert not sentence.startswith("Pick ")  # the default of a strategy without the hook


@pytest.mark.parametrize(
    ("name", "facts", "words"),
    [
        ("random", {"trained": False}, "there is no trained model yet."),
        ("random", {}, "had the same chance."),
        ("margin", {}, ": 3 percentage points apart."),
        ("margin", {"score": -0.012}, ": 1 percentage point apart."),
        ("margin", {"score": -0.001}, ": less than 1 percentage point apart."),
        ("confidence", {}, "(52 % for its most likely class)."),
        ("entropy", {"confidence": 0.004}, "(less than 1 % for its most likely class)."),
        ("badge", {}, "(52 % for its most likely class), and"),
        ("lewis", {}, "; it represents about 31 items."),
        ("lewis", {"weight": 1.0}, "; it represents only itself."),
        ("sparse_iht", {"weight": 1234.0}, "; it represents about 1,234 items."),
        ("ally", {"info": {"clusters": 3}}, "it differs from the other picks"),
        ("k_center", {}, "the item farthest from everything labelled or picked before it."),
    ],
)
def test_a_sentence_holds_the_facts_of_its_pick(name, facts, words):
    assert words in explain(name, **facts)


@pytest.mark.parametrize("name", ["badge", "confidence", "entropy"])
def test_a_sure_model_is_not_given_as_a_reason(name):
    assert "%" not in explain(name, confidence=0.97)


def test_scaled_scores_of_several_models_are_not_called_margins():
    assert "percentage" not in explain("margin", score=0.7)


def test_picks_of_batchbald_by_bald_are_not_called_different():
    info = {"picks_by_bald": 2}
    assert "in another way" in explain("batchbald", rank=1, info=info)
    assert "in another way" not in explain("batchbald", rank=2, info=info)


def test_picks_of_ally_without_diversity_are_not_called_different():
    assert "differs" not in explain("ally")


def test_a_bandit_lets_the_drawn_arm_explain():
    info = {"arm": "batchbald", "arm_info": {"picks_by_bald": 4}}
    sentence = explain("bandit", info=info)
    assert sentence == "It was the turn of batchbald. " + explain("bald")
    assert "%" not in explain("bandit", info={"arm": "k_center"})


def test_a_bandit_whose_arm_is_unknown_names_the_rank():
    assert explain("bandit", info={"arm": "of an old version"}).startswith("Pick 1 of 4 ")


def test_a_strategy_without_the_hook_names_its_purpose_and_the_rank():
    strategy = replace(get("random"), explain="")
    assert strategy.explain_pick(FACTS) == f"Pick 1 of 4 by random ({strategy.good_for})."

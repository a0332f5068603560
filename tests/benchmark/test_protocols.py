"""The read_experiments as data: what the papers say, what is reduced, and how data are divided."""

from dataclasses import replace

import numpy as np
import pytest

from labelwise.benchmark import splits
from labelwise.benchmark.datasets import CATALOGUE
from labelwise.benchmark.networks import FAMILY, NETWORKS, make_network
from labelwise.benchmark.protocol import SCALES, Entrant, change_protocol
from labelwise.benchmark.protocols import get_experiment, read_experiments
from labelwise.benchmark.splits import check_protocol_data, split_dataset
from labelwise.benchmark.studies import STUDIES
from labelwise.errors import BadInput, UnknownName
from labelwise.strategies import get as get_strategy

NAMED = """sparse-table1-fashion sparse-table2-mnist sparse-table2-cifar10 sparse-table3-time
    sparse-fig4-ablation dynamics-table2 dynamics-table3 dynamics-table4 dynamics-table5
    dynamics-fig4-ratio dynamics-fig5-gamma ally-fig2-mnist ally-fig2-cifar10 ally-fig3-regression
    ally-fig1-generation ally-fig4-epsilon ally-fig5-redundancy ally-fig6-clusters
    lewis-fig1-growth lewis-fig2-vanilla lewis-fig3-finetune lewis-table5-imbalance
    bss-recovery""".split()

TINY = change_protocol(
    get_experiment("sparse-table2-mnist").at("small").on("digits"), pool=900, test=100
)


def test_all_experiments_that_the_papers_have_a_protocol_for_are_there():
    assert set(NAMED) <= set(read_experiments())
    for name, found in read_experiments().items():
        assert found.name == name and found.paper and found.about


@pytest.mark.parametrize("name", read_experiments())
def test_an_experiment_names_what_exists_at_every_scale(name):
    for scale in SCALES:
        found = get_experiment(name).at(scale)
        assert found.scale == scale
        assert set(found.networks) <= set(NETWORKS)
        if found.study is not None:
            assert STUDIES[found.study].count_rounds(found) >= 1
            continue
        assert found.dataset in CATALOGUE
        for entrant in found.entrants:
            get_strategy(entrant.strategy).with_options(**entrant.options)
        entry = CATALOGUE[found.dataset]
        pool = min(found.pool or entry.train, entry.train - found.validation) * found.copies
        assert found.start + found.rounds * found.batch <= pool
        assert (found.metric == "mse") == (entry.classes is None)


def test_networks_take_the_rows_of_a_table_at_every_scale():
    tables = {name for name, entry in CATALOGUE.items() if len(entry.shape) == 1}
    found = [entry for entry in read_experiments().values() if entry.dataset in tables]
    assert len(found) >= 2
    for entry in found:
        for scale in SCALES:
            for name in entry.at(scale).networks:
                make_network(name, CATALOGUE[entry.dataset].shape, 1)


@pytest.mark.parametrize("name", read_experiments())
def test_a_reduction_changes_something_and_says_so(name):
    full = get_experiment(name)
    for scale, reduction in full.scales.items():
        reduced = full.at(scale)
        assert reduction.reduced and reduction.reduced in reduced.reduced
        same = replace(full, scale=scale, reduced=reduced.reduced, seeds=reduced.seeds)
        assert reduced != same


def test_table_2_is_as_the_paper_prints_it():
    found = get_experiment("sparse-table2-mnist")
    assert (found.start, found.batch, found.rounds, found.seeds) == (40, 40, 15, 5)
    assert found.networks == ("lenet5",) and found.reduced == ""
    wanted = {"epochs": 150, "batch_size": 32, "optimizer": "sgd", "lr": 0.01}
    assert wanted.items() <= dict(found.learner).items() and found.learner["weight_decay"] == 5e-4
    names = [entrant.strategy for entrant in found.entrants]
    assert {"random", "margin", "entropy", "k_center", "badge", "sparse_iht"} <= set(names)
    assert found.choose_entrants(["sparse_iht"])[0].options == {"alpha": 1e-8, "beta": 1e-4}


def test_a_change_of_scale_keeps_the_learners_other_settings():
    small = get_experiment("sparse-table2-mnist").at("small")
    assert small.learner["epochs"] < 150 and small.learner["lr"] == 0.01


def test_the_lewis_experiments_use_the_whole_family():
    assert set(get_experiment("lewis-fig2-vanilla").networks) == set(FAMILY) and len(FAMILY) >= 12
    assert get_experiment("lewis-fig2-vanilla").network == f"{len(FAMILY)} networks"


def test_entrants_are_chosen_by_the_name_of_the_strategy():
    gamma = get_experiment("dynamics-fig5-gamma")
    chosen = gamma.choose_entrants(["dynamics", "badge", "dynamics"])
    assert [entrant.label for entrant in chosen] == [
        "dynamics (gamma=0.0)",
        "dynamics (gamma=1.0)",
        "dynamics (gamma=2.0)",
        "dynamics (gamma=inf)",
        "badge",
    ]
    assert gamma.choose_entrants(None) == gamma.entrants
    with pytest.raises(UnknownName, match="no strategy is called 'bagde'"):
        gamma.choose_entrants(["bagde"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_experiment("sparse-table2-mnits"), "did you mean sparse-table2-mnist?"),
        (
            lambda: get_experiment("sparse-table2-mnist").at("tiny"),
            "choose from small, medium, full",
        ),
        (lambda: change_protocol(TINY, epochs=3), "a protocol has no 'epochs'"),
        (lambda: change_protocol(TINY, weights="loss"), "weights must be one of none, mean, sum"),
        (lambda: change_protocol(TINY, metric="f1"), "there is no metric 'f1'"),
        (lambda: change_protocol(TINY, batch=0), "batch must be 1 or more; got 0"),
        (lambda: change_protocol(TINY, entrants=(Entrant("badge"),) * 2), "twice"),
        (lambda: Entrant("badge", weights="yes"), "weights must be one of"),
    ],
)
def test_what_is_wrong_is_refused(call, message):
    with pytest.raises((BadInput, UnknownName), match=message):
        call()


def test_the_data_of_a_seed_are_divided_without_overlap():
    scene = split_dataset(replace(TINY, validation=200), seed=3)
    assert len(scene.ids) == len(scene.inputs) == len(scene.targets) == 900
    assert (np.diff(scene.ids) > 0).all() and len(scene.test_inputs) == 100
    assert len(np.unique(scene.first)) == 40 and np.isin(scene.first, scene.ids).all()
    held = {row.tobytes() for row in scene.validation[0]}
    assert len(scene.validation[1]) == 200
    assert not held & {row.tobytes() for row in scene.inputs}
    np.testing.assert_array_equal(scene.ids[scene.find_positions(scene.first)], scene.first)


def test_a_seed_decides_the_division_and_nothing_else_does():
    one, again, other = (split_dataset(TINY, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.first, again.first)
    np.testing.assert_array_equal(one.inputs, again.inputs)
    assert one.first.tolist() != other.first.tolist()
    np.testing.assert_array_equal(one.test_inputs, other.test_inputs)
    fewer = split_dataset(replace(TINY, rounds=1), 0)
    np.testing.assert_array_equal(one.first, fewer.first)


def test_images_are_standardised_by_the_training_items():
    data = splits.load_standardized_dataset("digits")
    assert abs(data.inputs.mean()) < 1e-5 and abs(data.inputs.std() - 1) < 1e-5
    assert data.inputs.dtype == np.float32 and data.targets.dtype == np.int64
    table = splits.load_standardized_dataset("diabetes")
    np.testing.assert_allclose(table.inputs.std(axis=0), 1, atol=1e-4)
    np.testing.assert_allclose(table.targets.std(axis=0), 1, atol=1e-4)


def test_copies_have_ids_of_their_own_and_the_same_content():
    scene = split_dataset(replace(TINY, copies=3), seed=0)
    assert len(scene.ids) == 2700 and len(np.unique(scene.ids)) == 2700
    assert (np.diff(scene.ids) > 0).all()
    np.testing.assert_array_equal(scene.inputs[:900], scene.inputs[1800:])
    np.testing.assert_array_equal(scene.targets[:900], scene.targets[900:1800])


def test_data_that_do_not_suit_are_refused_before_the_work():
    with pytest.raises(BadInput, match="measures accuracy; diabetes is a regression"):
        check_protocol_data(TINY.on("diabetes"))
    with pytest.raises(BadInput, match=r"buys 18000 labels, and digits leaves a pool of 437"):
        check_protocol_data(get_experiment("sparse-table2-cifar10").on("digits"))
    with pytest.raises(BadInput, match="newsgroups has texts"):
        check_protocol_data(TINY.on("newsgroups"))


def test_a_data_set_that_is_not_at_hand_is_an_error_that_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELWISE_DATA", str(tmp_path))
    with pytest.raises(BadInput, match="run labelwise data fetch mnist"):
        check_protocol_data(get_experiment("sparse-table2-mnist"))


def test_the_ablation_has_both_terms_in_balance_and_as_printed():
    found = {
        (e.strategy, *sorted(e.options.items()))
        for e in get_experiment("sparse-fig4-ablation").entrants
    }
    for name, alpha, beta in (("sparse_greedy", 2.0, 0.5), ("sparse_iht", 1.0, 1e-3)):
        assert (name, ("beta", beta), ("relative_alpha", 0.003)) in found
        assert (name, ("alpha", alpha), ("beta", beta), ("sigma_scale", "paper")) in found


def test_columns_in_small_units_are_standardised():
    rows = np.random.default_rng(0).normal(2e-9, 1e-9, size=(300, 1)) * np.ones((1, 2))
    rows[:, 1] = 7.0
    found = splits._fit_input_scale(rows)(rows)
    assert found[:, 0].std() == pytest.approx(1, rel=1e-4) and (found[:, 1] == 0).all()

"""Simulations on one's own data: the split, the plan, the replay, and what it says."""

import doctest
import json

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_diabetes, load_digits

import labelwise.cli.simulate  # noqa: F401 (adds the command)
from labelwise.benchmark import simulate as module
from labelwise.benchmark import simulate_words as words
from labelwise.benchmark.curves import Estimate
from labelwise.benchmark.devices import find_device
from labelwise.benchmark.own_data import own_data
from labelwise.benchmark.own_scenes import OwnJob, keep, own_scene, stratified, text_rows
from labelwise.benchmark.report_data import experiments
from labelwise.benchmark.results import Round, read, to_json
from labelwise.benchmark.simulate import make_plan, run_plan, simulate
from labelwise.benchmark.simulate_words import caveats, conclusion, savings
from labelwise.benchmark.statistics import bootstrap, label_saving, labels_needed
from labelwise.cli import run
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName

DIGITS, KINDS = load_digits(return_X_y=True)
DATA = own_data(DIGITS[:300], KINDS[:300], name="digits")
TINY = {"rounds": 2, "batch": 10, "epochs": 4}
TOPICS = {
    "garden": "rose soil seed water leaf tree flower root spade rain".split(),
    "kitchen": "pan oven salt flour butter knife bread sugar soup spoon".split(),
}


def texts(count=120):
    """Short texts of two topics with some words of neither."""
    rng = np.random.default_rng(0)
    names = [list(TOPICS)[n % 2] for n in range(count)]
    common = "the a and with of".split()
    return [" ".join(rng.choice(TOPICS[n] + common, 8)) for n in names], names


def without_time(line):
    content = json.loads(to_json(line))
    for name in ("seconds", "started", "peak_megabytes"):
        del content[name]
    return content


def plain(lines):
    return [without_time(line) for line in lines]


@pytest.mark.parametrize("tested", [module, words])
def test_the_examples_of_the_docstrings_run(tested):
    found = doctest.testmod(tested)
    assert found.attempted > 0 and found.failed == 0


def test_test_items_have_every_class_in_its_share():
    classes = np.repeat([0, 1, 2], [700, 200, 100])
    for seed in range(5):
        test = stratified(classes, 100, np.random.default_rng(seed))
        assert len(np.unique(test)) == 100
        np.testing.assert_allclose(np.bincount(classes[test]), [70, 20, 10], atol=1)
    seen = [stratified(np.arange(60) // 3, 12, np.random.default_rng(s)) for s in range(200)]
    counts = np.bincount(np.concatenate(seen), minlength=60)
    assert counts.min() > 15 and counts.max() < 75  # 40 on average: no item is never tested


def test_test_items_of_a_regression_have_every_range_of_values():
    values = np.random.default_rng(1).exponential(size=(500, 1))
    test = stratified(values, 100, np.random.default_rng(0))
    share = np.quantile(values, np.linspace(0, 1, 6))
    counts = np.histogram(values[test], share)[0]
    np.testing.assert_allclose(counts, 20, atol=1)


def test_a_scene_has_no_item_twice_and_is_scaled_by_its_pool():
    scene = own_scene(DATA, make_plan(DATA), 0)
    rows = {tuple(row) for row in DATA.inputs[scene.ids]}
    assert (len(scene.ids), len(scene.test_targets)) == (240, 60)
    pool = DATA.inputs[scene.ids].astype(np.float64)
    spread = np.where(pool.std(axis=0) == 0, 1, pool.std(axis=0))
    np.testing.assert_allclose(scene.inputs, (pool - pool.mean(axis=0)) / spread, atol=1e-5)
    np.testing.assert_array_equal(scene.targets, DATA.targets[scene.ids])
    back = scene.test_inputs * spread + pool.mean(axis=0)
    assert not any(tuple(row) in rows for row in np.round(back).astype(np.float32))
    assert set(scene.first) <= set(scene.ids)


def test_seeds_differ_in_split_and_first_labels_and_repeat():
    plan = make_plan(DATA)
    first, second, again = (own_scene(DATA, plan, seed) for seed in (0, 1, 0))
    assert first.ids.tolist() != second.ids.tolist()
    assert first.first.tolist() != second.first.tolist()
    np.testing.assert_array_equal(first.first, again.first)
    np.testing.assert_array_equal(first.inputs, again.inputs)


def test_texts_become_numbers_by_the_words_of_the_pool_alone():
    pool, names = texts()
    change = text_rows(np.array(pool, dtype=object))
    rows = change(np.array(["rose soil seed", "pan oven salt", "unseen words"], dtype=object))
    assert rows.shape[1] <= 24 and rows.dtype == np.float32
    all_rows = change(np.array(pool, dtype=object))
    centres = [all_rows[[n == name for n in names]].mean(axis=0) for name in TOPICS]
    nearest = [int(np.argmin([np.square(row - c).sum() for c in centres])) for row in rows[:2]]
    assert nearest == [0, 1]
    np.testing.assert_allclose(rows[2], change(np.array(["nothing"], dtype=object))[0])
    with pytest.raises(BadInput, match="hold no words"):
        text_rows(np.array(["!", "?"], dtype=object))


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, (10, 10, 10)),  # a 22nd of 240, since 2 per class would be 20
        ({"budget": 110}, (10, 10, 10)),
        ({"budget": 100, "rounds": 3}, (10, 30, 3)),
        ({"budget": 100, "batch": 20}, (20, 20, 4)),
        ({"batch": 7, "rounds": 2}, (7, 7, 2)),
        ({"start": 5, "budget": 26}, (5, 2, 10)),
    ],
)
def test_a_plan_follows_from_what_is_given(asked, wanted):
    plan = make_plan(DATA, **asked)
    assert (plan.start, plan.batch, plan.rounds) == wanted
    assert (plan.test, plan.pool) == (60, 240)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"budget": 5}, "budget of 5 leaves nothing"),
        ({"budget": 25, "start": 10, "batch": 20}, "no room for a batch of 20"),
        ({"budget": 50, "batch": 5, "rounds": 3}, "give two of"),
        ({"batch": 30}, "buys 330 labels but only 240 items are left beside 60 test items"),
        ({"test_share": 1.0}, "test_share"),
        ({"rounds": 0}, "rounds must be 1 or more; got 0"),
        ({"weights": "all"}, "weights must be one of"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(asked, message):
    with pytest.raises(BadInput, match=message):
        make_plan(DATA, **asked)


def test_unknown_names_are_refused():
    with pytest.raises(UnknownName, match="no network is called 'vgg'"):
        make_plan(DATA, network="vgg")
    with pytest.raises(UnknownName, match="margn"):
        make_plan(DATA, strategies=["margn"])


def test_a_simulation_replays_paired_runs_and_buys_every_item_once():
    found = simulate(
        DIGITS[:300], KINDS[:300], strategies=["margin"], seeds=2, device="cpu", **TINY
    )
    runs = {}
    for line in found.rounds:
        runs.setdefault((line.strategy, line.seed), []).append(line)
    assert list(runs) == [(s, n) for n in range(2) for s in ("random", "margin")]
    for (_, seed), lines in runs.items():
        assert [line.labels for line in lines] == [10, 20, 30]
        scene = own_scene(found.data, found.plan, seed)
        bought = [*scene.first, *lines[0].picks, *lines[1].picks]
        assert len(set(bought)) == 30 and set(bought) <= set(scene.ids) and not lines[2].picks
    for seed in range(2):
        assert runs["random", seed][0].value == runs["margin", seed][0].value


def test_an_interrupted_simulation_goes_on_with_the_same_numbers(tmp_path):
    plan = make_plan(DATA, strategies=["margin"], **TINY)
    whole = run_plan(DATA, plan, tmp_path / "a.jsonl", seeds=2, device="cpu")
    lines = (tmp_path / "a.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "b.jsonl").write_text("".join(lines[:5]))
    told = []
    again = run_plan(
        DATA, plan, tmp_path / "b.jsonl", seeds=2, device="cpu", progress=lambda *n: told.append(n)
    )
    assert told[0] == ("rounds", 5, 12) and told[-1] == ("rounds", 12, 12) and len(told) == 8
    assert plain(again) == plain(whole) == plain(sorted_like(whole, read(tmp_path / "b.jsonl")))
    untouched = (tmp_path / "b.jsonl").read_bytes()
    run_plan(DATA, plan, tmp_path / "b.jsonl", seeds=2, device="cpu")
    assert (tmp_path / "b.jsonl").read_bytes() == untouched


def sorted_like(lines, others):
    place = {(line.key, line.round): n for n, line in enumerate(lines)}
    return sorted(others, key=lambda line: place[line.key, line.round])


def test_other_data_or_settings_are_not_mixed_into_a_results_file(tmp_path):
    path = tmp_path / "r.jsonl"
    options = {"strategies": ["random"], "rounds": 1, "batch": 10}
    run_plan(DATA, make_plan(DATA, epochs=2, **options), path, seeds=1, device="cpu")
    with pytest.raises(BadInput, match="other data or settings; take another results file"):
        run_plan(DATA, make_plan(DATA, epochs=3, **options), path, seeds=1, device="cpu")
    other = own_data(DIGITS[:300], np.roll(KINDS[:300], 1), name="digits")
    with pytest.raises(BadInput, match="other data or settings"):
        run_plan(other, make_plan(other, epochs=2, **options), path, seeds=1, device="cpu")


def test_more_seeds_extend_a_results_file_and_more_rounds_need_another(tmp_path):
    path = tmp_path / "r.jsonl"
    options = {"strategies": ["margin"], "batch": 10, "epochs": 3}
    plan = make_plan(DATA, rounds=2, **options)
    first = run_plan(DATA, plan, path, seeds=1, device="cpu")
    longer = run_plan(DATA, plan, path, seeds=2, device="cpu")
    assert longer[: len(first)] == first and len(longer) == 12
    with pytest.raises(BadInput, match="that ended after 2 rounds; take another results file"):
        run_plan(DATA, make_plan(DATA, rounds=3, **options), path, seeds=1, device="cpu")
    fewer = run_plan(DATA, make_plan(DATA, rounds=1, **options), path, seeds=1, device="cpu")
    assert fewer == [line for line in first if line.round < 2]
    with pytest.raises(BadInput, match="by another protocol"):
        run_plan(DATA, make_plan(DATA, **{**options, "batch": 5}), path, seeds=1, device="cpu")


def test_processes_side_by_side_give_what_one_gives(tmp_path):
    inputs, names = texts(60)
    data = own_data(inputs, names)
    plan = make_plan(data, strategies=["margin"], rounds=1, batch=5, epochs=3)
    alone = run_plan(data, plan, seeds=2, device="cpu")
    spread = run_plan(data, plan, seeds=2, device="cpu", workers=2)
    assert [line.picks for line in spread] == [line.picks for line in alone]
    assert [line.value for line in spread] == pytest.approx([line.value for line in alone])


def test_rounds_side_by_side_as_on_a_gpu_give_what_run_after_run_gives(tmp_path):
    plan = make_plan(DATA, strategies=["margin"], **TINY)
    alone = run_plan(DATA, plan, seeds=2, device="cpu")
    jobs = [OwnJob(plan, e, seed, tmp_path) for seed in (0, 1) for e in plan.entrants]
    keep(DATA, tmp_path, written=False)
    known = {job.key: [line for line in alone if line.key == job.key][:1] for job in jobs}
    rest = list(module._side_by_side(jobs, known, find_device("cpu")))
    assert plain(sorted_like(alone, rest)) == plain([line for line in alone if line.round])


def test_texts_are_learnt():
    inputs, names = texts()
    found = simulate(inputs, names, strategies=["badge"], seeds=1, device="cpu", epochs=30)
    assert found.data.kind == "texts"
    assert min(line.value for line in found.rounds if line.round == 10) > 0.9


def test_a_regression_is_measured_in_units_of_its_variance():
    inputs, values = load_diabetes(return_X_y=True)
    found = simulate(
        inputs,
        values * 1000,
        regression=True,
        strategies=["k_center", "design", "bait", "typiclust", "lewis"],
        seeds=1,
        rounds=1,
        batch=100,
        device="cpu",
    )
    assert {line.metric for line in found.rounds} == {"mse"}
    assert not any(line.higher_is_better for line in found.rounds)
    last = [line.value for line in found.rounds if line.round == 1]
    assert len(last) == 6 and all(0.3 < value < 1.1 for value in last)


def test_a_strategy_that_cannot_run_is_said_once_and_left_out():
    inputs, values = load_diabetes(return_X_y=True)
    with pytest.warns(LabelwiseWarning, match="margin stopped in 2 of 2 seeds: margin needs"):
        found = simulate(
            inputs,
            values,
            regression=True,
            strategies=["margin", "k_center"],
            seeds=2,
            device="cpu",
            **TINY,
        )
    assert [entry.strategy for entry in found.savings] == ["k_center"]


def curves(gains, seeds=5, noise=0.01, higher=True):
    """Rounds of strategies whose mean curve is known."""
    rng = np.random.default_rng(0)
    made = []
    for name, gain in {"random": 0.0, **gains}.items():
        for seed in range(seeds):
            for number in range(6):
                value = 0.5 + 0.06 * number + gain * (number > 0) + rng.normal(0, noise)
                value = value if higher else 1.5 - value
                metric = "accuracy" if higher else "mse"
                made.append(
                    Round(
                        "simulate",
                        "own data",
                        "x",
                        "mlp",
                        name,
                        seed,
                        number,
                        20 + 20 * number,
                        metric,
                        value,
                        higher_is_better=higher,
                    )
                )
    return made


@pytest.mark.parametrize("higher", [True, False])
def test_savings_are_those_of_the_statistics(higher):
    lines = curves({"good": 0.08, "bad": -0.2}, higher=higher)
    (experiment,) = experiments(lines)
    labels, theirs = experiment.labels, experiment.curves("random")
    found = {entry.strategy: entry for entry in savings(lines)}
    for name, entry in found.items():
        ours = experiment.curves(name)

        def saved(shares, ours=ours):
            goal = shares @ theirs[:, -1]
            counts = [
                labels_needed(labels, shares @ c, goal, higher_is_better=higher)
                for c in (ours, theirs)
            ]
            return label_saving(*counts)

        assert entry.saved == bootstrap(saved, 5)
        mean = labels_needed(
            labels, ours.mean(axis=0), theirs[:, -1].mean(), higher_is_better=higher
        )
        assert entry.needed.value == pytest.approx(float(mean))
    assert list(found) == ["good", "bad"]
    assert found["good"].clear and not found["bad"].clear
    assert 0.1 < found["good"].saved.value < 0.4 and found["bad"].saved.value == -np.inf


def test_sentences_say_what_the_numbers_say():
    good, bad = savings(curves({"good": 0.08, "bad": -0.2}))
    needed, most = good.needed.value, good.baseline
    assert good.sentence.startswith(f"good needs {needed:.0f} of the {most:.0f} labels that random")
    assert f"saves {100 * good.saved.value:.0f} % (95 % interval" in good.sentence
    assert bad.sentence.startswith("bad does not reach with 120 labels what random reaches")
    few = "Better than random over the whole curve, as far as 5 seeds can show: good."
    assert conclusion([good, bad], seeds=5) == few
    assert conclusion([bad], seeds=5) == "No strategy beats random clearly here."
    (many,) = savings(curves({"good": 0.08}, seeds=8))
    assert conclusion([many], seeds=8) == "Better than random over the whole curve: good."
    (alike,) = savings(curves({"alike": 0.0}, noise=0.03))
    assert conclusion([alike], seeds=5) == "No strategy beats random clearly here."
    (lonely,) = savings(curves({"good": 0.08}, seeds=1))
    assert lonely.sentence.endswith("one seed shows nothing") and not lonely.clear


def test_intervals_that_are_open_are_put_in_words():
    assert words.interval_text(Estimate(-np.inf, -np.inf, -np.inf)) == "never there"
    assert words.interval_text(Estimate(0.1, -np.inf, 0.2)) == "never there to 20 %"
    assert words.interval_text(Estimate(0.1, np.nan, np.nan)) == ""


def test_caveats_go_by_seeds_strategies_and_test_items():
    found = savings(curves({"good": 0.08, "bad": -0.2}))
    few = caveats(found, seeds=3, tested=40)
    assert [part in " ".join(few) for part in ("at most 75 %", "best of 2", "40 test items")] == [
        True
    ] * 3
    assert caveats(found[:1], seeds=10, tested=500) == []


def test_savings_need_random_and_one_simulation():
    with pytest.raises(BadInput, match="random was not run"):
        savings([line for line in curves({"good": 0.1}) if line.strategy != "random"])
    with pytest.raises(BadInput, match="lines of 2"):
        savings(curves({}) + curves({"good": 0.1}, higher=False))


def test_the_command_reads_folders_writes_the_page_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number, (image, kind) in enumerate(zip(DIGITS[:120], KINDS[:120] % 2, strict=True)):
        folder = tmp_path / "digits" / ("odd" if kind else "even")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (image.reshape(8, 8) * 15).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    given = "simulate digits --strategies margin --seeds 2 --rounds 1 --batch 8 --epochs 2"
    assert run([*given.split(), "--workers", "1", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "digits: 120 items (images), 2 classes" in said
    assert "24 items for testing, a pool of 96; 8 to 16 labels, 8 at a time" in said
    assert "margin" in said and "With 2 seeds" in said and "24 test items only" in said
    page = (tmp_path / "simulate.html").read_text()
    assert "What active learning saves on digits" in page
    assert "labelwise simulate digits --strategies margin --seeds 2 --batch 8" in page
    lines = (tmp_path / "simulate.jsonl").read_bytes()
    assert run([*given.split(), "--workers", "1", "--device", "cpu"]) == 0
    assert (tmp_path / "simulate.jsonl").read_bytes() == lines and lines.count(b"\n") == 8


def test_the_command_says_what_is_wrong_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b\n" + "1,x\n" * 40)
    for given, message in [
        ("simulate t.csv --labels c", "has no column 'c'; it has a, b"),
        ("simulate t.csv --labels b", "have the label 'x'"),
        ("simulate t.csv --labels b --out t.txt", "the page is HTML; got --out t.txt"),
        ("simulate none.csv --labels b", "there is no file or folder none.csv"),
    ]:
        assert run(given.split()) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "simulate.jsonl").exists()

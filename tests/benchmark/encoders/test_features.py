"""Features are computed once, for the same items every time, and checked when they are read."""

import doctest
import json
from dataclasses import replace

import numpy as np
import pytest

from labelwise.benchmark import encoders
from labelwise.benchmark.datasets import load
from labelwise.benchmark.encoders import __main__ as command
from labelwise.benchmark.encoders import features
from labelwise.benchmark.encoders.features import choose_rows, encode, read_features
from labelwise.errors import BadInput, UnknownName
from tests.benchmark.encoders.toy_encoders import toy

COUNTS = 300, 100


@pytest.mark.parametrize("module", [features, encoders, command])
def test_the_examples_run(module):
    found = doctest.testmod(module)
    assert found.attempted > 0 and found.failed == 0


def test_features_belong_to_the_rows_that_are_given_with_them(folder):
    found = encode(toy(6), "digits", counts=COUNTS)
    data = load("digits")
    directions = np.random.default_rng(6).normal(size=(64, 6))
    wanted = data.inputs[found.rows].reshape(300, 64) @ directions
    np.testing.assert_allclose(found.features, wanted, rtol=1e-4, atol=1e-4)
    tested = data.test_inputs[found.test_rows].reshape(100, 64) @ directions
    np.testing.assert_allclose(found.test_features, tested, rtol=1e-4, atol=1e-4)


def test_a_part_of_a_sorted_data_set_has_all_classes():
    rows = choose_rows(1000, 200)
    assert len(set(rows.tolist())) == 200 and (np.diff(rows) > 0).all()
    sorted_classes = np.arange(1000) // 100
    assert np.bincount(sorted_classes[rows]).min() >= 8


def test_more_items_include_the_fewer():
    assert set(choose_rows(500, 50)) < set(choose_rows(500, 80))
    assert choose_rows(30, 100).tolist() == list(range(30))


def test_the_second_time_nothing_is_computed(folder):
    first = encode(toy(6), "digits", counts=COUNTS)

    def refuse(weights, corpus):
        raise AssertionError("it was encoded again")

    again = encode(replace(toy(6), build=refuse), "digits", counts=COUNTS)
    np.testing.assert_array_equal(again.features, first.features)
    np.testing.assert_array_equal(again.test_rows, first.test_rows)


def test_a_changed_file_is_refused(folder):
    encode(toy(6), "digits", counts=COUNTS)
    path = folder / "features" / "digits" / "toy_6-train-300.npy"
    values = np.load(path)
    values[0, 0] += 1
    np.save(path, values)
    with pytest.raises(BadInput, match="was changed; remove it"):
        read_features(toy(6), "digits", counts=COUNTS)


@pytest.mark.parametrize("change", [{"digest": "0" * 64}, {"about": "6 other directions"}])
def test_features_of_another_form_of_the_encoder_are_refused(folder, change):
    encode(toy(6), "digits", counts=COUNTS)
    with pytest.raises(BadInput, match="was made by another toy_6"):
        read_features(replace(toy(6), **change), "digits", counts=COUNTS)


def test_what_is_not_there_says_how_to_get_it(folder):
    with pytest.raises(BadInput, match="encoders encode toy_6 digits"):
        read_features(toy(6), "digits")
    with pytest.raises(BadInput, match="encodes texts, and digits has no such items"):
        encode(replace(toy(6), kind="texts"), "digits")
    with pytest.raises(UnknownName, match="did you mean resnet50"):
        encoders.get("resnet5")


def test_progress_is_told(folder):
    seen = []
    encode(toy(6), "digits", counts=COUNTS, progress=lambda *pair: seen.append(pair))
    assert seen[0] == (64, 400) and seen[-1] == (400, 400)


def test_a_probe_tells_good_features_from_noise(folder):
    data = load("digits")
    found = encode(toy(20), "digits", counts=(1000, 360))
    targets, answers = data.targets[found.rows], data.test_targets[found.test_rows]
    assert encoders.probe(found, targets, answers, 500) > 0.6
    noise = np.random.default_rng(0).normal(size=found.features.shape)
    assert encoders.probe(found._replace(features=noise), targets, answers, 500) < 0.4


def test_the_command_lists_and_refuses(folder, capsys):
    assert command.main(["list"]) == 0
    assert "resnet50" in capsys.readouterr().out
    assert command.main(["fetch", "resnet"]) == 1
    assert "there is no encoder 'resnet'" in capsys.readouterr().err
    assert command.main(["encode", "minilm", "digits"]) == 1
    assert "minilm encodes texts" in capsys.readouterr().err


def test_the_command_encodes_and_probes(folder, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(features.COUNTS, "images", (400, 100))
    assert command.main(["encode", "toy_12", "digits"]) == 0
    assert capsys.readouterr().out == "toy_12: 400 + 100 items\n"
    lines = tmp_path / "probes.jsonl"
    assert command.main(["probe", "digits", "--out", str(lines)]) == 0
    name, width, value = capsys.readouterr().out.split()
    assert (name, width) == ("toy_12", "12") and 0.5 < float(value) <= 1
    written = json.loads(lines.read_text())
    assert written["encoder"] == "toy_12" and written["labels"] == 2000
    assert written["accuracy"] == pytest.approx(float(value), abs=5e-4)

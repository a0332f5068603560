"""The examples of examples/ run where their packages are installed."""

import warnings

import pytest


def test_select_from_a_dataset_in_the_style_of_torchvision():
    pytest.importorskip("torch")
    from examples.image_dataset import run

    labelled = run(rounds=1)
    assert len(set(labelled)) == 40


def test_train_with_lightning():
    pytest.importorskip("lightning")
    from examples.lightning_loop import run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on numbers of workers
        accuracies = run(rounds=2)
    assert len(accuracies) == 2 and all(0 <= value <= 1 for value in accuracies)


def test_train_with_skorch():
    pytest.importorskip("skorch")
    from examples.skorch_loop import run

    assert len(run(rounds=1)) == 1


def test_encode_texts():
    from examples.sentence_encoder import run

    assert 0 <= run("tfidf") <= 1

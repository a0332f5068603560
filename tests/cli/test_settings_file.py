"""Defaults of options from labelwise.toml and pyproject.toml."""

from pathlib import Path

import numpy as np
import pytest

from tests.cli.folders import answer


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("f.npy", np.random.default_rng(0).normal(size=(30, 3)))
    return tmp_path


def count_picks(capsys, *arguments):
    code, _, err = answer(capsys, "select", "f.npy", "-o", "p.csv", *arguments)
    assert code == 0, err
    return len(Path("p.csv").read_text().splitlines()) - 1


def test_the_command_line_comes_before_the_nearest_file(folder, capsys, monkeypatch):
    Path("labelwise.toml").write_text('[select]\nstrategy = "k_center"\nbudget = 4\n')
    assert count_picks(capsys) == 4
    assert count_picks(capsys, "--budget", "2") == 2
    Path("below").mkdir()
    Path("below/pyproject.toml").write_text("[tool.other]\n[tool.labelwise.select]\nbudget = 3\n")
    monkeypatch.chdir("below")
    code, _, err = answer(capsys, "select", "../f.npy", "-s", "random", "-o", "p.csv")
    assert code == 0 and len(Path("p.csv").read_text().splitlines()) == 4, err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[selekt]\nbudget = 1", "there is no command 'selekt'; did you mean select?"),
        ("[select]\nbugdet = 1", "[select]: there is no option 'bugdet'; did you mean budget?"),
        ("select = 1", "select is a command; write its options below [select]"),
        ("[select]\nbudget = [1]", "budget takes one value; got [1]"),
        ("[select]\noption = 'p=1'", "option takes a list; got 'p=1'"),
        ("[select]\ndry-run = 'no'", "dry-run is true or false; got 'no'"),
        ("[select]\nbudget = 'x'", "'--budget' / '-b': Input should be a valid integer"),
        ("[select", "labelwise.toml is not valid TOML"),
        ("[benchmark.run]\nsead = 3", "[benchmark], [run]: there is no option 'sead'; did you"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(folder, capsys, text, message):
    Path("labelwise.toml").write_text(text)
    code, out, err = answer(capsys, "select", "f.npy", "-s", "random", "-o", "p.csv")
    assert code in (1, 2) and message in err and err.count("\n") == 1 and not out


def test_quiet_and_verbose(folder, capsys, caplog):
    select = ("select", "f.npy", "-s", "random", "-b", "2", "-o", "p.csv")
    assert answer(capsys, *select)[2] != ""
    assert answer(capsys, "--quiet", *select)[2] == ""
    with caplog.at_level("INFO", logger="labelwise"):
        answer(capsys, "--verbose", *select)
    assert "random: 2 picks in" in caplog.text

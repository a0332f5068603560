"""What commands share, and what is tried before their work."""

from pathlib import Path

import pytest

import labelwise
from labelwise.cli import console, files, select
from labelwise.errors import BadInput


def test_an_interruption_says_what_is_kept(tmp_path):
    results = tmp_path / "rounds.jsonl"
    try:
        console.set_results_file(results)
        assert console.describe_interruption().startswith(
            "interrupted before the first round was finished"
        )
        results.write_text("{}\n")
        assert f"the rounds so far are in {results}, the same" in console.describe_interruption()
    finally:
        console.set_results_file(None)
    assert console.describe_interruption() == "interrupted"


def test_a_file_can_be_written_where_its_folder_can(tmp_path):
    files.check_output_file(tmp_path / "new.csv")
    files.check_output_file(tmp_path / "no" / "new.html", make_folder=True)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match="there is no folder "):
        files.check_output_file(tmp_path / "no" / "new.html")
    with pytest.raises(BadInput, match="is a folder; give the name of a file"):
        files.check_output_file(tmp_path)


def test_a_file_is_no_folder(tmp_path):
    files.check_output_folder(tmp_path)
    files.check_output_folder(tmp_path / "new")
    Path(tmp_path / "file").touch()
    with pytest.raises(BadInput, match="is a file; give a folder"):
        files.check_output_folder(tmp_path / "file")


@pytest.mark.parametrize("name", labelwise.strategies())
def test_every_option_that_a_docstring_explains_has_its_meaning(name):
    strategy = labelwise.strategies()[name]
    meanings = select.describe_strategy_options(strategy)
    assert list(meanings) == list(strategy.options)
    assert all(len(about) > 5 and "``" not in about for about in meanings.values())

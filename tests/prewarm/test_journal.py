"""State files: what survives, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgkv.prewarm.journal import Journal, JournalError

ONE, TWO = "11" * 16, "22" * 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "state"


def test_what_was_added_is_there_again(path):
    with Journal(path, "verify") as journal:
        assert ONE not in journal
        journal.add(ONE, tokens=3)
        assert ONE in journal
    with Journal(path, "verify") as journal:
        assert (ONE in journal, TWO in journal) == (True, False)
    assert json.loads(path.read_text().splitlines()[1]) == {"done": ONE, "tokens": 3}


def test_a_torn_last_line_counts_for_nothing_and_spoils_nothing(path):
    with Journal(path, "verify") as journal:
        journal.add(ONE)
        journal.add(TWO)
    path.write_bytes(path.read_bytes()[:-9])
    with Journal(path, "verify") as journal:
        assert (ONE in journal, TWO in journal) == (True, False)
        journal.add(TWO)
    with Journal(path, "verify") as journal:
        assert ONE in journal
        assert TWO in journal


def test_lines_that_say_nothing_are_passed_over(path):
    with Journal(path, "verify") as journal:
        journal.add(ONE)
    with path.open("a") as file:
        file.write('{"done": 7}\n[]\nnonsense\n{}\n{"done": "zz"}\n')
    with Journal(path, "verify") as journal:
        assert ONE in journal


def test_fresh_forgets(path):
    with Journal(path, "verify") as journal:
        journal.add(ONE)
    with Journal(path, "verify", fresh=True) as journal:
        assert ONE not in journal
    with Journal(path, "verify") as journal:
        assert ONE not in journal


def test_a_dry_run_changes_nothing(path):
    with Journal(path, "verify") as journal:
        journal.add(ONE)
    before = path.read_bytes()
    with Journal(path, "verify", fresh=True, dry_run=True) as journal:
        assert ONE not in journal
    assert path.read_bytes() == before


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("content", ["my precious prompts", "my\nprecious\nprompts\n", '{"messages": []}\n'])
def test_a_file_that_is_something_else_is_refused_and_left_as_it_is(path, content, fresh):
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(JournalError, match="name another"):
        Journal(path, "verify", fresh=fresh)
    assert path.read_text() == content


def test_of_another_kind_of_run(path):
    Journal(path, "compute").close()
    with pytest.raises(JournalError, match="prewarm verify"):
        Journal(path, "verify")


def test_one_run_at_a_time(path):
    with Journal(path, "verify"), pytest.raises(JournalError, match="another run"):
        Journal(path, "verify")
    Journal(path, "verify").close()


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="--state"):
        Journal(tmp_path / "file" / "state", "verify")


def test_remove_leaves_nothing(path):
    with Journal(path, "verify") as journal:
        journal.remove()
        journal.remove()
    assert not path.exists()

"""The SQL storages where they are not like the others: disks, files, servers and passwords."""

import os
import re
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from labelwise.errors import BadInput, StorageFailed, UnknownName
from labelwise.record import open_storage, sql_storage
from labelwise.record.events import Event, Skipped, Told
from labelwise.record.sql_storage import SqlStorage, open_sql_storage
from tests.record.storages import Postgres

FULL = r"disk is full; free some space and try again"


def told(count: int, start: int = 0) -> list[Event]:
    return [Told(float(id), id, id % 3, "ann") for id in range(start, start + count)]


def large(start: int) -> list[Event]:
    """About 100 KB, so that a small disk is soon full."""
    return [Skipped(0.0, id, "ann", os.urandom(500).hex()) for id in range(start, start + 100)]


def fill(storage: SqlStorage) -> list[Event]:
    """Append until nothing more fits; what was acknowledged."""
    acknowledged: list[Event] = []
    with pytest.raises(StorageFailed, match=FULL):
        for start in range(0, 100_000, 100):
            events = large(start)
            storage.append("birds", events)
            acknowledged += events
    with pytest.raises(StorageFailed, match=FULL):
        storage.transact("birds", len(acknowledged), lambda _: large(0))
    assert storage.read("birds") == acknowledged  # the storage can be used on
    assert acknowledged
    return acknowledged


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def test_sqlite_syncs_every_commit_to_a_log_of_its_own(sqlite_url: str) -> None:
    with closing(open_sql_storage(sqlite_url)) as storage:
        with storage._begin() as connection:
            pragmas = [
                connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "synchronous", "busy_timeout")
            ]
        assert pragmas == ["wal", 2, 30_000]
        storage.append("birds", told(1))
        assert path_of(sqlite_url).with_suffix(".db-wal").exists()


def test_postgresql_syncs_every_commit_whatever_its_default(
    postgres_server: Postgres, postgres_url: str
) -> None:
    database = sa.make_url(postgres_url).database
    postgres_server.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    with (
        closing(open_sql_storage(postgres_url)) as storage,
        storage._begin() as connection,
    ):
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "30s"


def test_a_database_that_may_not_grow_stays_whole(sqlite_url: str) -> None:
    with closing(open_sql_storage(sqlite_url)) as storage:
        limit = "PRAGMA max_page_count = {}"
        with storage._engine.connect() as connection:
            connection.exec_driver_sql(limit.format(200))
        acknowledged = fill(storage)
        with pytest.raises(StorageFailed, match=FULL):
            storage.save_snapshot("birds", 1, os.urandom(1_000_000))
        with storage._engine.connect() as connection:
            connection.exec_driver_sql(limit.format(10_000_000))
        assert storage.append("birds", large(0)) == len(acknowledged) + 100


def test_a_file_that_may_not_grow_stays_whole(sqlite_url: str) -> None:
    """The operating system itself refuses to write on."""
    script = f"""
import resource
from tests.record.test_sql_storage import large, told
from labelwise.record import open_storage
from labelwise.errors import StorageFailed
storage = open_storage({sqlite_url!r})
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
kept = []
try:
    for start in range(0, 100_000, 100):
        storage.append("birds", large(start))
        kept.append(start)
except StorageFailed as error:
    print(error)
assert storage.length("birds") == 100 * len(kept) > 0
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert storage.append("birds", told(1)) == 100 * len(kept) + 1
storage.close()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search("labels.db: the disk .* full", ended.stdout)
    with closing(open_sql_storage(sqlite_url)) as storage:
        assert storage.length("birds") % 100 == 1
    with closing(sqlite3.connect(path_of(sqlite_url))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of a few megabytes; only the administrator can make one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_leaves_an_sqlite_record_whole(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        (disk / "ballast").write_bytes(bytes(1_000_000))
        with closing(open_sql_storage(f"sqlite:///{disk}/labels.db")) as storage:
            acknowledged = fill(storage)
            (disk / "ballast").unlink()
            assert storage.append("birds", large(0)) == len(acknowledged) + 100


def test_a_disk_too_full_for_a_new_record_says_so(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        (disk / "ballast").write_bytes(bytes(2**20))
        with pytest.raises(StorageFailed, match="disk"):
            open_sql_storage(f"sqlite:///{disk}/labels.db")
        (disk / "ballast").unlink()
        with closing(open_sql_storage(f"sqlite:///{disk}/labels.db")) as storage:
            assert storage.append("birds", told(1)) == 1


def test_a_full_disk_leaves_a_postgresql_record_whole(postgres_server: Postgres) -> None:
    with small_disk(postgres_server.folder.parent / "disk", 14) as disk:
        disk.chmod(0o777)
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(1_000_000))
        space = disk / "space"
        space.mkdir()
        owner = postgres_server.folder.stat()
        os.chown(space, owner.st_uid, owner.st_gid)
        postgres_server.execute(f"CREATE TABLESPACE small LOCATION '{space}'")
        try:
            postgres_server.execute("CREATE DATABASE small TABLESPACE small")
            with closing(open_sql_storage(postgres_server.url("small"))) as storage:
                acknowledged = fill(storage)
                ballast.unlink()
                assert storage.append("birds", large(0)) == len(acknowledged) + 100
        finally:
            postgres_server.execute("DROP DATABASE IF EXISTS small WITH (FORCE)")
            postgres_server.execute("DROP TABLESPACE small")


def test_a_lock_held_too_long_is_an_error_and_not_for_ever(storage_url: str) -> None:
    with (
        closing(open_sql_storage(storage_url)) as storage,
        closing(open_sql_storage(storage_url, timeout=0.2)) as other,
    ):
        storage.append("birds", told(1))
        with pytest.raises(StorageFailed, match="another process has been writing to it for too"):
            storage.transact("birds", 1, lambda _: told(other.append("birds", told(1))))
        assert other.append("birds", told(1, 1)) == 2
        assert storage.read("birds") == told(2)


def test_a_writer_does_not_keep_readers_waiting(storage_url: str) -> None:
    with (
        closing(open_sql_storage(storage_url)) as storage,
        closing(open_sql_storage(storage_url, timeout=0.2)) as other,
    ):
        storage.append("birds", told(2))
        seen: list[object] = []

        def decide(_: list[Event]) -> list[Event]:
            seen.extend([other.read("birds"), other.length("birds"), other.campaigns()])
            return told(1, 2)

        assert storage.transact("birds", 2, decide) == 3
        assert seen == [told(2), 2, ["birds"]]
        assert other.read("birds") == told(3)


def test_waits_while_another_process_prepares_the_file(sqlite_url: str) -> None:
    """Switching a file to write ahead needs it alone, and SQLite does not wait for that."""
    path = path_of(sqlite_url)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageFailed, match="another process has been writing"):
            open_sql_storage(sqlite_url, timeout=0.1)
        timer = threading.Timer(0.3, lambda: other.execute("COMMIT"))
        timer.start()
        with closing(open_sql_storage(sqlite_url)) as storage:
            assert storage.append("birds", told(1)) == 1
        timer.join()


def test_two_campaigns_of_a_server_are_written_to_side_by_side(postgres_url: str) -> None:
    with closing(open_sql_storage(postgres_url, timeout=0.2)) as storage:
        storage.append("fish", told(1))
        assert storage.transact("birds", 0, lambda _: told(storage.append("fish", told(1)))) == 2


def test_many_threads_can_wait_for_one_another(storage_url: str) -> None:
    """More threads than connections that are kept open."""
    with closing(open_sql_storage(storage_url)) as storage:
        threads = [
            threading.Thread(target=storage.append, args=("birds", told(1))) for _ in range(40)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert storage.length("birds") == 40


def test_a_file_that_was_deleted_or_replaced_is_not_written_to(sqlite_url: str) -> None:
    path = path_of(sqlite_url)
    with closing(open_sql_storage(sqlite_url)) as storage:
        storage.append("birds", told(1))
        path.rename(path.with_name("elsewhere.db"))
        with pytest.raises(StorageFailed, match=r"labels.db is gone \(No such file"):
            storage.append("birds", told(1))
        assert not path.exists()
        path.touch()
        with pytest.raises(StorageFailed, match=r"labels.db was replaced by another file"):
            storage.append("birds", told(1))


def test_the_working_folder_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    with closing(open_storage("sqlite:///labels.db")) as storage:
        monkeypatch.chdir(tmp_path / "other")
        assert storage.append("birds", told(1)) == 1
    assert (tmp_path / "labels.db").exists()
    assert not (tmp_path / "other" / "labels.db").exists()


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, however long it may be\n" * 100)
    with pytest.raises(StorageFailed, match=r"notes.txt: it is not a database; give the record"):
        open_sql_storage(f"sqlite:///{tmp_path}/notes.txt")
    with closing(sqlite3.connect(tmp_path / "photos.db")) as connection:
        connection.execute("CREATE TABLE photos (name)")
    with pytest.raises(BadInput, match=r"photos.db is another program.s database"):
        open_sql_storage(f"sqlite:///{tmp_path}/photos.db")
    with pytest.raises(UnknownName, match=r"photos.db does not contain a labelwise record"):
        open_sql_storage(f"sqlite:///{tmp_path}/photos.db", create=False)
    with closing(sqlite3.connect(tmp_path / "photos.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("photos",)]


def test_names_the_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no folder .*missing for the record labels.db"):
        open_sql_storage(f"sqlite:///{tmp_path}/missing/labels.db")
    with pytest.raises(UnknownName, match=r"there is no file .*labels.db"):
        open_sql_storage(f"sqlite:///{tmp_path}/labels.db", create=False)
    with pytest.raises(StorageFailed, match="it cannot be opened"):
        open_sql_storage(f"sqlite:///{tmp_path}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:///a.db?mode=ro", "sqlite://a.db"]
)
def test_an_sqlite_record_needs_a_file(url: str) -> None:
    with pytest.raises(BadInput, match=r"is a file: sqlite:///labels.db, .* use memory://"):
        open_storage(url)


@pytest.mark.parametrize(
    ("number", "age"), [(sql_storage.SCHEMA + 1, "newer"), (sql_storage.SCHEMA - 1, "older")]
)
def test_tables_of_another_layout_are_refused(storage_url: str, number: int, age: str) -> None:
    with (
        closing(open_sql_storage(storage_url)) as storage,
        storage._begin(writes=True) as connection,
    ):
        connection.execute(sa.update(sql_storage._layout).values(number=number))
    with pytest.raises(StorageFailed, match=rf"written by an? {age} labelwise \(layout {number}\)"):
        open_sql_storage(storage_url)


def test_a_record_with_a_hole_is_not_passed_off_as_whole(storage_url: str) -> None:
    with closing(open_sql_storage(storage_url)) as storage:
        storage.append("birds", told(5))
        with storage._begin(writes=True) as connection:
            connection.execute(
                sa.delete(sql_storage._events).where(sql_storage._events.c.number == 2)
            )
        with pytest.raises(StorageFailed, match=r"1 of its events from number 0 on are missing"):
            storage.read("birds")
        assert storage.read("birds", 3) == told(2, 3)


def test_a_database_lives_beside_other_tables_on_a_server(
    postgres_server: Postgres, postgres_url: str
) -> None:
    engine = sa.create_engine(postgres_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE events (mine int)")
    engine.dispose()
    with closing(open_sql_storage(postgres_url)) as storage:
        assert storage.append("birds", told(1)) == 1


def test_a_server_that_threw_us_out_is_called_again(
    postgres_server: Postgres, postgres_url: str
) -> None:
    database = sa.make_url(postgres_url).database
    with closing(open_sql_storage(postgres_url)) as storage:
        storage.append("birds", told(1))
        throw_out = (  # and wait until it is done
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
            f"WHERE datname = '{database}'"
        )
        postgres_server.execute(throw_out)
        assert storage.append("birds", told(1, 1)) == 2

        def decide(_: list[Event]) -> list[Event]:
            postgres_server.execute(throw_out)
            return told(1, 2)

        with pytest.raises(StorageFailed, match=r"check whether this was recorded, then"):
            storage.transact("birds", 2, decide)
        assert storage.read("birds") == told(2)


def shown(error: BaseException) -> str:
    """All that a traceback would print, less the source lines of this file."""
    lines = traceback.format_exception(error)
    assert error.__cause__ is None
    return str(error) + repr(error) + repr(error.args) + lines[-1]


@pytest.mark.parametrize("word", ["hunter2", "p@ss/wo:rd", "ünï%20"])
def test_no_message_shows_a_password(postgres_server: Postgres, word: str) -> None:
    place = f"/nowhere?host={postgres_server.folder}"
    urls = [
        f"postgresql+psycopg://ann:{quote(word, safe='')}@127.0.0.1:1/birds",
        f"postgresql://ann@127.0.0.1:1/birds?password={quote(word, safe='')}",
        f"postgresql+psycopg://postgres:{quote(word, safe='')}@{place}",
        f"postgresql+psycopg://ann:{quote(word, safe='')}@{place}&sslmode=odd",
    ]
    for url in urls:
        with pytest.raises(StorageFailed, match="postgresql://") as caught:
            open_storage(url)
        assert word not in shown(caught.value)
        assert quote(word, safe="") not in shown(caught.value)
        assert "\n" not in str(caught.value)


def test_says_why_a_server_does_not_answer(postgres_server: Postgres) -> None:
    with pytest.raises(StorageFailed, match=r"127.0.0.1/birds: the server cannot be reached"):
        open_storage("postgresql+psycopg://ann@127.0.0.1:1/birds")
    with pytest.raises(StorageFailed, match=r"nowhere: .*database"):
        open_storage(postgres_server.url("nowhere"))


def test_a_user_who_may_not_write_is_told_so(postgres_server: Postgres, postgres_url: str) -> None:
    open_sql_storage(postgres_url).close()
    database = sa.make_url(postgres_url).database
    postgres_server.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    with closing(open_sql_storage(postgres_url)) as storage:
        assert storage.length("birds") == 0
        with pytest.raises(StorageFailed, match="the server accepts no writes now"):
            storage.append("birds", told(1))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users")
def test_a_file_that_may_only_be_read_is_read() -> None:
    """SQLite is asked for a file that others may not write to, as another user.

    Not in a folder of pytest's, which closes them for other users whenever it is started.
    """
    with (
        TemporaryDirectory(prefix="labelwise-read-") as folder,
        closing(open_sql_storage(sqlite_url := f"sqlite:///{folder}/labels.db")) as storage,
    ):
        storage.append("birds", told(3))
        path = path_of(sqlite_url)
        script = f"""
import os
from pathlib import Path
import sqlalchemy, labelwise.record.sql_storage
from labelwise.record import open_storage
from labelwise.errors import StorageFailed
from tests.record.test_sql_storage import told
if os.geteuid() == 0:
    os.setuid(65534)
storage = open_storage({sqlite_url!r}, create=False)
assert storage.read("birds") == told(3)
try:
    storage.append("birds", told(1))
except StorageFailed as error:
    print(error)
"""
        with storage._begin() as connection:  # the log and its index are there
            connection.exec_driver_sql("SELECT 1")
        for part in [path.parent, *path.parent.parents]:
            if part.stat().st_mode & 0o055 != 0o055:
                part.chmod(part.stat().st_mode | 0o055)
        for file in path.parent.iterdir():
            file.chmod(0o444)
        ended = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
    assert ended.returncode == 0, ended.stderr
    assert "labels.db: it is read-only; change its permissions" in ended.stdout

"""The storages that tests of records can ask for."""

from tests.record.storages import (
    make_postgres_url,
    postgres_server,
    postgres_url,
    sqlite_url,
    storage,
    storage_url,
)

__all__ = [
    "make_postgres_url",
    "postgres_server",
    "postgres_url",
    "sqlite_url",
    "storage",
    "storage_url",
]

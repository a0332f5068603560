"""The storages that all tests of campaigns can ask for, and a small campaign."""

from tests.campaign.sources import digits, started_digits
from tests.record.storages import (
    make_postgres_url,
    postgres_server,
    postgres_url,
    sqlite_url,
    storage,
    storage_url,
)

__all__ = [
    "digits",
    "make_postgres_url",
    "postgres_server",
    "postgres_url",
    "sqlite_url",
    "started_digits",
    "storage",
    "storage_url",
]

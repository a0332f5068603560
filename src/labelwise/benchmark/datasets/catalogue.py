"""The list of data sets: what each is, how it is read, and how to get it.

Counts, class counts and checksums were taken from the files themselves where an entry has a digest;
those of the others are what their authors publish.
"""

from labelwise.benchmark.datasets import (
    bundled,
    image_sets,
    original_sets,
    table_sets,
    text_sets,
)

_ENTRIES = (
    *bundled.ENTRIES,
    *image_sets.ENTRIES,
    *table_sets.ENTRIES,
    *text_sets.ENTRIES,
    *original_sets.ENTRIES,
)

CATALOGUE = {entry.name: entry for entry in _ENTRIES}
"""All data sets by name."""

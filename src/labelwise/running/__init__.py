"""From a pool, wherever its rows are, to a selection."""

"""Sources of rows: arrays, files, object storage and devices."""

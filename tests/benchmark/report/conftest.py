"""The tables of the docs can be imported."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "docs"))

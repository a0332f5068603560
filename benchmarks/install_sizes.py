"""Size and time of every extra in a fresh environment: one line of JSON each.

    python benchmarks/install_sizes.py > docs/results/install_sizes.jsonl

Packages come from the index and cache that pip is set up with, in the versions of constraints.txt.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("", "web", "torch", "parquet", "sklearn", "skorch", "huggingface", "ray", "postgres")


def measure_megabytes(folder: Path) -> int:
    """The space on disk of all files below a folder."""
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*")) >> 20


def main() -> None:
    """Install one extra after the other."""
    for extra in (*EXTRAS, "demo", "all"):
        with tempfile.TemporaryDirectory() as place:
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            empty, started = measure_megabytes(Path(place)), time.monotonic()
            pip = [f"{place}/bin/pip", "install", "-q", "-c", str(ROOT / "constraints.txt")]
            subprocess.run([*pip, f"{ROOT}[{extra}]" if extra else str(ROOT)], check=True)
            seconds = round(time.monotonic() - started)
            size = measure_megabytes(Path(place)) - empty
            print(json.dumps({"extra": extra, "megabytes": size, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()

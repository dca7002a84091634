"""`python -m benchmarks`: measure, and print one table. Run it from the root of the repository."""

import argparse
import importlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.figure import Figure, table
from benchmarks.settings import Settings

MODULES = ("calls", "gather", "arrays", "streams", "imports", "cell", "pools", "mixed")


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Each figure beside its floor and peers.")
    parser.add_argument("--only", action="append", choices=MODULES, help="measure this; may be given several times")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and nothing of a gigabyte")
    parser.add_argument("--no-peers", action="store_true", help="leave dask.distributed, ipyparallel and others out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    settings = Settings(quick=arguments.quick, peers=not arguments.no_peers)
    figures: list[Figure] = []
    for name in arguments.only or MODULES:
        for figure in importlib.import_module(f"benchmarks.{name}").figures(settings):
            figures.append(figure)
            print(" | ".join(cell for cell in figure.cells() if cell), file=sys.stderr, flush=True)
    print(f"\n{os.cpu_count()} cores, Python {sys.version.split()[0]}\n\n{table(figures)}")
    if arguments.json is not None:
        rows = [{**asdict(figure), "ratio": figure.ratio, "verdict": figure.verdict} for figure in figures]
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

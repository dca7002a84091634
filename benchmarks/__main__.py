"""`python -m benchmarks`: measure and print one table. Run it from the root of the repository."""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.report import circumstances, replaced, report
from benchmarks.settings import Settings

MODULES = (
    "calls",
    "gather",
    "executor",
    "joblib_calls",
    "arrays",
    "broadcast",
    "locality",
    "streams",
    "imports",
    "cell",
    "change_detection",
    "keep",
    "pools",
    "mixed",
    "packing",
    "objects",
    "volumes",
    "offers",
    "clouds",
    "ssh",
    "start",
    "training",
)


def main(args: Sequence[str] | None = None) -> None:
    """Measure the requested figures; the default is the command line of the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure figures, floors and peers.")
    parser.add_argument("--only", action="append", choices=MODULES, help="measure this figure only; can be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, without the largest arrays")
    parser.add_argument("--no-peers", action="store_true", help="skip dask.distributed, ipyparallel and others")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="replace the table in this file")
    arguments = parser.parse_args(args)
    if arguments.markdown is not None:
        try:
            replaced(arguments.markdown.read_text(), "")  # checked before the run, which takes minutes
        except (OSError, ValueError) as error:
            parser.error(f"--markdown {arguments.markdown}: {error}")
    settings = Settings(quick=arguments.quick, peers=not arguments.no_peers)
    before, start = circumstances(), time.monotonic()
    figures = list[Figure]()
    for name in arguments.only or MODULES:
        for figure in importlib.import_module(f"benchmarks.{name}").figures(settings):
            figures.append(figure)
            print(" | ".join(cell for cell in figure.cells() if cell), file=sys.stderr, flush=True)
    text = report(before, figures, time.monotonic() - start)
    print(f"\n{text}")
    if arguments.json is not None:
        rows = [{**asdict(figure), "ratio": figure.ratio, "verdict": figure.verdict} for figure in figures]
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    if arguments.markdown is not None:
        arguments.markdown.write_text(replaced(arguments.markdown.read_text(), text))


if __name__ == "__main__":
    main()

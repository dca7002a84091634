"""The first collective of `torchrun`: this module is the script that its processes run.

`python -m torch.distributed.run --standalone --nproc-per-node 2 -m benchmarks.floors.torchrun`
"""

import subprocess
import sys
import time

__all__ = ["first_collective"]


def first_collective(processes: int) -> float:
    """Return the seconds from the start of `torchrun` to the end of the first collective of its processes.

    Raises:
        RuntimeError: there was none.
    """
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", f"{processes}"]
    start = time.perf_counter()
    with subprocess.Popen(
        [*run, "-m", "benchmarks.floors.torchrun"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        seconds = time.perf_counter() - start
        _, errors = running.communicate()
    if line.strip() != f"{processes}.0":
        raise RuntimeError(f"torchrun did not reach its first collective:\n{errors}")
    return seconds


def main() -> None:
    """Add a number of all processes, and print the sum in the first one."""
    from torch import distributed

    from benchmarks.tasks import all_reduce

    distributed.init_process_group("gloo")
    total = all_reduce()
    if distributed.get_rank() == 0:
        print(total, flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

"""`skyward run --on all` with the plugin `torch`: scripts that are written for `torchrun`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.train, pytest.mark.timeout(400)]

SCRIPT = """
import os, sys
import torch
from torch import distributed

distributed.init_process_group()
rank, size = distributed.get_rank(), distributed.get_world_size()
value = torch.tensor([float(rank + 1)])
distributed.all_reduce(value)
print(f"rank {rank} of {size}: {value.item():g}, local rank {os.environ['LOCAL_RANK']}")
distributed.destroy_process_group()
sys.exit(rank * 5)
"""


def test_scripts_of_all_nodes_are_one_process_group(tmp_path: Path) -> None:
    (tmp_path / "ddp.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "skyward", "run", "ddp.py", "--nodes", "2", "--on", "all", "--plugin", "torch"]
    variables = {**os.environ, "SKYWARD_DATA_DIR": str(tmp_path / "data"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--quiet"], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=300
    )
    assert sorted(done.stdout.splitlines()) == [
        "[node 0] rank 0 of 2: 3, local rank 0",
        "[node 1] rank 1 of 2: 3, local rank 0",
    ], done.stderr
    assert done.returncode == 5

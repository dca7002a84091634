"""The files of a cell, on the notebook's side: what `--file`, `--sync` and `--fetch` mean, and what comes home."""

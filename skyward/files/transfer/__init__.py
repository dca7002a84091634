"""The files of a cell on the client: the options `--file`, `--sync` and `--fetch`, and returned files."""

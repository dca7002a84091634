#!/bin/sh
# Resolves requirements.lock anew: for every platform, with hashes, and without the address of any index in it.
set -eu
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
"$uv" pip compile --quiet --upgrade --universal --python-version 3.12 --generate-hashes --no-header \
  --extra notebook --group dev --group bench --output-file requirements.lock pyproject.toml
if grep -n '://' requirements.lock; then
  echo 'lock: requirements.lock names an address (above): resolve it without links to files or indexes.' >&2
  exit 1
fi

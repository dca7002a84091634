#!/bin/sh
# Resolves requirements.lock again, and benchmarks/requirements.lock with the same versions: for every platform, with
# hashes, and without the address of any index.
set -eu
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
compile() {
  "$uv" pip compile --quiet --upgrade --universal --python-version 3.12 --generate-hashes --no-header "$@" pyproject.toml
}
compile --extra aws --extra gcp --extra notebook --extra ssh --group dev --group docs --output-file requirements.lock
compile --group bench --constraint requirements.lock --output-file benchmarks/requirements.lock
if grep -n '://' requirements.lock benchmarks/requirements.lock; then
  echo 'lock: a lock contains an address (above): resolve it without links to files or indexes.' >&2
  exit 1
fi

#!/bin/sh
# Resolves the lock files again: for every platform, with hashes, and without the address of any index.
#
#   requirements.lock              the newest versions
#   requirements-oldest.lock       the same, but the oldest versions of what users install that pyproject.toml allows
#   benchmarks/requirements.lock   the versions of requirements.lock, and those of the peers
set -eu
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
extras='--extra aws --extra gcp --extra gpuhunt --extra notebook --extra ssh --extra storage'
compile() {
  "$uv" pip compile --quiet --universal --python-version 3.12 --no-header "$@" pyproject.toml
}
# shellcheck disable=SC2086  # several words
compile --upgrade --generate-hashes $extras --group dev --group docs --output-file requirements.lock
compile --upgrade --generate-hashes --group bench --constraint requirements.lock --output-file benchmarks/requirements.lock

oldest=$(mktemp)
trap 'rm -f "$oldest"' EXIT
# shellcheck disable=SC2086
compile --resolution lowest-direct --annotation-style line $extras | sed -n '/(pyproject\.toml/s/ *#.*//p' >"$oldest"
cp requirements.lock requirements-oldest.lock # whose versions are kept where they fit
# shellcheck disable=SC2086
compile --generate-hashes --constraint "$oldest" $extras --group dev --output-file requirements-oldest.lock --no-annotate

if grep -n '://' requirements.lock requirements-oldest.lock benchmarks/requirements.lock; then
  echo 'lock: a lock contains an address (above): resolve it without links to files or indexes.' >&2
  exit 1
fi

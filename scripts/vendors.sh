#!/bin/sh
# Installs the vendors' own clients, each in an environment of its own in .cache/vendors, for the tests of tests/cloud:
# a fake that a client we did not write works with is not only our opinion of a cloud.
set -eu
cd "$(dirname "$0")/.."
sh scripts/setup.sh

vendor() { # name, requirements
  name=$1
  shift
  at=.cache/vendors/$name
  if [ "$(cat "$at/requirements" 2>/dev/null)" != "$*" ]; then
    rm -rf "$at"
    .venv/bin/uv venv --quiet --python .venv/bin/python "$at"
    .venv/bin/uv pip install --quiet --python "$at/bin/python" "$@"
    echo "$*" >"$at/requirements"
  fi
}

vendor runpod runpod==1.10.0
vendor kubernetes kubernetes-validate==1.37.0 # schemas of its API
vendor lambda lambda-ai-cloud-api-client==2.4.1
vendor hyperstack hyperstack==1.56.1a0
# Without its dependencies, which are for invoices (PDF) and serverless workers: 180 MB.
vendor vastai --no-deps vastai==1.9.1 requests==2.34.2 urllib3==2.8.0 python-dateutil==4.0.0 pyparsing==3.3.3 certifi charset-normalizer idna
vendor verda verda==1.25.0
vendor google google-api-python-client==2.202.0 # 111 MB: the descriptions of all APIs of Google, which judge the fake

#!/bin/sh
# Creates the project's virtual environment and its prerequisites. Changes nothing outside this folder. Idempotent.
#
#   scripts/setup.sh                      .venv, from requirements.lock, with the project in it as an editable install
#   scripts/setup.sh --python 3.12 --venv .venv-3.12
#   scripts/setup.sh --venv .venv-bench --lock benchmarks/requirements.lock
#   scripts/setup.sh --find 3.12          only prints the path of that Python; nothing if there is none
#
# Environment: SKYWARD_PYTHON names the interpreter to use. PIP_INDEX_URL, PIP_EXTRA_INDEX_URL and PIP_FIND_LINKS
# apply to uv too, unless its own variables are set.
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)
cache=$here/.cache

say() { printf '%s\n' "$*" >&2; }
fail() { say "setup: $*"; exit 1; }

venv=.venv lock=requirements.lock wanted='3.13 3.12 3.14' only_print=
while [ $# -gt 0 ]; do
  case $1 in
    --venv) venv=$2; shift 2 ;;
    --lock) lock=$2; shift 2 ;;
    --python) wanted=$2; shift 2 ;;
    --find) wanted=$2 only_print=yes; shift 2 ;;
    *) fail "unknown option $1." ;;
  esac
done

# Prints the interpreter behind $1 if it is a usable CPython of version $2. A pyenv shim of an inactive version exists
# and fails, so the interpreter has to be run.
usable() {
  "$1" -c '
import sys, sysconfig
v = sys.version_info
ok = sys.implementation.name == "cpython" and v >= (3, 12) and v.releaselevel == "final"
ok = ok and (sys.argv[1] in ("any", "%d.%d" % v[:2])) and not sysconfig.get_config_var("Py_GIL_DISABLED")
print(sys._base_executable) if ok else sys.exit(1)' "$2" 2>/dev/null
}

# Possible paths of a Python of version $1, one per line: on PATH, of uv, in this folder, of pyenv (also if only its
# shims are on PATH and HOME is another).
candidates() {
  printf '%s\n' "python$1"
  uv_pythons=${UV_PYTHON_INSTALL_DIR:-${XDG_DATA_HOME:-${HOME:-}/.local/share}/uv/python}
  printf '%s\n' "$uv_pythons"/cpython-"$1".*/bin/python3 "$cache"/python/cpython-"$1".*/bin/python3
  { printf '%s\n' "${PYENV_ROOT:-}" "${HOME:-}/.pyenv"; printf '%s\n' "$PATH" | tr ':' '\n' | sed -n 's,/shims/*$,,p'; } |
    while read -r root; do printf '%s\n' "$root"/versions/"$1".*/bin/python3; done
  printf 'python3\n'
}

find_python() {
  if [ -n "${SKYWARD_PYTHON:-}" ] && [ -z "$only_print" ]; then
    usable "$SKYWARD_PYTHON" any || fail "SKYWARD_PYTHON=$SKYWARD_PYTHON is not CPython 3.12 or newer."
    return
  fi
  for version in $wanted; do
    found=$(candidates "$version" | while read -r candidate; do usable "$candidate" "$version" && break; done) || :
    [ -z "$found" ] || { printf '%s\n' "$found"; return; }
  done
}

if [ -n "$only_print" ]; then
  find_python
  exit 0
fi

# An editable install copies the panel, and only the panel: update the copy. A link made by `jupyter-builder develop`
# needs no update.
panel=$venv/share/jupyter/labextensions/skyward-panel
renew_panel() {
  [ -d "$panel" ] && ! diff -r -x install.json labextension/dist "$panel" >/dev/null || return 0
  rm -rf "$panel"
  cp -R labextension/dist "$panel"
  cp labextension/install.json "$panel"
}

# Compile the sources of the project: processes of the tests write no bytecode, and neither does any other where
# PYTHONDONTWRITEBYTECODE is set.
compile() {
  "$venv/bin/python" -m compileall -q skyward skyward_jupyter providers kernel_bridge tests >/dev/null 2>&1 || :
}

made_from="$here $(cat "$lock" pyproject.toml scripts/setup.sh | cksum)"
if [ "$(cat "$venv/.made-from" 2>/dev/null)" = "$made_from" ] && "$venv/bin/python" -c '' 2>/dev/null; then
  renew_panel
  compile
  exit 0
fi

python=$(find_python)

# uv: the user's, or a local one at the version of the lock file.
own_uv=$cache/uv
if uv=$(command -v uv) && "$uv" --version >/dev/null 2>&1; then
  :
else
  uv=$own_uv/bin/uv
  if ! "$uv" --version >/dev/null 2>&1; then
    with=${python:-$(command -v python3)} || fail "no Python was found: install python3 with python3-venv, or uv."
    say "Installing uv with $with"
    mkdir -p "$cache"
    rm -rf "$own_uv"
    sed -n '/^uv==/,/[^\\]$/p' requirements.lock | sed '/^ *#/d' >"$cache/uv.txt"
    if "$with" -m venv "$own_uv" >"$cache/uv.log" 2>&1; then
      set -- "$own_uv/bin/python" -m pip install
    else
      rm -rf "$own_uv"
      set -- "$with" -m pip install --target "$own_uv"
    fi
    "$@" --quiet --disable-pip-version-check --no-deps --require-hashes -r "$cache/uv.txt" >>"$cache/uv.log" 2>&1 || {
      tail -n 5 "$cache/uv.log" >&2
      fail "uv could not be installed with $with: install uv, or python3-venv and python3-pip, and check that pip reaches its index."
    }
  fi
  export UV_CACHE_DIR="${UV_CACHE_DIR:-$cache/uv-cache}"
fi
commas() { printf '%s' "$1" | tr -s ' ' ','; }
[ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"
[ -z "${PIP_EXTRA_INDEX_URL:-}" ] || export UV_INDEX="${UV_INDEX:-$PIP_EXTRA_INDEX_URL}"
[ -z "${PIP_FIND_LINKS:-}" ] || export UV_FIND_LINKS="${UV_FIND_LINKS:-$(commas "$PIP_FIND_LINKS")}"
export UV_NO_CONFIG=1 UV_NO_PROGRESS=1

if [ -z "$python" ]; then
  version=${wanted%% *}
  say "No CPython $wanted was found; downloading $version with uv"
  UV_PYTHON_INSTALL_DIR=$cache/python "$uv" python install --quiet --no-bin "$version" ||
    fail "CPython 3.12 or newer was not found and could not be downloaded: install it (for example with 'pyenv install $version'), or set SKYWARD_PYTHON to its path."
  python=$(find_python)
  [ -n "$python" ] || fail "the Python that uv downloaded does not run on this machine; set SKYWARD_PYTHON to a CPython of 3.12 or newer."
fi

say "Installing into $venv with $("$python" -V) ($python)"
rm -f "$venv/.made-from"
"$uv" venv --quiet --allow-existing --python "$python" "$venv" || fail "the virtual environment $venv could not be created with $python."
"$uv" pip sync --quiet --compile-bytecode --require-hashes --python "$venv/bin/python" "$lock" ||
  fail "the packages of $lock could not be installed: see above, and check that uv reaches the package index (PIP_INDEX_URL, PIP_FIND_LINKS and SSL_CERT_FILE apply)."
[ ! -L "$panel" ] || rm "$panel" # otherwise the build would be removed with the former install
"$uv" pip install --quiet --no-deps --no-build-isolation --python "$venv/bin/python" --editable . ||
  fail "the project itself could not be installed: see above."
renew_panel # without the files of a former build
compile
printf '%s\n' "$made_from" >"$venv/.made-from"

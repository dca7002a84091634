# From here on the text is the same for every environment; the differences are set above. Run without arguments it runs
# all phases, and reports each of them on standard output, one JSON object a line; the output of their commands is in
# $root/logs. Run with the name of a phase it runs that phase. Run again, it continues where it was interrupted.
set -eu
umask 022
env=$root/envs/$image_hash
state=$root/state/$image_hash
logs=$root/logs/$image_hash

# Sets $clock to the time in hundredths of a second.
now() {
  if read -r clock _ 2>/dev/null </proc/uptime; then
    clock=${clock%.*}${clock#*.} clock=${clock#0} clock=${clock#0}
  else
    clock=$(date +%s)00
  fi
}

# Prints the last lines of standard input, escaped for a JSON string.
as_json() {
  tr '\r\t' '\n ' | LC_ALL=C tr -d '\000-\010\013-\037\177' | tail -n 20 | tail -c 4000 | sed -e 's/[\\"]/\\&/g' |
    sed -e ':a' -e '$!{' -e 'N' -e 'ba' -e '}' -e 's/\n/\\n/g'
}

# within SECONDS COMMAND...: runs a command with a time limit, except where the client kills the process group itself.
within() {
  seconds=$1
  shift
  if [ -z "$client" ] && command -v timeout >/dev/null 2>&1; then timeout -k 10 "$seconds" "$@"; else "$@"; fi
}

ready() {
  [ -x "$env/bin/python" ] && [ -f "$state/ready" ] && { read -r mark && read -r facts; } <"$state/ready" &&
    [ "$mark" = "$image_hash" ]
}

tree_is_there() { [ -z "$tree" ] || [ -d "$root/trees/$tree" ]; }

# Contents that the client has to send first, one digest a line.
needed() {
  if [ -n "$wheel" ] && ! ready; then printf '%s\n' "$wheel"; fi
  if ! tree_is_there; then manifest | cut -d ' ' -f 1; fi
}

missing() {
  needed | while read -r digest; do
    [ -f "$root/blobs/$digest" ] || printf '{"type":"missing","digest":"%s"}\n' "$digest"
  done
}

can_lock() { [ -n "$client" ] || command -v flock >/dev/null 2>&1; }

# take_lock OPTION... DESCRIPTOR: like flock(1), which macOS does not have. The lock belongs to the open file, so it
# remains when the program that took it has ended.
take_lock() {
  if command -v flock >/dev/null 2>&1; then
    within "$timeout" flock "$@"
  else
    within "$timeout" "$client" -IS -c '
import fcntl, sys
kind = fcntl.LOCK_SH if "-s" in sys.argv else fcntl.LOCK_EX
try:
    fcntl.flock(int(sys.argv[-1]), kind | (fcntl.LOCK_NB if "-n" in sys.argv else 0))
except BlockingIOError:
    sys.exit(1)' "$@"
  fi
}

# Allows one bootstrap of an environment at a time, on descriptor 9. An interrupted one keeps the lock until its last
# command ends.
lock() {
  can_lock || return 0
  exec 9>"$state/lock"
  take_lock -n 9 && return 0
  printf '{"type":"waiting"}\n'
  take_lock 9
}

# Takes a shared lock, on descriptor 8, so that nothing is pruned during a bootstrap. Without file locks, nothing is
# ever pruned.
enter() {
  can_lock || return 0
  exec 8<>"$root/lock"
  take_lock -s 8 || :
}

# Once a day, after a bootstrap, unused items are pruned in the background.
leave() {
  can_lock || return 0
  exec 8>&-
  [ -e "$root/pruned" ] || : >"$root/pruned"
  [ -z "$(find "$root/pruned" -mtime -1)" ] || return 0
  nice sh "$0" prune >"$root/logs/prune" 2>&1 </dev/null 9>&- &
}

skipped() {
  for name in "$@"; do printf '{"type":"phase","event":"skipped","phase":"%s"}\n' "$name"; done
}

run_phase() { within "$limit" sh "$0" "$name" >"$logs/$name" 2>&1 </dev/null; }

# phase NAME SECONDS
phase() {
  name=$1 limit=$2
  now
  began=$clock left=$((timeout - (clock - begun) / 100)) status=0
  [ "$limit" -le "$left" ] || limit=$left
  [ "$limit" -ge 1 ] || limit=1
  printf '{"type":"phase","event":"started","phase":"%s","deadline":%d}\n' "$name" "$limit"
  case $name in
    env | apt | plugins) run_phase 8>&- 9>&- || status=$? ;; # they may start daemons, which must not keep the locks
    *) run_phase || status=$? ;;
  esac
  now
  took=$((clock - began))
  elapsed=$(printf '%d.%02d' $((took / 100)) $((took % 100)))
  if [ "$status" = 0 ]; then
    printf '{"type":"phase","event":"completed","phase":"%s","elapsed":%s}\n' "$name" "$elapsed"
    return 0
  fi
  late=false
  [ "$took" -lt $((limit * 100)) ] || late=true
  printf '{"type":"phase","event":"failed","phase":"%s","elapsed":%s,"status":%d,"late":%s,"deadline":%d,"error":"%s"}\n' \
    "$name" "$elapsed" "$status" "$late" "$limit" "$(as_json <"$logs/$name")"
  exit 1
}

bootstrap() {
  now
  begun=$clock
  mkdir -p "$root/blobs" "$root/trees" "$root/envs" "$root/used"
  enter
  mkdir -p "$state" "$logs"
  lacking=$(missing)
  if [ -n "$lacking" ]; then
    printf '%s\n' "$lacking"
    exit 75
  fi
  ready || lock
  if ready; then
    skipped env apt uv deps skyward
  else
    phase env "$limit_env"
    if [ -n "$apt$git" ]; then phase apt "$limit_apt"; else skipped apt; fi
    phase uv "$limit_uv"
    phase deps "$limit_deps"
    if [ -n "$layered" ]; then skipped skyward; else phase skyward "$limit_skyward"; fi
  fi
  if tree_is_there; then skipped includes; else phase includes "$limit_includes"; fi
  if [ -n "$plugins" ]; then phase plugins "$limit_plugins"; else skipped plugins; fi
  if ready; then skipped worker; else phase worker "$limit_worker"; fi
  ready
  touch "$root/used/$image_hash" ${tree:+"$root/used/$tree"}
  printf '{"type":"ready","directory":"%s","facts":%s}\n' "$root" "$facts"
  leave
}

# compute NAME COMMAND: sets a variable to the output of a command.
compute() {
  value=$(sh -c "$2") || {
    echo "shell_vars: the command of $1 ended with status $?: $2"
    exit 1
  }
  export "$1=$value"
  printf "export %s='%s'\n" "$1" "$(printf '%s\n' "$value" | sed "s/'/'\\\\''/g")"
}

phase_env() {
  umask 077
  fixed_variables >"$state/environment.new"
  # shellcheck source=/dev/null
  . "$state/environment.new"
  (computed_variables) >"$state/computed" || {
    cat "$state/computed"
    exit 1
  }
  cat "$state/computed" >>"$state/environment.new"
  rm -f "$state/computed"
  cmp -s "$state/environment.new" "$state/environment" || rm -f "$state/deps"
  mv -f "$state/environment.new" "$state/environment"
}

may_be_root() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

# Runs apt-get, and waits while another process holds its lock: machines often update as they boot.
apt_get() {
  until as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=30 "$@" >"$logs/apt-get" 2>&1; do
    cat "$logs/apt-get"
    grep -qE 'Could not get lock|Unable to (acquire|lock)' "$logs/apt-get" || return 1
    sleep 1
  done
  cat "$logs/apt-get"
}

installed() {
  for package in "$@"; do
    case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) in
      *' ok installed') ;;
      *) return 1 ;;
    esac
  done
}

install_packages() {
  [ -z "$client" ] || {
    echo "$* must be installed on this machine first: Skyward does not install system packages on it"
    return 1
  }
  command -v apt-get >/dev/null 2>&1 || {
    echo "cannot install $*: this machine has no apt-get"
    return 1
  }
  if installed "$@"; then return 0; fi
  may_be_root || {
    echo "installing $* needs root, or sudo without a password"
    return 1
  }
  as_root dpkg --configure -a || : # finishes an interrupted installation
  apt_get update || echo 'continuing with the existing package lists'
  apt_get install -y --no-install-recommends "$@"
}

phase_apt() {
  set -f
  # git only recommends the certificates that it needs to verify a server.
  if [ -n "$git" ] && ! command -v git >/dev/null 2>&1; then apt="$apt git ca-certificates"; fi
  # shellcheck disable=SC2086  # a list of names
  [ -z "$apt" ] || install_packages $apt
}

# Sets $uv to a uv that is recent enough.
find_uv() {
  for uv in "$root/uv/bin/uv" "$(command -v uv || :)" "${HOME:-}/.local/bin/uv" "${HOME:-}/.cargo/bin/uv"; do
    case $("$uv" --version 2>/dev/null || :) in
      '' | 'uv 0.'[0-7].*) ;;
      'uv '*) return 0 ;;
    esac
  done
  return 1
}

# fetch_uv_with PYTHON: returns 1 if it has no pip. Exits if pip fails: another one would fail, too.
fetch_uv_with() {
  "$1" -c '' 2>/dev/null || return 1
  rm -rf "$root/uv.new"
  if "$1" -m venv "$root/uv.new"; then
    set -- "$root/uv.new/bin/python" -m pip install
  elif "$1" -m pip --version; then
    rm -rf "$root/uv.new"
    set -- "$1" -m pip install --target "$root/uv.new"
  else
    return 1
  fi
  "$@" --quiet --disable-pip-version-check --retries 2 'uv>=0.8' || {
    echo 'uv is not installed and pip could not download it: install uv on this machine, or check that pip can reach its index'
    exit 1
  }
  rm -rf "$root/uv"
  mv "$root/uv.new" "$root/uv"
}

fetch_uv() {
  { [ -n "$client" ] && fetch_uv_with "$client"; } || fetch_uv_with "python$minor" || fetch_uv_with python3 || {
    install_packages python3-venv && fetch_uv_with python3
  } || {
    echo 'uv is not installed, and no Python with pip to download it: install uv on this machine, or python3 with python3-venv'
    exit 1
  }
  find_uv || {
    echo "the uv that was downloaded to $root/uv does not run on this machine"
    exit 1
  }
}

# Prints the interpreter behind $1 if it is a CPython of the requested version. A pyenv shim of an inactive version
# exists and fails, so it has to be run to find out.
usable() {
  "$1" -c '
import sys, sysconfig
wanted = sys.argv[1].split(".")
ok = [str(n) for n in sys.version_info[: len(wanted)]] == wanted and sys.implementation.name == "cpython"
ok = ok and sys.version_info.releaselevel == "final" and not sysconfig.get_config_var("Py_GIL_DISABLED")
print(sys._base_executable) if ok else sys.exit(1)' "$python" 2>/dev/null
}

# Prints possible locations of a Python of the requested version, one a line: on PATH, ours, uv's, pyenv's (also if only
# its shims are on PATH and HOME is another directory).
candidates() {
  printf '%s\n' "python$minor" "$root/python/cpython-$minor".*/bin/python3
  printf '%s\n' "${XDG_DATA_HOME:-${HOME:-}/.local/share}/uv/python/cpython-$minor".*/bin/python3
  {
    printf '%s\n' "${PYENV_ROOT:-}" "${HOME:-}/.pyenv"
    printf '%s\n' "$PATH" | tr ':' '\n' | sed -n 's,/shims/*$,,p'
  } | while read -r pyenv; do printf '%s\n' "$pyenv/versions/$minor".*/bin/python3; done
  printf '%s\n' python3 "/usr/local/bin/python$minor" "/usr/bin/python$minor"
}

find_python() {
  candidates | while read -r candidate; do if usable "$candidate"; then break; fi; done >"$state/python"
  [ -s "$state/python" ]
}

phase_uv() {
  find_uv || fetch_uv
  if [ -n "$layered" ]; then
    printf '%s\n' "$client" >"$state/python"
    return 0
  fi
  find_python && return 0
  {
    UV_PYTHON_INSTALL_DIR=$root/python "$uv" python install --no-bin "$python" && find_python
  } || {
    install_packages "python$minor" && find_python
  } || {
    echo "Python $python is not on this machine, and neither uv nor apt could install it: install it there, or select another with Image(python=...)"
    exit 1
  }
}

# Installs into the environment. uv has no variable for pip's --no-index.
install() {
  if [ -n "${PIP_NO_INDEX:-}${UV_NO_INDEX:-}" ]; then set -- "$@" --no-index; fi
  "$uv" pip install --python "$env/bin/python" "$@"
}

# lay begin|finish: layers the environment over the packages of the client.
lay() { "$client" -P "$layered" "$1" "$env"/lib/python*/site-packages "$source"; }

phase_deps() {
  if [ -f "$state/deps" ] && [ -x "$env/bin/python" ]; then return 0; fi
  find_uv
  rm -f "$state/deps" "$state/skyward" "$state/ready"
  rm -rf "$env" "$state/project"
  "$uv" venv --quiet --python "$(cat "$state/python")" "$env"
  mkdir "$state/project"
  cd "$state/project"
  (umask 077 && project >pyproject.toml && requirements >requirements.txt)
  [ -z "$layered" ] || lay begin
  install -r pyproject.toml -r requirements.txt
  [ -z "$layered" ] || lay finish
  : >"$state/deps"
}

phase_skyward() {
  if [ -f "$state/skyward" ]; then return 0; fi
  find_uv
  if [ -n "$wheel" ]; then
    touch "$root/blobs/$wheel"
    cp "$root/blobs/$wheel" "$state/$wheel_name"
    install --no-deps --offline --reinstall "$state/$wheel_name" || {
      rm -f "$root/blobs/$wheel" # incomplete or corrupt: it is sent again
      exit 1
    }
    rm -f "$state/$wheel_name"
  else
    install --no-deps --reinstall "$skyward"
  fi
  : >"$state/skyward"
}

phase_includes() {
  manifest | "$env/bin/python" -P -m skyward.bootstrap.tree "$root" "$tree"
}

# plugin NAME COMMANDS
plugin() {
  echo "$1:"
  sh -c "$2" || {
    echo "the set-up of plugin $1 ended with status $?"
    exit 1
  }
}

phase_plugins() {
  PATH=$env/bin:$PATH
  export PATH
  plugin_steps
}

phase_worker() {
  set -f
  # shellcheck disable=SC2086  # a list of names
  (umask 077 && exec "$env/bin/python" -P -m skyward.bootstrap.facts "$state/ready" "$image_hash" $names)
}

# uv's cache of the packages of a removed environment takes as much room as the environment did.
phase_prune() {
  status=0
  "$env/bin/python" -P -m skyward.bootstrap.prune "$root" || status=$?
  if [ "$status" = 76 ] && [ "${UV_CACHE_DIR:-}" = "$root/cache" ] && find_uv; then
    flock -n "$root/lock" "$uv" cache prune --quiet --ci
  fi
}

# Sources of packages come from the machine, or from the client. Settings of pip apply to uv too.
take_settings() {
  settings
  [ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"
  [ -z "${PIP_EXTRA_INDEX_URL:-}" ] || export UV_INDEX="${UV_INDEX:-$PIP_EXTRA_INDEX_URL}"
  [ -z "${PIP_FIND_LINKS:-}" ] ||
    export UV_FIND_LINKS="${UV_FIND_LINKS:-$(printf '%s' "$PIP_FIND_LINKS" | tr -s ' ' ',')}"
  [ -z "${PIP_TRUSTED_HOST:-}" ] || export UV_INSECURE_HOST="${UV_INSECURE_HOST:-$PIP_TRUSTED_HOST}"
  [ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"
  [ -n "$client" ] || export UV_CACHE_DIR="${UV_CACHE_DIR:-$root/cache}" # the client's uv has one already
  export UV_NO_PROGRESS=1
}

main() {
  if [ $# = 0 ]; then
    bootstrap
    return
  fi
  take_settings
  if [ "$1" != env ] && [ -f "$state/environment" ]; then
    # shellcheck source=/dev/null
    . "$state/environment"
  fi
  "phase_$1"
}

main "$@"
exit

# From here on the text is the same for every environment; the differences are set above. Run without arguments it runs
# all phases, and reports each of them on standard output, one JSON object a line; the output of their commands is in
# $root/logs. Run with the name of a phase it runs that phase. Run again, it continues where it was interrupted.
set -eu
umask 022
env=$root/envs/$image_hash
state=$root/state/$image_hash
logs=$root/logs/$image_hash

# The image of a machine may bring the environment, made by root: see `bake`. It is used as it is.
if [ ! -e "$state/ready" ] && [ -z "$client" ] && [ -r "/opt/skyward/state/$image_hash/ready" ] &&
  [ -x "/opt/skyward/envs/$image_hash/bin/python" ]; then
  env=/opt/skyward/envs/$image_hash
  state=/opt/skyward/state/$image_hash
fi

# Sets $clock to the time in hundredths of a second.
now() {
  if read -r clock _ 2>/dev/null </proc/uptime; then
    clock=${clock%.*}${clock#*.} clock=${clock#0} clock=${clock#0}
  else
    clock=$(date +%s)00
  fi
}

plain() { tr '\r\t' '\n ' | LC_ALL=C tr -d '\000-\010\013-\037\177'; }

# Prints standard input, escaped for a JSON string.
as_json() { sed -e 's/[\\"]/\\&/g' | sed -e ':a' -e '$!{' -e 'N' -e 'ba' -e '}' -e 's/\n/\\n/g'; }

last_lines() { plain | tail -n 20 | tail -c 4000 | as_json; }

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

# Whether the values are known that the commands of variables print on this machine: others may share the directory. Sets
# $values to the file that has them; to nothing if the environment was made here.
has_values() {
  values=
  if [ -z "$computed" ] || [ ! -e "$state/machine" ]; then return 0; fi
  machine=$(uname -n)
  [ "$(cat "$state/machine")" != "$machine" ] || return 0
  values=$state/values/$machine
  [ -f "$values" ]
}

tree_is_there() { [ -z "$tree" ] || [ -d "$root/trees/$tree" ]; }

# Contents that the client has to send first, one digest a line.
needed() {
  if [ -n "$wheel" ] && ! ready; then printf '%s\n' "$wheel"; fi
  if [ -n "$supplied" ] && ! ready; then supplies | cut -d ' ' -f 1; fi
  if ! tree_is_there; then manifest | cut -d ' ' -f 1; fi
}

missing() {
  needed | while read -r digest; do
    [ -f "$root/blobs/$digest" ] || printf '{"type":"missing","digest":"%s"}\n' "$digest"
  done
}

# Waits for the contents that the client has been sending since it was told that they are missing.
receive() {
  [ -n "$lacking" ] || return 0
  while now && [ $((clock - begun)) -lt $((timeout * 100)) ] && [ -n "$(missing)" ]; do
    sleep 0.05 2>/dev/null || sleep 1
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

# Whether the disk of the directory is at least 90 % full, with less than 50 GiB free.
is_nearly_full() {
  # shellcheck disable=SC2046  # words of the last line
  set -- $(df -Pk "$root" 2>/dev/null | tail -n 1)
  case ${4:-},${5:-} in
    *[!0-9],* | ,*) return 1 ;;
    *,9[0-9]% | *,100%) [ "$4" -lt $((50 * 1024 * 1024)) ] ;;
    *) return 1 ;;
  esac
}

# Once a day, after a bootstrap, unused items are pruned in the background; each time while the disk is nearly full.
leave() {
  can_lock || return 0
  exec 8>&-
  [ -e "$root/pruned" ] || : >"$root/pruned"
  [ -z "$(find "$root/pruned" -mtime -1)" ] || is_nearly_full || return 0
  nice sh "$0" prune >"$root/logs/prune" 2>&1 </dev/null 9>&- &
}

skipped() {
  for name in "$@"; do printf '{"type":"phase","event":"skipped","phase":"%s"}\n' "$name"; done
}

# Whether the environment has its packages, and Skyward.
is_whole() { [ -x "$env/bin/python" ] && [ -f "$state/deps" ] && [ -f "$state/skyward" ]; }

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
  [ "$status" != 76 ] || ask_for_help "$name"
  late=false
  [ "$took" -lt $((limit * 100)) ] || late=true
  printf '{"type":"phase","event":"failed","phase":"%s","elapsed":%s,"status":%d,"late":%s,"deadline":%d,"error":"%s"}\n' \
    "$name" "$elapsed" "$status" "$late" "$limit" "$(last_lines <"$logs/$name")"
  exit 1
}

libc_version() { getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 | head -n 1 || :; }

# Whether packages are on this machine: some of the environment, or a cache.
has_packages() { is_whole || [ -d "${UV_CACHE_DIR:-$root/cache}" ]; }

# Ends with status 77, which asks the client for another node that has the environment.
ask_peers() {
  tools=
  if find_uv && find_python; then tools=yes; fi
  printf '{"type":"unmade","system":"%s","machine":"%s","libc":"%s","processors":"%s","tools":"%s"}\n' \
    "$(uname -s)" "$(uname -m)" "$(libc_version | as_json)" "$(processors)" "$tools"
  exit 77
}

# Receives the environment from another node. If that fails, it is made as usual: the line of the reason is reported.
fetch() {
  name=fetch limit=$limit_fetch reason=
  now
  began=$clock
  printf '{"type":"phase","event":"started","phase":"fetch","deadline":%d}\n' "$limit"
  run_phase || {
    reason=$(plain <"$logs/fetch" | grep -v '^ *$' | tail -n 1 | as_json)
    reason=${reason:-it took too long}
    rm -rf "$state/fetched" || :
  }
  now
  took=$((clock - began))
  printf '{"type":"phase","event":"completed","phase":"fetch","elapsed":%d.%02d,"error":"%s"}\n' \
    $((took / 100)) $((took % 100)) "$reason"
}

# ask_for_help PHASE: ends with status 76, which asks the client to send what this machine cannot fetch. The last line of
# the log of the phase is the reason.
ask_for_help() {
  sh "$0" describe "$1" <"$logs/$1"
  exit 76
}

phase_describe() {
  reason=$(plain | grep -v '^ *$' | tail -n 1 | sed -e 's/^ *//' -e 's/^cause: //' -e 's/: install .*//' | as_json)
  set -f
  # shellcheck disable=SC2086  # a list of names
  [ -n "$apt" ] && ! installed $apt || apt=
  libc=$(libc_version)
  find_uv || uv=
  find_python || :
  printf '{"type":"needs","reason":"%s","system":"%s","machine":"%s","libc":"%s","processors":"%s","uv":"%s","python":"%s","packages":"%s","apt":"%s",' \
    "$reason" "$(uname -s)" "$(uname -m)" "$(printf '%s' "$libc" | as_json)" "$(processors)" "${uv:+yes}" \
    "$([ ! -s "$state/python" ] || echo yes)" "$([ "$1" != uv ] || echo yes)" "$apt"
  printf '"project":"%s","requirements":"%s"}\n' "$(project | as_json)" "$(requirements | as_json)"
}

# Finds out, within seconds, whether packages can be fetched: by uv, or else by a connection.
survey() {
  [ -n "$helped" ] && [ "$supplied" != all ] || return 0
  rm -f "$state/resolved"
  if [ -f "$state/deps" ] && { [ -n "$wheel" ] || [ -f "$state/skyward" ]; }; then return 0; fi
  sh "$0" survey >"$logs/survey" 2>&1 </dev/null || ask_for_help survey
}

phase_survey() {
  if [ -n "${PIP_NO_INDEX:-}${UV_NO_INDEX:-}" ] && [ -z "${UV_FIND_LINKS:-}" ]; then
    echo 'no package index, and no other place of packages, is configured for it'
    return 1
  fi
  if find_uv && find_python; then set -- resolves; else set -- connects; fi
  "$1" || {
    sleep 1 # a machine that has just booted may not have a name server yet
    "$1"
  }
}

# Resolves one requirement. Only failures of the network count: others are for the installation to report.
resolves() {
  set -- pip compile --quiet --no-deps --no-header --python "$(cat "$state/python")" -
  if [ -n "${PIP_NO_INDEX:-}${UV_NO_INDEX:-}" ]; then set -- "$@" --no-index; fi
  printf '%s\n' "$sample" | UV_HTTP_TIMEOUT=4 UV_HTTP_RETRIES=0 within 12 "$uv" "$@" >"$state/tried" 2>&1 || {
    status=$?
    cat "$state/tried"
    [ "$status" -lt 124 ] && ! is_cut_off "$state/tried" || return 1
  }
  : >"$state/resolved"
}

# Whether the output of uv says that the network failed.
is_cut_off() { grep -qE 'error sending request|dns error|network was disabled' "$1"; }

# Connects to the place of packages, or its proxy, with any program that can.
connects() {
  place=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-$index}}
  if [ -n "${PIP_NO_INDEX:-}${UV_NO_INDEX:-}" ]; then place=${UV_FIND_LINKS:-} place=${place%%,*}; fi
  case $place in
    http*) ;;
    *=http*) place=${place#*=} ;;
    *) return 0 ;;
  esac
  if command -v curl >/dev/null 2>&1; then
    within 10 curl --silent --show-error --output /dev/null --max-time 5 "$place"
    return
  fi
  case $place in
    https:*) place=${https_proxy:-${HTTPS_PROXY:-${ALL_PROXY:-$place}}} ;;
    *) place=${http_proxy:-$place} ;;
  esac
  case $place in https:*) port=443 ;; *) port=80 ;; esac
  host=${place#*:} host=${host#//} host=${host%%/*} host=${host##*@}
  case $host in *:*[0-9]) port=${host##*:} host=${host%:*} ;; esac
  if command -v bash >/dev/null 2>&1; then
    within 5 bash -c ': <"/dev/tcp/$0/$1"' "$host" "$port" || {
      echo "no connection to $host"
      return 1
    }
  elif command -v wget >/dev/null 2>&1; then
    within 10 wget -q -O /dev/null "$place" || {
      echo "no connection to $host"
      return 1
    }
  fi
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
    [ -z "$supplied" ] || exit 75 # the first phases need them
  fi
  ready || lock
  if ready; then
    skipped env apt uv deps skyward
  else
    rm -rf "$state/fetched" # of an interrupted transfer
    [ -z "$ask" ] || has_packages || ask_peers
    phase env "$limit_env"
    [ -z "$peer" ] || fetch
    survey
    if [ -n "$apt$git" ]; then phase apt "$limit_apt"; else skipped apt; fi
    if is_whole; then
      skipped uv deps skyward
    else
      phase uv "$limit_uv"
      [ -f "$state/resolved" ] || survey
      phase deps "$limit_deps"
      receive
      if [ -n "$layered" ]; then skipped skyward; else phase skyward "$limit_skyward"; fi
    fi
  fi
  receive
  if tree_is_there; then skipped includes; else phase includes "$limit_includes"; fi
  if [ -n "$plugins" ]; then phase plugins "$limit_plugins"; else skipped plugins; fi
  if ready && has_values; then skipped worker; else phase worker "$limit_worker"; fi
  ready
  has_values
  [ -z "$values" ] || { read -r mark && read -r facts; } <"$values"
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
  if [ -z "$client" ]; then digest_of "$state/computed" >"$state/computed.digest.new"; fi
  rm -f "$state/computed"
  if [ -f "$state/baked" ]; then # the packages of the image were made with these values, which it does not have
    { [ -s "$state/computed.digest.new" ] && cmp -s "$state/computed.digest.new" "$state/computed.digest"; } ||
      rm -f "$state/deps"
    rm -f "$state/baked"
  else
    cmp -s "$state/environment.new" "$state/environment" || rm -f "$state/deps"
  fi
  if [ -z "$client" ]; then mv -f "$state/computed.digest.new" "$state/computed.digest"; fi
  mv -f "$state/environment.new" "$state/environment"
}

# Prints the digest of a file, or nothing on a machine without sha256sum.
digest_of() { sha256sum <"$1" 2>/dev/null || :; }

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

# The client's uv and Python, of the kind $1, if they were sent.
unpack_supply() {
  supplies | while read -r digest kind file; do
    [ "$kind" = "$1" ] || continue
    touch "$root/blobs/$digest"
    case $kind in
      uv)
        mkdir -p "$root/uv/bin"
        gzip -dc <"$root/blobs/$digest" >"$root/uv/bin/uv.new"
        chmod 755 "$root/uv/bin/uv.new"
        mv -f "$root/uv/bin/uv.new" "$root/uv/bin/uv"
        ;;
      python)
        rm -rf "$root/python/.new"
        mkdir -p "$root/python/.new"
        tar -xzomf "$root/blobs/$digest" -C "$root/python/.new"
        rm -rf "$root/python/${file:?}"
        mv "$root/python/.new/$file" "$root/python/$file"
        ;;
    esac
  done
}

supplied_uv() {
  find_uv || {
    unpack_supply uv
    find_uv
  } || {
    echo "the uv that was sent to $root/uv does not run on this machine"
    exit 1
  }
  find_python || {
    unpack_supply python
    find_python
  } || {
    echo "the Python that was sent to $root/python does not run on this machine: install Python $python there"
    exit 1
  }
}

# With the client's help, a failure is not the end: it sends what is missing.
phase_uv() {
  if [ -n "$supplied" ]; then
    supplied_uv
  elif [ -n "$helped" ]; then
    UV_HTTP_RETRIES=1 PIP_RETRIES=1 PIP_DEFAULT_TIMEOUT=5 sh "$0" tools || exit 76
  else
    phase_tools
  fi
}

phase_tools() {
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

# Installs the packages that were sent.
install_supplies() {
  rm -rf "$state/wheels"
  mkdir "$state/wheels"
  supplies | while read -r digest kind file; do
    [ "$kind" = wheel ] || continue
    touch "$root/blobs/$digest"
    ln "$root/blobs/$digest" "$state/wheels/$file" 2>/dev/null || cp "$root/blobs/$digest" "$state/wheels/$file"
  done
  unset UV_INDEX UV_DEFAULT_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL UV_FIND_LINKS PIP_NO_INDEX UV_NO_INDEX
  UV_OFFLINE=1 UV_NO_CONFIG=1 install --no-index --no-deps --find-links "$state/wheels" "$@"
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
  if [ "$supplied" = all ]; then
    install_supplies -r requirements.txt
  else
    install -r pyproject.toml -r requirements.txt || {
      [ -z "$helped" ] || ! is_cut_off "$logs/deps" || exit 76
      exit 1
    }
  fi
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
  elif [ "$supplied" = all ]; then
    install_supplies --reinstall "$skyward"
  else
    install --no-deps --reinstall "$skyward"
  fi
  rm -rf "$state/wheels"
  : >"$state/skyward"
}

decline() {
  echo "$1"
  exit 1
}

# Connects to the other node, says the token, and prints what it sends. Environment variables are not on command lines.
# shellcheck disable=SC2016  # for bash
receive_from_peer() {
  exec env peer_address="$peer_address" peer_port="$peer_port" peer_token="$peer_token" \
    bash -c 'exec 3<>"/dev/tcp/$peer_address/$peer_port" && printf "%s\n" "$peer_token" >&3 && exec cat <&3'
}

# Sets $count to the bytes that process $1 has read, if the system says it.
bytes_read() {
  count=
  { read -r _ count; } 2>/dev/null <"/proc/$1/io" || :
}

# Waits for process $2, which unpacks what process $1 receives. Ends early if nothing arrives for 5 s, or, after 6 s, if
# the rest would take too long.
watch_transfer() {
  now
  begun=$clock moved=$clock seen=
  while kill -0 "$2" 2>/dev/null; do
    bytes_read "$1"
    now
    if [ "$count" != "$seen" ] || [ -z "$count" ]; then
      seen=$count moved=$clock
    elif [ $((clock - moved)) -ge 500 ] && kill -0 "$1" 2>/dev/null; then
      reason='nothing arrived from it for 5 s'
      return 1
    fi
    took=$(((clock - begun) / 100))
    if [ "$took" -ge 6 ] && [ $((${count:-$peer_size} * limit_fetch)) -lt $((peer_size * took)) ]; then
      reason='it sends too slowly'
      return 1
    fi
    sleep 0.05 2>/dev/null || sleep 1
  done
}

# Receives the environment, and checks that it is the one that the other node has sent, before anything takes it for one.
phase_fetch() {
  into=$state/fetched
  rm -rf "$into"
  [ "$peer_executable" = "$env/bin/python" ] || decline "it has its environment in $peer_executable"
  for program in bash sha256sum; do command -v "$program" >/dev/null 2>&1 || decline "this machine has no $program"; done
  if [ -n "$peer_base" ]; then
    version=$("$peer_base" -c 'import platform; print(platform.python_version())' 2>/dev/null) || version=none
    [ "$version" = "$peer_python" ] || decline "this machine does not have its Python $peer_python, $peer_base"
  fi
  digest=$({ project && requirements; } | sha256sum)
  [ "${digest%% *}" = "$peer_made_of" ] || decline 'the variables of the requirements have other values on it'
  mkdir -m 700 "$into"
  mkfifo "$into/received" "$into/digested"
  receive_from_peer >"$into/received" &
  receiver=$!
  sha256sum <"$into/digested" >"$into/digest" &
  digester=$!
  (tee "$into/digested" <"$into/received" | tar -xof - -C "$into") &
  unpacker=$!
  reason='the transfer was interrupted'
  watch_transfer "$receiver" "$unpacker" || kill "$receiver" 2>/dev/null || :
  for process in "$unpacker" "$receiver" "$digester"; do wait "$process" || decline "$reason"; done
  read -r digest _ <"$into/digest"
  { within 5 sh "$0" seal >"$into/seal" && read -r seal <"$into/seal"; } || decline "$reason"
  digest=$(printf '%s%s' "$peer_key" "$digest" | sha256sum)
  [ "${digest%% *}" = "$seal" ] || decline 'what arrived is not what it sent'
  adopt_fetched
}

phase_seal() { receive_from_peer; }

# Puts what was received in its place. The marks come last: without them it is made again.
adopt_fetched() {
  rm -f "$state/deps" "$state/skyward" "$state/ready"
  rm -rf "$env" "$state/project"
  mkdir -p "$root/python"
  for each in "$into"/python/*; do
    target=$root/python/${each##*/}
    [ -e "$target" ] || { [ ! -e "$each" ] && [ ! -L "$each" ]; } || mv "$each" "$target"
  done
  mv "$into/env" "$env"
  "$env/bin/python" -c '' || {
    rm -rf "$env"
    decline 'its Python does not run on this machine'
  }
  rm -rf "$into"
  : >"$state/skyward"
  : >"$state/deps"
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

# Frameworks have their caches where the worker has them.
phase_plugins() {
  if [ -z "$client" ]; then
    eval "$("$env/bin/python" -P -m skyward.caches.frameworks "$root/caches" || echo 'exit 1')"
  fi
  PATH=$env/bin:$PATH
  export PATH
  plugin_steps
}

phase_worker() {
  umask 077
  if ready && ! has_values; then
    take_values
  else
    values=$state/ready
    rm -rf "$state/values"
    uname -n >"$state/machine"
  fi
  set -f
  # shellcheck disable=SC2086  # a list of names
  exec "$env/bin/python" -P -m skyward.bootstrap.facts "$values" "$image_hash" $names
}

# Runs the commands of variables on this machine, whose environment was made on another one.
take_values() {
  mkdir -p "$state/values"
  mark=$({ project && requirements; } | cksum)
  target=$state/values/.$machine.$$
  (computed_variables) >"$target" || {
    cat "$target"
    rm -f "$target"
    exit 1
  }
  # shellcheck source=/dev/null
  . "$target"
  rm -f "$target"
  [ "$mark" = "$({ project && requirements; } | cksum)" ] || {
    echo "the variables of the requirements have other values on this machine than on $(cat "$state/machine"), and both use $root: give them directories of their own"
    exit 1
  }
}

# Ends the preparation of an image: the environment can be used by every user, and what only made it is removed. Values
# of variables do not stay: the first phases run on each machine of the image, to set them again.
phase_bake() {
  for name in blobs cache logs nodes run trash; do rm -rf "${root:?}/$name"; done
  rm -rf "$state/environment" "$state/environment.new" "$state/project" "$state/tried" "$state/values" "$state/machine"
  if [ -n "$names" ]; then
    rm -f "$state/ready"
    : >"$state/baked"
  fi
  chmod a+rx "$root" "$root/envs" "$root/state"
  chmod -R a+rX "$env" "$state"
  [ ! -d "$root/python" ] || chmod -R a+rX "$root/python"
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
  name=$1
  shift
  "phase_$name" "$@"
}

main "$@"
exit

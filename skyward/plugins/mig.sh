# Enables MIG on the first $count GPUs, and fills them with instances of $profile. The state is asked first, and only what
# is missing is done. No instance is destroyed. Run with `set -eu`; the last line of output is the reason of a failure.
set -eu
export LC_ALL=C

fail() {
  printf '%s\n' "$1"
  exit 1
}

command -v nvidia-smi >/dev/null 2>&1 ||
  fail "MIG needs nvidia-smi of NVIDIA's driver, which is not on the PATH of this machine"
smi=$(command -v nvidia-smi)

# Without root, NVIDIA's own sentence says what is not permitted.
as_root() {
  if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then
    sudo -n "$smi" "$@" </dev/null
  else
    "$smi" "$@" </dev/null
  fi
}

# Prints the first line of $1 that tells of no success.
reason() { printf '%s\n' "$1" | sed -e '/^Successfully /d' -e '/^ *$/d' | sed -n 1p; }

# Prints how many rows of the table $1 are about instances of the name $2.
count_rows() { printf '%s\n' "$1" | grep -cF "MIG $2" || :; }

# instances GPU WHAT...: prints a table of instances, or nothing.
instances() {
  of=$1
  shift
  listed=$(as_root mig -i "$of" "$@" 2>&1) || case $listed in
    *'instances found'*) listed= ;; # "No GPU instances found: Not Found"
    *) fail "GPU $of: its MIG instances cannot be listed: $(reason "$listed")" ;;
  esac
}

# enable_mig GPU
enable_mig() {
  said=$(as_root -i "$1" -mig 1 2>&1) || fail "GPU $1: MIG cannot be enabled: $(reason "$said"). It needs root; in a \
container, it has to be enabled on the host"
  now=$("$smi" -i "$1" --query-gpu=mig.mode.current --format=csv,noheader)
  [ "$now" = Enabled ] || fail "GPU $1: MIG is pending until the GPU is reset or the machine is restarted: $(reason \
    "$said"). Stop what uses the GPU (dcgm, nvsm and MPS do), or restart the machine, then try again"
}

# fill GPU: creates as many GPU instances as fit, and compute instances where an interrupted run left none.
fill() {
  profiles=$(as_root mig -i "$1" -lgip 2>&1) || fail "GPU $1: its MIG profiles cannot be listed: $(reason "$profiles")"
  pattern=$(printf '%s' "$profile" | sed 's/\./\\./g')
  free=$(printf '%s\n' "$profiles" | sed -n "s,^.* MIG $pattern  *[0-9][0-9]*  *\([0-9][0-9]*\)/[0-9].*,\1,p")
  names=$(printf '%s\n' "$profiles" | sed -n 's,^.* MIG \([^ ]*\) .*,\1,p' | tr '\n' ' ')
  [ -n "$free" ] || fail "GPU $1 has no MIG profile $profile: it has ${names% }"
  if [ "$free" -gt 0 ]; then
    wanted=$profile made=1
    while [ "$made" -lt "$free" ]; do
      wanted=$wanted,$profile made=$((made + 1))
    done
    said=$(as_root mig -i "$1" -cgi "$wanted" -C 2>&1) ||
      fail "GPU $1: instances of $profile cannot be created: $(reason "$said")"
  fi
  instances "$1" -lgi
  ours=$(count_rows "$listed" "$profile ") all=$(count_rows "$listed" '')
  [ "$ours" -gt 0 ] || fail "GPU $1 has no room for $profile: it has $all MIG instances of other profiles, which are not \
destroyed here. If nothing uses them, run: nvidia-smi mig -i $1 -dci && nvidia-smi mig -i $1 -dgi"
  for id in $(printf '%s\n' "$listed" | sed -n "s,^.* MIG $pattern  *[0-9][0-9]*  *\([0-9][0-9]*\) .*,\1,p"); do
    instances "$1" -lci -gi "$id"
    if [ "$(count_rows "$listed" '')" = 0 ]; then
      said=$(as_root mig -i "$1" -gi "$id" -cci 2>&1) ||
        fail "GPU $1: instance $id cannot get its compute instance: $(reason "$said")"
    fi
  done
  echo "GPU $1: $ours instances of $profile"
}

gpus=$("$smi" --query-gpu=index,mig.mode.current --format=csv,noheader 2>&1) ||
  fail "the GPUs of this machine cannot be listed: $(reason "$gpus")"
seen=0
while IFS=', ' read -r gpu mode && [ "$seen" -lt "$count" ]; do
  seen=$((seen + 1))
  case $mode in
    Enabled) ;;
    Disabled) enable_mig "$gpu" ;;
    *) fail "GPU $gpu has no MIG: the plugin needs another accelerator" ;;
  esac
  fill "$gpu"
done <<END_OF_GPUS
$gpus
END_OF_GPUS

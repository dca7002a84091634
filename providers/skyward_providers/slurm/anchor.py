"""The batch script of a job, which starts the worker and ends the job, and the question that a client asks a node."""

import shlex

__all__ = ["DESCRIBE", "NO_PLACE", "batch_script", "place_of"]

NO_PLACE = 71
"""Exit status of the batch script if it could not make its directory."""

_SCRIPT = """#!/bin/sh
# A node of Skyward. It ends when no client and no worker have been there for a while.
umask 077
place={scratch}/skyward-$SLURM_JOB_ID
unset SLURM_NTASKS SLURM_NPROCS

leave() {{
  trap '' TERM
  checks=0
  while [ "$checks" -lt 100 ]; do
    left=
    for file in nodes/*/pid; do
      if read -r pid _ <"$file" && kill -TERM "$pid"; then left=yes; fi
    done 2>/dev/null
    [ -n "$left" ] || break
    checks=$((checks + 1))
    sleep 0.1 || sleep 1
  done
  cd /
  checks=0
  until rm -rf "$place" || [ "$checks" -ge 50 ]; do  # shells that waited for workers write their statuses there
    checks=$((checks + 1))
    sleep 0.1 || sleep 1
  done 2>/dev/null
  exit 0
}}
trap leave TERM
if [ -O "$place" ]; then rm -rf "$place"; fi
mkdir "$place" && cd "$place" || exit {no_place}

run_scripts() {{
  for script in *.start; do
    [ -e "$script" ] || continue
    mv "$script" "${{script%.start}}"
    sh "${{script%.start}}" </dev/null >/dev/null 2>&1 &
    keepers="$keepers $!" pause=2 step=20 patience=40
  done
}}

is_used() {{
  for keeper in $keepers; do
    if kill -0 "$keeper" 2>/dev/null; then return 0; fi
  done
  # shellcheck disable=SC2013  # names of files
  for process in $(grep -ls 'sky[w]ard-session-' /proc/[0-9]*/cmdline); do
    if grep -qsxz "SLURM_JOB_ID=$SLURM_JOB_ID" "${{process%/cmdline}}/environ"; then return 0; fi
  done
  return 1
}}

keepers='' pause=0.1 step=1 quiet=0 since=0 patience={patience}0
: >ready
while [ "$quiet" -lt "$patience" ]; do
  sleep "$pause" &
  wait "$!"
  run_scripts
  quiet=$((quiet + step)) since=$((since + step))
  if [ "$since" -ge 20 ]; then
    since=0
    if is_used; then quiet=0; fi
  fi
done
leave
"""
"""The batch script. Times are in tenths of a second.

A process that a step leaves behind ends with the step where Slurm tracks processes by control groups. So the worker is
started here, by a script that a step writes. Tasks that find the number of tasks of a job in their environment would
take themselves for one of them, started by `srun`."""

DESCRIBE = """
checks=0
until [ -e "$0/ready" ]; do
  checks=$((checks + 1))
  if [ "$checks" -gt 100 ]; then echo "$0 does not exist" >&2; exit 1; fi
  sleep 0.1 || sleep 1
done
mine=$(hostname -I 2>/dev/null)
chosen=
for name in "$1" "$SLURMD_NODENAME"; do
  for address in "$name" $(getent ahosts "$name" 2>/dev/null | cut -d ' ' -f 1); do
    case " $mine " in *" $address "*) chosen=${chosen:-$address} ;; esac
  done
done
[ -n "$chosen" ] || chosen=${mine%% *}
interface=$(PATH=$PATH:/usr/sbin:/sbin ip -o addr 2>/dev/null | grep -F " $chosen/" | head -n 1 | cut -d ' ' -f 2)
echo "address=$chosen interface=$interface"
"""
"""Wait for the batch script, whose directory is argument 0, and print the address at which other nodes reach this one:
that of its name for Slurm, argument 1, if it is an address of the machine."""


def place_of(job: str, scratch: str) -> str:
    """Return the directory of a job on its node."""
    return f"{scratch.rstrip('/')}/skyward-{job}"


def batch_script(scratch: str, patience: int) -> str:
    """Return the batch script of a node, which ends after `patience` seconds if no client comes."""
    return _SCRIPT.format(scratch=shlex.quote(scratch.rstrip("/")), no_place=NO_PLACE, patience=patience)

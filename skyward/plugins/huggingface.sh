# Defines `fetch`, which the lines after this call for each repository. Run with `set -eu`; the last line of output is the
# reason of a failure.
set -eu
export HF_XET_HIGH_PERFORMANCE=1 NO_COLOR=1

command -v hf >/dev/null 2>&1 || {
  echo "fetching from the Hugging Face Hub needs the command hf of huggingface_hub, which is not in the environment"
  exit 1
}
said=$(mktemp)
trap 'rm -f "$said" "$said.status"' EXIT

# fetch KIND NAME: shows the progress.
fetch() {
  echo "fetching the $1 $2"
  { hf download --repo-type "$1" "$2" </dev/null 2>&1 || echo "$?" >"$said.status"; } | tee "$said"
  [ -f "$said.status" ] || return 0
  lines=$(tr '\r' '\n' <"$said" | sed '/^ *$/d')
  reason=$(printf '%s\n' "$lines" | sed -n '/^Error: /{s///p;q;}')
  echo "the $1 $2 could not be fetched from the Hub: ${reason:-$(printf '%s\n' "$lines" | tail -n 1)}"
  exit 1
}


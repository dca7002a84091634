#!/bin/sh
# Creates .venv-train: the environment of the lock, with PyTorch, JAX, Keras, Accelerate and Transformers, for the tests
# of tests/train. 2.8 GB on disk, 0.7 GB to fetch. Idempotent.
#
# PyTorch's wheel is for CUDA, and its libraries fetch another 2 GB that a machine without a GPU never calls. They are
# replaced by a library whose functions abort, which is made here: with cc, nm and readelf.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-train

say() { printf '%s\n' "$*" >&2; }
fail() { say "train: $*"; exit 1; }

sh scripts/setup.sh --venv "$venv"
made_from=$(cat "$venv/.made-from" scripts/train.sh | cksum)
[ "$(cat "$venv/.train-made-from" 2>/dev/null)" != "$made_from" ] || exit 0
rm -f "$venv/.train-made-from"

# All that these need and the lock does not have; without triton, for kernels on GPUs.
set -- torch==2.13.0 filelock==4.3.1 fsspec==2026.9.0 mpmath==1.3.0 networkx==3.7 setuptools==84.2.1 sympy==1.14.0
set -- "$@" jax==0.12.0.1 jaxlib==0.12.0.1 ml-dtypes==0.6.0 opt-einsum==3.4.0
set -- "$@" keras==3.15.1 absl-py==2.5.1 h5py==3.16.0 namex==0.1.0 optree==0.20.0
set -- "$@" accelerate==1.15.0 transformers==5.23.0 huggingface-hub==2.4.0 safetensors==0.8.0 tokenizers==0.23.3
set -- "$@" regex==2026.11.19 hf-xet==1.8.0 httpcore2==2.16.2 httpx2==2.16.2 truststore==0.10.5 typer==0.29.2
set -- "$@" annotated-doc==0.0.7 shellingham==1.5.4
if [ "$(uname -s)" = Linux ]; then
  for program in cc nm readelf; do
    command -v "$program" >/dev/null || fail "$program was not found: install gcc and binutils."
  done
  set -- "$@" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 # small, and called as torch is imported
fi
say "Installing the training frameworks into $venv"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps "$@" ||
  fail "the packages could not be installed: see above."

site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
stand_ins=$site/nvidia/nccl/lib # one of the folders where torch's libraries look for others; no package here has it

# CUDA's libraries that those of torch name, and that are not there. The driver's own is loaded only where there is one.
missing() {
  readelf -d "$site"/torch/lib/*.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u |
    sed -n '/^libcuda\.so/d; /^lib\(cu\|nv\|nccl\)/p' | while read -r library; do
    [ -n "$(find "$site/torch/lib" "$site/nvidia" -name "$library")" ] || printf '%s\n' "$library"
  done
}

undefined() {
  nm -D --undefined-only "$site"/torch/lib/*.so | sed -n 's/^ *[Uw] \([^@]*\).*/\1/p' | sort -u |
    grep -E '^(cudnn|nccl|cublas|cusparse|cufft|curand|cuFile|nvrtc|nvshmem|cusolver|nvJitLink)'
}

# Their names, without contents, and one library behind all: with versions, a name must be found elsewhere than in the
# library that it is versioned for.
if [ "$(uname -s)" = Linux ]; then
  rm -rf "$stand_ins"
  libraries=$(missing)
  mkdir -p "$stand_ins"
  behind=libstand-ins.so
  undefined | sed 's/.*/void &(void) { __builtin_trap(); }/' | cc -w -shared -fPIC -x c - -o "$stand_ins/$behind" ||
    fail "the functions of CUDA's libraries could not be compiled: see above."
  for library in $libraries; do
    cc -shared -x c /dev/null -o "$stand_ins/$library" -Wl,-soname,"$library" -L"$stand_ins" -Wl,--no-as-needed \
      -l:"$behind" -Wl,-rpath,"\$ORIGIN" || fail "no stand-in for $library could be linked: see above."
  done
fi
# This import keeps the bytecode of what the tests' processes import, which do not write any.
PYTHONDONTWRITEBYTECODE='' KERAS_BACKEND=torch "$venv/bin/python" -c '
import accelerate, jax, keras, torch, transformers
torch.ones(2, 2) @ torch.ones(2, 2)' || fail "the frameworks cannot be imported: see above."
printf '%s\n' "$made_from" >"$venv/.train-made-from"

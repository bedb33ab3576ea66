#!/usr/bin/env bash
# Runs a program of this bundle: run.sh COMMAND [ARGUMENT]...
# CUDA's runtime and cuBLAS are taken from CUDA_HOME, /usr/local/cuda*, conda, the loader's own folders or Python's
# packages, and so is cuDNN, which may be absent; the driver from /usr/local/nvidia where the loader does not know it.
# Looking for them takes a moment: where TESSERA_LIBRARY_PATH is set it is what an earlier search has found.
here=$(cd "$(dirname "$0")" && pwd)
export PATH="$here/bin:$PATH"
if [[ -n "${TESSERA_LIBRARY_PATH:-}" ]]; then
  export LD_LIBRARY_PATH=$TESSERA_LIBRARY_PATH
  exec "$@"
fi
known=$(PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null)
folders=$here/lib
# The C++ library that is packed comes first where it runs; a machine with an older C library has its own.
ldd "$here/lib/cxx/libstdc++.so.6" 2>&1 | grep -q -E 'not found|No such' || folders=$here/lib/cxx:$here/lib
own=$folders
for root in "${CUDA_HOME:-/none}" /usr/local/cuda /usr/local/cuda-13* "${CONDA_PREFIX:-/none}" /opt/*conda* \
  /opt/*conda*/envs/*; do
  # Conda's lib has much else in it, so it comes last.
  for folder in lib64 targets/x86_64-linux/lib lib; do
    [[ -e "$root/$folder/libcublas.so.13" ]] && folders+=:$root/$folder && break
  done
done
wanted=()
[[ "$folders" == "$own" && "$known" != *libcublas.so.13* ]] && wanted+=(libcublas.so.13 libcudart.so.13)
has_cudnn() {
  local folder
  for folder in ${folders//:/ }; do [[ -e "$folder/libcudnn.so.9" ]] && return; done
  [[ "$known" == *libcudnn.so.9* ]]
}
has_cudnn || wanted+=(libcudnn.so.9)
if ((${#wanted[@]} > 0)); then
  # Those that python3 itself knows come first.
  packages=$(python3 -c 'import nvidia; print(*nvidia.__path__, sep="\n")' 2>/dev/null)
  for library in "${VIRTUAL_ENV:-/none}"/lib/python3*/site-packages \
    "${CONDA_PREFIX:-/none}"/lib/python3*/site-packages ~/.local/lib/python3*/site-packages \
    /usr/lib/python3*/*-packages /usr/local/lib/python3*/*-packages /opt/*/lib/python3*/site-packages \
    /opt/*/.venv/lib/python3*/site-packages /opt/*/*/lib/python3*/site-packages \
    ~/*venv*/lib/python3*/site-packages ~/*conda*/lib/python3*/site-packages \
    /workspace/*/lib/python3*/site-packages; do
    packages+=$'\n'$library/nvidia
  done
  while read -r library; do
    for file in "${wanted[@]}"; do
      for found in "$library"/*/lib/"$file"; do
        [[ -e "$found" ]] && folders+=:$(dirname "$found")
      done
    done
  done <<<"$packages"
fi
driver=/usr/local/nvidia/lib64
[[ "$known" != *libcuda.so.1* && -e "$driver/libcuda.so.1" ]] && folders+=:$driver
export LD_LIBRARY_PATH="$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$@"

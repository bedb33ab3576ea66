#!/usr/bin/env bash
# Runs a program of this bundle: run.sh COMMAND [ARGUMENT]...
# CUDA's runtime and cuBLAS are taken from CUDA_HOME, /usr/local/cuda*, conda, the loader's own folders or Python's
# packages, and so is cuDNN, which may be absent; the driver from /usr/local/nvidia where the loader does not know it.
here=$(cd "$(dirname "$0")" && pwd)
known=$(PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null)
folders=$here/lib
for root in "${CUDA_HOME:-/none}" /usr/local/cuda /usr/local/cuda-13* "${CONDA_PREFIX:-/none}" /opt/*conda* \
  /opt/*conda*/envs/*; do
  # Conda's lib has much else in it, so it comes last.
  for folder in lib64 targets/x86_64-linux/lib lib; do
    [[ -e "$root/$folder/libcublas.so.13" ]] && folders+=:$root/$folder && break
  done
done
wanted=()
[[ "$folders" == "$here/lib" && "$known" != *libcublas.so.13* ]] && wanted+=(libcublas.so.13 libcudart.so.13)
has_cudnn() {
  local folder
  for folder in ${folders//:/ }; do [[ -e "$folder/libcudnn.so.9" ]] && return; done
  [[ "$known" == *libcudnn.so.9* ]]
}
has_cudnn || wanted+=(libcudnn.so.9)
if ((${#wanted[@]} > 0)); then
  for library in "${VIRTUAL_ENV:-/none}"/lib/python3*/site-packages \
    "${CONDA_PREFIX:-/none}"/lib/python3*/site-packages /usr/lib/python3*/*-packages \
    /usr/local/lib/python3*/*-packages /opt/*/lib/python3*/site-packages \
    /opt/*/.venv/lib/python3*/site-packages /opt/*/*/lib/python3*/site-packages; do
    for file in "${wanted[@]}"; do
      for found in "$library"/nvidia/*/lib/"$file"; do
        [[ -e "$found" ]] && folders+=:$(dirname "$found")
      done
    done
  done
fi
driver=/usr/local/nvidia/lib64
[[ "$known" != *libcuda.so.1* && -e "$driver/libcuda.so.1" ]] && folders+=:$driver
export LD_LIBRARY_PATH="$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PATH="$here/bin:$PATH"
exec "$@"

#!/bin/sh
# The Llama example at its published size (hidden 4096, one layer, batch 2, sequence 1024) on a GPU:
# a table and a chart of eager, inductor and the three sets of rewrites. It needs a PyTorch with
# CUDA and onnxruntime-gpu; without them the example runs at a small size on the CPU, which tries
# this script out and is no measure.
#
#     benchmarks/gpu_llama.sh [FOLDER] [options of examples/compile_llama.py]
#
# The bar is what the example's first authors published for their card, as ratios to eager:
# default 1.72, default+onnxruntime 1.78, default+onnxruntime+experimental 1.83. The last set makes
# kernels for the CPU only: on a GPU it is the one before it, and a log line says so.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-.}
[ $# -gt 0 ] && shift
python=${PYTHON:-python}

if "$python" -c '
import sys, onnxruntime, torch
found = torch.cuda.is_available() and "CUDAExecutionProvider" in onnxruntime.get_available_providers()
print("torch", torch.__version__, "onnxruntime", onnxruntime.__version__, file=sys.stderr)
sys.exit(not found)
'; then
  set -- --config large --inductor --warmup 5 --repeat 25 "$@"
  echo "on the GPU, at the published size; the bar: 1.72, 1.78, 1.83 times as fast as eager"
else
  set -- --config medium --warmup 2 --repeat 5 "$@"
  echo "no CUDA in PyTorch or onnxruntime: a small Llama on the CPU"
fi
exec "$python" "$here/examples/compile_llama.py" --folder "$folder" "$@"

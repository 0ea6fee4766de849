#!/usr/bin/env bash
# A network whose split pays, in one command; then the whole path on MobileNetV2, step by step: save it,
# profile it, partition it, run the plan, report.
# Usage: demo.sh [DEVICE]; everything it writes goes to out/.
set -euo pipefail
cd "$(dirname "$0")/.."
device=${1:-sim:npu-phone}
mkdir -p out
say() { printf '\n$ %s\n' "$*"; "$@"; }

cd out
say python ../examples/split.py
say nnapi-prof go --device "$device" --input 1x3x96x96 --costs costs.sqlite net.pt
cd ..

say python examples/models.py mobilenet_v2 out/mobilenet_v2.pt
say nnapi-prof devices
say nnapi-prof profile --device "$device" --input 1x3x224x224 --costs out/costs.sqlite out/mobilenet_v2.pt
say nnapi-prof partition --device "$device" --input 1x3x224x224 --costs out/costs.sqlite \
  --output out/mobilenet_v2.nnprof out/mobilenet_v2.pt
say nnapi-prof run --device "$device" out/mobilenet_v2.nnprof
say nnapi-prof report --costs out/costs.sqlite --output out/mobilenet_v2.html out/mobilenet_v2.nnprof

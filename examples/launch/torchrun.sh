#!/bin/sh
# 4 ranks by torchrun, on this machine: ./torchrun.sh PROGRAM ARGUMENTS
#
# On two machines, on each the same, where node1 is one of them:
#   WARPBELL_SECRET=SECRET torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint node1:29500 \
#     --no-python PROGRAM ARGUMENTS
exec torchrun --standalone --nproc-per-node 4 --no-python "$@"

#!/bin/sh
# 4 ranks by torchrun, on this machine: ./torchrun.sh PROGRAM ARGUMENTS
#
# On two machines, on each the same, where node1 is one of them:
#   WARPBELL_SECRET=SECRET torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint node1:29500 \
#     --no_python PROGRAM ARGUMENTS
exec torchrun --standalone --nproc_per_node 4 --no_python "$@"

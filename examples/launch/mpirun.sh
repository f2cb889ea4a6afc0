#!/bin/sh
# 4 ranks by Open MPI, on this machine: ./mpirun.sh PROGRAM ARGUMENTS
#
# On two machines, where rank 0 runs on node1:
#   export WARPBELL_ROOT=node1:21001 WARPBELL_SECRET=$(openssl rand -hex 32)
#   mpirun -np 4 --host node1:2,node2:2 -x WARPBELL_ROOT -x WARPBELL_SECRET PROGRAM ARGUMENTS
exec "${MPIRUN:-mpirun}" -np 4 "$@"

#!/bin/sh
# 4 ranks by MPICH's hydra, on this machine: ./mpiexec.sh PROGRAM ARGUMENTS
#
# On two machines: mpiexec -n 4 -ppn 2 -hosts node1,node2 PROGRAM ARGUMENTS
exec "${MPIEXEC:-mpiexec}" -n 4 "$@"

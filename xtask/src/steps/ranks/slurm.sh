#!/bin/sh
# Runs a command with a Slurm of its own, which has two nodes that are this machine: slurm.sh FOLDER COMMAND ARGUMENTS
# It needs root. Who starts it kills its process group at the end: the daemons stay in it.
set -eu
folder=$1
shift
rm -rf "$folder"
mkdir -p "$folder/state" "$folder/spool"
host=$(uname -n)
# Ports that nobody is likely to have: they follow from this process's number.
port=$((10000 + $$ % 6000 * 3))

cat > "$folder/slurm.conf" <<CONF
ClusterName=warpbell
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmdSpoolDir=$folder/spool/%n
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=pmi2
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=one NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=16 State=UNKNOWN
NodeName=two NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=16 State=UNKNOWN
PartitionName=all Nodes=one,two Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$folder/slurm.conf"

head -c 1024 /dev/urandom > "$folder/munge.key"
chmod 600 "$folder/munge.key"
munged --foreground --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" \
    --pid-file="$folder/munge.pid" --seed-file="$folder/munge.seed" > "$folder/munged.log" 2>&1 &
while [ ! -S "$folder/munge.socket" ]; do sleep 0.1; done
slurmctld -D -c > /dev/null 2>&1 &
slurmd -D -N one > /dev/null 2>&1 &
slurmd -D -N two > /dev/null 2>&1 &
until [ "$(sinfo --noheader --states=idle --format=%D 2> /dev/null)" = 2 ]; do sleep 0.2; done

status=0
"$@" || status=$?
exit $status

#!/bin/sh
# In place of ssh: rsh.sh HOST COMMAND runs the command on this machine, by a shell. One host is unreachable, on one the
# launcher is missing, one has it in another version, and two go mute: at once, or once they are ready.
host=$1
shift
case $host in
    nowhere)
        echo "a word before" >&2
        echo "no route to $host" >&2
        exit 255
        ;;
    empty) set -- /no/such/launcher ;;
    older)
        echo '{"Ready":{"version":"0.0.0","port":1}}'
        exec sleep 3000
        ;;
    mute) exec sleep 3000 ;;
    lost)
        echo '{"Ready":{"version":"'"$TEST_VERSION"'","port":1}}'
        exec sleep 3000
        ;;
esac
export TEST_HOST="$host" WARPBELL_STRAY=1
echo "a word of the shell's"
exec sh -c "$*"

# What `cargo xtask flash` runs on a node, by sh and from standard input. Lines before these set $folder and $who, the last
# line calls a function. Each answer is a word and a value; what goes wrong is on standard error.
set -eu
LC_ALL=C
export LC_ALL
marker=.warpbell-flash
layout=1

say() { printf '%s\n' "$*"; }

# Whether the folder may be used: absent, ours, or another's. An empty one may.
owner() {
    if [ -f "$folder/$marker" ]; then
        say "owner $(cat "$folder/$marker")"
    elif [ -d "$folder" ] && [ -z "$(ls -A "$folder")" ] || [ ! -e "$folder" ] && [ ! -L "$folder" ]; then
        say "owner none"
    else
        say "owner other"
    fi
}

# Says what the machine is, waits for the word to go on, takes the lock, says what is there, and keeps the lock until
# standard input ends.
hold() {
    for tool in tar sha256sum flock setsid find df; do
        command -v "$tool" > /dev/null || say "lacks $tool"
    done
    say "machine $(uname -s) $(uname -m)"
    # Without it this is no glibc: getconf knows the name, and musl's ldd says nothing on standard output.
    glibc=$(getconf GNU_LIBC_VERSION 2> /dev/null || ldd --version 2> /dev/null | head -n 1) || :
    say "glibc ${glibc##* }"
    owner
    say probed
    read -r go || exit 0
    mkdir -p "$folder"
    cd "$folder"
    say $layout > $marker
    exec 9>> lock
    if ! flock -n 9; then
        say "busy $(cat lock)"
        exit 0
    fi
    say "$who" > lock
    if [ -f current/manifest.json ]; then
        # A line, as all answers.
        say "manifest $(tr -d '\n' < current/manifest.json)"
        (cd current && find . -type f -exec sha256sum {} +) | while read -r sum path; do say "file $sum ${path#./}"; done
    fi
    df -Pk . | { read -r _ && read -r _ _ _ free _ && say "free $free"; }
    say held
    # Words now and then: if the connection breaks without a sign, the server notices when nobody acknowledges them.
    setsid sh -c 'while sleep 15; do echo; done' 9>&- < /dev/null &
    beat=$!
    cat > /dev/null || :
    kill -9 "-$beat"
}

# Takes what has changed, as a tar archive from standard input, and the rest from the copy that is there. The new copy takes
# the place of the old one only when it is whole.
receive() {
    cd "$folder"
    trap 'rm -rf next' EXIT
    rm -rf next old
    mkdir -p work
    mkdir next
    tar -x -o -f - -C next
    (
        cd next
        while read -r sum path; do
            [ ! -e "$path" ] || continue
            case $path in
                */*) mkdir -p "${path%/*}" ;;
            esac
            # Some file systems have no links.
            ln "../current/$path" "$path" 2> /dev/null || cp -p "../current/$path" "$path"
        done < flash/sums
        sha256sum -c --quiet flash/sums
    )
    [ ! -e current ] || mv current old
    mv next current
    rm -rf old
}

# Looks the machine over.
examine() {
    cd "$folder/work"
    exec ../current/bin/warpbell-doctor --json
}

# Ends all processes that run from the folder or work in it, and removes it.
clean() {
    owner
    [ -f "$folder/$marker" ] || exit 0
    inside=$(cd "$folder" && pwd -P)
    tries=0
    while :; do
        links=$(find /proc/[0-9]*/exe /proc/[0-9]*/cwd -maxdepth 0 \
            \( -lname "$inside" -o -lname "$inside/*" \) 2> /dev/null) || :
        [ -n "$links" ] || break
        for link in $links; do
            process=${link#/proc/}
            # It may have ended meanwhile.
            kill -9 "${process%%/*}" 2> /dev/null || :
        done
        tries=$((tries + 1))
        if [ $tries -gt 100 ]; then
            say "these do not end:" $links >&2
            exit 1
        fi
        sleep 0.1
    done
    rm -rf "$folder"
    say removed
}

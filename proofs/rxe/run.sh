#!/bin/sh
# Runs c/refused.c on Linux's own soft-RoCE, and prints what each call ends with: `sh proofs/rxe/run.sh > proofs/rxe/refused.txt`.
#
# A virtual machine without acceleration boots Debian's kernel with a file system of its own in memory: busybox, the
# modules, libibverbs with its provider for rxe, and the program. Nothing is installed; a user's rights are enough.
# Needs Debian's qemu-system-x86, busybox-static, cpio, iproute2, libibverbs-dev, ibverbs-providers, and in the folder that
# KERNEL names an unpacked package linux-image (`apt-get download linux-image-6.1.0-N-amd64; dpkg -x FILE FOLDER`).
set -eu

kernel=${KERNEL:?names no folder with an unpacked linux-image}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

root=$work/root
mkdir -p "$root/bin" "$root/dev" "$root/etc/libibverbs.d" "$root/modules" "$root/proc" "$root/sys" "$root/tmp"
cp "$(command -v busybox)" "$root/bin/busybox"
cc -std=gnu11 -DREFUSED_MAIN -o "$root/bin/refused" "$here/../c/refused.c" -libverbs
cp "$(command -v rdma)" "$root/bin/rdma"
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d"

# The programs' libraries, and the provider with its own, each at its place.
provider=$(find /usr/lib -name 'librxe-rdmav*.so' | head -n 1)
ldd "$root/bin/refused" "$root/bin/rdma" "$provider" | grep -o '/[^ :]*' | grep '\.so' | sort -u >"$work/libraries"
echo "$provider" >>"$work/libraries"
while read -r library; do
	mkdir -p "$root/$(dirname "$library")"
	cp -L "$library" "$root/$library"
done <"$work/libraries"

# In the order in which each finds what it needs.
modules='crc32_generic udp_tunnel ip6_udp_tunnel dummy ib_core ib_uverbs rdma_rxe'
for module in $modules; do
	cp "$(find "$kernel/lib/modules" -name "$module.ko")" "$root/modules"
done

cat >"$root/init" <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $modules; do insmod /modules/\$module.ko; done
ip link add eth0 type dummy
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0
# The GID comes with the interface's address, which takes a while.
sleep 2
echo begin
refused 2>&1
echo end
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) >"$work/initramfs"

timeout 120 qemu-system-x86_64 -accel tcg -m 512 -nographic -no-reboot -nic none \
	-kernel "$(ls "$kernel"/boot/vmlinuz-*)" -initrd "$work/initramfs" -append 'console=ttyS0 loglevel=1 panic=-1' \
	>"$work/console" </dev/null || true
if ! grep -q '^end' "$work/console"; then
	cat "$work/console" >&2
	exit 1
fi
tr -d '\r' <"$work/console" | sed -n '/begin$/,/^end$/p' | sed '1d;$d'

# First program of a machine: makes its root from the host's, and hands over to the script /machine there.
# `root_busybox` is set before this.
b=/busybox
fail() {
  echo "the virtual machine cannot start: $1"
  echo o >/proc/sysrq-trigger
  $b sleep 60
}
$b mkdir -p /proc /sys /dev /lower /upper /new
$b mount -t proc proc /proc || fail "no /proc"
$b mount -t sysfs sysfs /sys || fail "no /sys"
$b mount -t devtmpfs devtmpfs /dev || fail "no /dev"
for module in $($b cat /modules/order); do
  $b insmod "/modules/$module" || fail "module $module"
done
$b mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 root /lower || fail "no root of the host"
$b mount -t tmpfs tmpfs /upper && $b mkdir /upper/changed /upper/work || fail "no memory for its root"
$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/changed,workdir=/upper/work overlay /new || fail "no overlay"
for dir in /proc /sys /dev; do
  $b mkdir -p /new$dir
  $b mount -o move $dir /new$dir || { echo "the virtual machine cannot start: $dir cannot be moved"; $b sleep 1; }
done
machine=$($b cat /machine)
exec $b switch_root -c /dev/console /new "$root_busybox" sh -c "$machine"

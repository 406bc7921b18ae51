# Second program of a machine, on its own root: mounts what a host has, runs the command, turns the machine off.
# `b`, `version`, `modules`, `memory_dirs`, `shared`, `mark` and the function `command` are set before this.
fail() {
  echo "the virtual machine cannot start: $1"
  off
}
off() {
  $b sync
  # Waits until the console has written everything.
  $b stty echo </dev/console
  echo o >/proc/sysrq-trigger
  $b sleep 60
}
$b stty -echo </dev/console
ulimit -n 65536
echo localhost >/proc/sys/kernel/hostname
$b mkdir -p /dev/pts /dev/shm /lib/modules/"$version" /run /tmp
$b mount -t devpts -o mode=620,gid=5,ptmxmode=666 devpts /dev/pts
$b mount -t tmpfs -o mode=1777 tmpfs /dev/shm || fail "no /dev/shm"
for link in fd: stdin:/0 stdout:/1 stderr:/2; do
  $b ln -s "/proc/self/fd${link#*:}" "/dev/${link%%:*}"
done
for dir in $memory_dirs; do
  mode=1777
  [ "$dir" = /run ] && mode=755
  $b mount -t tmpfs -o mode=$mode tmpfs "$dir" || fail "no $dir"
done
$b mkdir -p /run/lock

# What the kernel itself calls to load a module; a host without modules has none.
$b mount -o bind "$modules" /lib/modules/"$version" || fail "no modules"
$b mkdir -p /sbin && $b ln -sf "$b" /sbin/modprobe

$b mount -t cgroup2 cgroup2 /sys/fs/cgroup
# Not `cpu`: groups side by side would share the CPU out, which is part of what is measured.
for controller in memory io pids; do
  $b grep -qw $controller /sys/fs/cgroup/cgroup.controllers && echo +$controller >/sys/fs/cgroup/cgroup.subtree_control
done
$b mount -t tracefs tracefs /sys/kernel/tracing
$b mount -t debugfs debugfs /sys/kernel/debug
$b mount -t bpf bpf /sys/fs/bpf
$b ip link set lo up

$b mkdir -p "$shared"
$b mount -t 9p -o trans=virtio,version=9p2000.L,cache=mmap,msize=512000 out "$shared" || fail "$shared cannot be shared"

(command) </dev/null
status=$?
# Nothing else of the kernel between here and the end.
echo 1 >/proc/sys/kernel/printk
$b sync
$b umount "$shared" 2>/dev/null
$b printf '%s%s\n' "$mark" "$status"
off

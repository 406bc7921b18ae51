# Isolated host environment for toll: its own files where programs leave theirs, and a network of its own.
#
# $root is the scratch directory of scripts/safety under a short name: a socket's path has 107 bytes.
# Sourced by inside.bash, whose process is the parent of all that loses its own.

say() { printf 'safety: %s\n' "$*"; }
complain() { printf 'safety: %s\n' "$*" >&2; exit 2; }

# Waits without a process that the next look at the host would find.
exec {never}<> <(:)
pause() { read -rt "$1" -u "$never" || true; }

root=/run/safety
mount -t tmpfs -o mode=755 tmpfs /run
mkdir $root /run/netns
mount --bind "$SAFETY_SCRATCH" $root
mysqld=$SAFETY_MYSQLD
if [[ $mysqld != /usr/* ]]; then
  loader=$(LC_ALL=C readelf -l "$mysqld" 2>/dev/null | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')
  [[ $loader != /tmp/* ]] || complain "$mysqld has its loader below /tmp, which is hidden from toll: move it elsewhere"
  # Unpacked somewhere, maybe where user mysql may not go, or below the /tmp that is hidden next.
  mkdir $root/program
  mount --bind "${mysqld%/*/*}" $root/program
  mysqld=$root/program/bin/${mysqld##*/}
fi
mount -t tmpfs -o mode=1777 tmpfs /tmp

# /sys shows the network of whoever mounted it; what is mounted below it is taken along.
mkdir $root/sys
mount --rbind /sys $root/sys
mount -t sysfs sysfs /sys
for below in fs/cgroup fs/bpf kernel/debug kernel/tracing kernel/security; do
  mountpoint -q $root/sys/$below && mount --rbind $root/sys/$below /sys/$below
done
umount -l $root/sys
rmdir $root/sys
# Control groups are the machine's, other tolls' too: what is seen here begins with our own.
cgroups=''
[ -z "$SAFETY_CGROUP" ] || cgroups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)
[ -z "$cgroups" ] || mount --bind "$SAFETY_CGROUP" "$cgroups"
ip link set lo up

export TMPDIR=/tmp LC_ALL=C.UTF-8
unset MYSQL_PWD MYSQL_HOST MYSQL_TCP_PORT MYSQL_UNIX_PORT
mkdir -m 755 $root/runs $root/home $root/state $root/cache $root/lock
cd $root/runs

# Everything that is not this script's own goes, as after a restart of the host.
empty_host() {
  local pid link namespace
  # A shell tells of each child that was killed.
  {
    for pid in /proc/[0-9]*; do
      [ "$pid" = /proc/$$ ] || kill -KILL "${pid#/proc/}" || true
    done
    wait || true
  } 2>/dev/null
  for namespace in /run/netns/*; do
    [ ! -e "$namespace" ] || ip netns delete "${namespace##*/}"
  done
  for link in /sys/class/net/*; do
    [ "${link##*/}" = lo ] || ip link delete "${link##*/}" 2>/dev/null || true
  done
  tc qdisc delete dev lo root 2>/dev/null || true
  find /tmp $root/state $root/lock $root/runs $root/cache -mindepth 1 -delete
  [ -z "$cgroups" ] || find "$cgroups" -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null || true
}

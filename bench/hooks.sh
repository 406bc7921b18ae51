#!/usr/bin/env bash
# CPU cost for a server of observation from outside, by place of the hook.
#
# sysbench point selects over a Unix socket (8 threads), in rounds; in each round, in turn: nothing; the tracepoints of
# sockets; those of all system calls; a uprobe on dispatch_command that prints each statement, as people do it. CPU time of the server, of sysbench and of whoever looks, per query, and queries a second.
#
# Usage: bench/hooks.sh [SECONDS] [ROUNDS]. TAP: the example `sockets` of toll-taps.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-8} rounds=${2:-7}
tap=${TAP:-target/release/examples/sockets}
source bench/server.bash
need mariadbd sysbench bpftrace
[ "$(id -u)" = 0 ] || { echo "SKIPPED: hooks need root"; exit 0; }
[ -x "$tap" ] || cargo build --release -p toll-taps --example sockets
start_server 33475 --innodb-buffer-pool-size=256M --max-connections=200

load() {
  sysbench oltp_point_select --mysql-socket="$socket" --mysql-user=root --mysql-db=sbtest --tables=1 --table-size=10000 \
    --threads=8 --db-ps-mode=auto "$@"
}
mariadb --no-defaults --socket="$socket" --user=root -e 'CREATE DATABASE sbtest'
load prepare >/dev/null
load --time=3 run >/dev/null # everything is in memory

ticks=$(getconf CLK_TCK)
cpu_s() { awk -v t="$ticks" '{sub(/.*\) /, ""); print ($12 + $13) / t}' "/proc/$1/stat"; }

# round NAME COMMAND...: the load beside whoever looks; one line of figures.
measured() {
  local name=$1 looker='' before after own=0
  shift
  if [ $# -gt 0 ]; then
    "$@" >"$scratch/looker.out" 2>"$scratch/looker.err" &
    looker=$!
    ending=("$looker")
    until grep -qsE 'looking at|Attach' "$scratch/looker.err" "$scratch/looker.out"; do
      kill -0 $looker || { cat "$scratch/looker.err"; exit 1; }
      sleep 0.05
    done
  fi
  before=$(cpu_s "$server")
  [ -z "$looker" ] || own=$(cpu_s "$looker")
  /usr/bin/time -f '%U %S' -o "$scratch/time" sysbench oltp_point_select --mysql-socket="$socket" --mysql-user=root \
    --mysql-db=sbtest --tables=1 --table-size=10000 --threads=8 --time="$seconds" run >"$scratch/out"
  after=$(cpu_s "$server")
  [ -z "$looker" ] || own=$(awk -v b="$own" -v a="$(cpu_s "$looker")" 'BEGIN {print a - b}')
  if [ -n "$looker" ]; then
    kill $looker 2>/dev/null || true
    wait $looker 2>/dev/null || true
    ending=()
  fi
  awk -v name="$name" -v before="$before" -v after="$after" -v own="$own" -v seconds="$seconds" \
    -v driver="$(awk '{print $1 + $2}' "$scratch/time")" '/total:/ && !n {n = $2}
    END {printf "%s %.3f %.3f %.3f %.3f %.0f\n", name, (after - before + driver + own) / n * 1e6,
      (after - before) / n * 1e6, driver / n * 1e6, own / n * 1e6, n / seconds}' "$scratch/out" | tee -a "$scratch/figures"
}

echo "$(nproc) CPUs, Linux $(uname -r), $(mariadbd --version | awk '{print $3}'), $(sysbench --version), $(bpftrace --version)"
echo "name us/query server driver looker queries/s"
statement='uprobe:/usr/sbin/mariadbd:*dispatch_command* { printf("%llu %s\n", nsecs, str(arg2, arg3)); }'
order=(none sockets calls uprobe)
for round in $(seq "$rounds"); do
  for i in "${!order[@]}"; do
    name=${order[$(((i + round) % ${#order[@]}))]}
    case $name in
    none) measured none ;;
    uprobe) measured uprobe bpftrace -B line -e "$statement" ;;
    *) measured "$name" "$tap" "$server" "$name" 600 ;;
    esac
  done
done
echo "CPU time of all, us a query:"
for name in "${order[@]}"; do awk -v n="$name" '$1 == n {print $2}' "$scratch/figures" | summary "$name"; done

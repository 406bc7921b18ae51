#!/usr/bin/env bash
# CPU cost of each capture method beside a busy server, by kernel profile: own CPU, and time added inside
# others' calls.
#
# toll load (read-only, 8 threads, TCP) at full speed; in each round, in random order: tcpdump -w, toll capture -w, --queries,
# --digest and --tap sockets. Counted are samples of perf in the capture's processes and in the kernel's writers behind it, and those
# inside others that stand in a packet tap or a tracepoint's program. What a capture costs by crowding caches, or by waking
# up at a bad moment, is not in it: that is what `toll run tcpdump-impact` weighs.
#
# Usage: bench/capture-cost.sh [SECONDS] [ROUNDS]. TOLL: the binary.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-8} rounds=${2:-5}
toll=${TOLL:-target/release/toll}
source bench/server.bash
need mariadbd tcpdump perf
[ "$(id -u)" = 0 ] || { echo "SKIPPED: captures and profiles need root"; exit 0; }
[ -x "$toll" ] || cargo build --release --bin toll
port=33476
start_server $port --innodb-buffer-pool-size=1G --max-connections=200

load() { "$toll" load "$@" --port $port --tables 8 --rows 100000; }
mariadb --no-defaults --socket="$socket" --user=root -e 'CREATE DATABASE sbtest'
load prepare >/dev/null
load read-only --threads 8 --time 3s >/dev/null # everything is in memory

# Samples of a profile: all, the capture's own, and of the others those inside a tap.
shares() {
  perf script -i "$1" -F comm,ip,sym 2>/dev/null | awk '
    function account() {
      if (comm == "") return
      all++
      if (comm ~ /^(tcpdump|toll|toll-writer|kworker.*)$/) own++
      else if (tapped) tap++
    }
    NF == 0 { account(); comm = ""; tapped = 0; next }
    /^[^ \t]/ { comm = $1; next }
    $2 ~ /^(tpacket_rcv|packet_rcv|dev_queue_xmit_nit|bpf_trace_run[0-9]+|trace_call_bpf)$/ { tapped = 1 }
    END { account(); print all + 0, own + 0, tap + 0 }'
}

# measured NAME COMMAND...: the load beside it; a line of microseconds a query.
measured() {
  local name=$1 capture='' busy
  shift
  if [ $# -gt 0 ]; then
    "$@" >"$scratch/out" 2>"$scratch/err" &
    capture=$!
    ending=("$capture")
    until grep -qs 'listening on' "$scratch/err"; do
      kill -0 $capture || { cat "$scratch/err"; exit 1; }
      sleep 0.05
    done
  fi
  load read-only --threads 8 --time "$((seconds + 2))s" --json >"$scratch/load" &
  busy=$!
  sleep 1
  perf record -a -g -F 1999 -e cpu-clock -o "$scratch/perf" -- sleep "$seconds" >/dev/null 2>&1
  wait $busy
  if [ -n "$capture" ]; then
    kill $capture && wait $capture || true
    ending=()
    rm -f "$scratch"/kept.*
  fi
  local qps
  qps=$(tail -1 "$scratch/load" | sed -E 's/.*"qps":([0-9.]+).*/\1/')
  shares "$scratch/perf" | awk -v name="$name" -v qps="$qps" -v cpus="$(nproc)" '{
    us = cpus * 1e6 / qps / $1
    printf "%s %.3f %.3f %.3f %.2f %.0f\n", name, ($2 + $3) * us, $2 * us, $3 * us, 100 * ($2 + $3) / $1, qps}' |
    tee -a "$scratch/figures"
}

echo "$(nproc) CPUs, Linux $(uname -r), $(mariadbd --version | awk '{print $3}'), $(tcpdump --version 2>&1 | head -1)"
echo "name us/query own inside-others %-of-CPU queries/s"
for round in $(seq "$rounds"); do
  for way in $(shuf -e none tcpdump packets queries digest sockets); do
    case $way in
      none) measured none ;;
      tcpdump) measured tcpdump tcpdump -s 65535 -nn -q -i any -Z root -w "$scratch/kept.pcap" "port $port" ;;
      packets) measured packets "$toll" capture --port $port -w "$scratch/kept.pcapng" ;;
      queries) measured queries "$toll" capture --port $port --queries "$scratch/kept.queries" ;;
      digest) measured digest "$toll" capture --port $port --digest ;;
      sockets) measured sockets "$toll" capture --tap sockets --server-pid "$server" --queries "$scratch/kept.queries" ;;
    esac
  done
  awk -v from=$(((round - 1) * 6)) 'NR > from {us[$1] = $2}
    END {for (name in us) if (name != "none") printf "%s %.4f\n", name, (us[name] - us["none"]) / (us["tcpdump"] - us["none"])}' \
    "$scratch/figures" >>"$scratch/ratios"
done
echo "us a query:"
for name in none tcpdump packets queries digest sockets; do
  awk -v n=$name '$1 == n {print $2}' "$scratch/figures" | summary $name
done
echo "over tcpdump's of the same round:"
for name in packets queries digest sockets; do
  awk -v n=$name '$1 == n {print $2}' "$scratch/ratios" | summary $name
done

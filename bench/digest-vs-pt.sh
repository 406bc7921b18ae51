#!/usr/bin/env bash
# Speed of toll digest against tcpdump and pt-query-digest, on the same capture and slow log.
#
# Makes both on a private server under sysbench. Within each pair the tools run one right after
# the other, in turn first. pt-query-digest gets a slice of the capture and of the log, since the
# whole would take hours; rates are bytes of capture (or log) a second, so slices compare. The log is
# repeated up to the size of the capture: what a load logs while it is captured is soon read.
#
# Usage: bench/digest-vs-pt.sh [CAPTURE_MB] [PAIRS] [SLICE_MB]
#   TOLL: the program. KEEP: a directory to keep the inputs in, and to find them again.
set -euo pipefail
cd "$(dirname "$0")/.."
megabytes=${1:-500} pairs=${2:-3} slice=${3:-10}
toll=$(realpath "${TOLL:-target/release/toll}")
source bench/server.bash
need mariadbd sysbench tcpdump pt-query-digest
[ "$(id -u)" = 0 ] || { echo "SKIPPED: capturing needs root"; exit 0; }
[ -x "$toll" ] || { echo "SKIPPED: build toll first (make build)"; exit 0; }

inputs=${KEEP:-$scratch}
mkdir -p "$inputs"
capture=$inputs/capture.pcap log=$inputs/slow.log port=33460

make_inputs() {
  start_server $port --innodb-flush-log-at-trx-commit=0 --long-query-time=0 --slow-query-log-file="$log"
  mariadb --no-defaults -uroot -S "$socket" -e 'create database sbtest'
  local sysbench=(sysbench oltp_read_write --mysql-host=127.0.0.1 --mysql-port=$port --mysql-user=root
    --tables=4 --table-size=10000 --threads=4 --db-ps-mode=disable)
  "${sysbench[@]}" prepare >/dev/null
  tcpdump -i lo -s 0 -B 65536 -w "$capture" "tcp port $port" 2>"$scratch/tcpdump" &
  local capturer=$!
  ending+=($capturer)
  sleep 1
  "${sysbench[@]}" --time=600 run >"$scratch/sysbench" 2>&1 &
  local load=$!
  ending+=($load)
  # Half a second of the log is plenty; all of a capture is wanted.
  mariadb --no-defaults -uroot -S "$socket" -e 'set global slow_query_log=1'
  until [ "$(stat -c %s "$capture")" -ge $((megabytes << 20)) ]; do
    sleep 1
    kill -0 $load 2>/dev/null || break
  done
  kill $load 2>/dev/null || true
  wait $load 2>/dev/null || true
  kill -INT $capturer && wait $capturer || true
  stop_server
}
[ -s "$capture" ] && [ -s "$log" ] || make_inputs
capture_bytes=$(stat -c %s "$capture") once_bytes=$(stat -c %s "$log")
long_log=$scratch/long.log
for ((done_bytes = 0; done_bytes < capture_bytes; done_bytes += once_bytes)); do cat "$log"; done >"$long_log"

# Seconds and peak KiB of a command, whose output goes nowhere.
measure() {
  local begun=$EPOCHREALTIME ended
  /usr/bin/time -o "$scratch/time" -f '%M' "$@" >/dev/null 2>"$scratch/stderr" || { cat "$scratch/stderr"; exit 1; }
  ended=$EPOCHREALTIME
  awk -v begun="$begun" -v ended="$ended" '{printf "%.4f %d", ended - begun, $1}' "$scratch/time"
}
rate() { awk -v bytes="$1" -v seconds="$2" 'BEGIN {printf "%.2f", bytes / 1e6 / seconds}'; }

head -c $((slice << 20)) "$capture" >"$scratch/slice.pcap"
head -c $((slice << 20)) "$log" >"$scratch/slice.log"
# What a slice cuts off is noise to both tools.
cat >"$scratch/pipeline" <<PIPE
tcpdump -r "$scratch/slice.pcap" -s 65535 -x -nn -q -tttt 2>/dev/null |
  pt-query-digest --no-version-check --type tcpdump --watch-server 127.0.0.1:$port --progress time,86400
PIPE
echo "$(nproc) CPUs, $("$toll" --version), $(pt-query-digest --version), $(tcpdump --version 2>&1 | head -1)"
log_bytes=$(stat -c %s "$long_log")
slice_bytes=$(stat -c %s "$scratch/slice.pcap") log_slice_bytes=$(stat -c %s "$scratch/slice.log")
echo "capture $capture_bytes bytes, log $once_bytes bytes repeated to $log_bytes, slices for pt-query-digest $slice_bytes and $log_slice_bytes bytes"

compare() { # name, input of toll, its bytes, bytes of the slice, command of the other...
  local name=$1 input=$2 bytes=$3 slice_bytes=$4
  shift 4
  local pair ours theirs a b
  : >"$scratch/ratios"
  for pair in $(seq "$pairs"); do
    if [ $((pair % 2)) = 1 ]; then
      ours=$(measure "$toll" digest --port $port "$input") theirs=$(measure "$@")
    else
      theirs=$(measure "$@") ours=$(measure "$toll" digest --port $port "$input")
    fi
    a=$(rate "$bytes" "${ours% *}") b=$(rate "$slice_bytes" "${theirs% *}")
    awk -v a="$a" -v b="$b" 'BEGIN {printf "%.1f\n", a / b}' >>"$scratch/ratios"
    echo "$name pair $pair: toll $a MB/s (peak ${ours#* } KiB), pt-query-digest $b MB/s: $(tail -1 "$scratch/ratios") times"
  done
  summary "$name: times as fast" <"$scratch/ratios"
}
compare capture "$capture" "$capture_bytes" "$slice_bytes" bash "$scratch/pipeline"
compare "slow log" "$long_log" "$log_bytes" "$log_slice_bytes" \
  pt-query-digest --no-version-check --type slowlog --progress time,86400 "$scratch/slice.log"
reference=$(measure cat "$capture")
echo "reference: cat, which only reads: $(rate "$capture_bytes" "${reference% *}") MB/s"
if command -v tshark >/dev/null; then
  # It complains of the packet that the slice cuts.
  reference=$(measure bash -c "tshark -r '$scratch/slice.pcap' -d tcp.port==$port,mysql -Y mysql.query || true")
  echo "reference: tshark -Y mysql.query on the slice: $(rate "$slice_bytes" "${reference% *}") MB/s"
fi

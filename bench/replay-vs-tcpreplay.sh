#!/usr/bin/env bash
# Rate accuracy and top speed of toll replay against tcpreplay.
#
# Between two network namespaces of its own, the sender on a CPU of its own: packets are carried up on another, as a
# network card's interrupt would, and captured on a third where there is one. Each rate is sent by both in turn, and
# measured at the receiver: what tcpdump writes to memory (a ring of 64 MiB, 40 bytes of each packet), by the kernel's
# time stamps: the average from first to last packet, and the largest deviation from it within whole windows of 100 ms.
# Top speed is counted by the receiving device, without a capture.
#
# Usage: bench/replay-vs-tcpreplay.sh [SECONDS] [ROUNDS] [MBPS...]
#   TOLL: the program.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-3} rounds=${2:-5}
rates=("${@:3}")
[ ${#rates[@]} -gt 0 ] || rates=(1 10 100 200 300 400 500 600 700 800 900)
toll=$(realpath "${TOLL:-target/release/toll}")
source bench/server.bash
need tcpreplay tcpdump ip python3 taskset
[ "$(id -u)" = 0 ] || { echo "SKIPPED: namespaces need root"; exit 0; }
[ -x "$toll" ] || { echo "SKIPPED: build toll first (make build)"; exit 0; }

memory=$(mktemp -d -p /dev/shm)
trap 'cleanup; rm -rf "$memory"' EXIT
link_namespaces
[ "$(nproc)" -ge 2 ] || { echo "SKIPPED: sender and receiver need a CPU each"; exit 0; }
last=$(($(nproc) - 1))
ip netns exec $receive sh -c "echo 2 > /sys/class/net/$device/queues/rx-0/rps_cpus" # CPU 1

"$toll" pcap make http --duration 20s --mbps 20 -w "$scratch/http.pcap" >/dev/null
packets=$(tcpdump -r "$scratch/http.pcap" 2>/dev/null | wc -l)
bytes=$(($(stat -c %s "$scratch/http.pcap") - 24 - 16 * packets))

# by_toll RATE-OPTION... / by_tcpreplay: for so many seconds.
by_toll() { ip netns exec $send taskset -c 0 "$toll" replay "$scratch/http.pcap" -i $device --loop 0 --duration "${seconds}s" "$@" >"$scratch/said" 2>&1 || true; }
by_tcpreplay() { ip netns exec $send taskset -c 0 timeout --signal=INT "$seconds" tcpreplay -K -i $device --loop 1000000 "$@" "$scratch/http.pcap" >"$scratch/said" 2>&1 || true; }

# measured COMMAND...: average Mb/s at the receiver, and the largest deviation within 100 ms, percent.
measured() {
  ip netns exec $receive taskset -c $last tcpdump -i $device -B 65536 -s 40 -w "$memory/got.pcap" 2>"$scratch/tcpdump" &
  local capture=$!
  until grep -q listening "$scratch/tcpdump"; do sleep 0.02; done
  "$@"
  sleep 0.3
  kill -INT $capture && wait $capture || true
  grep -q '^0 packets dropped by kernel' "$scratch/tcpdump" || echo "the capture lost packets: $(grep dropped "$scratch/tcpdump")" >&2
  python3 - "$memory/got.pcap" <<'P'
import struct, sys
data = open(sys.argv[1], 'rb').read()
at, times, lengths = 24, [], []
while at + 16 <= len(data):
    s, us, kept, length = struct.unpack_from('<IIII', data, at)
    times.append(s * 1_000_000 + us)
    lengths.append(length)
    at += 16 + kept
first, last = times[0], times[-1]
# The last packet's own time on the wire is not between the two.
average = 8 * sum(lengths[:-1]) / (last - first)
windows = {}
for time, length in zip(times, lengths):
    windows[(time - first) // 100_000] = windows.get((time - first) // 100_000, 0) + length
whole = [windows.get(i, 0) * 8 / 100_000 for i in range((last - first) // 100_000)]
worst = max(abs(rate / average - 1) for rate in whole) * 100
print(f'{average:.4f} {worst:.2f}')
P
}

echo "$(nproc) CPUs, kernel $(uname -r), $("$toll" --version), tcpreplay $(tcpreplay --version 2>&1 | awk '/^tcpreplay version/ {print $3}')"
echo "http: $packets packets of $((bytes / packets)) bytes on average; $seconds s each, $rounds rounds"
for rate in "${rates[@]}"; do
  : >"$scratch/toll" : >"$scratch/tcpreplay"
  for round in $(seq "$rounds"); do
    order=(toll tcpreplay)
    [ $((round % 2)) = 1 ] || order=(tcpreplay toll)
    for tool in "${order[@]}"; do measured by_$tool --mbps="$rate" >>"$scratch/$tool"; done
  done
  for tool in toll tcpreplay; do
    awk -v asked="$rate" '{printf "%.4f\n", ($1 / asked - 1) * 100}' "$scratch/$tool" | summary "$rate Mb/s, $tool: average from asked, %"
    awk '{print $2}' "$scratch/$tool" | summary "$rate Mb/s, $tool: worst of 100 ms, %"
  done
done

received() { ip netns exec $receive cat /sys/class/net/$device/statistics/rx_packets; }
topspeed() {
  local before=$(received) begun=$EPOCHREALTIME
  "$@"
  awk -v packets=$(($(received) - before)) -v begun="$begun" -v ended="$EPOCHREALTIME" 'BEGIN {printf "%.0f", packets / (ended - begun)}'
}
: >"$scratch/ratios"
for round in $(seq "$rounds"); do
  if [ $((round % 2)) = 1 ]; then
    ours=$(topspeed by_toll --topspeed) theirs=$(topspeed by_tcpreplay --topspeed)
  else
    theirs=$(topspeed by_tcpreplay --topspeed) ours=$(topspeed by_toll --topspeed)
  fi
  awk -v a="$ours" -v b="$theirs" 'BEGIN {printf "%.3f\n", a / b}' >>"$scratch/ratios"
  echo "top speed, round $round: toll $ours packets/s, tcpreplay $theirs"
done
summary "top speed: times tcpreplay's packets/s" <"$scratch/ratios"

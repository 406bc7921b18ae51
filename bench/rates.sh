#!/usr/bin/env bash
# Cost and loss of toll capture at rates of 0 to 500,000 queries a second.
#
# Point selects of a private server, captured once, are replayed between two network namespaces at each rate, under new
# addresses each time through, so that each is a new connection. The receiver captures them. The sender has a CPU of its own,
# which also carries the packets up to the capture's filter. The socket tap sees a server's calls alone, so that its queries come
# from toll load, as fast as the server answers at most. Reported are the rate that was reached, the capture's own CPU time
# (all threads) in percent of a CPU and for each query, how often it went to sleep, and what it lost by its own account.
# `budget` is --digest with --budget cpu=5%: its share of a CPU, and the share of packets that it left out.
#
# Usage: bench/rates.sh [SECONDS] [RATE...]. TOLL: the program.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
rates=("${@:2}")
[ ${#rates[@]} -gt 0 ] || rates=(0 500 5000 50000 500000)
toll=$(realpath "${TOLL:-target/release/toll}")
source bench/server.bash
need mariadbd tcpdump ip python3 taskset
[ "$(id -u)" = 0 ] || { echo "SKIPPED: namespaces need root"; exit 0; }
[ -x "$toll" ] || { echo "SKIPPED: build toll first (make build)"; exit 0; }

port=33481
start_server $port --innodb-buffer-pool-size=64M
mariadb --no-defaults --socket="$socket" --user=root -e "CREATE DATABASE sbtest"
"$toll" load prepare --port $port --tables 1 --rows 1000 >/dev/null
tcpdump -i lo -s 0 -B 65536 -w "$scratch/queries.pcap" "tcp port $port" 2>"$scratch/tcpdump" &
tcpdump=$!
ending+=($tcpdump)
until grep -q listening "$scratch/tcpdump"; do sleep 0.02; done
"$toll" load point-select --port $port --tables 1 --rows 1000 --threads 8 --time 2s >/dev/null
sleep 0.5
kill -INT $tcpdump && wait $tcpdump || true
grep -q '^0 packets dropped by kernel' "$scratch/tcpdump" || { echo "the capture to replay lost packets"; exit 1; }
stop_server
read -r packets queries < <("$toll" digest --json --port $port "$scratch/queries.pcap" |
  python3 -c 'import json, sys; d = json.load(sys.stdin); print(d["ledger"]["frames"]["read"], d["totals"]["queries"])')

link_namespaces
last=$(($(nproc) - 1))

# CPU time (ns) and voluntary switches of all threads of a process.
used() {
  cat /proc/"$1"/task/*/schedstat | awk '{ns += $1} END {printf "%.0f ", ns}'
  cat /proc/"$1"/task/*/status | awk '/^voluntary/ {n += $2} END {print n}'
}

# measure NAME RATE OPTION...: one line. The capture looks at what drive RATE sends.
measure() {
  local name=$1 rate=$2 pid before after
  rm -f "$scratch/driven"
  "${inside[@]}" "$toll" capture "${tap[@]}" --json "${@:3}" >"$scratch/account" 2>"$scratch/said" &
  pid=$!
  ending+=($pid)
  until grep -q listening "$scratch/said"; do sleep 0.02; done
  sleep 1
  before=$(used $pid)
  if [ "$rate" = 0 ]; then sleep "$seconds"; else drive "$rate"; fi
  after=$(used $pid)
  kill -INT $pid
  wait $pid || cat "$scratch/said"
  python3 - "$name" "$rate" "$seconds" "$packets" "$queries" "$before" "$after" "$scratch/account" "$scratch/driven" <<'P'
import json, os, sys
name, rate, seconds, packets, queries, before, after, path, driven = sys.argv[1:]
(cpu, sleeps), (cpu2, sleeps2) = (map(float, text.split()) for text in (before, after))
account = [json.loads(line) for line in open(path) if line.startswith('{"type":"ledger"')][-1]
seconds, lost = float(seconds), sum(account["lost"].values())
if os.path.exists(driven):
    done = json.loads(open(driven).read().splitlines()[-1])["events"]
else:
    done = account["passed"] * float(queries) / float(packets)
each = f"{(cpu2 - cpu) / 1e3 / done:8.3f}" if done and int(rate) else " " * 8
print(f"{name:15} {int(rate):9,} {done / seconds:11,.0f} {(cpu2 - cpu) / 1e7 / seconds:8.3f} {each} "
      f"{(sleeps2 - sleeps) / seconds:9.1f} {lost:9,} {100 * account['shed'] / max(account['passed'], 1):8.2f}")
P
}

echo "$(nproc) CPUs, $("$toll" --version), $queries queries in $packets packets, $seconds s at each rate"
printf '%-15s %9s %11s %8s %8s %9s %9s %8s\n' capture asked/s reached/s 'CPU, %' us/query sleeps/s lost 'shed, %'
inside=(ip netns exec $receive taskset -c $last) tap=(-i $device --port $port)
drive() {
  ip netns exec $send taskset -c 0 "$toll" replay "$scratch/queries.pcap" -i $device --loop 0 --unique-ip \
    --pps $(($1 * packets / queries)) --duration "${seconds}s" --allow-slower >"$scratch/replayed" 2>&1
}
for rate in "${rates[@]}"; do
  measure -w "$rate" --overwrite -w "$scratch/out.pcapng"
  measure queries "$rate" --overwrite --queries "$scratch/out.queries"
  measure digest "$rate" --digest --every 1m
  measure budget "$rate" --digest --every 1m --budget cpu=5%
done

# The tap's programs in the kernel are work of the server's threads, and not counted here.
rm -rf "$scratch/data"
start_server $port --innodb-buffer-pool-size=64M
mariadb --no-defaults --socket="$socket" --user=root -e "CREATE DATABASE sbtest"
"$toll" load prepare --port $port --tables 1 --rows 1000 >/dev/null
inside=() tap=(--tap sockets --server-pid "$server")
drive() {
  "$toll" load point-select --port $port --tables 1 --rows 1000 --threads 8 --rate "$1" --time "${seconds}s" --json >"$scratch/driven"
}
for rate in "${rates[@]}"; do
  measure 'sockets queries' "$rate" --overwrite --queries "$scratch/out.queries"
  measure 'sockets digest' "$rate" --digest --every 1m
done

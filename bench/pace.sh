#!/usr/bin/env bash
# Pacing accuracy of toll load, and its latencies while the server is stopped.
#
# First part: uniform arrivals from 10/s up to 80% of what a closed loop attains, requested against due
# and against completed. Second part: an open loop of ten seconds in whose middle the server is stopped
# (SIGSTOP) for half a second, by toll load and by sysbench --rate in turn.
#
# Usage: bench/pace.sh [SECONDS] [ROUNDS]. TOLL: the program.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10} rounds=${2:-3}
toll=${TOLL:-target/release/toll}
source bench/server.bash
need mariadbd sysbench
[ -x "$toll" ] || cargo build --release -p toll
port=33470 rows=10000
start_server $port --innodb-buffer-pool-size=256M
"$toll" load prepare --socket "$socket" --rows $rows >/dev/null

field() { sed "s/.*\"$1\":\([0-9.]*\).*/\1/"; }
last() { # the final line of a run with these options
  "$toll" load point-select --host 127.0.0.1 --port $port --rows $rows --json "$@" 2>"$scratch/err" | tail -1
}
echo "$(nproc) CPUs, $("$toll" --version), $(mariadbd --version | awk '{print $3}'), $(sysbench --version)"
capacity=$(last --threads 16 --time 4s | field tps)
printf 'closed loop, 16 connections: %.0f events/s\n' "$capacity"
printf '%12s %14s %14s %12s %12s\n' asked/s due/s done/s 'off, due' 'off, done'
for rate in 10 100 1000 10000 $(awk -v c="$capacity" 'BEGIN {printf "%d %d", 0.4 * c, 0.8 * c}'); do
  line=$(last --threads 16 --rate "$rate" --arrivals uniform --time "${seconds}s")
  echo "$rate $(field due_per_s <<<"$line") $(field events <<<"$line") $(field time_s <<<"$line")" |
    awk '{printf "%12d %14.3f %14.3f %11.4f%% %11.4f%%\n", $1, $2, $3 / $4, 100 * ($2 / $1 - 1), 100 * ($3 / $4 / $1 - 1)}'
done

rate=2000
stop_midway() { sleep 5; kill -STOP "$server"; sleep 0.5; kill -CONT "$server"; }
echo "a server stopped for 500 ms in 10 s at $rate/s: p99 and longest, ms"
for round in $(seq "$rounds"); do
  stop_midway & line=$(last --threads 16 --rate $rate --time 10s); wait $!
  echo "$(field latency_us_p99 <<<"$line") $(field latency_us_max <<<"$line")" |
    awk -v round="$round" '{printf "  round %d  toll load        p99 %8.2f  longest %8.2f\n", round, $1 / 1000, $2 / 1000}'
  stop_midway & sysbench oltp_point_select --mysql-host=127.0.0.1 --mysql-port=$port --mysql-user=root \
    --mysql-db=sbtest --tables=1 --table-size=$rows --threads=16 --time=10 --rate=$rate --percentile=99 run >"$scratch/out"; wait $!
  awk -v round="$round" '/99th percentile/ {p = $3} /max:/ {m = $2} END {
    printf "  round %d  sysbench --rate  p99 %8.2f  longest %8.2f\n", round, p, m}' "$scratch/out"
done

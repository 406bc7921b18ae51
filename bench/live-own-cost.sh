#!/usr/bin/env bash
# What `toll live` itself takes while no method is on, of several builds in turns: of the host's CPUs, queries and connections.
# Usage: [MYSQLD=...] [OUT=DIR] bench/live-own-cost.sh RATE TIMES TOLL [TOLL...]
# RATE: transactions a second of 20 queries each, by users who connect again after ten. OUT: where the runs are kept.
set -euo pipefail
cd "$(dirname "$0")/.."
source bench/server.bash
[ $# -ge 3 ] || { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "bench/${0##*/}"; exit 2; }
rate=$1 times=$2
shift 2
need sysbench mariadb
out=${OUT:-$scratch}
mkdir -p "$out"
start_server 33483 --innodb-buffer-pool-size=256M --innodb-flush-log-at-trx-commit=2 --performance-schema=ON "${replicated[@]}"
sql() { mariadb --no-defaults --socket="$socket" --user=root -N -e "$1"; }
sql 'CREATE DATABASE sbtest'
load=(sysbench bench/users.lua --db-driver=mysql --mysql-host=127.0.0.1 --mysql-port=33483 --mysql-user=root --tables=8
  --table-size=20000 --threads=8 --db-ps-mode=disable --verbosity=0)
"${load[@]}" prepare >/dev/null
"${load[@]}" --rate="$rate" --time=$((times * $# * 200)) run &
ending+=($!)
sleep 5
for round in $(seq "$times"); do
  for toll; do
    run=$out/$(basename "$toll")-$round
    timeout 300 "$toll" live tcpdump-impact --variants slowlog-sampled --server mysql://root@127.0.0.1:33483/sbtest --time 2m \
      --window 2s --guard-interval 1s --execute --reason bench/live-own-cost.sh --confirm "$(sql 'SELECT @@hostname')" \
      --out "$run" >"$scratch/said" 2>&1 || tail -3 "$scratch/said"
    echo "$(basename "$toll"): $("$toll" report "$run" --all | grep -A1 'toll itself' | tr -s ' \n' ' ')"
  done
done

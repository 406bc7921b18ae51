#!/usr/bin/env bash
# Queries for each second of the generator's own CPU: toll load against sysbench.
#
# One private server, the same tables, the same statements. Within each round the two drivers run
# one right after the other, in turn first; what is compared is each round's ratio, so that a slow
# stretch of the host hits both. Prints every round, then medians with the lowest and highest round.
#
# Usage: bench/load-vs-sysbench.sh [ROUNDS] [SECONDS] ["CASE ..."]
#   CASE is TRANSPORT-THREADS of unix-1 unix-64 tcp-1 tcp-64. TOLL: the program, PROFILE: what is run.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-4} cases=${3:-unix-1 tcp-1 unix-64 tcp-64}
toll=${TOLL:-target/release/toll} profile=${PROFILE:-point-select}
tables=1 rows=10000
source bench/server.bash
need mariadbd sysbench
[ -x "$toll" ] || cargo build --release -p toll

port=33450
start_server $port --innodb-buffer-pool-size=256M
"$toll" load prepare --socket "$socket" --tables $tables --rows $rows >/dev/null

where_toll=() where_sysbench=()
transport() {
  case $1 in
    unix) where_toll=(--socket "$socket") where_sysbench=(--mysql-socket="$socket") ;;
    tcp) where_toll=(--host 127.0.0.1 --port $port) where_sysbench=(--mysql-host=127.0.0.1 --mysql-port=$port) ;;
  esac
}
# Both print: queries, CPU seconds of the driver (user and system).
TIMEFORMAT='%U %S'
drive_toll() {
  local cpu queries
  cpu=$( { time "$toll" load "$profile" "${where_toll[@]}" --tables $tables --rows $rows --threads "$1" \
    --time "${seconds}s" --json >"$scratch/out"; } 2>&1 )
  queries=$(tail -1 "$scratch/out" | sed 's/.*"statements":\([0-9]*\).*/\1/')
  echo "$queries $cpu"
}
drive_sysbench() {
  local cpu queries
  cpu=$( { time sysbench "oltp_${profile//-/_}" "${where_sysbench[@]}" --mysql-user=root --mysql-db=sbtest \
    --tables=$tables --table-size=$rows --threads="$1" --time="$seconds" run >"$scratch/out"; } 2>&1 )
  queries=$(awk '/^ *total:/ {print $2}' "$scratch/out")
  echo "$queries $cpu"
}
echo "profile $profile, $rounds rounds of $seconds s each, $(nproc) CPUs, $(mariadbd --version | awk '{print $3}'), $(sysbench --version)"
for case in $cases; do
  threads=${case#*-}
  transport "${case%-*}"
  : >"$scratch/rounds"
  for round in $(seq "$rounds"); do
    if ((round % 2)); then t=$(drive_toll "$threads") s=$(drive_sysbench "$threads")
    else s=$(drive_sysbench "$threads") t=$(drive_toll "$threads"); fi
    echo "$t $s" | awk -v seconds="$seconds" '{printf "%.0f %.0f %.3f %.0f %.0f %.3f\n",
      $1/($2+$3), $4/($5+$6), $1/($2+$3)/($4/($5+$6)), $1/seconds, $4/seconds, $1/$4}' >>"$scratch/rounds"
  done
  echo "$case"
  column -t "$scratch/rounds" | sed 's/^/    /'
  awk '{print $1}' "$scratch/rounds" | summary "toll: queries per client CPU s"
  awk '{print $2}' "$scratch/rounds" | summary "sysbench: queries per client CPU s"
  awk '{print $3}' "$scratch/rounds" | summary "ratio of a round"
  awk '{print $4}' "$scratch/rounds" | summary "toll: queries/s"
  awk '{print $5}' "$scratch/rounds" | summary "sysbench: queries/s"
  awk '{print $6}' "$scratch/rounds" | summary "ratio of a round, queries/s"
done

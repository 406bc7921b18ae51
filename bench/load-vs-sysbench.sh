#!/usr/bin/env bash
# How many queries does a second of the generator's own CPU pay for: toll load against sysbench?
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
for tool in mariadbd mariadb-install-db sysbench; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: $tool is missing (apt-get install mariadb-server sysbench)"; exit 0; }
done
[ -x "$toll" ] || cargo build --release -p toll

dir=$(mktemp -d) server=
export TMPDIR=$dir # in a shared one, servers delete each other's temporary tables
trap 'kill $server 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
mariadb-install-db --no-defaults --auth-root-authentication-method=normal --skip-test-db \
  --datadir="$dir/data" --user="$(id -un)" >"$dir/install.log" 2>&1
port=33450
mariadbd --no-defaults --user="$(id -un)" --datadir="$dir/data" --socket="$dir/s" --port=$port --bind-address=127.0.0.1 \
  --skip-log-bin --innodb-buffer-pool-size=256M --pid-file="$dir/pid" >"$dir/log" 2>&1 &
server=$!
for _ in $(seq 100); do [ -S "$dir/s" ] && break; sleep 0.1; done
"$toll" load prepare --socket "$dir/s" --tables $tables --rows $rows >/dev/null

where_toll=() where_sysbench=()
transport() {
  case $1 in
    unix) where_toll=(--socket "$dir/s") where_sysbench=(--mysql-socket="$dir/s") ;;
    tcp) where_toll=(--host 127.0.0.1 --port $port) where_sysbench=(--mysql-host=127.0.0.1 --mysql-port=$port) ;;
  esac
}
# Both print: queries, CPU seconds of the driver (user and system).
TIMEFORMAT='%U %S'
drive_toll() {
  local cpu queries
  cpu=$( { time "$toll" load "$profile" "${where_toll[@]}" --tables $tables --rows $rows --threads "$1" \
    --time "${seconds}s" --json >"$dir/out"; } 2>&1 )
  queries=$(tail -1 "$dir/out" | sed 's/.*"statements":\([0-9]*\).*/\1/')
  echo "$queries $cpu"
}
drive_sysbench() {
  local cpu queries
  cpu=$( { time sysbench "oltp_${profile//-/_}" "${where_sysbench[@]}" --mysql-user=root --mysql-db=sbtest \
    --tables=$tables --table-size=$rows --threads="$1" --time="$seconds" run >"$dir/out"; } 2>&1 )
  queries=$(awk '/^ *total:/ {print $2}' "$dir/out")
  echo "$queries $cpu"
}
summary() { # name, values on stdin
  sort -n | awk -v name="$1" '{v[NR]=$1} END {m = NR%2 ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2
    printf "  %-38s median %10.2f  lowest %10.2f  highest %10.2f\n", name, m, v[1], v[NR]}'
}
echo "profile $profile, $rounds rounds of $seconds s each, $(nproc) CPUs, $(mariadbd --version | awk '{print $3}'), $(sysbench --version)"
for case in $cases; do
  threads=${case#*-}
  transport "${case%-*}"
  : >"$dir/rounds"
  for round in $(seq "$rounds"); do
    if ((round % 2)); then t=$(drive_toll "$threads") s=$(drive_sysbench "$threads")
    else s=$(drive_sysbench "$threads") t=$(drive_toll "$threads"); fi
    echo "$t $s" | awk -v seconds="$seconds" '{printf "%.0f %.0f %.3f %.0f %.0f %.3f\n",
      $1/($2+$3), $4/($5+$6), $1/($2+$3)/($4/($5+$6)), $1/seconds, $4/seconds, $1/$4}' >>"$dir/rounds"
  done
  echo "$case"
  column -t "$dir/rounds" | sed 's/^/    /'
  awk '{print $1}' "$dir/rounds" | summary "toll: queries per client CPU s"
  awk '{print $2}' "$dir/rounds" | summary "sysbench: queries per client CPU s"
  awk '{print $3}' "$dir/rounds" | summary "ratio of a round"
  awk '{print $4}' "$dir/rounds" | summary "toll: queries/s"
  awk '{print $5}' "$dir/rounds" | summary "sysbench: queries/s"
  awk '{print $6}' "$dir/rounds" | summary "ratio of a round, queries/s"
done

#!/usr/bin/env bash
# toll live beside the lab: response times that methods cost on a server with users and jobs, and under a load of toll's own.
#
# The server with users has a replica, performance_schema, and sysbench oltp_read_write at half of what a closed loop reaches, by users
# who connect again after ten transactions (bench/users.lua), so that a setting which sessions copy reaches them; each two minutes a
# job reads a whole table. `toll live` measures one method after another there. Then the users go, and `toll run` measures
# all of them on the same server with a load of its own at the same rate. Printed are both intervals of each method, and whether
# they overlap.
#
# Usage: bench/live-vs-lab.sh [MINUTES-PER-METHOD (10)] [MINUTES-IN-THE-LAB (60)] [METHOD...]. TOLL: the program.
# MYSQLD: a MySQL server in MariaDB's place.
# OUT: a directory that the runs are kept in (else they are gone at the end); those that are there already are not made again.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-10} lab_minutes=${2:-60}
methods=("${@:3}")
if [ ${#methods[@]} -eq 0 ]; then
  methods=(slowlog-all general-log perf-schema tcpdump-file tcpdump-flush toll-packets toll-queries toll-digest toll-sockets)
  [ -n "${MYSQLD:-}" ] || methods+=(slowlog-sampled) # MySQL has no rate limit
fi
toll=$(realpath "${TOLL:-target/release/toll}")
source bench/server.bash
out=${OUT:-$scratch}
mkdir -p "$out"
need mariadb sysbench tcpdump python3
[ "$(id -u)" = 0 ] || { echo "SKIPPED: captures need root"; exit 0; }
[ -x "$toll" ] || { echo "SKIPPED: build toll first (make build)"; exit 0; }
port=33483 replica_port=33484
options=(--innodb-buffer-pool-size=256M --innodb-flush-log-at-trx-commit=2 --performance-schema=ON --max-connections=200)
start_server $port "${options[@]}" "${replicated[@]}"
start_replica $replica_port $port "${options[@]}"
sql() { mariadb --no-defaults --socket="$socket" --user=root -N -e "$1"; }

threads=8 rows=100000
sysbench=(sysbench bench/users.lua --mysql-host=127.0.0.1 --mysql-port=$port --mysql-user=root --tables=8
  --table-size=$rows --threads=$threads --db-ps-mode=disable)
sql 'CREATE DATABASE sbtest'
"${sysbench[@]}" prepare >/dev/null
[ -e "$out/rate" ] || "${sysbench[@]}" --time=15 run |
  sed -n 's/.*transactions:.*(\([0-9.]*\) per sec.*/\1/p' | awk '{printf "%d", $1 / 2}' >"$out/rate"
rate=$(<"$out/rate")
echo "$(nproc) CPUs, $("$toll" --version), $(sql 'SELECT VERSION()'), sysbench oltp_read_write at $rate/s"

total=$((minutes * 60 * ${#methods[@]} + 600))
"${sysbench[@]}" --rate="$rate" --time=$total run >"$scratch/users" 2>&1 &
users=$!
ending+=($users)
(for _ in $(seq $((total / 120))); do
  sql 'SELECT SUM(LENGTH(c)) FROM sbtest.sbtest1' >/dev/null
  sleep 120
done) &
jobs=$!
ending+=($jobs)
sleep 5

name=$(sql 'SELECT @@hostname')
[ -z "${MYSQLD:-}" ] || name=$(sql 'SELECT LEFT(@@server_uuid, 8)')
for method in "${methods[@]}"; do
  [ ! -e "$out/live-$method/result.json" ] || continue
  "$toll" live tcpdump-impact --variants "$method" --server "mysql://root@127.0.0.1:$port/sbtest" --time "${minutes}m" \
    --window 2s --guard-interval 1s --watch-replica "r=mysql://root@127.0.0.1:$replica_port/" --execute \
    --reason "bench/live-vs-lab.sh" --confirm "$name" --out "$out/live-$method" >"$scratch/said" 2>&1 ||
    { echo "$method: toll live ended with $?"; tail -4 "$scratch/said"; }
done

kill $users $jobs 2>/dev/null || true # both may have ended
wait $users $jobs 2>/dev/null || true
sed 's/^profile = "read-only"/profile = "read-write"/' scenarios/tcpdump-impact.toml >"$scratch/lab.toml"
[ -e "$out/lab/result.json" ] ||
  "$toll" run "$scratch/lab.toml" --variants "$(IFS=,; echo "${methods[*]}")" --driver toll --threads $threads \
    --rate "$rate" --server "mysql://root@127.0.0.1:$port/" --schema sbtest --rows $rows --tables 8 \
    --time "${lab_minutes}m" --out "$out/lab" >"$scratch/said" 2>&1 || tail -5 "$scratch/said"

python3 - "$out" "${methods[@]}" <<'P'
import json, pathlib, sys
out, methods = pathlib.Path(sys.argv[1]), sys.argv[2:]

def interval(run, method):
    """Overhead of the outcome that the run is judged by: low, mean, high in percent, and the outcome's name."""
    path = out / run / "result.json"
    if not path.exists():
        return None
    result = json.loads(path.read_text())
    for arm in result["arms"]:
        outcome = arm["outcomes"].get(result["primary"]) if arm["name"] == method else None
        if outcome and outcome.get("ci95_pct"):
            return outcome["ci95_pct"][0], outcome["toll_pct"], outcome["ci95_pct"][1], result["primary"]
    return None

def show(found):
    return f"{found[1]:+.1f}% [{found[0]:+.1f}, {found[2]:+.1f}]" if found else "no interval"

overlaps = 0
for method in methods:
    live, lab = interval(f"live-{method}", method), interval("lab", method)
    overlap = bool(live and lab and live[0] <= lab[2] and lab[0] <= live[2])
    overlaps += overlap
    print(f"{method:16} live {show(live):28} ({live[3] if live else '-'})  lab {show(lab):28} {'overlap' if overlap else 'NO OVERLAP'}")
print(f"{overlaps} of {len(methods)} overlap")
P

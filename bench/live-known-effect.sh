#!/usr/bin/env bash
# toll live and a change that is known: queries of which a part takes 3% of their time, switched on and off by a variable.
#
# sysbench sends 5,000 queries a second. Each computes SHA2 as often as slow_launch_time says: never, and in windows with the
# change so often as takes PERCENT of what the query takes else, by the mean of the server's own statement times. toll live does not know
# that. It judges a geometric mean, which the same microseconds change more, since most queries take less than the mean.
#
# With CROSSED=yes the users are those of two replicas, half of them each, between which the change crosses over. A client keeps a
# CPU busy for half a second out of five, by way of the primary: that is what both replicas have in common.
#
# Usage: bench/live-known-effect.sh [PERCENT (3)] [MINUTES (60)]. TOLL: the program. MYSQLD: a MySQL server in MariaDB's place.
# OUT: a directory that the run is kept in (else it is gone at the end).
set -euo pipefail
cd "$(dirname "$0")/.."
percent=${1:-3} minutes=${2:-60}
toll=$(realpath "${TOLL:-target/release/toll}")
source bench/server.bash
need sysbench mariadb
[ "$(id -u)" = 0 ] || { echo "SKIPPED: response times from sockets need root"; exit 0; }
[ -x "$toll" ] || { echo "SKIPPED: build toll first (make build)"; exit 0; }
name=known-effect${CROSSED:+-crossed}
out=${OUT:-$scratch}/$name rate=5000 port=33485
mkdir -p "${out%/*}"
options=(--innodb-buffer-pool-size=256M --performance-schema=ON --slow-launch-time=0)
start_server $port "${options[@]}" "${replicated[@]}"
value() { mariadb --no-defaults --socket="$socket" --user=root -N -e "$1"; }
value 'CREATE DATABASE sbtest'
connect=(--mysql-socket="$socket" --mysql-user=root --table-size=100000)
sysbench oltp_read_only "${connect[@]}" --tables=1 prepare >/dev/null
users=(sysbench bench/known-effect.lua "${connect[@]}" --threads=8 --rate=$rate)

# What a query takes, and what one SHA2 takes, nanoseconds: the same statement with none and with a thousand of them.
mean_ns() {
  value 'TRUNCATE performance_schema.events_statements_summary_by_digest'
  "${users[@]}" --rate="$1" --time="$2" run >/dev/null
  value "SELECT CAST(SUM(sum_timer_wait) / SUM(count_star) / 1000 AS SIGNED)
    FROM performance_schema.events_statements_summary_by_digest WHERE digest_text LIKE '%BENCHMARK%'"
}
query_ns=$(mean_ns $rate 20)
few_ns=$(mean_ns 100 10)
value 'SET GLOBAL slow_launch_time = 1000'
many_ns=$(mean_ns 100 10)
value 'SET GLOBAL slow_launch_time = 0'
times=$(awk "BEGIN { t = $percent / 100 * $query_ns / (($many_ns - $few_ns) / 1000); printf \"%d\", t < 1 ? 1 : t + 0.5 }")
awk "BEGIN { one = ($many_ns - $few_ns) / 1000
  printf \"a query takes %.1f us, one SHA2 %.2f us: %d of them are %+.1f%%\\n\", $query_ns / 1e3, one / 1e3, $times, 100 * $times * one / $query_ns }"

cat >"$scratch/known.toml" <<T
name = "known-effect"
question = "What does a change cost that is known?"
baseline = "baseline"
primary = "latency_us_mean"
margin_pct = 3

[workload]
profile = "read-only"

[profile.standard]
time = "20m"
rows = 1000

[[arm]]
name = "baseline"
title = "as it is"
role = "baseline"

[[arm]]
name = "known"
title = "$times SHA2 more in each query"
set = { slow_launch_time = "$times" }
T
echo "$(nproc) CPUs, $("$toll" --version), $(value 'SELECT VERSION()'), $rate queries/s"
confirm=$(value "SHOW GLOBAL VARIABLES LIKE 'server_uuid'" | cut -f2 | cut -c1-8)
lasts=$((minutes * 60 + 600))
if [ -n "${CROSSED:-}" ]; then
  for replica in 1 2; do
    replica_port=$((port + replica))
    start_replica $replica_port $port "${options[@]}"
    replica_socket=$scratch/replica-$replica_port/s
    for _ in $(seq 300); do # until it has the table
      mariadb --no-defaults --socket="$replica_socket" --user=root -e 'SELECT 1 FROM sbtest.sbtest1 LIMIT 1' >/dev/null 2>&1 && break
      sleep 0.1
    done
    "${users[@]}" --mysql-socket="$replica_socket" --rate=$((rate / 2)) --time=$lasts run >"$scratch/users-$replica" 2>&1 &
    ending+=($!)
  done
  servers=(--server "mysql://root@127.0.0.1:$((port + 1))/sbtest" --crossed-with "mysql://root@127.0.0.1:$((port + 2))/sbtest"
    --allow-replica --probe-limit 50ms) # what the client does is no reason to end
  busy=$(awk "BEGIN { printf \"%d\", 5e8 / (($many_ns - $few_ns) / 1000) }")
  (for _ in $(seq $((lasts / 5))); do
    sleep 4.5
    value "SELECT BENCHMARK($busy, SHA2(REPEAT('x', 60), 256))" || true
  done) >/dev/null 2>&1 &
  ending+=($!)
else
  "${users[@]}" --time=$lasts run >"$scratch/users" 2>&1 &
  ending+=($!)
  servers=(--server "mysql://root@127.0.0.1:$port/sbtest")
fi
sleep 5
"$toll" live "$scratch/known.toml" --variants known "${servers[@]}" --time "${minutes}m" \
  --execute --reason bench/live-known-effect.sh --confirm "${confirm:-$(value 'SELECT @@hostname')}" --out "$out"

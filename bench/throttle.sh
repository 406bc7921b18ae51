#!/usr/bin/env bash
# Cost of a throttle that does not limit anything.
#
# Bytes from memory through cat and through toll throttle, freed of its promise from the start, in turn
# first. CPU is the source's too, and that of three seconds of canary.
#
# Usage: bench/throttle.sh [MEGABYTES] [PAIRS]. TOLL: the program.
set -euo pipefail
cd "$(dirname "$0")/.."
megabytes=${1:-4000} pairs=${2:-7}
toll=$(realpath "${TOLL:-target/release/toll}")
source bench/server.bash
need mariadbd
[ -x "$toll" ] || cargo build --release -p toll
start_server 33490 --innodb-buffer-pool-size=64M

source_command=(head -c "${megabytes}000000" /dev/zero)
through_cat() { "${source_command[@]}" | cat; }
through_toll() {
  "$toll" throttle --socket "$socket" --user "$(id -un)" --canary 'SELECT 1' --before 0s --max-time 0s --json -- "${source_command[@]}" 2>"$scratch/words"
}
# MB/s, and CPU milliseconds for each gigabyte.
measure() {
  local before
  TIMEFORMAT='%R %U %S'
  before=$( { time "$1" >/dev/null; } 2>&1 )
  if [ "$1" = through_toll ]; then
    # Listening to the canary comes before the dump: the account's own time is the dump's.
    before="$(sed -n 's/.*"elapsed_s":\([0-9.]*\).*/\1/p' "$scratch/words") ${before#* }"
  fi
  awk -v mb="$megabytes" '{printf "%.1f %.1f\n", mb / $1, ($2 + $3) * 1e6 / mb}' <<<"$before"
}
echo "$(nproc) CPUs, $("$toll" --version), $megabytes MB"
for pair in $(seq "$pairs"); do
  order=(through_cat through_toll)
  ((pair % 2)) || order=(through_toll through_cat)
  for passer in "${order[@]}"; do
    read -r rate cpu < <(measure "$passer")
    echo "$rate" >>"$scratch/$passer.rate"
    echo "$cpu" >>"$scratch/$passer.cpu"
  done
done
for passer in through_cat through_toll; do
  summary "$passer, MB/s" <"$scratch/$passer.rate"
  summary "$passer, CPU ms for each GB" <"$scratch/$passer.cpu"
done

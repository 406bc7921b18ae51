#!/usr/bin/env bash
# Speed of toll pcap profile against tshark's statistics and capinfos, on the same capture.
#
# On the synthetic web session, on the smallest packets (MySQL's) and on any capture of yours. Within each pair the
# tools run one right after the other, in turn first. tshark gets a slice of the capture, since the whole would take
# minutes; rates are bytes of capture a second, so slices compare. cat shows the cost of reading alone.
#
# Usage: bench/pcap-profile-vs-tshark.sh [CAPTURE_MB] [PAIRS] [SLICE_MB] [FILE...]
#   TOLL: the program.
set -euo pipefail
cd "$(dirname "$0")/.."
megabytes=${1:-500} pairs=${2:-5} slice=${3:-10}
toll=$(realpath "${TOLL:-target/release/toll}")
source bench/server.bash
need tshark capinfos
[ -x "$toll" ] || { echo "SKIPPED: build toll first (make build)"; exit 0; }

# Seconds and peak KiB of a command, whose output goes nowhere.
measure() {
  local begun=$EPOCHREALTIME ended
  /usr/bin/time -o "$scratch/time" -f '%M' "$@" >/dev/null 2>"$scratch/stderr" || { cat "$scratch/stderr"; exit 1; }
  ended=$EPOCHREALTIME
  awk -v begun="$begun" -v ended="$ended" '{printf "%.4f %d", ended - begun, $1}' "$scratch/time"
}
rate() { awk -v bytes="$(stat -c %s "$1")" -v seconds="$2" 'BEGIN {printf "%.2f", bytes / 1e6 / seconds}'; }

# compare NAME CAPTURE SLICE OTHER COMMAND...: toll on the capture against the command on the slice.
compare() {
  local name=$1 capture=$2 part=$3 pair ours theirs a b
  shift 3
  : >"$scratch/ratios"
  for pair in $(seq "$pairs"); do
    if [ $((pair % 2)) = 1 ]; then
      ours=$(measure "$toll" pcap profile "$capture") theirs=$(measure "$@" "$part")
    else
      theirs=$(measure "$@" "$part") ours=$(measure "$toll" pcap profile "$capture")
    fi
    a=$(rate "$capture" "${ours% *}") b=$(rate "$part" "${theirs% *}")
    awk -v a="$a" -v b="$b" 'BEGIN {printf "%.2f\n", a / b}' >>"$scratch/ratios"
    echo "$name pair $pair: toll $a MB/s (peak ${ours#* } KiB), ${1##*/} $b MB/s (peak ${theirs#* } KiB): $(tail -n 1 "$scratch/ratios") times"
  done
  summary "$name: times as fast as ${1##*/}" <"$scratch/ratios"
}

captures=("${@:4}")
if [ ${#captures[@]} -eq 0 ]; then
  for set in http mysql; do
    "$toll" pcap make $set --duration 10s --mbps $((megabytes * 8 / 10)) -w "$scratch/$set.pcap"
    captures+=("$scratch/$set.pcap")
  done
fi
for capture in "${captures[@]}"; do
  name=$(basename "$capture")
  part=$scratch/part.pcap
  # Whole packets: tshark calls a cut one an error.
  packets=$(capinfos -M -c "$capture" 2>/dev/null | awk '/Number of packets/ {print $NF}')
  bytes=$(stat -c %s "$capture")
  editcap -r "$capture" "$part" 1-$((packets * (slice << 20) / bytes < packets ? packets * (slice << 20) / bytes : packets))
  # What a profile tells, as far as tshark does.
  compare "$name" "$capture" "$part" tshark -q -n -z io,phs -z conv,tcp -z conv,udp -z plen,tree -r
  compare "$name" "$capture" "$capture" capinfos -M -c -d -a -e -S -o
  reference=$(measure cat "$capture")
  echo "$name reference: cat, which only reads: $(rate "$capture" "${reference% *}") MB/s"
done

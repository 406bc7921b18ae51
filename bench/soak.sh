#!/usr/bin/env bash
# Soak test of captures under a changing load: memory over time, complete drop counters, and a stream that is
# broken.
#
# Beside one server, at once: toll capture --digest --every 1m, --queries and -w with rotation, --queries of a socket tap, and
# --stream to a receiver. Every half minute another load: read-only, read-write, point selects with new connections all the
# time, statements as text. In the second minute the stream's connection is broken ten times. Reported are each process's
# resident memory over time and the drop counters. All captures receive the same traffic, so all must count the same.
#
# Usage: bench/soak.sh [MINUTES (5)] [EVENTS-PER-SECOND (400)]. TOLL: the binary.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-5} rate=${2:-400}
toll=$(realpath "${TOLL:-target/release/toll}")
source bench/server.bash
need mariadbd python3
[ "$(id -u)" = 0 ] || { echo "SKIPPED: captures need root"; exit 0; }
[ -x "$toll" ] || { echo "SKIPPED: build toll first (make build)"; exit 0; }
port=33477 inlet=33478 outlet=33479
start_server $port --innodb-buffer-pool-size=256M --max-connections=200
mariadb --no-defaults --socket="$socket" --user=root -e 'CREATE DATABASE sbtest'
load() { "$toll" load "$@" --port $port --tables 4 --rows 10000; }
load prepare >/dev/null

# Carries bytes from one port to another; USR1 breaks what it carries.
cat >"$scratch/carry.py" <<'P'
import asyncio, signal, sys
inlet, outlet = map(int, sys.argv[1:])
carried, broken = set(), 0
async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
    except OSError:
        pass
async def carry(reader, writer):
    there = await asyncio.open_connection('127.0.0.1', outlet)
    pair = (writer, there[1])
    carried.add(pair)
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
    carried.discard(pair)
def cut():
    global broken
    for pair in list(carried):
        broken += 1
        for writer in pair:
            writer.transport.abort()
    print(broken, flush=True)
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, cut)
    async with await asyncio.start_server(carry, '127.0.0.1', inlet) as server:
        await server.serve_forever()
asyncio.run(main())
P
"$toll" receive keygen "$scratch/receiver.key" >/dev/null 2>&1
"$toll" receive keygen "$scratch/soak.key" --receiver "$scratch/receiver.key" >/dev/null 2>&1
mkdir "$scratch/received"
"$toll" receive --key "$scratch/receiver.key" --listen 127.0.0.1:$outlet -w "$scratch/received" --json >"$scratch/receive.out" 2>"$scratch/receive.err" &
receiver=$!
python3 "$scratch/carry.py" $inlet $outlet >"$scratch/breaks" &
carrier=$!
ending=($receiver $carrier)
until grep -qs 'receiving at' "$scratch/receive.err"; do kill -0 $receiver; sleep 0.1; done

declare -A pid
capture() {
  local name=$1
  shift
  "$toll" capture --port $port --json "$@" >"$scratch/$name.out" 2>"$scratch/$name.err" &
  pid[$name]=$!
  ending+=($!)
  until grep -qs 'listening on' "$scratch/$name.err"; do
    kill -0 "${pid[$name]}" 2>/dev/null || { cat "$scratch/$name.err"; exit 1; }
    sleep 0.1
  done
}
capture digest --digest --every 1m
capture queries --queries "$scratch/q.queries" --rotate 5m --keep 2
capture sockets --tap sockets --server-pid "$server" --queries "$scratch/s.queries" --rotate 5m --keep 2
capture packets -w "$scratch/p.pcapng" --rotate 1m --keep 2
capture stream --stream 127.0.0.1:$inlet --key "$scratch/soak.key"
pid[receive]=$receiver
names=(digest queries sockets packets stream receive)

echo "$(nproc) CPUs, Linux $(uname -r), $("$toll" --version); $rate events a second, $minutes minutes"
printf '%-8s' minute; printf '%10s' "${names[@]}"; echo "  resident KiB"
resident() {
  printf '%-8s' "$1"
  for name in "${names[@]}"; do printf '%10s' "$(awk '/^VmRSS/ {print $2}' "/proc/${pid[$name]}/status")"; done
  echo
}
ways=("read-only" "read-write" "point-select --reconnect 5" "read-only --text" "insert --text" "point-select")
for half in $(seq 0 $((minutes * 2 - 1))); do
  read -ra way <<<"${ways[$((half % ${#ways[@]}))]}"
  load "${way[@]}" --threads 8 --rate "$rate" --time 29s --give-up 20s >"$scratch/load" 2>&1 &
  busy=$!
  if [ $((half / 2)) = 1 ]; then
    for _ in 1 2 3 4 5; do sleep 5.5; kill -USR1 $carrier; done
  fi
  wait $busy || { echo "the load has failed (${way[*]}):"; tail -2 "$scratch/load"; }
  [ $((half % 2)) = 0 ] || { [ $(((half + 1) / 2 % 5)) != 0 ] && [ "$half" != 1 ] && [ "$half" != 3 ]; } || resident $(((half + 1) / 2))
done

sleep 2
for name in digest queries sockets packets stream; do
  kill "${pid[$name]}" && wait "${pid[$name]}" || { echo "$name ended badly:"; cat "$scratch/$name.err"; }
done
kill $receiver && wait $receiver || { echo "the receiver ended badly:"; cat "$scratch/receive.err"; }
kill $carrier && wait $carrier 2>/dev/null || true
ending=()
echo "the stream's connection was broken $(tail -1 "$scratch/breaks") times"
python3 - "$scratch" <<'P'
import json, sys
captured, queries = {}, {}
for name in ('digest', 'queries', 'sockets', 'packets', 'stream'):
    ledger = json.loads(open(f'{sys.argv[1]}/{name}.out').read().strip().split('\n')[-1])
    lost = ledger['lost']
    whole = ledger['passed'] == ledger['captured'] + sum(lost.values()) + ledger['shed'] and ledger['waiting'] == 0
    if ledger['of'] == 'packet':
        captured[name] = ledger['captured']
    if ledger['queries'] is not None:
        queries[name] = ledger['queries']
    print(f"{name}: {ledger['passed']} {ledger['of']}s passed, {ledger['captured']} captured, lost {sum(lost.values())}; "
          f"{ledger['queries']} queries; the ledger {'adds up' if whole else 'DOES NOT ADD UP: ' + json.dumps(ledger)}")
received = [json.loads(line) for line in open(f'{sys.argv[1]}/receive.out')]
for stream in received:
    print(f"received: {stream['items']} packets over {stream['connections']} connections, lost {stream['lost']}, "
          f"chunks that came twice {stream['chunks_again']}")
same = len(set(captured.values())) == len(set(queries.values())) == 1 and sum(stream['items'] for stream in received) == captured['stream']
print('all count the same' if same else 'THEY DO NOT COUNT THE SAME')
P

# Main program of scripts/safety inside its namespaces, as their first process.
#
# Reads what scripts/safety exported; prints how it goes and what differs; exit code 1 if something does.
set -euo pipefail
here=$PWD/scripts/safety.d
# Every arm of the scenario, in its order; and those that write something to be kept. The socket tap needs the host's own
# process numbers, which a namespace hides.
scenario=scenarios/tcpdump-impact.toml
mapfile -t every_arm < <(awk -F '"' '/^\[/ { arm = /^\[\[arm\]\]/ } arm && /^name =/ && $2 != "toll-sockets" { print $2 }' $scenario)
writing_arms=$(awk -F '"' '/^name =/ { name = $2 } /^artefact =/ && $2 != "server" { print name }' $scenario)
source "$here/host.bash"
here=$root/safety.d # the checkout may lie below the /tmp that is hidden now
source "$here/servers.bash"
source "$here/snapshot.bash"
source "$here/trials.bash"
source "$here/live.bash"

RANDOM=$SAFETY_SEED
begun=$SECONDS runs=0 differences=0
say "seed $SAFETY_SEED, $("$mysqld" --no-defaults --version 2>/dev/null | sed 's/^[^ ]* *//')"
make_servers
say "a primary and its replica are up after $((SECONDS - begun)) s"

if [ "$SAFETY_QUICK" = yes ]; then
  every_arm=(baseline placebo slowlog-all general-log audit-plugin perf-schema tcpdump-file tcpdump-pipe tcpdump-text dumpcap)
  kill_arms=(slowlog-all audit-plugin perf-schema tcpdump-file tcpdump-pipe)
else
  kill_arms=(slowlog-all slowlog-sampled general-log audit-plugin perf-schema tcpdump-file tcpdump-pipe tcpdump-text placebo)
fi
run_every_arm "${every_arm[@]}"
run_kills "${kill_arms[@]}"
[ "$SAFETY_LIVE_KILLS" = 0 ] || run_live_kills "${kill_arms[@]}"
say "$runs runs, $differences differences, $((SECONDS - begun)) s"
[ $differences = 0 ]

// Made from crates/base/record: `make viewer` writes it anew.

/**
 * The baseline against itself.
 */
export type AaCheck = { arm: string, toll_pct: number | null, ci95_pct: [number, number] | null, 
/**
 * Where the primary outcome is compared as a difference, in its unit.
 */
effect?: number | null, ci95?: [number, number] | null, 
/**
 * Passed or failed; null if not conclusive: too few rounds, or an interval wider than ±margin.
 */
ok: boolean | null, };

/**
 * Aggregation of a window's readings to one number.
 */
export type Aggregate = "mean" | "peak" | "sum" | "rate" | "per-query" | { "quantile": number } | { "above": number } | "recovery";

/**
 * Windows of one length at one distance.
 */
export type Apart = { width_s: number, 
/**
 * From the begin of one to the begin of the other.
 */
lag_s: number, 
/**
 * Standard deviation of the difference of ln(outcome), percent.
 */
sd_pct: number, };

/**
 * An arm with nothing left open: this is what is carried out.
 *
 * In texts, `{name}` stands for what is known once the server and the trial are there (`{port}`,
 * `{artefact}`), and `{{name}}` for those characters themselves.
 */
export type Arm = { name: string, 
/**
 * Short description.
 */
title: string, role: Role, 
/**
 * What the scenario's `each` put into it: key and value, in its order; empty: it was written by itself.
 */
varied?: Array<[string, string]>, 
/**
 * What is run, in one line for a reader.
 */
command: string, workload: Workload, 
/**
 * Meter of the work done in a window.
 */
meter: Meter, 
/**
 * When a window ends.
 */
window: Window, 
/**
 * From being on to the earliest begin of its window.
 */
settle_s: number, 
/**
 * The arm that this one is compared with; absent: the plan's baseline.
 */
against?: string | null, 
/**
 * The outcome that verdicts on this arm are drawn from; absent: the plan's primary one.
 */
judged_by?: string | null, 
/**
 * The load-latency curve that this arm is a point of: the name of the arm that was swept.
 */
curve?: string | null, treatment?: Treatment, artefact: ArtefactKind | null, 
/**
 * Command that reads the artefact and prints how many queries are in it; empty: its kind says how they are counted.
 */
count_with?: Array<string>, 
/**
 * The artefact lies in memory, where no disk is in its way.
 */
in_memory?: boolean, 
/**
 * Its capture's filter leaves packets out: how many come to it nobody counts.
 */
selects?: boolean, needs?: Needs, 
/**
 * Why this arm cannot run here; such an arm is in no round's order.
 */
unavailable: string | null, 
/**
 * CPU load of a positive control, in CPUs (0.25 = a quarter of one CPU).
 */
burn_share: number | null, 
/**
 * Options of the server that this arm is measured on, beyond those of the plan's other servers.
 */
server_options?: { [key in string]: string }, };

export type ArmResult = { name: string, title: string, role: Role, command: string, 
/**
 * The arm that this one is compared with; absent for a baseline.
 */
against?: string | null, 
/**
 * The outcome that verdicts on this arm are drawn from; absent: the run's primary one.
 */
judged_by?: string | null, unavailable: string | null, 
/**
 * Windows that entered the analysis.
 */
windows: number, 
/**
 * By outcome name: `qps`, `latency_us_p99`, `cpu_us_per_query`, ...
 */
outcomes: { [key in string]: Outcome }, artefact: ArtefactResult | null, 
/**
 * Packets from the sender to the file; absent where there is no link.
 */
ledger?: Ledger | null, 
/**
 * Statements executed in all of the arm's windows (ground truth from the driver).
 */
executed: number, 
/**
 * Queries in the artefact over statements executed in the same windows, 0..=1.
 */
captured_ratio: number | null, stalls: StallTotals, 
/**
 * Percentile curve of event latency over all windows: (quantile, latency_us).
 */
latency_curve: Array<[number, number]>, notes: Array<string>, };

/**
 * A line of `artefacts.ndjson`: one trial's artefact.
 */
export type Artefact = { trial: number, round: number, arm: string, kind: ArtefactKind, 
/**
 * Relative to the run directory, where it was kept.
 */
file: string | null, 
/**
 * Size of the whole artifact, from the start to the stop of the treatment, bytes.
 */
bytes: number, 
/**
 * Written between the window's begin and its end.
 */
window_bytes: number, 
/**
 * Counters reported by the tool, for the whole capture and for the window alone.
 */
packets: PacketCounts | null, window_packets: PacketCounts | null, 
/**
 * Content of the file, for a capture without a server.
 */
held?: Held | null, 
/**
 * Where the packets of that capture bear the sender's stamps.
 */
losses?: Losses | null, 
/**
 * Queries in the artefact that completed within the window.
 */
queries: QueryCount | null, 
/**
 * Queries that pt-query-digest finds in a stretch of another artefact of the arm, written after the last window.
 */
pt_query_digest: QueryCount | null, 
/**
 * Statements that the driver completed within the window: the ground truth.
 */
executed: number, 
/**
 * A capture of a session under TLS: no query can be read from it.
 */
encrypted?: boolean, note: string | null, };

export type ArtefactColumn = "bytes" | "packets" | "queries-share" | "dropped-share" | "mbps";

/**
 * Kind of a treatment's artifact; determines how it is counted.
 */
export type ArtefactKind = "pcap" | "tcpdump-text" | "queries" | "slow-log" | "general-log" | "audit-log" | "lines" | "server" | "bytes" | "directory" | "unknown";

/**
 * Means over the arm's trials; counts are sums.
 */
export type ArtefactResult = { kind: ArtefactKind, 
/**
 * Written inside windows, all trials together.
 */
bytes: number, bytes_per_s: number, 
/**
 * Link that would carry it: bytes_per_s in Mb/s.
 */
link_mbit_per_s: number, packets: number | null, received: number | null, dropped: number | null, packet_counts: PacketCounts | null, 
/**
 * Queries found that completed inside windows, all trials together.
 */
queries: number | null, counted_by: string | null, pt_query_digest: QueryCount | null, 
/**
 * Its session was under TLS: the share of the queries is unknown.
 */
encrypted?: boolean, };

/**
 * Who sends the queries.
 */
export type Asker = "users" | "probe";

export type Axis = { label: string, unit: string, log: boolean, 
/**
 * Names of the positions, where it has no scale.
 */
categories: Array<string>, };

/**
 * A column of the samples, as it was in a pause and as it was in the rest of the window.
 */
export type Beside = { 
/**
 * Of a `host`, `pressure` or `server` sample.
 */
name: string, 
/**
 * Means.
 */
during: number, otherwise: number, };

/**
 * A figure that the data describes completely.
 */
export type Chart = { 
/**
 * Stable; used in links.
 */
id: string, title: string, kind: ChartKind, x: Axis, y: Axis, series: Array<ChartSeries>, note: string, };

export type ChartKind = "line" | "bar" | "stacked" | "histogram" | "timeline" | "table";

export type ChartSeries = { name: string, 
/**
 * x, y, and where there is an interval its low and high end.
 */
points: Array<[number, number, number | null, number | null]>, };

/**
 * Line chart of outcomes over the parameters that `each` varies in a scenario's arms.
 */
export type Charted = { 
/**
 * Stable; a part of the chart's id.
 */
name: string, title: string, 
/**
 * Each has lines of its own; all are in one unit.
 */
outcomes: Array<string>, 
/**
 * The key whose values stand along the axis, in the order of the arms.
 */
x: string, 
/**
 * Axis title with the unit; absent: the key.
 */
x_title?: string | null, 
/**
 * Keys whose values have a line each.
 */
lines?: Array<string>, 
/**
 * Keys whose values have a figure each.
 */
panels?: Array<string>, 
/**
 * Name of a line on which an outcome is what `x` says; absent: there is none.
 */
diagonal?: string | null, };

/**
 * Clock of a run.
 */
export type Clock = "real" | "counted";

/**
 * Comparison of an arm's windows with the baseline's.
 */
export type Compare = "log-ratio" | "difference" | "absolute" | "median";

/**
 * One arm's outcome over a multiple of another's, of the same round.
 */
export type Contrast = { name: string, 
/**
 * In words, for a sentence.
 */
title: string, outcome: string, 
/**
 * The arm above the line, and the one below it.
 */
of: string, over: string, 
/**
 * So many times `over`.
 */
factor: number, 
/**
 * The arm beyond which both are counted: the ratio is one of overheads. Absent: of the outcomes themselves.
 */
beyond?: string | null, };

/**
 * Result of a contrast of the plan.
 */
export type ContrastResult = { name: string, title: string, outcome: string, of: string, over: string, factor: number, 
/**
 * The arm beyond which both are counted; absent: none.
 */
beyond?: string | null, 
/**
 * Rounds in which both arms have the outcome.
 */
pairs: number, 
/**
 * Geometric mean of the rounds' ratios, or the ratio of both overheads. Absent if no round has one, or if the
 * overhead in the denominator may be zero.
 */
ratio: number | null, ci95: [number, number] | null, 
/**
 * As an outcome's.
 */
method: string, };

/**
 * A control whose answer is known.
 */
export type ControlCheck = { arm: string, outcome: string, expected_pct: number, toll_pct: number | null, ci95_pct: [number, number] | null, 
/**
 * Where that outcome is compared as a difference, in its unit; none is expected then.
 */
effect?: number | null, ci95?: [number, number] | null, 
/**
 * Passed or failed; null if not conclusive: too few rounds, or an interval that holds zero beside the known effect.
 */
ok: boolean | null, text: string, };

/**
 * Unit that a meter counts.
 */
export type Counted = "statements" | "events" | "packets";

/**
 * A clock that counts instructions: each takes one nanosecond of the virtual machine's time. Idle time passes as it does
 * outside.
 */
export type CountedClock = { 
/**
 * First line of the emulator's version output.
 */
emulator: string, 
/**
 * CPU that the emulator ran on: no figure depends on it but `wall_s`.
 */
cpu_model: string | null, 
/**
 * Virtual machines that shared the rounds.
 */
machines: number, cpus_per_machine: number, ns_per_instruction: number, 
/**
 * Real time of the whole run, seconds.
 */
wall_s: number, };

/**
 * Data that loads and commands find.
 */
export type DataSetup = { 
/**
 * `sbtest`, `website`, ...
 */
recipe: string, seed: number, 
/**
 * Of what the recipe makes at its full size; absent where it has but one.
 */
scale?: number | null, 
/**
 * Those of the loads, whatever the recipe; 0: no load needs any.
 */
tables: number, 
/**
 * In each of them.
 */
rows: number, 
/**
 * Drivers whose loads change rows; empty: it is only read.
 */
written_by?: Array<string>, };

/**
 * One outcome of a window: a number with a name.
 */
export type Definition = { 
/**
 * In scenarios, bounds and JSON; the unit is part of it: `latency_us_p99`.
 */
name: string, unit: string, 
/**
 * In words, for a sentence: `p99 response time`.
 */
title: string, 
/**
 * In fewer words, for the head of a table's column; absent: the title.
 */
head?: string | null, 
/**
 * More is better (throughput) or less is better (latency, CPU).
 */
higher_is_better: boolean, source: Source, aggregate: Aggregate, compare: Compare, zeros: Zeros, 
/**
 * In the outcome's own unit: a difference whose interval lies inside ±margin is called "no effect".
 */
margin?: number | null, 
/**
 * True if it is drawn over the rate where arms ran at several rates.
 */
by_rate?: boolean, 
/**
 * True if it needs longer windows than steady outcomes do: if a run has some, only those count.
 */
long_windows?: boolean, };

/**
 * Layout of the rounds.
 */
export type Design = "rounds" | { "blocks": { 
/**
 * Window lengths of the first blocks, seconds, which raise the exposure and are not judged.
 */
ramp_s: Array<number>, } };

/**
 * An arm whose truth is known.
 */
export type Dose = { arm: string, 
/**
 * Percent of the host's CPU time, or of the response time, that it was set to take.
 */
told_pct: number | null, 
/**
 * What it took of that, where that can be seen.
 */
took_pct: number | null, 
/**
 * By how much the outcome must change by what it took, percent.
 */
given_pct: number, found_pct: number | null, ci95_pct: [number, number] | null, };

/**
 * Kind of a known cost.
 */
export type DoseKind = "cpu" | "delay";

/**
 * Doses of one kind: applied and measured.
 */
export type DoseLine = { kind: DoseKind, 
/**
 * The outcome that they must be found in.
 */
outcome: string, 
/**
 * From the smallest to the largest.
 */
doses: Array<Dose>, 
/**
 * Found over given, the mean of the rounds: 1 is right.
 */
slope: number | null, 
/**
 * Around `slope`; absent with fewer rounds than an interval needs.
 */
ci95: [number, number] | null, 
/**
 * True if 1 lies inside `ci95`.
 */
ok: boolean | null, 
/**
 * The smallest applied change of the outcome that, like all larger ones, was distinguished from zero,
 * percent.
 */
resolution_pct: number | null, };

/**
 * Packets of a capture file.
 */
export type Held = { packets: number, 
/**
 * Of whole frames, whatever was cut off.
 */
bytes: number, 
/**
 * Of these, the last packet's.
 */
last_bytes: number, 
/**
 * From the first packet's time to the last one's.
 */
span_us: number, };

/**
 * Container of a treatment's processes, with their resource usage.
 */
export type HeldIn = "control-group" | "process-group";

/**
 * `host.json`. Holds no host name, user name or address.
 */
export type Host = { 
/**
 * A short name for tables that compare hosts, `2-core x86_64 vm`.
 */
label: string, os: string, kernel: string, arch: string, cpu_model: string, cpus: number, 
/**
 * `kvm`, `firecracker`, `none`, ... if it can be detected.
 */
virtualisation: string | null, memory_bytes: number, 
/**
 * File system and device under the run and under the server's data.
 */
disk: string, cgroup: string, 
/**
 * sysctls and sysfs settings that matter: dirty_ratio, swappiness, THP, governor.
 */
settings: { [key in string]: string }, tools: Array<Tool>, 
/**
 * Server variables that affect the result.
 */
server_variables: { [key in string]: string }, 
/**
 * The virtual machine whose clock counted instructions; absent: measured on the real clock.
 */
counted?: CountedClock | null, };

/**
 * The stages of all trials of an arm.
 */
export type Ledger = { trials: number, 
/**
 * Of these, so many were counted from the sender to the file without a gap.
 */
whole: number, 
/**
 * Number of trials in which a drop counter of the stage reports every packet that is missing at it.
 */
adds_up: number, stages: Array<LedgerStage>, };

/**
 * One stage over all trials of an arm.
 */
export type LedgerStage = { name: string, 
/**
 * All trials together.
 */
packets: number, 
/**
 * Those of the stage before less those of this one; absent for the first, and where the two did not count the same.
 */
lost?: number | null, 
/**
 * Number of them that a drop counter of the stage reports. If it is lower, packets were lost without a counter.
 */
lost_counted?: number | null, 
/**
 * Mean over trials of `lost` as a share of what was counted where the count of these packets began: at the first stage, or
 * at that of a capture that ended before its sender.
 */
lost_pct?: number | null, };

/**
 * A ladder: arms that differ in one number, its rungs. The limit of a round is the highest rung that holds.
 */
export type Limit = { name: string, 
/**
 * In words, for a sentence.
 */
title: string, 
/**
 * What must stay within `at_most`.
 */
outcome: string, 
/**
 * The key of `each` whose values are the rungs; those of all other keys tell ladders apart.
 */
over: string, 
/**
 * Of the rungs, for a sentence.
 */
unit: string, at_most: number, 
/**
 * An outcome in the unit of the rungs: a rung of which it falls more than 1% short was not reached.
 */
reached?: string | null, };

/**
 * What one ladder came to.
 */
export type LimitResult = { name: string, title: string, outcome: string, over: string, unit: string, at_most: number, 
/**
 * What the ladder's arms have in common, key and value.
 */
of: Array<[string, string]>, 
/**
 * In rising order.
 */
rungs: Array<number>, 
/**
 * Of each round that tells it, all rungs below its limit having been measured: the highest rung up to which it and all
 * below it stay within the bound; 0: not even the lowest.
 */
values: Array<number>, 
/**
 * The highest that holds in every round; 0: none does.
 */
in_all: number, median: number, 
/**
 * Of the median, by order statistics; absent with too few rounds.
 */
ci95?: [number, number] | null, 
/**
 * Rounds that ended their ladder at its top, or at a rung that the sender did not reach: their limit lies higher.
 */
open: number, };

/**
 * A host made smaller by a control group.
 */
export type Limits = { 
/**
 * Time of so many CPUs; absent: all.
 */
cpus?: number | null, 
/**
 * Page cache and all; absent: as much as there is.
 */
memory_bytes?: number | null, };

export type LoadColumn = "statements" | "events" | "errors";

/**
 * Rounds of longer windows among the others, for outcomes that need length.
 */
export type Long = { window_s: number, 
/**
 * Their positions in the order of rounds, from 0, rising.
 */
rounds: Array<number>, };

/**
 * Rounds of longer windows.
 */
export type LongWindows = { window_s: number, 
/**
 * In which every available arm has a window.
 */
rounds_done: number, };

/**
 * Send times of lost packets, in intervals of one length from the first packet that arrived.
 */
export type Losses = { bin_us: number, 
/**
 * In each stretch, and how many of them are lost; those after the last that came are in neither.
 */
sent: Array<number>, lost: Array<number>, };

/**
 * Minimal detectable effect on the primary outcome, at 80% power.
 */
export type Mde = { 
/**
 * From the pilot, before the run.
 */
planned_pct: number | null, 
/**
 * From the run's own A/A or pairs.
 */
achieved_pct: number | null, 
/**
 * The same where that outcome is compared as a difference, in its unit.
 */
achieved?: number | null, 
/**
 * Rounds that would make an effect as large as the margin detectable.
 */
rounds_for_margin: number | null, };

/**
 * Meter of the work done.
 */
export type Meter = "driver" | "server" | { "link": string } | "none";

/**
 * Without what an arm cannot run.
 */
export type Needs = { 
/**
 * Programs beyond those of its commands, and files (with a slash).
 */
programs: Array<string>, root: boolean, 
/**
 * Variables that the server must know.
 */
variables: Array<string>, 
/**
 * Steps of the rig, by kind.
 */
rig: Array<string>, 
/**
 * Command that must succeed; it prints the reason if it does not.
 */
check: Array<string>, };

/**
 * How far two windows of unchanged load differ: the variance of the difference of ln(outcome) between windows of
 * length `w` that begin `l` apart is `2 white_s / w + 2 pink F(l / w)`,
 * `F(m) = ((m+1)^2 ln(m+1) + (m-1)^2 ln(m-1) - 2 m^2 ln m) / 2`.
 */
export type Noise = { 
/**
 * Of noise that averages out: variance times seconds.
 */
white_s: number, 
/**
 * Of noise of the 1/f kind, which no length of a window averages out.
 */
pink: number, 
/**
 * What was seen, and what the two numbers were fitted to.
 */
seen: Array<Apart>, };

/**
 * One outcome of one arm, and its overhead against the baseline.
 */
export type Outcome = { unit: string, 
/**
 * More is better (throughput) or less is better (latency, CPU).
 */
higher_is_better: boolean, mean: number, sd: number, 
/**
 * One value for each window, in the order of rounds; of a quantile whose windows have too few events, one for
 * each block of rounds.
 */
values: Array<number>, 
/**
 * Of a log ratio: 100 (e^mean(d) - 1), d = ln arm - ln baseline in the same round; absent for the baseline.
 */
toll_pct: number | null, 
/**
 * Around `toll_pct`, and what the verdict rests on; absent with fewer rounds than an interval needs.
 */
ci95_pct: [number, number] | null, 
/**
 * Of a difference: mean of arm - baseline in the same round; of what is not compared: the mean itself.
 * In `unit`; absent for log ratios.
 */
effect?: number | null, 
/**
 * Around `effect`, in `unit`; absent with fewer rounds than an interval needs.
 */
ci95?: [number, number] | null, 
/**
 * Of the mean of d, on the log scale for ratios, else in `unit`; absent without two differences.
 */
standard_error?: number | null, 
/**
 * `sign-flip`, `sign-flip, 16 arms together, drift taken out`, `confidence-sequence`, `bootstrap-bca of 12 blocks
 * of 4 to 5 rounds`, or why there is none.
 */
method: string, p: number | null, 
/**
 * Of the outcome that verdicts are drawn from, adjusted for all treatments judged together.
 */
p_adjusted: number | null, 
/**
 * Of a `confidence-sequence` whose run went to the end of its plan: the sign flips' interval there, for one look. No verdict
 * rests on it.
 */
planned_ci95_pct?: [number, number] | null, verdict: Verdict, };

/**
 * Overlay of runs of the same question on different platforms.
 */
export type Overlay = { 
/**
 * Properties in which they differ, a few words each: `kernel`, `libpcap`.
 */
differ_in: Array<string>, 
/**
 * One for each run, in their order.
 */
platforms: Array<Platform>, 
/**
 * Each with a line, or a column, for each platform.
 */
charts: Array<Chart>, };

export type PacketCounts = { captured: number, 
/**
 * "received by filter": on `any` and loopback this counts both copies.
 */
received: number, 
/**
 * "dropped by kernel".
 */
dropped: number, };

/**
 * Trade-off between outcomes, and the criterion for the recommended arm.
 */
export type Pareto = { 
/**
 * Outcomes that span the choice.
 */
outcomes: Array<string>, 
/**
 * The one of them that is to be best.
 */
prefer: string, 
/**
 * By outcome: the most by which it may be worse than what the arm is compared with, in the unit of its overhead
 * (percent of a log-ratio, else in its unit).
 */
limit?: { [key in string]: number }, };

export type ParetoArm = { name: string, 
/**
 * An arm that is better in one of the outcomes, beyond its interval, and worse in none; absent: there is none.
 */
beaten_by: string | null, 
/**
 * Mean of each outcome, in their order, with its interval; absent with too few windows.
 */
values: Array<number>, ci95: Array<[number, number] | null>, };

/**
 * Pareto-optimal arms, and the recommended one.
 */
export type ParetoResult = { 
/**
 * As the plan has them.
 */
outcomes: Array<string>, 
/**
 * Those that have all of them, in the order of the plan.
 */
arms: Array<ParetoArm>, 
/**
 * Absent where no arm keeps the limits.
 */
advised: string | null, 
/**
 * The same in a sentence, with the figures that it rests on.
 */
text: string, };

export type Party = "host" | "server" | "server-wait" | "driver" | "treatment" | "remote" | "toll" | "irq" | "rest";

/**
 * A stretch in which a process of a treatment wrote nothing.
 */
export type Pause = { arm: string, trial: number, round: number, process: string, begin_mono_us: number, end_mono_us: number, 
/**
 * Of its begin, from the window's.
 */
begin_s: number, 
/**
 * What host and server did then and not else, the most striking first.
 */
beside: Array<Beside>, };

/**
 * Result of the pilot: noise of the host, and switching time of each arm. None of its windows is in the run.
 */
export type Pilot = { 
/**
 * From its begin to the first trial.
 */
took_s: number, 
/**
 * Of the baseline's load by itself; absent where nothing is metered, or for too short a time.
 */
noise: Noise | null, 
/**
 * Events (without a driver: statements or packets) that the baseline's load completes.
 */
events_per_s: number | null, 
/**
 * By name, those that were tried.
 */
arms: { [key in string]: Switching }, };

/**
 * `plan.json`.
 */
export type Plan = { format: number, toll_version: string, 
/**
 * The command line that repeats this run (secrets are never on it).
 */
command: Array<string>, scenario: string, 
/**
 * The question that the scenario asks, one sentence.
 */
question: string, profile: string, 
/**
 * What seconds of this run are; absent: real ones.
 */
clock?: Clock, seed: number, 
/**
 * Name of the arm that all others are compared with.
 */
baseline: string, 
/**
 * Name of the one outcome that verdicts are drawn from.
 */
primary: string, 
/**
 * Outcomes measured in each window, in the order of reports.
 */
outcomes: Array<Definition>, 
/**
 * Names of the outcomes that a table shows, in the order of its columns.
 */
columns: Array<string>, 
/**
 * Names of the outcomes that the page draws, in this order.
 */
panels: Array<string>, 
/**
 * Outcomes of one arm over multiples of another's.
 */
contrasts?: Array<Contrast>, 
/**
 * Ladders of arms.
 */
limits?: Array<Limit>, 
/**
 * What arms trade against each other; absent: nothing is advised of it.
 */
pareto?: Pareto | null, 
/**
 * Outcomes that are drawn over what arms were varied by.
 */
charts?: Array<Charted>, 
/**
 * An effect whose interval lies inside ±margin is called "no effect".
 */
margin_pct: number, 
/**
 * 0.05 gives 95% intervals.
 */
alpha: number, 
/**
 * At most so many: fewer where `time_s` says so.
 */
rounds: number, 
/**
 * Time that the trials are given, from the first one's begin: a round that would not fit any more is not
 * begun. Absent: all rounds are carried out.
 */
time_s?: number | null, 
/**
 * Length of windows that last for a time.
 */
window_s: number, 
/**
 * Rounds whose windows are longer; absent: none.
 */
long?: Long | null, 
/**
 * Of arms that say nothing of their own.
 */
settle_s: number, 
/**
 * Pause between trials, load still running, treatment off.
 */
gap_s: number, 
/**
 * Length of the pilot before the first trial, the baseline's load alone.
 */
pilot_s: number, 
/**
 * Stop once the confidence sequence excludes zero or lies inside the margin for every arm.
 */
early_stop: boolean, 
/**
 * The server that the baseline is measured on; absent where none is in sight.
 */
server?: Server | null, 
/**
 * Test setup of the trials; empty in runs of 2026-11-21, which did not record it.
 */
setup: Setup, arms: Array<Arm>, 
/**
 * How rounds are laid out; absent: each arm once a round.
 */
design?: Design, 
/**
 * Classes of the users' queries and their weights, from a pilot under their own traffic; empty: none were seen.
 */
classes?: Array<QueryClass>, 
/**
 * Arm names of each round, in the order that was drawn.
 */
order: Array<Array<string>>, 
/**
 * Fraction of the window by which each window's start is jittered, drawn from the seed.
 */
jitter: number, started_wall_us: number, 
/**
 * How a treatment's processes are held together; absent in older runs.
 */
held_in?: HeldIn | null, 
/**
 * Minimum detectable effect on the primary outcome (80% power), all treatments together,
 * predicted from the pilot's noise; absent where that is not known (yet).
 */
planned_mde_pct: number | null, 
/**
 * Split of the rounds into parts apart in time; absent: they follow each other at once.
 */
spread?: Spread | null, 
/**
 * Result of the pilot; absent without one.
 */
pilot?: Pilot | null, };

/**
 * Platform of one of several runs.
 */
export type Platform = { 
/**
 * Unlike any other's.
 */
name: string, 
/**
 * What (`kernel`), and which: the same whats in the same order for all platforms; empty: not known.
 */
facts: Array<[string, string]>, };

/**
 * Pooled result of several runs, or of several parts of one.
 */
export type Pooled = { 
/**
 * How many there are, in words: `3 runs`, `6 parts of this run`.
 */
over: string, 
/**
 * In the order of the plan.
 */
arms: Array<PooledArm>, };

/**
 * One arm over several runs, in the outcome that it is judged by.
 */
export type PooledArm = { name: string, outcome: string, 
/**
 * Effect in each run, in their order; absent if the run has none.
 */
tolls_pct: Array<number | null>, toll_pct: number, 
/**
 * Of the mean over all such runs, the spread between them included.
 */
ci95_pct: [number, number], 
/**
 * Standard deviation of the overhead between runs beyond their own errors.
 */
between_pct: number, };

/**
 * A process of a treatment, or several joined by pipes.
 */
export type Process = { 
/**
 * Unlike any other's in the arm.
 */
name: string, 
/**
 * Words of each command; one's output is the next one's input.
 */
stages: Array<Array<string>>, 
/**
 * File that takes the last one's standard output.
 */
stdout?: string | null, 
/**
 * Text on standard error, or at the head of standard output, that says that it is on.
 */
ready?: string | null, 
/**
 * Ends the first command.
 */
stop: Signal, 
/**
 * Makes the tool print its counters without ending.
 */
probe?: Signal | null, 
/**
 * Started this long after the treatment.
 */
after_s: number, 
/**
 * Environment variables that it is given, by name.
 */
env?: Array<string>, 
/**
 * Runs beside the others for as long as they take: its own end is waited for by nobody, and a failure.
 */
background?: boolean, 
/**
 * Runs at the rig's far end: what it uses would not be used on this host.
 */
far?: boolean, 
/**
 * Before it is ended, it is left alone until it has written nothing for so long.
 */
drain_s?: number, 
/**
 * Its standard output is kept beside its errors, and read for what it says of packets.
 */
keep_stdout?: boolean, };

export type ProcessColumn = "seconds" | "cpu_us" | "memory_peak_bytes" | "read_bytes" | "written_bytes" | "output_bytes" | "first_output_s" | "longest_pause_s" | "paused_s" | "sent_mbps";

/**
 * A class of the users' queries.
 */
export type QueryClass = { 
/**
 * The digest's name of it, or an event name of performance_schema.
 */
name: string, 
/**
 * What its queries do, in a few words.
 */
title: string, 
/**
 * Share of the pilot's queries; those of all classes sum to 1.
 */
weight: number, };

export type QueryCount = { queries: number, 
/**
 * Counting program: `toll`, `pt-query-digest`, `server`.
 */
by: string, 
/**
 * Bytes of the artefact that were read for this count.
 */
bytes_read: number, 
/**
 * Statements executed over the very stretch that was counted, where it is not the window.
 */
executed: number | null, 
/**
 * Queries that toll finds in the same bytes, where it is not toll that counted.
 */
by_toll?: number | null, };

/**
 * One part of the test rig.
 */
export type RigStep = { 
/**
 * `far-end`, `ssh`, `link`, ...
 */
kind: string, } & ({ [key in string]: string });

export type Role = "baseline" | "treatment" | "aa" | "placebo" | "positive-control";

/**
 * Rows that are changed while the arm is on, such as those of performance_schema's setup tables.
 * toll reads them first, and puts back what differs.
 */
export type RowUpdate = { 
/**
 * With its schema: `performance_schema.setup_consumers`.
 */
table: string, 
/**
 * The columns that tell its rows apart.
 */
key: Array<string>, 
/**
 * Which rows, as SQL; all of them where it is absent.
 */
where?: string | null, 
/**
 * Values by column.
 */
set: { [key in string]: string }, };

/**
 * `result.json`, and what `toll report --format json` prints for one run.
 */
export type RunResult = { format: number, toll_version: string, scenario: string, question: string, 
/**
 * One or two sentences, drawn from the numbers.
 */
answer: string, profile: string, command: Array<string>, seed: number, baseline: string, primary: string, 
/**
 * What the outcomes of arms mean, in the order of reports.
 */
definitions: Array<Definition>, 
/**
 * Names of the outcomes that a table shows, in the order of its columns.
 */
columns: Array<string>, 
/**
 * Names of the outcomes that the page draws, in this order.
 */
panels: Array<string>, margin_pct: number, alpha: number, 
/**
 * Those that fitted, of a run that was given a time.
 */
rounds_planned: number, 
/**
 * Rounds in which every available arm has a window.
 */
rounds_done: number, window_s: number, 
/**
 * The longer windows, which alone tell the outcomes that need them; absent where there were none.
 */
long?: LongWindows | null, started_wall_us: number, duration_s: number, 
/**
 * False for a run that was cut short; `warnings` says where.
 */
complete: boolean, host: Host, 
/**
 * The server that the baseline was measured on; absent where none was in sight.
 */
server?: Server | null, 
/**
 * What held each treatment's processes; absent in older runs.
 */
held_in?: HeldIn | null, workload: Workload, 
/**
 * In the order of the plan.
 */
arms: Array<ArmResult>, aa: AaCheck | null, controls: Array<ControlCheck>, 
/**
 * Arms whose truth is known, one line for each kind of dose.
 */
doses?: Array<DoseLine>, mde: Mde | null, 
/**
 * In the order of the plan.
 */
contrasts?: Array<ContrastResult>, pareto?: ParetoResult | null, limits?: Array<LimitResult>, stalls: Array<StallSpan>, 
/**
 * Stretches of a second or more in which a command that ends by itself wrote nothing, in the order of time.
 */
pauses?: Array<Pause>, self_cost: SelfCost, warnings: Array<Warning>, advice: Array<string>, 
/**
 * Scenario-specific figures; whoever draws needs to know nothing of the scenario.
 */
charts: Array<Chart>, 
/**
 * The parts of a run that was spread over hours, taken together.
 */
parts?: Pooled | null, };

/**
 * One server, and the arms that are measured on it.
 */
export type SandboxServer = { arms: Array<string>, performance_schema: boolean, 
/**
 * Further options, name and value.
 */
options?: { [key in string]: string }, };

/**
 * Common and individual settings of a run's servers.
 */
export type SandboxSetup = { 
/**
 * Path of the server program.
 */
program: string, max_connections: number, 
/**
 * Of each server, bytes.
 */
buffer_pool_bytes: number, 
/**
 * They listen on ::1 too.
 */
ipv6: boolean, 
/**
 * They offer TLS.
 */
tls: boolean, 
/**
 * They can be reached from the rig's far end, through its link.
 */
from_far_end?: boolean, 
/**
 * The first is the baseline's.
 */
servers: Array<SandboxServer>, };

export type SelfCost = { cpu_s: number, 
/**
 * Share of one CPU, inside windows.
 */
cpu_pct_of_one_core: number, memory_peak_bytes: number, written_bytes: number, 
/**
 * Absent: nobody but toll used the server.
 */
while_off?: WhileOff | null, };

export type Server = { 
/**
 * `sandbox` or `external`.
 */
kind: string, 
/**
 * `mariadb`, `mysql` or `percona`.
 */
flavour: string, version: string, 
/**
 * host:port or socket path; never a user or password.
 */
address: string, 
/**
 * Settings that toll chose for a sandbox, `name=value`.
 */
config: Array<string>, };

/**
 * A global variable while the arm is on.
 */
export type Setting = { name: string, value: string, 
/**
 * Left out where the server does not know the variable; else that is a failure.
 */
if_known?: boolean, };

/**
 * Server, data and rig of a run, as they were made ready before its first trial.
 */
export type Setup = { 
/**
 * Servers that toll started; absent where the server was there before, or none is in sight.
 */
sandbox?: SandboxSetup | null, 
/**
 * Absent where no load and no command needs data.
 */
data?: DataSetup | null, 
/**
 * Parts of the test rig, in the order in which they are created.
 */
rig?: Array<RigStep>, 
/**
 * What servers and treatments have of the host, all together; absent: all of it.
 */
limits?: Limits | null, 
/**
 * Arms that are measured on the second of two existing servers, on which a treatment is on while it is off on the first;
 * empty: there is no second one.
 */
second?: Array<string>, };

export type Signal = "INT" | "TERM" | "KILL" | "USR1";

/**
 * Source readings of an outcome within a window.
 */
export type Source = { "from": "load", column: LoadColumn, } | { "from": "latency" } | { "from": "cpu", of: Party, } | { "from": "host", column: string, } | { "from": "pressure", column: string, } | { "from": "server", column: string, } | { "from": "processes", column: ProcessColumn, name?: string | null, } | { "from": "artefact", column: ArtefactColumn, } | { "from": "stages", column: StagesColumn, } | { "from": "trial", column: TrialColumn, } | { "from": "by-class", of: Asker, };

/**
 * Rounds in parts that are apart in time, so that what a host is like at one hour is not taken for what it is like.
 */
export type Spread = { 
/**
 * From the first part's begin; each part begins as far behind the one before.
 */
over_s: number, 
/**
 * The first round of each part but the first.
 */
begins: Array<number>, };

export type StagesColumn = "lost-share";

/**
 * A stretch in which the host did (nearly) nothing for its clients.
 */
export type StallSpan = { arm: string, trial: number, 
/**
 * `throughput`, `latency` or `harness`.
 */
kind: string, begin_mono_us: number, end_mono_us: number, 
/**
 * Highest seen beside it.
 */
dirty_bytes: number | null, writeback_bytes: number | null, psi_cpu_pct: number | null, psi_io_pct: number | null, psi_memory_pct: number | null, disk_write_await_ms: number | null, };

export type StallTotals = { count: number, total_s: number, longest_s: number, };

/**
 * Switching time of one arm, from its trials in the pilot.
 */
export type Switching = { 
/**
 * Number of trials measured.
 */
tried: number, 
/**
 * From being switched on to saying that it is on; absent where its window begins with it.
 */
start_s: number | null, 
/**
 * From then until its load goes as steadily as it will; absent where it was not on for long enough to tell.
 */
settle_s: number | null, 
/**
 * From being switched off until the load goes as before; absent where that was not watched.
 */
leave_s: number | null, 
/**
 * What its trials take beyond settling and window: load, start, stop, and what waits for them.
 */
around_s: number, 
/**
 * Counting what it left, for each second that it was on.
 */
count_s_per_s: number, 
/**
 * How long it takes where it ends by itself.
 */
done_s: number | null, };

export type Tool = { name: string, 
/**
 * First line of its version output; absent if the tool is missing.
 */
version: string | null, };

/**
 * Actions of an arm: settings first, in their order, then processes.
 */
export type Treatment = { settings: Array<Setting>, updates: Array<RowUpdate>, 
/**
 * Statements when the arm goes on, and off.
 */
on: Array<string>, off: Array<string>, processes: Array<Process>, 
/**
 * Processes that end by themselves are started again until the window is over.
 */
again: boolean, 
/**
 * A query that returns the number of queries captured so far.
 */
count: string | null, 
/**
 * The load reconnects once the arm is on: sessions copy some variables when they connect.
 */
fresh_sessions: boolean, 
/**
 * Port of the listener on the far end of a link.
 */
remote_port: number | null, 
/**
 * Of the link to the far end, as `tc` writes rates; absent: as the rig says.
 */
far_rate: string | null, 
/**
 * Settings of the kernel while the arm is on, in this order: names as `sysctl` has them, and values.
 */
sysctl: Array<[string, string]>, };

export type TrialColumn = "seconds" | "stalled-s" | "recovery-s";

export type Verdict = "baseline" | "costly" | "cheaper" | "no-effect" | "unclear" | "no-interval" | "not-compared";

/**
 * Warning with a code, and advice.
 */
export type Warning = { 
/**
 * `carry-over`, `dependence`, `aa-failed`, `too-few-rounds`, ...
 */
code: string, arm: string | null, text: string, 
/**
 * What to do next.
 */
advice: string, };

/**
 * What toll takes of a server that serves users, in windows without a method.
 */
export type WhileOff = { 
/**
 * Of all CPUs of its host: toll itself, its guard, and its tap on the server's sockets. What the tap's probes take inside the
 * server is in none of them.
 */
toll_cpu_pct: number, guard_cpu_pct: number, tap_cpu_pct: number, queries_per_s: number, 
/**
 * Of all queries of the server; absent where their number is not known.
 */
queries_pct?: number | null, connections: number, };

/**
 * When a window ends. It begins once the treatment is on and has settled; `Done`: with it.
 */
export type Window = { "until": "time", s: number, } | { "until": "done", at_most_s: number, } | { "until": "count", of: Counted, count: number, at_most_s: number, };

/**
 * Load on the server.
 */
export type Workload = { 
/**
 * `toll`, `sysbench` or `none`: the program that makes the load.
 */
driver: string, 
/**
 * `read-only`, `point-select`, `read-write`, ...
 */
profile: string, 
/**
 * `tcp`, `unix`, `tls`, ...
 */
transport: string, threads: number, tables: number, rows: number, 
/**
 * Statements travel as prepared (binary) rather than text.
 */
prepared: boolean, 
/**
 * Events after which a connection is made anew; 0: never. Three runs of 2026-11-21 lack it.
 */
reconnect_every: number, 
/**
 * Threads of toll's own driver that share its connections; absent: as the driver chooses.
 */
workers?: number | null, 
/**
 * Each reply is held back for this share of its response time, percent: a positive control.
 */
delay_pct?: number | null, 
/**
 * Intended events a second; absent: closed loop.
 */
rate_per_s: number | null, };

/**
 * Treatment of zero values in a ratio.
 */
export type Zeros = "refuse" | "fewer-than-one";

"""Tables of docs/evidence/league.md: the tools of capture-league side by side, over several stored runs of it; for scripts/study.

A marker names the runs by what they are: `exact` and `time` are the load of the scenario on either clock; `text`, `tls` and
`unix` the same load, counted, by the scenario's profiles of these names.
"""

from stored_runs import read_result

PARTIES = [
    ("server", ["server_cpu_us_per_query"]),
    ("clients", ["driver_cpu_us_per_query"]),
    ("the tool", ["treatment_cpu_us_per_query"]),
    ("rest of the kernel", ["irq_cpu_us_per_query", "rest_cpu_us_per_query"]),
]
WAYS = [("exact", "prepared"), ("text", "as text"), ("tls", "inside TLS"), ("unix", "Unix socket")]


def find_arm(result, name):
    return next((arm for arm in (result or {"arms": []})["arms"] if arm["name"] == name), None)


def show_mean(arm, outcome):
    """Mean of an outcome; nothing without one."""
    found = ((arm or {}).get("outcomes") or {}).get(outcome) or {}
    return found.get("mean")


def show_difference(arm, baseline, outcomes):
    """Instructions more than the baseline's; those of a counted run are in thousands."""
    pairs = [(show_mean(arm, name), show_mean(baseline, name)) for name in outcomes]
    known = [1000 * (value - base) for value, base in pairs if value is not None and base is not None]
    return f"{sum(known):+,.0f}" if known else ""


def show_bytes(value):
    for limit, unit in [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")]:
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.0f} B"


def show_caught(arm):
    """Percent of the executed queries, of a tool whose queries are counted."""
    if arm is None or arm["windows"] == 0:
        return "not run"
    if (arm.get("artefact") or {}).get("encrypted"):
        return "0%, encrypted"
    caught = show_mean(arm, "caught_pct")
    return "not counted" if caught is None else f"{caught:.1f}%"


def title_of(arm):
    return arm["title"].replace("|", "\\|")


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def list_ran(exact):
    """Variants that were counted, cheapest first, without controls."""
    tools = [arm for arm in exact["arms"] if arm["role"] == "treatment" and arm["windows"] > 0]
    return sorted(tools, key=lambda arm: show_mean(arm, "cpu_us_per_query") or 0)


def make_cost(runs, show_outcome):
    exact, time = runs["exact"], runs.get("time")
    baseline = find_arm(exact, exact["baseline"])
    heads = ["tool", "", *(head for head, _ in PARTIES), "all", "work", "response time", "caught", "written per query", "memory"]
    rows = []
    for arm in list_ran(exact):
        timed = find_arm(time, arm["name"])
        written, memory = show_mean(arm, "artefact_bytes_per_query"), show_mean(arm, "process_memory_peak_bytes")
        rows.append([
            f"`{arm['name']}`",
            title_of(arm),
            *(show_difference(arm, baseline, outcomes) for _, outcomes in PARTIES),
            show_difference(arm, baseline, ["cpu_us_per_query"]),
            show_outcome(arm, "cpu_us_per_query"),
            show_outcome(timed, "latency_us_mean") or "not run",
            show_caught(timed or arm),
            "" if written is None else show_bytes(written),
            "" if memory is None else show_bytes(memory),
        ])
    return table(heads, rows)


def make_sight(runs):
    ways = [(runs[key], head) for key, head in WAYS if key in runs]
    rows = [
        [f"`{arm['name']}`", title_of(arm), *(show_caught(find_arm(result, arm["name"])) for result, _ in ways)]
        for arm in list_ran(runs["exact"])
    ]
    return table(["tool", "", *(head for _, head in ways)], rows)


def make_missing(runs):
    """Tools without a window in one of the runs, and why."""
    clocks = {"exact": "counted", "time": "in time"}
    rows = []
    for arm in runs["exact"]["arms"]:
        for key, head in clocks.items():
            found = find_arm(runs.get(key), arm["name"])
            if found is None or found["windows"] > 0:
                continue
            why = found["unavailable"] or next(iter(found["notes"]), "no window: see the run's trials")
            rows.append([f"`{arm['name']}`", title_of(arm), head, why.replace("|", "\\|")])
    return table(["tool", "", "run", "why"], rows) if rows else "All tools ran.\n"


def make_league(description, show_outcome):
    """Markdown of one table: `cost exact=RUN time=RUN`."""
    kind, *words = description.split()
    runs = {key: read_result(run) for key, run in (word.split("=", 1) for word in words)}
    makers = {
        "cost": lambda: make_cost(runs, show_outcome),
        "sight": lambda: make_sight(runs),
        "missing": lambda: make_missing(runs),
    }
    return makers[kind]()

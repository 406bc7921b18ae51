"""Stored runs below runs/, as the toll of this checkout analyses them now; for scripts/study and scripts/figures."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def ask_toll(run, *options):
    """Report of a stored run for a terminal of 80 columns."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    command = [target / "debug" / "toll", "report", ROOT / "runs" / run, *options]
    shown = subprocess.run(command, check=True, capture_output=True, env={**os.environ, "COLUMNS": "80"})
    return shown.stdout.decode()


def read_result(run):
    """Result of a stored run."""
    return json.loads(ask_toll(run, "--format", "json"))


def list_runs():
    """Names of all stored runs, `DATE-HOST/NAME`."""
    folder = ROOT / "runs"
    return sorted(str(plan.parent.relative_to(folder)) for plan in folder.glob("*/*/plan.json"))

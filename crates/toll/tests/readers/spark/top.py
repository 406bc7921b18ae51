"""Prints the classes of tables by their query time, with Apache Spark: a master, and two executors in processes of their own.

With KILL_EXECUTOR in the environment, one of the executors is killed while it has work.
"""

import os
import pathlib
import signal
import sys
import threading
import time

import pyspark
from pyspark.sql import SparkSession

os.environ["SPARK_HOME"] = str(pathlib.Path(pyspark.__file__).parent)
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
options = {"spark.driver.memory": "1g", "spark.ui.enabled": "false", "spark.sql.catalogImplementation": "in-memory"}
for name, value in options.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def is_below(pid, ancestor):
    while pid not in (0, ancestor):
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return pid == ancestor


def list_executors():
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"CoarseGrainedExecutorBackend" in path.read_bytes() and is_below(int(path.parent.name), os.getpid()):
                yield int(path.parent.name)
        except OSError:
            continue  # it has ended meanwhile


def kill_busy_executor():
    tracker = spark.sparkContext.statusTracker()
    while True:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        active = sum(stage.numActiveTasks for stage in stages if stage)
        if active:
            pid = next(list_executors())
            os.kill(pid, signal.SIGKILL)
            print(f"killed executor {pid}; {active} tasks were running", file=sys.stderr)
            return
        time.sleep(0.002)


if "KILL_EXECUTOR" in os.environ:
    threading.Thread(target=kill_busy_executor, daemon=True).start()
spark.read.parquet(*sys.argv[1:]).createOrReplaceTempView("digests")
for row in spark.sql(pathlib.Path(__file__).with_name("top.sql").read_text()).collect():
    print(row["class"], int(row["n"]), int(row["time_ns"]), int(row["p99_ns"]))
spark.stop()

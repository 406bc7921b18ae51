"""Prints the classes of tables by their query time, with Apache Spark: a master, and two executors in processes of their own."""

import os
import pathlib
import sys

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
spark.read.parquet(*sys.argv[1:]).createOrReplaceTempView("digests")
for row in spark.sql(pathlib.Path(__file__).with_name("top.sql").read_text()).collect():
    print(row["class"], int(row["n"]), int(row["time_ns"]), int(row["p99_ns"]))
spark.stop()

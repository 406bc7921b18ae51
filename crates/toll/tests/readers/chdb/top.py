"""Prints the classes of tables by their query time, with chDB: the engine of ClickHouse in this process."""

import pathlib
import sys

import chdb

statement = pathlib.Path(__file__).with_name("top.sql").read_text()
files = "{" + ",".join(sys.argv[1:]) + "}" if len(sys.argv) > 2 else sys.argv[1]
print(chdb.query(statement.replace("digests", f"file('{files}', Parquet)"), "TSV").data().replace("\t", " "), end="")

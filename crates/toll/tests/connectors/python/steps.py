"""Carries out a plan with MySQL's own connector, in pure Python."""

import os
import sys

import mysql.connector

_, _, host, port, user, way, plan = sys.argv
session = mysql.connector.connect(
    host=host,
    port=int(port),
    user=user,
    password=os.environ["MYSQL_PWD"],
    database="sbtest",
    use_pure=True,
    ssl_disabled=True,
    compress=way == "compressed",
    collation="utf8mb4_general_ci",
    autocommit=True,
)


def value(field):
    if field == "NULL":
        return None
    return field[1:] if field.startswith("'") else int(field)


def carry_out(cursor, sql, values):
    try:
        cursor.execute(sql, values)
        if cursor.with_rows:
            return "rows", len(cursor.fetchall())
        return "affected", cursor.rowcount
    except mysql.connector.Error as error:
        return "error", error.errno


for step in open(plan, encoding="utf-8"):
    kind, sql, *fields = step.rstrip("\n").split("\t")
    with session.cursor(prepared=kind != "text") as cursor:
        if kind == "batch":
            width = int(fields.pop(0))
            values = [value(field) for field in fields]
            rows = [values[at : at + width] for at in range(0, len(values), width)]
            print("affected", sum(carry_out(cursor, sql, row)[1] for row in rows))
        else:
            print(*carry_out(cursor, sql, tuple(map(value, fields))))
session.close()

"""What clients do with a server in scripts/servers, a function for each feature of the protocol.

Each uses a real client, asks the server whether the feature is really in use, and returns the statements that the client
has sent. Their texts hold a mark, by which they are found among those of all clients.
"""

import contextlib
import os
import subprocess

import mysql.connector
import mysql.connector.pooling
import pymysql
from mysql.connector.constants import ClientFlag
from pymysql.constants import CLIENT
from server import PASSWORD

COUNT = 20


class Wrong(Exception):
    """A feature is not in use although the client asked for it."""


def check(found, expected, what):
    if found != expected:
        raise Wrong(f"{what} is {found!r}, not {expected!r}")


def options(server, user):
    return {"host": "127.0.0.1", "port": server.port, "user": user, "password": PASSWORD, "database": "toll"}


def connector(server, user="toll", tls=None, **more):
    """MySQL's Connector/Python, in pure Python."""
    security = {"tls_versions": [tls]} if tls else {"ssl_disabled": True}
    more = {"collation": "utf8mb4_general_ci", "autocommit": True, "use_pure": True, **security, **more}
    return contextlib.closing(mysql.connector.connect(**options(server, user), **more))


def pymysql_session(server, user="toll", port=None, **more):
    login = {**options(server, user), **({"port": port} if port else {})}
    return contextlib.closing(pymysql.connect(**login, autocommit=True, **more))


def status(session, name):
    cursor = session.cursor()
    cursor.execute(f"show session status like '{name}'")
    rows = cursor.fetchall()
    cursor.close()
    return rows[0][1] if rows else None


def say(session, texts):
    """Sends statements, reads their results, and returns their texts."""
    for text in texts:
        cursor = session.cursor()
        cursor.execute(text)
        cursor.fetchall()
        cursor.close()
    return texts


def selects(mark, word="", count=COUNT):
    return [f"select {number} as toll_{mark}_{word}{number}" for number in range(count)]


def command_line(server, *more, sql):
    """The server's own command-line client."""
    command = [server.client, "--no-defaults", "--protocol=tcp", "--host=127.0.0.1", f"--port={server.port}", "--user=toll"]
    done = subprocess.run(
        [*command, "--batch", "--skip-column-names", "--database=toll", *more, "-e", "; ".join(sql)],
        env={**os.environ, "MYSQL_PWD": PASSWORD},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise Wrong(done.stderr.strip())
    return done.stdout


def login(server, mark):
    with connector(server) as session:
        return say(session, selects(mark))


def sha2_by_key(server, mark):
    texts = []
    # Its first login sends the password under the server's key, the second one is short.
    for word in ("first_", "again_"):
        with pymysql_session(server, user="toll_key", ssl_disabled=True) as session:
            texts += say(session, selects(mark, word))
    return texts


def sha2_in_tls(server, mark):
    texts = []
    for word in ("first_", "again_"):
        with connector(server, user="toll_tls", tls="TLSv1.3") as session:
            texts += say(session, selects(mark, word))
    return texts


def tls(version):
    def feature(server, mark):
        with connector(server, tls=version) as session:
            check(status(session, "Ssl_version"), version, "Ssl_version")
            return say(session, selects(mark))

    return feature


def zlib(server, mark):
    long = [f"select length('{'q' * 100_000}') as toll_{mark}_long"]
    with connector(server, compress=True) as session:
        check(status(session, "Compression"), "ON", "Compression")
        return say(session, selects(mark) + long)


def zstd(server, mark):
    texts = selects(mark)
    ask = "show session status like 'Compression_algorithm'"
    said = command_line(server, "--compression-algorithms=zstd", server.plain, sql=[ask, *texts])
    check(said.split()[:2], ["Compression_algorithm", "zstd"], "the first row")
    return texts


def prepared(server, mark):
    text = f"select ? as toll_{mark}_value, ? + 1"
    values = [(None, 1), ("it's", 2), (-7, 3.5), (b"\x00\xff", 4), ("x" * 300, 5)]
    with connector(server) as session:
        before = int(status(session, "Com_stmt_execute"))
        cursor = session.cursor(prepared=True)
        for number in range(COUNT):
            cursor.execute(text, values[number % len(values)])
            cursor.fetchall()
        cursor.close()
        check(int(status(session, "Com_stmt_execute")) - before, COUNT, "Com_stmt_execute")
    return [text] * COUNT


def attributes(server, mark):
    texts, text = selects(mark), f"select ? as toll_{mark}_prepared"
    with connector(server) as session:
        check(bool(session._client_flags & ClientFlag.CLIENT_QUERY_ATTRIBUTES), True, "CLIENT_QUERY_ATTRIBUTES")
        for prepared_too in (False, True):
            cursor = session.cursor(prepared=prepared_too)
            for name, value in (("proxy", "web-1"), ("number", 4711), ("empty", "")):
                cursor.add_attribute(name, value)
            for one in [text] * COUNT if prepared_too else texts:
                cursor.execute(one, (5,) if prepared_too else None)
                cursor.fetchall()
            cursor.close()
    return texts + [text] * COUNT


def several(server, mark):
    texts = [f"select {n} as toll_{mark}_a; set @n = {n}; select @n as toll_{mark}_b" for n in range(COUNT)]
    with pymysql_session(server, ssl_disabled=True, client_flag=CLIENT.MULTI_STATEMENTS) as session:
        for text in texts:
            cursor = session.cursor()
            cursor.execute(text)
            while cursor.nextset():
                cursor.fetchall()
            cursor.close()
    # One command each.
    return texts


def local_file(server, mark):
    file = server.directory / "lines"
    # As long as many packets, and with what a command begins with.
    file.write_text("".join(f"{n}\t\x03select {n} as toll_{mark}_no\n" for n in range(50_000)))
    texts = [f"create temporary table toll_{mark}_lines (id int, words text)"]
    texts += [f"load data local infile '{file}' into table toll_{mark}_lines"] * 3
    texts += [f"select count(*) from toll_{mark}_lines where words like '%select%'"]
    with connector(server, allow_local_infile=True) as session:
        cursor = session.cursor()
        for text in texts:
            cursor.execute(text)
        check(cursor.fetchall(), [(150_000,)], "the number of rows")
    return texts


def cursors(server, mark):
    command = ["java", "-cp", f"{server.jars}/*", server.sources / "Cursors.java", "127.0.0.1", str(server.port), "toll", mark, str(COUNT)]
    before = server.counter("Com_stmt_fetch")
    done = subprocess.run(command, env={**os.environ, "MYSQL_PWD": PASSWORD}, capture_output=True, text=True)
    if done.returncode != 0:
        raise Wrong(done.stderr.strip().splitlines()[0])
    check(done.stdout.split(), [str(100 - n) for n in range(COUNT)], "the numbers of rows")
    check(server.counter("Com_stmt_fetch") - before > COUNT, True, "that rows were fetched")
    return [f"select id, 'toll_{mark}_rows' from numbers where id > ?"] * COUNT


def tracking(server, mark):
    texts = selects(mark)
    begin = ["set session_track_schema = on", "set session_track_system_variables = '*'", "set session_track_state_change = on"]
    command_line(server, server.plain, sql=[*begin, "use toll_other", "set time_zone = '+00:00'", *texts])
    return texts


def reset(server, mark):
    text, texts = f"select ? as toll_{mark}_prepared", []
    with connector(server) as session:
        for word in ("first_", "reset_", "changed_"):
            texts += say(session, selects(mark, word))
            cursor = session.cursor(prepared=True)
            cursor.execute(text, (1,))
            cursor.fetchall()
            texts.append(text)
            # It is left open: resetting the connection closes it.
            if word == "first_":
                session.cmd_reset_connection()
            elif word == "reset_":
                session.cmd_change_user(username="toll", password=PASSWORD, database="toll")
    return texts


def pool(server, mark):
    given = {"ssl_disabled": True, "use_pure": True, "collation": "utf8mb4_general_ci", "autocommit": True}
    sessions = mysql.connector.pooling.MySQLConnectionPool(
        pool_name=mark, pool_size=3, pool_reset_session=True, **options(server, "toll"), **given
    )
    texts = []
    for number in range(COUNT):
        session = sessions.get_connection()
        texts += say(session, [f"select {number} as toll_{mark}_pooled"])
        session.close()
    sessions._remove_connections()
    return texts


def router(server, mark):
    texts = []
    with server.router() as port:
        for word in ("first_", "again_"):
            with pymysql_session(server, port=port, ssl_disabled=True) as session:
                texts += say(session, selects(mark, word))
    return texts

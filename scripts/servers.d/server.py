"""Servers of several releases, from Debian's packages or this host's own, which a trial starts and ends.

They are unpacked below target/debian, and started from there.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from debian_packages import PLACE, ROOT, Release, Unavailable, make_once, unpack

# Programs that are started, and libraries that look for others where they were installed.
PATCHED = ["bin/mysql", "bin/mysqlrouter", "sbin/mysqld", "bin/mariadb", "sbin/mariadbd", "bin/my_print_defaults", "bin/resolveip"]
PATCHED += ["lib/mysql-router/*.so*", "lib/mysqlrouter/plugin/*.so"]
WAIT_S = 120
PLAIN = {"mysql": ["--ssl-mode=DISABLED", "--get-server-public-key"], "mariadb": ["--skip-ssl"]}
PASSWORD = "a password of tests"


def unpacked(name, suite, packages):
    """`/usr` of packages of another release, whose programs find their libraries beside them."""
    home = PLACE / "servers" / name

    def make(part):
        unpack(Release(suite, "amd64").fetch_whole(packages), part)
        libraries = home / "usr/lib/x86_64-linux-gnu"
        for path in (path for pattern in PATCHED for path in (part / "usr").glob(pattern) if not path.is_symlink()):
            command = ["patchelf", "--force-rpath", "--set-rpath", f"{libraries}:{home}/usr/lib/mysql-router"]
            if ".so" not in path.name:
                command += ["--set-interpreter", libraries / "ld-linux-x86-64.so.2"]
            subprocess.run([*command, path], check=True)

    return make_once(home, make) / "usr"


def mysql_8():
    found = subprocess.run([ROOT / "scripts/mysqld"], capture_output=True, text=True)
    program = found.stdout.strip()
    if not program:
        raise Unavailable((found.stderr.strip().splitlines() or ["scripts/mysqld finds none"])[-1])
    return Server("mysql", pathlib.Path(program), mysql_9_home() / "bin/mysql", [])


def mysql_9_home():
    return unpacked("mysql-9", "sid", ["mysql-server-core", "mysql-client-core", "mysql-router"])


def mysql_9():
    usr = mysql_9_home()
    return Server("mysql", usr / "sbin/mysqld", usr / "bin/mysql", [f"--basedir={usr}", f"--plugin-dir={usr}/lib/mysql/plugin"])


def mariadb_10():
    program = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not program:
        raise Unavailable("mariadbd is missing: scripts/setup")
    return Server("mariadb", pathlib.Path(program), pathlib.Path(shutil.which("mariadb")), [])


def mariadb_11():
    usr = unpacked("mariadb-11", "trixie", ["mariadb-server-core", "mariadb-client-core"])
    return Server("mariadb", usr / "sbin/mariadbd", usr / "bin/mariadb", [f"--basedir={usr}", f"--plugin-dir={usr}/lib/mysql/plugin"])


SERVERS = {"mysql-8.0": mysql_8, "mysql-9": mysql_9, "mariadb-10": mariadb_10, "mariadb-11": mariadb_11}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def wait_until(ready, process, what, log):
    begun = time.monotonic()
    while not ready():
        if process.poll() is not None or time.monotonic() - begun > WAIT_S:
            words = [line for line in read(log).splitlines() if "ERROR" in line] or read(log).strip().splitlines()[-1:]
            raise Unavailable(f"{what} does not start: {(words or [''])[0]}")
        time.sleep(0.05)


def stop(process, number=signal.SIGTERM):
    if process.poll() is None:
        process.send_signal(number)
    return process.wait(timeout=WAIT_S)


class Server:
    """A server of the trial's own, and what features.py needs of it."""

    sources = ROOT / "scripts/servers.d"
    jars = ROOT / "target/connectors/java/lib"

    def __init__(self, flavour, program, client, settings):
        self.flavour, self.program, self.client, self.settings = flavour, program, client, settings
        self.plain = PLAIN[flavour][0]
        shown = subprocess.run([program, "--no-defaults", "--version"], capture_output=True, text=True, check=True).stdout
        version = shown.partition("Ver ")[2].split()[0]
        name = "MySQL" if flavour == "mysql" else "MariaDB"
        self.name = f"{name} {version.partition('-')[0]}"

    def _install(self):
        data = self.directory / "data"
        if self.flavour == "mysql":
            command = [self.program, "--no-defaults", "--initialize-insecure", *self.settings]
        else:
            base = next((word for word in self.settings if word.startswith("--basedir=")), None)
            command = [self.program.parent.parent / "bin/mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal"]
            command += ["--skip-test-db", *([base] if base else [])]
        done = subprocess.run([*command, f"--datadir={data}", "--user=root"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"{self.name} cannot be installed: {(done.stderr or done.stdout).strip()[-300:]}")
        if self.flavour == "mariadb":
            certify = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
            certify += ["-keyout", self.directory / "server.key", "-out", self.directory / "server.pem"]
            subprocess.run(certify, check=True, capture_output=True)

    @contextlib.contextmanager
    def running(self):
        with tempfile.TemporaryDirectory(prefix="toll-servers-") as place:
            self.directory, self.port = pathlib.Path(place), free_port()
            self.socket = self.directory / "s.sock"
            self._install()
            command = [self.program, "--no-defaults", *self.settings, "--user=root", f"--datadir={place}/data", f"--socket={self.socket}"]
            command += [f"--port={self.port}", f"--pid-file={place}/pid", "--bind-address=127.0.0.1", "--local-infile=1"]
            if self.flavour == "mysql":
                command += ["--mysqlx=OFF", "--secure-file-priv="]
            else:
                command += [f"--ssl-cert={place}/server.pem", f"--ssl-key={place}/server.key"]
            log = self.directory / "log"
            with log.open("w") as words:
                process = subprocess.Popen(command, stdout=words, stderr=words, env={**os.environ, "TMPDIR": place})
            try:
                wait_until(lambda: self._answers(), process, self.name, log)
                self.pid = process.pid
                self._fill()
                yield self
            finally:
                stop(process)

    def _answers(self):
        return subprocess.run(self._root_command("select 1"), capture_output=True).returncode == 0

    def _root_command(self, sql, user="root"):
        return [self.client, "--no-defaults", f"--socket={self.socket}", f"--user={user}", "--batch", "--skip-column-names", "-e", sql]

    def ask(self, sql):
        done = subprocess.run(self._root_command(sql), capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"{self.name}: {done.stderr.strip()}")
        return done.stdout

    def counter(self, name):
        return int(self.ask(f"show global status like '{name}'").split()[1])

    def _fill(self):
        accounts = ["toll", *(["toll_key", "toll_tls"] if self.flavour == "mysql" else [])]
        numbers = ", ".join(f"({number})" for number in range(1, 101))
        self.ask(
            "create database toll; create database toll_other; create table toll.numbers (id int primary key); "
            + f"insert into toll.numbers values {numbers}; "
            + "".join(f"create user {name}@'%' identified by '{PASSWORD}'; grant all on *.* to {name}@'%'; " for name in accounts)
        )
        # MySQL keeps what a first login has shown it: later ones need neither TLS nor its key.
        subprocess.run(self._root_command("select 1", "toll"), check=True, capture_output=True, env={**os.environ, "MYSQL_PWD": PASSWORD})

    @contextlib.contextmanager
    def router(self):
        """MySQL Router in front of it, which shares connections out among clients; its port."""
        usr, port, place = mysql_9_home(), free_port(), self.directory / "router"
        place.mkdir()
        (place / "router.conf").write_text(
            f"[DEFAULT]\nlogging_folder={place}\nruntime_folder={place}\ndata_folder={place}\nplugin_folder={usr}/lib/mysqlrouter/plugin\n"
            f"[routing:pool]\nbind_address=127.0.0.1\nbind_port={port}\ndestinations=127.0.0.1:{self.port}\n"
            "routing_strategy=first-available\nprotocol=classic\nclient_ssl_mode=DISABLED\nserver_ssl_mode=DISABLED\nconnection_sharing=1\n"
            "[connection_pool]\nmax_idle_server_connections=4\n"
        )
        with (place / "log").open("w") as words:
            process = subprocess.Popen([usr / "bin/mysqlrouter", "-c", place / "router.conf"], stdout=words, stderr=words)

        def listens():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        try:
            wait_until(listens, process, "MySQL Router", place / "log")
            yield port
        finally:
            stop(process)

"""Packages of any Debian release and architecture: downloaded by this host's apt, unpacked, never installed.

Package lists of each release are kept below target/debian for a week, so that this host's own sources stay as they are.
"""

import os
import pathlib
import shutil
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = ROOT / "target" / "debian"
WEEK_S = 7 * 86_400
# Releases without a suite of security updates.
ROLLING = {"sid"}
# Directories that are links in an installed system.
MERGED = ["bin", "sbin", "lib", "lib64"]
UNUSED = ["./usr/share/doc/*", "./usr/share/man/*", "./usr/share/locale/*", "./usr/share/info/*"]


class Unavailable(Exception):
    """Packages cannot be had here; the text says why."""


def find_mirrors():
    """Addresses of Debian's archive and of its security updates, as this host's sources name them."""
    if not shutil.which("apt-get"):
        raise Unavailable("this host has no apt-get")
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)"], capture_output=True, text=True, check=True
    )
    found = {}
    for line in listed.stdout.splitlines():
        address, _, words = line.partition(" ")
        if words.startswith("Debian "):
            found.setdefault("security" if "Security" in words else "archive", address)
    if "archive" not in found:
        raise Unavailable("this host's apt has no Debian mirror, or no package lists: apt-get update")
    return found


class Release:
    """A release for an architecture, such as `Release("bookworm", "arm64")`, with its security updates or without."""

    def __init__(self, suite, architecture, security=True):
        self.suite, self.architecture = suite, architecture
        self.security = security and suite not in ROLLING
        self.home = PLACE / f"{suite}-{architecture}{'' if security else '-released'}"
        self._update()

    def _update(self):
        mirrors = find_mirrors()
        lines = [f"deb {mirrors['archive']} {self.suite} main"]
        if self.security and "security" in mirrors:
            lines.append(f"deb {mirrors['security']} {self.suite}-security main")
        for part in ["lists/partial", "state", "cache/archives/partial"]:
            (self.home / part).mkdir(parents=True, exist_ok=True)
        # Nothing is installed: whatever is asked for comes with all that it needs.
        (self.home / "status").touch()
        (self.home / "sources.list").write_text("\n".join(lines) + "\n")
        (self.home / "apt.conf").write_text(
            f"""
            Dir::State "{self.home}/state";
            Dir::State::lists "{self.home}/lists";
            Dir::State::status "{self.home}/status";
            Dir::Cache "{self.home}/cache";
            Dir::Etc::sourcelist "{self.home}/sources.list";
            Dir::Etc::sourceparts "/dev/null";
            APT::Architecture "{self.architecture}";
            APT::Architectures {{ "{self.architecture}"; }};
            APT::Sandbox::User "root";
            APT::Install-Recommends "false";
            Acquire::Languages "none";
            Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
            """
        )
        dated = self.home / "updated"
        if not dated.exists() or time.time() - dated.stat().st_mtime > WEEK_S:
            self._apt("apt-get", "update", "-q")
            dated.touch()

    def _apt(self, program, *arguments, directory=None):
        environment = {**os.environ, "APT_CONFIG": str(self.home / "apt.conf"), "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(
            [program, *arguments], env=environment, cwd=directory, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            words = [line for line in done.stderr.splitlines() if line.startswith("E:")] or [done.stderr.strip()[-200:]]
            raise Unavailable(f"{program} {' '.join(arguments)} ({self.suite}, {self.architecture}): {words[0]}")
        return done.stdout

    def versions(self, packages):
        """Newest version of each package that the release has."""
        found, name = {}, None
        for line in self._apt("apt-cache", "policy", *packages).splitlines():
            field, _, value = line.strip().partition(": ")
            if line and not line.startswith(" "):
                name = line.rstrip(":")
            elif field == "Candidate" and value != "(none)":
                found[name] = value
        return found

    def needs(self, package):
        """Names of the packages that one depends on directly."""
        listed = self._apt("apt-cache", "depends", "--important", package)
        found = [line.strip().removeprefix("Depends: ") for line in listed.splitlines() if "Depends: " in line]
        return [name for name in found if not name.startswith("<")]

    def fetch(self, packages):
        """Files of these packages alone."""
        directory = self.home / "alone"
        directory.mkdir(exist_ok=True)
        versions = self.versions(packages)
        for package in packages:
            if package not in versions:
                raise Unavailable(f"{self.suite} has no package {package} for {self.architecture}")
        starts = {package: f"{package}_{versions[package].replace(':', '%3a')}_" for package in packages}

        def here():
            names = sorted(directory.iterdir())
            return {package: next((file for file in names if file.name.startswith(start)), None) for package, start in starts.items()}

        missing = [package for package, file in here().items() if file is None]
        if missing:
            self._apt("apt-get", "download", "-q", *missing, directory=directory)
        return list(here().values())

    def fetch_whole(self, packages, without=()):
        """Files of these packages and of all that they need."""
        listed = self._apt("apt-get", "install", "--yes", "--simulate", *packages)
        names = [line.split()[1].partition(":")[0] for line in listed.splitlines() if line.startswith("Inst ")]
        return self.fetch([name for name in names if name not in without])


def unpack(files, root, only=()):
    """Unpacks packages into one root. `only`: patterns of the paths to unpack."""
    root.mkdir(parents=True, exist_ok=True)
    for name in MERGED:
        if not (root / name).exists():
            (root / "usr" / name).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(f"usr/{name}")
    for file in files:
        stream = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE)
        command = ["tar", "-x", "-C", root, "--keep-directory-symlink", "--no-same-owner"]
        command += [f"--exclude={pattern}" for pattern in UNUSED] if not only else ["--wildcards", *only]
        done = subprocess.run(command, stdin=stream.stdout, capture_output=True, text=True)
        stream.stdout.close()
        # tar ends with an error where a pattern matches nothing, which is no failure: a kernel may have a driver built in.
        if stream.wait() != 0 or (done.returncode != 0 and not only):
            raise Unavailable(f"cannot unpack {file.name}: {done.stderr.strip()[-200:]}")


def make_once(target, make):
    """Makes a directory beside its place and renames it: there is no half-made one."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        try:
            make(part)
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return target

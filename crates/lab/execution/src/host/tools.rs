//! Inventory of the programs that toll can use: installed version and Debian package.

use std::process::Stdio;
use std::time::{Duration, Instant};
use toll_record::Tool;
use toll_sys::child_process;
use toll_sys::program::find_program;

/// A program, or a library that it links, with its version command and its Debian package.
#[derive(Debug, Clone, Copy)]
pub struct ToolSpec {
    pub name: &'static str,
    /// The program that prints the version, its own or the library's.
    program: &'static str,
    version_args: &'static [&'static str],
    pub package: &'static str,
}

const fn tool_spec(name: &'static str, ask: &'static [&'static str], package: &'static str) -> ToolSpec {
    ToolSpec { name, program: name, version_args: ask, package }
}

pub const TOOLS: [ToolSpec; 25] = [
    tool_spec("mariadbd", &["--version"], "mariadb-server"),
    tool_spec("mysqld", &["--version"], "mysql-server"),
    tool_spec("sysbench", &["--version"], "sysbench"),
    tool_spec("tcpdump", &["--version"], "tcpdump"),
    ToolSpec { program: "tcpdump", ..tool_spec("libpcap", &["--version"], "libpcap0.8") },
    tool_spec("nc", &["-h"], "netcat-openbsd"),
    tool_spec("pt-query-digest", &["--version"], "percona-toolkit"),
    tool_spec("dumpcap", &["--version"], "wireshark-common"),
    tool_spec("tshark", &["--version"], "tshark"),
    tool_spec("bpftrace", &["--version"], "bpftrace"),
    tool_spec("netsniff-ng", &["--version"], "netsniff-ng"),
    tool_spec("ngrep", &["-V"], "ngrep"),
    tool_spec("strace", &["-V"], "strace"),
    tool_spec("prometheus-mysqld-exporter", &["--version"], "prometheus-mysqld-exporter"),
    tool_spec("packetbeat", &["version"], "packetbeat"),
    tool_spec("ip", &["-V"], "iproute2"),
    tool_spec("tc", &["-V"], "iproute2"),
    tool_spec("ssh", &["-V"], "openssh-client"),
    tool_spec("sshd", &["-V"], "openssh-server"),
    tool_spec("git", &["--version"], "git"),
    tool_spec("mariadb-dump", &["--version"], "mariadb-client"),
    tool_spec("mysqldump", &["--version"], "mysql-client"),
    tool_spec("zstd", &["--version"], "zstd"),
    tool_spec("qemu-system-x86_64", &["--version"], "qemu-system-x86"),
    tool_spec("busybox", &["--help"], "busybox-static"),
];

/// All of [`TOOLS`], with the version of each that is installed. As slow as the slowest version command.
pub fn detect_tools() -> Vec<Tool> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = TOOLS.iter().map(|tool| (tool, scope.spawn(|| read_version(tool)))).collect();
        let answers = asked
            .into_iter()
            .map(|(tool, answer)| Tool { name: tool.name.to_owned(), version: answer.join().ok().flatten() });
        answers.collect()
    })
}

/// The first line of the version command, or for a library the first line with its name. `None` without the
/// program.
///
/// Programs differ in whether they print to stdout or stderr, and in their exit codes.
fn read_version(tool: &ToolSpec) -> Option<String> {
    const LIMIT: Duration = Duration::from_secs(5);
    let path = find_program(tool.program)?;
    let mut command = child_process::clean_env_command(path);
    command.args(tool.version_args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let begun = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().ok()?;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let is_library = tool.name != tool.program;
    let is_it = |line: &&str| if is_library { line.starts_with(tool.name) } else { !line.is_empty() };
    let line = said.iter().flat_map(|text| text.lines()).map(str::trim).find(is_it);
    // A path would name the user whose home it is in.
    Some(line.map_or_else(|| "version unknown".to_owned(), |line| strip_directory(line, tool.name)))
}

/// `/opt/x/bin/mysqld  Ver 8.0.15` becomes `mysqld  Ver 8.0.15`.
fn strip_directory(line: &str, name: &str) -> String {
    let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
    if first.starts_with('/') && first.ends_with(name) { format!("{name} {rest}") } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_has_no_version_and_one_that_is_there_has_one() {
        assert_eq!(read_version(&tool_spec("no-such-program-at-all", &[], "none")), None);
        let shell = read_version(&tool_spec("sh", &["-c", "echo; echo sh 1.2"], "dash"));
        assert_eq!(shell.as_deref(), Some("sh 1.2"));
    }

    #[test]
    fn a_library_has_the_version_that_its_program_says() {
        let asked =
            ToolSpec { program: "sh", ..tool_spec("libx", &["-c", "echo sh 1.2; echo libx 3.4"], "libx0") };
        assert_eq!(read_version(&asked).as_deref(), Some("libx 3.4"));
        let mute = ToolSpec { program: "sh", ..tool_spec("liby", &["-c", "echo sh 1.2"], "liby0") };
        assert_eq!(read_version(&mute).as_deref(), Some("version unknown"));
    }

    #[test]
    fn the_directory_of_a_program_is_left_out() {
        assert_eq!(strip_directory("/home/me/bin/mysqld  Ver 8", "mysqld"), "mysqld  Ver 8");
        assert_eq!(strip_directory("tcpdump version 4.99", "tcpdump"), "tcpdump version 4.99");
    }
}

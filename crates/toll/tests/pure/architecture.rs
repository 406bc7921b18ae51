//! Tests of the statements in ARCHITECTURE.md that the build enforces.
//!
//! Reads sources and `cargo metadata`, starts nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every crate of the product with its permitted dependencies within the product.
///
/// A dependency that is missing here fails the build; so does one that is not used any more.
const ARROWS: &[(&str, &[&str])] = &[
    // base: know no product
    ("sys", &[]),
    ("stats", &[]),
    ("wire", &[]),
    ("record", &[]),
    ("input", &["wire"]),
    ("mysql", &["wire"]),
    // host: change or watch a host
    ("taps", &[]),
    ("journal", &["mysql", "sys"]),
    ("vm", &["journal", "sys"]),
    ("server", &["journal", "mysql", "record", "sys"]),
    ("load", &["mysql", "record", "stats", "sys", "wire"]),
    // instruments: one each
    ("digest", &["input", "stats", "sys", "wire"]),
    ("explain", &["digest", "mysql", "wire"]),
    ("net", &["input", "stats", "sys", "taps", "wire"]),
    ("tables", &["digest", "input", "sys", "wire"]),
    ("agent", &["digest", "sys", "tables", "taps", "wire"]),
    ("counters", &["digest", "mysql", "tables", "wire"]),
    ("probe", &["journal", "mysql", "stats", "sys"]),
    ("throttle", &["journal", "mysql", "probe", "stats", "sys"]),
    ("guard", &["journal", "mysql", "probe", "stats", "sys"]),
    ("store", &["sys"]),
    ("backup", &["journal", "mysql", "server", "store", "sys", "throttle"]),
    // lab: pricing
    ("model", &["digest", "load", "record", "stats", "sys"]),
    ("analysis", &["model", "record", "stats", "sys"]),
    ("report", &["analysis", "model", "net", "record", "sys", "wire"]),
    (
        "execution",
        &[
            "agent", "analysis", "digest", "guard", "input", "journal", "load", "model", "mysql", "net",
            "probe", "record", "server", "stats", "sys", "taps", "wire",
        ],
    ),
    ("consent", &["execution", "guard", "model", "mysql", "record", "server", "sys"]),
    ("exact", &["analysis", "execution", "journal", "model", "record", "server", "sys", "vm"]),
];

/// Folders of `crates/`, lower ones first. A crate may depend on its own folder and on those before it.
const FOLDERS: [&str; 4] = ["base", "host", "instruments", "lab"];

/// Forbidden dependencies of a crate, direct or not, with the reason.
const NEVER_BELOW: &[(&str, &[&str], &str)] = &[
    (
        "agent",
        &["tokio", "tonic", "object_store", "reqwest", "toll-mysql"],
        "it runs for weeks on a database host",
    ),
    ("commands", &["tokio", "object_store", "reqwest", "toll-mysql"], "toll-agent is small"),
    ("taps", &["tokio", "rustls"], "it runs with the rights to tap a host"),
];

/// Crates that read no clock, file, socket, variable or program, and what of `toll-sys` they may use.
///
/// What they depend on comes to them as values, which tests can invent.
const PURE: &[(&str, &[&str])] = &[
    ("stats", &[]),
    ("wire", &[]),
    ("model", &["count_format", "number_format", "redact", "sysctl::path", "units"]),
    ("analysis", &["count_format", "number_format"]),
];

/// Dependencies of the programs alone: no library has a command line or draws on a terminal.
const FOR_THE_PROGRAM: [&str; 4] = ["clap", "clap_complete", "clap_mangen", "indicatif"];

/// Types whose values change: a `static` of one is state of the whole process, which two users of a library share.
const CHANGING: [&str; 6] = ["Mutex", "RwLock", "Atomic", "OnceLock", "OnceCell", "Cell<"];
/// What writes to the output of whoever runs a library. A library is given a `Write` or an open file.
const PRINTING: [&str; 8] =
    ["println!", "eprintln!", "print!", "eprint!", "eprint_line!", "print_line!", "stdout()", "stderr()"];
/// Calls that change what all of a process does.
const OF_THE_PROCESS: [&str; 4] = ["umask(", "set_current_dir(", "set_var(", "install_default("];

/// Most lines of source in a crate, unit tests included.
const MOST_LINES: usize = 15_000;
const MOST_LINES_OF_A_PROGRAM: usize = 5_000;

/// Most lines of a source file, tests included.
const MOST_LINES_OF_A_FILE: usize = 500;
/// Longer files, each with its reason. One that is no longer so long fails the test too.
const LONGER_FILES: &[(&str, &str)] = &[
    (
        "instruments/throttle/src/controller.rs",
        "one state machine: every phase reads and writes the same fields",
    ),
    (
        "lab/execution/src/treatment/process_group.rs",
        "the life of one process group, from its start to its report",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A crate of the product: its directory and its direct dependencies, without dev-dependencies.
struct Package {
    dir: PathBuf,
    needs: BTreeSet<String>,
}

/// All packages of `cargo metadata` by name. Third-party ones have no directory here.
fn packages() -> BTreeMap<String, Package> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--all-features"])
        .current_dir(root())
        .output()
        .expect("cargo");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let all: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let names: BTreeMap<&str, &str> = (all["packages"].as_array().expect("packages").iter())
        .map(|package| (package["id"].as_str().expect("id"), package["name"].as_str().expect("name")))
        .collect();
    let dirs: BTreeMap<&str, &str> = (all["packages"].as_array().expect("packages").iter())
        .map(|package| {
            (package["id"].as_str().expect("id"), package["manifest_path"].as_str().expect("path"))
        })
        .collect();
    let nodes = all["resolve"]["nodes"].as_array().expect("nodes").iter();
    nodes
        .map(|node| {
            let id = node["id"].as_str().expect("id");
            let is_built_in = |dep: &&serde_json::Value| {
                dep["dep_kinds"].as_array().expect("kinds").iter().any(|kind| kind["kind"].is_null())
            };
            let deps = node["deps"].as_array().expect("deps").iter().filter(is_built_in);
            let needs = deps.map(|dep| names[dep["pkg"].as_str().expect("pkg")].to_owned()).collect();
            let dir = Path::new(dirs[id]).parent().expect("a directory").to_owned();
            (names[id].to_owned(), Package { dir, needs })
        })
        .collect()
}

/// Crates of the product without `toll-` in their names. The programs and the test support are left out.
fn products(packages: &BTreeMap<String, Package>) -> BTreeMap<&str, &Package> {
    let named = packages.iter().filter_map(|(name, package)| Some((name.strip_prefix("toll-")?, package)));
    named.filter(|(name, _)| !["commands", "reference", "testkit"].contains(name)).collect()
}

/// All Rust sources below a directory, concatenated.
fn sources(below: &Path) -> String {
    let entries = std::fs::read_dir(below).expect("a directory").flatten();
    entries.fold(String::new(), |text, entry| match entry.path() {
        path if path.is_dir() => text + &sources(&path),
        path if path.extension().is_some_and(|e| e == "rs") => {
            text + &std::fs::read_to_string(path).expect("a source")
        }
        _ => text,
    })
}

/// The lines of all Rust below a directory that is in what is built, each with its place: tests beside it left out.
fn built_lines(below: &Path) -> Vec<(String, String)> {
    let is_of_tests = |path: &Path| {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        sources(below).contains(&format!("#[cfg(test)]\nmod {stem};"))
    };
    let (mut files, mut open) = (Vec::new(), vec![below.to_owned()]);
    while let Some(dir) = open.pop() {
        let entries = std::fs::read_dir(dir).expect("a directory").flatten().map(|entry| entry.path());
        let (dirs, others): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        open.extend(dirs);
        files.extend(others.into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs")));
    }
    files.retain(|path| !is_of_tests(path));
    let lines = files.iter().flat_map(|path| {
        let text = std::fs::read_to_string(path).expect("a source");
        let built = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        let place = |number| format!("{}:{}", path.display(), number + 1);
        built
            .lines()
            .enumerate()
            .map(|(number, line)| (place(number), line.trim().to_owned()))
            .collect::<Vec<_>>()
    });
    lines.collect()
}

/// `static NAME: TYPE`, whose value changes.
fn is_global_state(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "static").filter(|at| *at <= 1);
    let Some((_, r#type)) =
        at.and_then(|at| line.split_once(words[at])).and_then(|(_, of)| of.split_once(':'))
    else {
        return line.starts_with("thread_local!");
    };
    let r#type = r#type.split('=').next().unwrap_or_default();
    CHANGING.iter().any(|changing| r#type.contains(changing)) || words.get(1) == Some(&"mut")
}

/// A call of one of these, not a mention in a comment or within another word.
fn calls(line: &str, any: &[&str]) -> bool {
    let is_call = |(at, _): (usize, &str)| {
        !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '`')
    };
    !line.starts_with("//") && any.iter().any(|call| line.match_indices(call).any(is_call))
}

#[test]
fn libraries_hold_no_state_of_the_process_and_print_nothing() {
    let changes = |line: &str| is_global_state(line) || calls(line, &OF_THE_PROCESS);
    let found = |line: &str| (changes(line), calls(line, &PRINTING));
    for line in [
        "static A: AtomicBool = x;",
        "pub static B: Mutex<u8>",
        "static C: LazyLock<Mutex<u8>>",
        "static mut D: u8",
        "let before = nix::sys::stat::umask(mode);",
    ] {
        assert_eq!(found(line), (true, false), "{line}");
    }
    for line in [
        "static A: LazyLock<Catalogue> =",
        "a: &'static AtomicBool,",
        "fn a() -> &'static str {",
        "//! print_line! me",
        "let on_stdout = group.said_on_stdout();",
    ] {
        assert_eq!(found(line), (false, false), "{line}");
    }
    for line in ["None => eprint_line!(\"x\"),", "let mut output = io::stdout().lock();"] {
        assert_eq!(found(line), (false, true), "{line}");
    }
    let packages = packages();
    for (name, package) in products(&packages) {
        let lines = built_lines(&package.dir.join("src"));
        assert!(!lines.is_empty(), "toll-{name} is read");
        let state: Vec<_> = lines.iter().filter(|(_, line)| changes(line)).collect();
        assert!(state.is_empty(), "toll-{name} has state of the whole process: pass it instead: {state:#?}");
        let printing: Vec<_> = lines.iter().filter(|(_, line)| calls(line, &PRINTING)).collect();
        assert!(
            printing.is_empty(),
            "toll-{name} prints: emit an event of tracing, or take a `Write`: {printing:#?}"
        );
    }
}

#[test]
fn crates_use_each_other_along_the_arrows_alone() {
    let packages = packages();
    let products = products(&packages);
    let drawn: BTreeMap<&str, BTreeSet<&str>> =
        ARROWS.iter().map(|(name, uses)| (*name, uses.iter().copied().collect())).collect();
    let found: BTreeMap<&str, BTreeSet<&str>> = (products.iter())
        .map(|(name, package)| {
            (*name, package.needs.iter().filter_map(|need| need.strip_prefix("toll-")).collect())
        })
        .collect();
    assert_eq!(found, drawn, "left: what the manifests say; right: the table in this file");
    let folder = |name: &str| {
        let parent = products[name].dir.parent().and_then(Path::file_name).expect("a folder");
        FOLDERS
            .iter()
            .position(|folder| parent == *folder)
            .unwrap_or_else(|| panic!("{name} is in no folder"))
    };
    let before = |name: &str| ARROWS.iter().position(|(known, _)| *known == name);
    for (name, uses) in ARROWS {
        for used in *uses {
            assert!(folder(used) <= folder(name), "{name} uses {used}, which is in a later folder");
            assert!(before(used) < before(name), "{name} uses {used}, which comes later in the table");
        }
    }
}

#[test]
fn no_crate_reaches_what_it_must_not_know() {
    let packages = packages();
    let below = |name: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![name.to_owned()]);
        while let Some(name) = open.pop() {
            for need in packages.get(&name).into_iter().flat_map(|package| &package.needs) {
                if seen.insert(need.clone()) {
                    open.push(need.clone());
                }
            }
        }
        seen
    };
    for (name, never, why) in NEVER_BELOW {
        let below = below(&format!("toll-{name}"));
        let found: Vec<_> = never.iter().filter(|never| below.contains(**never)).collect();
        assert!(found.is_empty(), "toll-{name} links {found:?}: {why}");
    }
    for (name, package) in products(&packages) {
        let found: Vec<_> = FOR_THE_PROGRAM.iter().filter(|never| package.needs.contains(**never)).collect();
        assert!(found.is_empty(), "toll-{name} needs {found:?}, which are for the programs");
    }
}

#[test]
fn no_crate_is_larger_than_a_reader_can_hold() {
    let packages = packages();
    let lines = |package: &Package| sources(&package.dir.join("src")).lines().count();
    for (name, package) in products(&packages) {
        assert!(lines(package) <= MOST_LINES, "toll-{name} has {} lines", lines(package));
    }
    for name in ["toll", "toll-commands"] {
        let program = lines(&packages[name]);
        assert!(program <= MOST_LINES_OF_A_PROGRAM, "{name} has {program} lines");
    }
}

#[test]
fn no_folders_of_a_crate_use_each_other_in_a_circle() {
    for (name, package) in packages().iter().filter(|(name, _)| name.starts_with("toll")) {
        let src = package.dir.join("src");
        let entries = std::fs::read_dir(&src).expect("sources").flatten().map(|entry| entry.path());
        let folders: BTreeMap<String, PathBuf> = entries
            .filter(|path| path.is_dir())
            .filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path)))
            .collect();
        let uses = |folder: &str, other: &str| {
            let direct = format!("crate::{other}::");
            let is_use = |(_, line): &(String, String)| calls(line, &[&direct]);
            folder != other && built_lines(&folders[folder]).iter().any(is_use)
        };
        let mut circle: BTreeSet<&String> = folders.keys().collect();
        // What uses nothing that is left is in no circle.
        while let Some(end) = circle.iter().copied().find(|one| !circle.iter().any(|other| uses(one, other)))
        {
            circle.remove(end);
        }
        assert!(circle.is_empty(), "{name}: folders use each other in a circle: {circle:?}");
    }
}

#[test]
fn no_file_is_long_without_a_reason() {
    let crates = root().join("crates");
    let (mut long, mut open) = (BTreeSet::new(), vec![crates.clone()]);
    while let Some(dir) = open.pop() {
        for path in std::fs::read_dir(dir).expect("a directory").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs")
                && std::fs::read_to_string(&path).expect("a source").lines().count() > MOST_LINES_OF_A_FILE
            {
                let below = path.strip_prefix(&crates).expect("below");
                long.insert(below.to_string_lossy().into_owned());
            }
        }
    }
    let listed: BTreeSet<String> = LONGER_FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(
        long, listed,
        "left: files of more than {MOST_LINES_OF_A_FILE} lines; right: those with a reason"
    );
}

#[test]
fn every_test_that_an_invariant_names_is_there() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let (_, invariants) = page.split_once("## Invariants").expect("invariants");
    // Tests are sentences; nothing else between backquotes there has three words.
    let is_sentence = |word: &&str| word.matches('_').count() >= 2 && !word.contains([' ', '.', '/']);
    let named: Vec<&str> = invariants.split('`').skip(1).step_by(2).filter(is_sentence).collect();
    assert!(named.len() >= 12, "the page is read: {named:?}");
    let text = sources(&root().join("crates")) + &sources(&root().join("fleet/tests"));
    let missing: Vec<_> = named.iter().filter(|name| !text.contains(&format!("fn {name}()"))).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names tests that are not there: {missing:?}");
    let by = ["(Cargo", "(lint", "(test", "(by hand"];
    let invariants = invariants.replace('\n', " ");
    let unsaid: Vec<&str> =
        invariants.split(". No ").skip(1).filter(|text| !by.iter().any(|by| text.contains(by))).collect();
    assert!(unsaid.is_empty(), "what enforces it is not said: {unsaid:?}");
}

#[test]
fn every_crate_keeps_the_lints_of_the_workspace() {
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    assert!(workspace.contains("unsafe_code = \"forbid\""));
    let packages = packages();
    let programs = ["toll", "toll-commands"].map(|name| (name, &packages[name]));
    for (name, package) in products(&packages).into_iter().chain(programs) {
        let manifest = std::fs::read_to_string(package.dir.join("Cargo.toml")).expect("a manifest");
        if name == "taps" {
            // The one crate that has what the workspace forbids: each block by itself, with its reason.
            for lint in
                ["unsafe_op_in_unsafe_fn", "undocumented_unsafe_blocks", "multiple_unsafe_ops_per_block"]
            {
                assert!(manifest.contains(&format!("{lint} = \"deny\"")), "toll-taps: {lint}");
            }
            continue;
        }
        assert!(manifest.contains("[lints]\nworkspace = true\n"), "{name}");
    }
}

#[test]
fn the_pure_crates_deny_what_their_lint_names() {
    let packages = packages();
    let products = products(&packages);
    let of = |name: &str| std::fs::read_to_string(products[name].dir.join("clippy.toml")).expect("lints");
    for (name, of_sys) in PURE {
        let src = products[*name].dir.join("src");
        let denied = std::fs::read_to_string(src.join("lib.rs")).expect("the crate's root");
        let is_denied = ["#![deny(", "#![cfg_attr(not(test), deny("].iter().any(|deny| {
            denied.contains(&format!("\n{deny}clippy::disallowed_types, clippy::disallowed_methods)"))
        });
        assert!(is_denied, "{name}");
        assert!(!sources(&src).contains("allow(clippy::disallowed"), "{name} makes an exception");
        assert_eq!(of(name), of(PURE[0].0), "{name}");
        let is_of =
            |used: &str| of_sys.iter().any(|known| used == *known || used.starts_with(&format!("{known}::")));
        let lines = built_lines(&src);
        let used = lines.iter().flat_map(|(place, line)| used_of_sys(line).map(move |used| (place, used)));
        let more: Vec<_> = used.filter(|(_, used)| !is_of(used)).collect();
        assert!(more.is_empty(), "{name} uses what may look at the host: pass it a value instead: {more:?}");
    }
}

/// Modules and functions of `toll_sys` that a line names.
fn used_of_sys(line: &str) -> impl Iterator<Item = &str> {
    let named = line.split("toll_sys::").skip(1).filter(|_| !line.starts_with("//"));
    named.flat_map(|rest| {
        let group = rest.strip_prefix('{').map(|group| group.split('}').next().unwrap_or(group));
        let words: Vec<&str> = group.map_or_else(|| vec![rest], |group| group.split(", ").collect());
        let is_of_path = |c: char| c.is_ascii_lowercase() || c == '_' || c == ':';
        words.into_iter().map(move |word| {
            let end = word.find(|c| !is_of_path(c)).unwrap_or(word.len());
            word[..end].trim_end_matches(':')
        })
    })
}

//! Rig step `packets`: synthetic captures to replay, generated once for a run.

use super::{StepBuilder, step_key};
use crate::testbed::Testbed;
use anyhow::{Context, ensure};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use toll_input::Progress;
use toll_model::rig::PACKETS;
use toll_net::pcap::capture_writer::{FileFormat, Out};
use toll_net::pcap::make::{DEFAULT_SIZE, MakeOptions, SIZES, Set, make_capture};
use toll_net::pcap::profile;
use toll_net::pcap::profile::json::{self, ProfileEntry};
use toll_record::RigStep;
use toll_sys::cancel::CancelToken;
use toll_sys::count_format::format_count;
use toll_sys::named_choice::NamedChoice;

pub const BUILDER: StepBuilder = StepBuilder { kind: "packets", programs: || &[], open };

/// Generates the files, which are removed with the run's working directory.
fn open(step: &RigStep, testbed: &mut Testbed) -> anyhow::Result<String> {
    let number = |name: &str| -> anyhow::Result<f64> {
        let text = step_key(step, name)?;
        text.parse()
            .ok()
            .filter(|n: &f64| n.is_finite() && *n > 0.0)
            .with_context(|| format!("the rig's step packets has {name} = {text:?}: write a number above 0"))
    };
    let (seconds, mbps) = (number("seconds")?, number("mbps")?);
    let seed = step_key(step, "seed")?;
    let seed = seed.parse().with_context(|| format!("the rig's step packets has seed = {seed:?}"))?;
    let dir = testbed.work_dir.join(PACKETS);
    DirBuilder::new().mode(0o700).create(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let (mut told, mut captures) = (Vec::new(), Vec::new());
    for name in step_key(step, "sets")?.split(',').map(str::trim) {
        let (set, size) = parse_set(name)?;
        let out = dir.join(format!("{name}.pcap"));
        let request = MakeOptions {
            set,
            seconds,
            seed,
            size,
            mbps,
            out: Out::File(out.clone()),
            format: FileFormat::Pcap,
        };
        let made = make_capture(&request, testbed.cancel.flag())?;
        told.push(format!("{name} of {}", format_count(made.packets, "packet")));
        captures.extend(profile_set(name, out, &testbed.cancel)?);
    }
    ensure!(!told.is_empty(), "the rig's step packets names no set: {}", list_sets());
    let path = dir.to_str().context("the working directory's name is not UTF-8")?;
    testbed.define_placeholder(PACKETS, path);
    testbed.rig.captures = captures;
    Ok(format!("packets: {}", told.join(", ")))
}

/// A set by its name; `sized-64` is the set `sized` of frames of 64 bytes.
fn parse_set(name: &str) -> anyhow::Result<(Set, u16)> {
    if let Some(size) = name.strip_prefix("sized-") {
        let size = size.parse().ok().filter(|size| SIZES.contains(size)).with_context(|| {
            format!(
                "the rig's step packets has the set {name:?}: write sized-{} to sized-{}",
                SIZES.start(),
                SIZES.end()
            )
        })?;
        return Ok((Set::Sized, size));
    }
    let set = Set::from_name(name)
        .with_context(|| format!("the rig's step packets knows no set {name:?}: {}", list_sets()))?;
    Ok((set, DEFAULT_SIZE))
}

/// Profile of a set. It is stored because the file is removed after the run.
fn profile_set(name: &str, file: PathBuf, cancel: &CancelToken) -> anyhow::Result<Option<ProfileEntry>> {
    let read = profile::read_profiles(&[file], false, &Progress::hidden(), cancel.flag());
    if let Some(error) = read.refused.into_iter().next() {
        return Err(error);
    }
    let mut found = json::build_document(&read.profiles).profiles;
    for input in found.iter_mut().flat_map(|one| &mut one.inputs) {
        // Its path would be that of the run's working directory.
        name.clone_into(&mut input.name);
    }
    Ok(found.pop())
}

fn list_sets() -> String {
    let names: Vec<_> = Set::CHOICES.iter().map(|(name, _, _)| *name).collect();
    format!("use {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_one_length_says_it_in_its_name() {
        assert_eq!(parse_set("sized-64").unwrap(), (Set::Sized, 64));
        assert_eq!(parse_set("sized").unwrap(), (Set::Sized, DEFAULT_SIZE));
        assert_eq!(parse_set("mysql").unwrap().0, Set::Mysql);
        for (name, expected) in [
            ("sized-59", "write sized-60 to sized-1514"),
            ("sized-1515", "write sized-60 to sized-1514"),
            ("sized-many", "write sized-60 to sized-1514"),
            ("gopher", "knows no set \"gopher\": use http, flash, skype, mixed, mysql, sized"),
        ] {
            let said = parse_set(name).unwrap_err().to_string();
            assert!(said.contains(expected), "{name}: {said}");
        }
    }
}

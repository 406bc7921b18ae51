//! Command `toll pcap`: options only.

use super::console::eprint_line;
use super::named::named;
use super::{progress, standard_output};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toll_commands::json_format::JsonFormat;
use toll_net::pcap::capture_writer::{FileFormat, Out};
use toll_net::pcap::make::{self, Set};
use toll_net::pcap::{merge, profile};
use toll_report::html;
use toll_sys::{signals, units};

/// Profile, merge and make packet captures
#[derive(Debug, Subcommand)]
pub enum Pcap {
    Profile(Profile),
    Merge(Merge),
    Make(Make),
}

/// Profile a capture: packets, lengths, rates, flows
///
/// Reads pcap, pcapng and tcpdump text, plain or compressed with gzip or zstd, at the speed of memory.
/// A capture that is damaged or cut is profiled up to there, and the result reports the damage.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toll pcap profile capture.pcap
  toll pcap profile --json day.pcapng.zst | jq '.profiles[0].protocols'
  toll pcap profile --html sets.html http.pcap flash.pcap skype.pcap mixed.pcap
  tcpdump -i eth0 -w - | toll pcap profile -")]
pub struct Profile {
    /// Files to read; `-` is standard input, read as it comes
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Take all files for one capture, such as one that was rotated
    #[arg(long)]
    together: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    format: JsonFormat,
    /// Write a page with the figures drawn, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Merge captures into one, by time
///
/// Equal times keep the order of the files, and each file its own. Memory does not grow with the files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toll pcap merge http.pcap flash.pcap skype.pcap -w mixed.pcap
  toll pcap merge eth0.pcap any.pcapng.gz -w both.pcapng
  toll pcap merge a.pcap b.pcap -w - | toll pcap profile -")]
pub struct Merge {
    /// Captures (pcap or pcapng, perhaps compressed); `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The merged capture, for its owner alone; `-` is standard output
    #[arg(short = 'w', long = "write", alias = "output", value_name = "FILE")]
    out: PathBuf,
    /// Format of the file [default: by its name, else pcapng]
    #[arg(long, alias = "format", value_parser = named::<FileFormat>())]
    file_format: Option<FileFormat>,
}

/// Make a synthetic capture whose properties are known
///
/// The same options make the same bytes. docs/reference/pcap.md says what is in each set.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toll pcap make http --duration 60s --seed 1 -w http.pcap
  toll pcap make mixed --duration 10s --mbps 400 -w mixed.pcap
  toll pcap make mysql --duration 10s -w - | toll digest -
  toll pcap make sized --size 64 --duration 5s -w small.pcap")]
pub struct Make {
    /// Kind of packets
    #[arg(value_parser = named::<Set>())]
    set: Set,
    /// Length of the capture
    #[arg(long, aliases = ["time", "seconds"], value_name = "DURATION", default_value = "60s", value_parser = length)]
    duration: Duration,
    /// Another seed makes another capture of the same kind
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Average rate, in bits of whole frames [default: 2 for skype, else 10]
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    mbps: Option<f64>,
    /// Bytes of each frame of `sized`, without its check sequence: 60 to 1514
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(60..=1514))]
    size: Option<u16>,
    /// The capture, for its owner alone; `-` is standard output
    #[arg(short = 'w', long = "write", alias = "output", value_name = "FILE")]
    out: PathBuf,
    /// Format of the file [default: by its name, else pcap]
    #[arg(long, alias = "format", value_parser = named::<FileFormat>())]
    file_format: Option<FileFormat>,
}

fn length(text: &str) -> Result<Duration, String> {
    let length = units::duration(text)?;
    if length.is_zero() { Err("write a length above 0, such as 60s".to_owned()) } else { Ok(length) }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("write a number above 0, such as 60 or 0.5".to_owned()),
    }
}

impl Pcap {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let stop = Arc::new(AtomicBool::new(false));
        signals::end_in_good_order(&signals::shutdown_signals(), &stop)?;
        match self {
            Pcap::Profile(verb) => verb.run(&stop),
            Pcap::Merge(verb) => verb.run(&stop),
            Pcap::Make(verb) => verb.run(&stop),
        }
    }
}

/// Exit code of interrupted work, as opposed to failed work.
fn failure_exit_code(error: anyhow::Error, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    if !stop.load(Ordering::Relaxed) {
        return Err(error);
    }
    eprint_line!("toll: interrupted; no file was made");
    Ok(ExitCode::from(super::exit_code::INTERRUPTED))
}

impl Profile {
    fn run(self, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
        check_stdin_once(&self.files)?;
        let progress = progress::reading_progress(&self.files);
        let read = profile::read_profiles(&self.files, self.together, &progress, stop);
        progress.finish();
        let document = profile::json::build_document(&read.profiles);
        if let Some(page) = &self.html
            && !document.profiles.is_empty()
        {
            std::fs::write(page, html::captures(&document)?)
                .with_context(|| format!("cannot write {}", page.display()))?;
        }
        if !document.profiles.is_empty() {
            print_document(&document, self.json || self.format.is_json())?;
        }
        for error in &read.refused {
            eprint_line!("toll: {error:#}");
        }
        Ok(match (stop.load(Ordering::Relaxed), read.refused.is_empty()) {
            (true, _) => ExitCode::from(super::exit_code::INTERRUPTED),
            (false, true) => ExitCode::SUCCESS,
            (false, false) => ExitCode::FAILURE,
        })
    }
}

fn print_document(document: &profile::json::Document, json: bool) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut printed = || -> std::io::Result<()> {
        if json {
            serde_json::to_writer_pretty(&mut out, document)?;
            writeln!(out)?;
        } else {
            for (at, one) in document.profiles.iter().enumerate() {
                if at > 0 {
                    writeln!(out)?;
                }
                profile::write_text(one, &mut out)?;
            }
        }
        out.flush()
    };
    match printed() {
        // `toll pcap profile ... | head` is not an error.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn check_stdin_once(files: &[PathBuf]) -> anyhow::Result<()> {
    if files.iter().filter(|file| file.as_os_str() == "-").count() > 1 {
        bail!("standard input can be read only once: name `-` once");
    }
    Ok(())
}

/// A capture's file, or standard output.
fn out_of(path: PathBuf) -> anyhow::Result<Out> {
    Ok(match path.as_os_str() == "-" {
        true => Out::Stream(standard_output::open().context("cannot write to standard output")?),
        false => Out::File(path),
    })
}

impl Merge {
    fn run(self, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
        check_stdin_once(&self.files)?;
        let format = self.file_format.unwrap_or_else(|| FileFormat::from_path(&self.out, FileFormat::Pcapng));
        let request = merge::MergeOptions { files: self.files, out: out_of(self.out)?, format };
        let progress = progress::reading_progress(&request.files);
        let merged = merge::merge_captures(&request, &progress, stop);
        progress.finish();
        match merged {
            Ok(merged) => {
                for line in merged.summary_lines(&request.out, request.files.len()) {
                    eprint_line!("toll: {line}");
                }
                Ok(if merged.damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            Err(error) => failure_exit_code(error, stop),
        }
    }
}

impl Make {
    fn run(self, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
        if self.size.is_some() && self.set != Set::Sized {
            bail!("--size goes with the set `sized`: packets of the others have the lengths of their kind");
        }
        let request = make::MakeOptions {
            set: self.set,
            seconds: self.duration.as_secs_f64(),
            seed: self.seed,
            size: self.size.unwrap_or(make::DEFAULT_SIZE),
            mbps: self.mbps.unwrap_or_else(|| self.set.default_mbps()),
            format: self.file_format.unwrap_or_else(|| FileFormat::from_path(&self.out, FileFormat::Pcap)),
            out: out_of(self.out)?,
        };
        match make::make_capture(&request, stop) {
            Ok(made) => {
                let (packets, bytes) = (made.packets, made.bytes);
                eprint_line!("toll: {}: {packets} packets, {bytes} bytes on the wire", request.out);
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => failure_exit_code(error, stop),
        }
    }
}

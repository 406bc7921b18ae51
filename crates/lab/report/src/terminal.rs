//! Writer of a report for a terminal: lines, paragraphs and colours within a number of columns.
//!
//! Never reads the environment: the caller decides on colours and width.

use textwrap::{Options, WordSplitter};
use toll_record::Verdict;

/// Most columns of a report.
pub const WIDTH: usize = 100;
/// Fewest; a narrower terminal wraps.
pub const NARROWEST: usize = 80;

/// Colouring of important words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColourMode {
    Plain,
    Ansi,
}

/// Text so far, and how it is written.
pub struct Terminal {
    pub out: String,
    pub width: usize,
    ink: ColourMode,
}

impl Terminal {
    /// `columns` within the bounds of a report.
    pub fn new(ink: ColourMode, columns: usize) -> Self {
        Self { out: String::new(), width: columns.clamp(NARROWEST, WIDTH), ink }
    }

    pub fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    pub fn blank(&mut self) {
        self.out.push('\n');
    }

    pub fn bold_line(&mut self, text: &str) {
        let text = self.bold(text);
        self.line(&text);
    }

    pub fn yellow_line(&mut self, text: &str) {
        let text = self.paint(YELLOW, text);
        self.line(&text);
    }

    /// A row in the colour of its verdict.
    pub fn verdict_line(&mut self, verdict: Verdict, text: &str) {
        let colour = match verdict {
            Verdict::Costly => RED,
            Verdict::Cheaper | Verdict::NoEffect => GREEN,
            Verdict::Unclear => YELLOW,
            Verdict::Baseline | Verdict::NoInterval | Verdict::NotCompared => return self.line(text),
        };
        let text = self.paint(colour, text);
        self.line(&text);
    }

    /// Wraps to the width, further lines indented by the length of `lead`.
    pub fn paragraph(&mut self, lead: &str, text: &str) {
        let indent = " ".repeat(lead.chars().count());
        // What is longer than a line is a path or a command: broken, it could not be pasted.
        let options = Options::new(self.width)
            .initial_indent(lead)
            .subsequent_indent(&indent)
            .break_words(false)
            .word_splitter(WordSplitter::NoHyphenation);
        self.line(&textwrap::fill(text, options));
    }

    pub fn yellow_paragraph(&mut self, lead: &str, text: &str) {
        let begin = self.out.len();
        self.paragraph(lead, text);
        let painted = self.paint(YELLOW, self.out[begin..].trim_end_matches('\n'));
        self.out.truncate(begin);
        self.line(&painted);
    }

    pub fn bold(&self, text: &str) -> String {
        self.paint(BOLD, text)
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        match self.ink {
            ColourMode::Plain => text.to_owned(),
            ColourMode::Ansi => format!("\x1b[{colour}m{text}\x1b[0m"),
        }
    }
}

const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

/// Cuts to `width` characters; the last one marks the cut.
pub fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

//! Generator of texts for a language-learning site.
//!
//! Sentences consist of words from vocabularies that the seed generates. Word frequencies follow Zipf: rank r
//! has a weight of 1 / (r + 2.7). Frequent words are short. Such text compresses about as well as real prose.
//! Random letters would not compress, and one repeated text would compress to nothing.

use toll_stats::random::Rng;

/// Words of each language.
const WORDS: usize = 6_000;
/// Mandelbrot's shift of Zipf's law: the most frequent words are less frequent than 1 / r.
const SHIFT: f64 = 2.7;
/// Streams of the seed that tables do not use.
const STREAM: u64 = 900;

/// Sounds and spelling of a language.
struct Sounds {
    begins: &'static [&'static str],
    middles: &'static [&'static str],
    ends: &'static [&'static str],
    /// Text between words, and after a sentence.
    gap: &'static str,
    stop: &'static str,
}

/// All languages; most of the site is in the first. Utf8mb4: characters of one to four bytes.
static LANGUAGES: [Sounds; 8] = [
    Sounds {
        begins: &[
            "", "b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "w", "th", "st", "tr", "ch",
            "pl",
        ],
        middles: &["a", "e", "i", "o", "u", "ea", "ou", "ai", "e", "a"],
        ends: &["", "", "n", "r", "s", "t", "l", "d", "nd", "st", "ng", "ck"],
        gap: " ",
        stop: ". ",
    },
    Sounds {
        begins: &["", "b", "c", "d", "f", "j", "l", "m", "n", "p", "qu", "r", "s", "t", "v", "ch", "ç"],
        middles: &["a", "e", "é", "è", "i", "o", "ou", "u", "eau", "ê", "ai", "à"],
        ends: &["", "", "s", "r", "t", "nt", "lle", "x", "que"],
        gap: " ",
        stop: ". ",
    },
    Sounds {
        begins: &[
            "", "b", "d", "f", "g", "h", "k", "l", "m", "n", "r", "s", "t", "w", "z", "sch", "st", "pf",
        ],
        middles: &["a", "e", "i", "o", "u", "ä", "ö", "ü", "ei", "au", "ie"],
        ends: &["", "n", "en", "r", "t", "ß", "ch", "ng", "st", "cht"],
        gap: " ",
        stop: ". ",
    },
    Sounds {
        begins: &["", "b", "c", "d", "g", "h", "l", "m", "n", "p", "r", "s", "t", "v", "ll", "ch"],
        middles: &["a", "e", "i", "o", "u", "á", "é", "í", "ó", "ue", "ie"],
        ends: &["", "", "s", "n", "r", "ñ", "d", "l"],
        gap: " ",
        stop: ". ",
    },
    Sounds {
        begins: &[
            "", "б", "в", "г", "д", "ж", "з", "к", "л", "м", "н", "п", "р", "с", "т", "х", "ч", "ш", "ст",
            "пр",
        ],
        middles: &["а", "е", "и", "о", "у", "ы", "я", "ё", "ю"],
        ends: &["", "", "й", "л", "м", "н", "т", "ть", "х", "ся"],
        gap: " ",
        stop: ". ",
    },
    Sounds {
        begins: &["", "β", "γ", "δ", "θ", "κ", "λ", "μ", "ν", "π", "ρ", "σ", "τ", "φ", "χ"],
        middles: &["α", "ε", "η", "ι", "ο", "ω", "ά", "έ", "ί", "ό", "ου"],
        ends: &["", "", "ς", "ν", "ρ"],
        gap: " ",
        stop: ". ",
    },
    Sounds {
        begins: &[
            "日", "本", "語", "人", "大", "学", "生", "時", "行", "見", "食", "話", "書", "今", "何", "私",
        ],
        middles: &["の", "に", "は", "を", "た", "が", "で", "て", "と", "し", "れ", "さ", "い", "る", "も"],
        ends: &["", "", "ます", "です", "した", "ない", "ん", "か"],
        gap: "",
        stop: "。",
    },
    Sounds {
        begins: &["ب", "ت", "ج", "ح", "د", "ر", "س", "ش", "ع", "ف", "ق", "ك", "ل", "م", "ن", "ه", "ال"],
        middles: &["ا", "و", "ي", "", "ة"],
        ends: &["", "", "ن", "م", "ت", "ر"],
        gap: " ",
        stop: ". ",
    },
];

const EMOJI: [&str; 8] = ["😀", "😂", "👍", "🎉", "❤️", "🤔", "🙏", "🇫🇷"];

/// The vocabularies of all languages.
pub struct Lexicon(Vec<Vocabulary>);

impl Lexicon {
    pub fn of(seed: u64) -> Self {
        let of = |(i, sounds)| Vocabulary::of(sounds, &mut Rng::new(seed, STREAM + i as u64));
        Self(LANGUAGES.iter().enumerate().map(of).collect())
    }

    /// A random language: the site's own in six of ten draws.
    pub fn random_language(&self, rng: &mut Rng) -> &Vocabulary {
        if rng.below(10) < 6 { &self.0[0] } else { &self.0[1 + rng.below(self.0.len() as u64 - 1) as usize] }
    }

    /// The site's own language, used for names and addresses.
    pub fn main_language(&self) -> &Vocabulary {
        &self.0[0]
    }
}

/// The words of one language, most frequent first.
pub struct Vocabulary {
    words: String,
    /// Begin of each word, and the end of the last.
    begins: Vec<u32>,
    /// Vose's alias method: for each slot, its own share in 2^32, and the owner of the rest.
    own: Vec<u32>,
    other: Vec<u16>,
    sounds: &'static Sounds,
}

impl Vocabulary {
    fn of(sounds: &'static Sounds, rng: &mut Rng) -> Self {
        let mut known = std::collections::HashSet::new();
        let (mut words, mut begins) = (String::new(), vec![0]);
        while begins.len() <= WORDS {
            let rank = begins.len() as u64;
            // What is said often is short; what is new where all short ones are taken is longer.
            let syllables = match rank {
                0..=60 => 1,
                61..=900 => 1 + rng.below(2),
                _ => 2 + rng.below(3),
            };
            let word: String = (0..syllables).map(|_| syllable(sounds, rng)).collect();
            if !word.is_empty() && known.insert(word.clone()) {
                words.push_str(&word);
                begins.push(words.len() as u32);
            }
        }
        let (own, other) = build_alias_table();
        Self { words, begins, own, other, sounds }
    }

    /// A random word, as frequent as its rank implies.
    pub fn word(&self, rng: &mut Rng) -> &str {
        let draw = rng.next_u64();
        let place = (((draw >> 32) * WORDS as u64) >> 32) as usize;
        let rank = if (draw as u32) < self.own[place] { place } else { usize::from(self.other[place]) };
        &self.words[self.begins[rank] as usize..self.begins[rank + 1] as usize]
    }

    /// That many words, without a full stop.
    pub fn words(&self, out: &mut Vec<u8>, rng: &mut Rng, count: u64) {
        for i in 0..count {
            if i > 0 {
                out.extend_from_slice(self.sounds.gap.as_bytes());
            }
            let at = out.len();
            out.extend_from_slice(self.word(rng).as_bytes());
            if i == 0 {
                out[at] = out[at].to_ascii_uppercase();
            }
        }
    }

    /// Sentences of about that many bytes in total, some followed by an emoji.
    pub fn prose(&self, out: &mut Vec<u8>, rng: &mut Rng, bytes: usize) {
        let end = out.len() + bytes;
        loop {
            let count = 4 + rng.below(14);
            self.words(out, rng, count);
            if rng.below(24) == 0 {
                out.push(b' ');
                out.extend_from_slice(EMOJI[rng.below(EMOJI.len() as u64) as usize].as_bytes());
            }
            out.extend_from_slice(self.sounds.stop.as_bytes());
            if out.len() >= end {
                return;
            }
        }
    }

    /// The same as an HTML page: paragraphs, headings, links.
    pub fn html(&self, out: &mut Vec<u8>, rng: &mut Rng, bytes: usize) {
        let end = out.len() + bytes;
        while out.len() < end {
            match rng.below(12) {
                0 => {
                    out.extend_from_slice(b"<h2>");
                    self.words(out, rng, 5);
                    out.extend_from_slice(b"</h2>\n");
                }
                1 => {
                    out.extend_from_slice(b"<p class=\"note\"><a href=\"https://www.example.org/lessons/");
                    out.extend_from_slice(rng.below(100_000).to_string().as_bytes());
                    out.extend_from_slice(b"\" title=\"");
                    self.words(out, rng, 3);
                    out.extend_from_slice(b"\">");
                    self.words(out, rng, 4);
                    out.extend_from_slice(b"</a></p>\n");
                }
                _ => {
                    out.extend_from_slice(b"<p>");
                    let paragraph = 200 + rng.below(700) as usize;
                    self.prose(out, rng, paragraph.min(end.saturating_sub(out.len())));
                    out.extend_from_slice(b"</p>\n");
                }
            }
        }
    }
}

fn syllable(sounds: &Sounds, rng: &mut Rng) -> String {
    let mut any = |of: &[&'static str]| of[rng.below(of.len() as u64) as usize];
    [any(sounds.begins), any(sounds.middles), any(sounds.ends)].concat()
}

/// Shares and aliases of Zipf's weights (Vose, 1991): one draw finds a rank in constant time.
fn build_alias_table() -> (Vec<u32>, Vec<u16>) {
    let weights: Vec<f64> = (0..WORDS).map(|rank| 1.0 / (rank as f64 + 1.0 + SHIFT)).collect();
    let sum: f64 = weights.iter().sum();
    let mut shares: Vec<f64> = weights.iter().map(|weight| weight / sum * WORDS as f64).collect();
    let (mut own, mut other) = (vec![u32::MAX; WORDS], (0..WORDS as u16).collect::<Vec<_>>());
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..WORDS).partition(|&i| shares[i] < 1.0);
    while let (Some(less), Some(&more)) = (small.pop(), large.last()) {
        own[less] = (shares[less] * f64::from(u32::MAX)) as u32;
        other[less] = more as u16;
        shares[more] -= 1.0 - shares[less];
        if shares[more] < 1.0 {
            large.pop();
            small.push(more);
        }
    }
    (own, other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn words_are_as_frequent_as_zipf_says() {
        let lexicon = Lexicon::of(1);
        let mut rng = Rng::new(7, 7);
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        const DRAWS: u32 = 400_000;
        for _ in 0..DRAWS {
            *counts.entry(lexicon.main_language().word(&mut rng)).or_default() += 1;
        }
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let sum: f64 = (1..=WORDS).map(|rank| 1.0 / (rank as f64 + SHIFT)).sum();
        for rank in [1, 10, 100, 1_000] {
            let want = f64::from(DRAWS) / (rank as f64 + SHIFT) / sum;
            let found = f64::from(counts[rank - 1]);
            assert!((found / want - 1.0).abs() < 0.25, "rank {rank}: {found}, about {want}");
        }
    }

    #[test]
    fn text_is_utf8_of_all_lengths_and_needs_no_escape() {
        let lexicon = Lexicon::of(5);
        let mut rng = Rng::new(5, 1);
        let mut out = Vec::new();
        for language in &lexicon.0 {
            language.html(&mut out, &mut rng, 20_000);
            language.prose(&mut out, &mut rng, 5_000);
        }
        assert!(!out.iter().any(|b| [b'\'', b'\\', 0].contains(b)));
        let text = String::from_utf8(out).unwrap();
        let lengths: std::collections::BTreeSet<usize> = text.chars().map(char::len_utf8).collect();
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}

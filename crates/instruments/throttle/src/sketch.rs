//! Latency sketch with exponential decay, so that recent samples weigh more than old ones.
//!
//! Buckets 1% wide hold weights that halve with age. HdrHistogram counts whole samples and forgets none: a
//! window of it could only be discarded whole. Weights grow with time instead of being aged (forward decay:
//! Cormode, Shkapenyuk, Srivastava, Xu, 2009), so nothing is updated as time passes. Knows no clock: the
//! caller passes the time.

/// Natural logarithm of a bucket's width.
const WIDTH: f64 = 0.01;
/// Values below it lie in the first bucket: 45 picoseconds in microseconds, one in 22,000 as a ratio.
const LOWEST: f64 = -10.0;
/// Up to 480 seconds in microseconds.
const BUCKETS: usize = 3_000;
/// Doublings after which weights are scaled down again, long before a number overflows.
const MAX_DOUBLINGS: f64 = 256.0;
/// So many samples must lie beyond a quantile for its error to be known.
const BEYOND: f64 = 2.0;

/// Logarithms of latencies (or of ratios), weighted by age.
#[derive(Debug, Clone)]
pub struct Sketch {
    half_life_s: f64,
    buckets: Vec<f64>,
    /// The buckets that hold anything lie in `first..=last`.
    first: usize,
    last: usize,
    weight: f64,
    squares: f64,
    /// When a sample weighs 1.
    origin_s: f64,
}

/// A quantile's logarithm and its standard error, which is a relative one of the latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub ln: f64,
    pub error: f64,
}

impl Estimate {
    /// The logarithm of the ratio of two.
    pub fn relative_to(self, base: Self) -> Self {
        Self { ln: self.ln - base.ln, error: self.error.hypot(base.error) }
    }
}

impl Sketch {
    /// `half_life_s` may be infinite: then nothing is forgotten.
    pub fn new(half_life_s: f64) -> Self {
        Self {
            half_life_s,
            buckets: vec![0.0; BUCKETS],
            first: BUCKETS,
            last: 0,
            weight: 0.0,
            squares: 0.0,
            origin_s: 0.0,
        }
    }

    /// These, none of which is older than another.
    pub fn from_samples(logarithms: impl IntoIterator<Item = f64>) -> Self {
        let mut sketch = Self::new(f64::INFINITY);
        logarithms.into_iter().for_each(|ln| sketch.add(0.0, ln));
        sketch
    }

    /// A sample of the moment `at_s`; the moments need not rise.
    pub fn add(&mut self, at_s: f64, ln: f64) {
        self.add_weighted(at_s, ln, 1.0);
    }

    /// A sample that weighs only this share of one.
    pub fn add_weighted(&mut self, at_s: f64, ln: f64, share: f64) {
        let mut doublings = (at_s - self.origin_s) / self.half_life_s;
        if doublings > MAX_DOUBLINGS {
            self.scale_weight((-doublings).exp2());
            self.origin_s = at_s;
            doublings = 0.0;
        }
        let weight = share * doublings.exp2();
        let bucket = (((ln - LOWEST) / WIDTH).max(0.0) as usize).min(BUCKETS - 1);
        self.buckets[bucket] += weight;
        self.first = self.first.min(bucket);
        self.last = self.last.max(bucket);
        self.weight += weight;
        self.squares += weight * weight;
    }

    /// What it holds weighs only this share of what it did, beside what comes.
    pub fn scale_weight(&mut self, share: f64) {
        for weight in &mut self.buckets {
            *weight *= share;
        }
        self.weight *= share;
        self.squares *= share * share;
    }

    pub fn clear(&mut self) {
        *self = Self::new(self.half_life_s);
    }

    /// As many samples of equal weight would be as sure (Kish).
    pub fn count(&self) -> f64 {
        if self.squares > 0.0 { self.weight * self.weight / self.squares } else { 0.0 }
    }

    /// Logarithm of the latency that the share `p` lies below.
    pub fn quantile(&self, p: f64) -> Option<f64> {
        if self.weight <= 0.0 {
            return None;
        }
        let wanted = p.clamp(0.0, 1.0) * self.weight;
        let mut below = 0.0;
        for bucket in self.first..=self.last {
            let weight = self.buckets[bucket];
            if weight > 0.0 && below + weight >= wanted {
                let within = ((wanted - below) / weight).clamp(0.0, 1.0);
                return Some(LOWEST + WIDTH * (bucket as f64 + within));
            }
            below += weight;
        }
        Some(LOWEST + WIDTH * (self.last + 1) as f64)
    }

    /// With its standard error, from the order statistics around it; none while too few samples lie beyond
    /// it. Samples count as independent: where a slow second slows all that are in it, the error is larger.
    pub fn estimate(&self, p: f64) -> Option<Estimate> {
        let count = self.count();
        if count * p.min(1.0 - p) < BEYOND {
            return None;
        }
        let step = (p * (1.0 - p) / count).sqrt();
        let width = self.quantile(p + step)? - self.quantile(p - step)?;
        Some(Estimate { ln: self.quantile(p)?, error: (width / 2.0).max(WIDTH / 2.0) })
    }

    /// Share of the weight that lies above a latency's logarithm.
    pub fn share_above(&self, ln: f64) -> f64 {
        let bucket = (((ln - LOWEST) / WIDTH).max(0.0) as usize).min(BUCKETS - 1);
        let above: f64 = self.buckets[bucket + 1..].iter().sum();
        let within = self.buckets[bucket] * (1.0 - ((ln - LOWEST) / WIDTH - bucket as f64).clamp(0.0, 1.0));
        if self.weight > 0.0 { (above + within) / self.weight } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_where_the_samples_do_and_their_error_is_the_usual_one() {
        let mut sketch = Sketch::new(f64::INFINITY);
        // 10,000 samples, evenly over one unit of the logarithm.
        for i in 0..10_000 {
            sketch.add(f64::from(i), 6.0 + f64::from(i) / 10_000.0);
        }
        assert_eq!(sketch.count().round(), 10_000.0);
        for p in [0.01, 0.5, 0.9, 0.99] {
            let estimate = sketch.estimate(p).unwrap();
            assert!((estimate.ln - 6.0 - p).abs() < WIDTH, "{p}: {estimate:?}");
            let usual = (p * (1.0 - p) / 10_000.0_f64).sqrt();
            assert!((estimate.error - usual.max(WIDTH / 2.0)).abs() < 1e-3, "{p}: {estimate:?}");
        }
        assert!((sketch.share_above(6.75) - 0.25).abs() < 1e-3);
        assert_eq!(sketch.share_above(8.0), 0.0);
    }

    #[test]
    fn what_is_old_weighs_less_and_far_beyond_any_overflow() {
        let mut sketch = Sketch::new(1.0);
        sketch.add(0.0, 1.0);
        sketch.add(1.0, 2.0);
        // The later one weighs two of three parts.
        assert!(sketch.quantile(0.30).unwrap() < 1.1 && sketch.quantile(0.40).unwrap() > 1.9);
        for second in 0..5_000 {
            sketch.add(f64::from(second), 3.0);
        }
        assert!((sketch.quantile(0.5).unwrap() - 3.0).abs() < WIDTH);
        assert!((sketch.count() - 3.0).abs() < 0.1, "half-life 1 s, one a second: {}", sketch.count());
    }

    #[test]
    fn too_few_samples_have_no_error_and_so_no_estimate() {
        let mut sketch = Sketch::new(10.0);
        assert_eq!((sketch.quantile(0.5), sketch.estimate(0.5)), (None, None));
        for _ in 0..150 {
            sketch.add(1.0, 5.0);
        }
        assert!(sketch.estimate(0.95).is_some());
        assert_eq!(sketch.estimate(0.99), None);
        sketch.clear();
        assert_eq!(sketch.quantile(0.5), None);
    }
}

//! Version of the running kernel, where no feature can be asked for instead. Vendors backport: a version is a hint.

/// Version, patch level and sublevel of a release such as `6.12.3-amd64`; 0 for what is missing.
pub fn parse(release: &str) -> [u32; 3] {
    let mut numbers = release
        .split(|character: char| !character.is_ascii_digit())
        .map_while(|number| number.parse::<u32>().ok());
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}

/// Release of this kernel; empty if it cannot be read.
pub fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_three_numbers_and_what_is_missing_is_zero() {
        for (release, version) in [
            ("6.12.3-amd64", [6, 12, 3]),
            ("7.2.13+deb14-amd64", [7, 2, 13]),
            ("6.6.0-rc1", [6, 6, 0]),
            ("7.0", [7, 0, 0]),
            ("5.10-rc7", [5, 10, 0]),
            ("", [0, 0, 0]),
        ] {
            assert_eq!(parse(release), version, "{release}");
        }
        assert!(parse(&release())[0] >= 5);
    }
}

//! Kernel versions: their order, and where an image and a package name state them.

use std::cmp::Ordering;

const PACKAGE: &str = "linux-image-";
/// Builds of Debian and Ubuntu for ordinary machines.
const FLAVOURS: [&str; 2] = ["-amd64", "-generic"];
/// Builds that lack drivers, schedule otherwise, or hold no kernel.
const OTHER_BUILDS: [&str; 4] = ["cloud", "rt", "dbg", "unsigned"];

/// Order of versions: numbers by their value, everything else by its bytes.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    while !a.is_empty() && !b.is_empty() {
        let (text_a, number_a, rest_a) = next_part(a);
        let (text_b, number_b, rest_b) = next_part(b);
        let order = text_a.cmp(text_b).then(number_a.cmp(&number_b));
        if order.is_ne() {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    a.len().cmp(&b.len())
}

/// Text up to the next number, that number, and the rest.
fn next_part(version: &str) -> (&str, u64, &str) {
    let digit = |c: char| c.is_ascii_digit();
    let (text, rest) = version.split_at(version.find(digit).unwrap_or(version.len()));
    let (number, rest) = rest.split_at(rest.find(|c| !digit(c)).unwrap_or(rest.len()));
    // None, or more digits than any version has.
    (text, number.parse().unwrap_or(0), rest)
}

/// The newest by [`compare`].
pub fn newest(versions: impl Iterator<Item = String>) -> Option<String> {
    versions.max_by(|a, b| compare(a, b))
}

/// `linux-image-6.12.117+deb12-amd64` holds `6.12.117+deb12-amd64`.
pub fn version_of_package(package: &str) -> Option<&str> {
    package.strip_prefix(PACKAGE).filter(|version| version.starts_with(|c: char| c.is_ascii_digit()))
}

/// Newest version that packages of these names hold. Meta packages, which hold none, are left out.
pub fn newest_offered(packages: &str) -> Option<String> {
    let is_ordinary = |version: &&str| {
        let Some(number) = FLAVOURS.iter().find_map(|flavour| version.strip_suffix(flavour)) else {
            return false;
        };
        // `6.12-amd64` depends on `6.12.117+deb12-amd64`.
        let is_whole = number.split(['.', '-', '+']).filter(|part| part.parse::<u32>().is_ok()).count() >= 3;
        is_whole && !number.split('-').any(|part| OTHER_BUILDS.contains(&part))
    };
    let names = packages.lines().filter_map(|line| line.split_whitespace().next());
    newest(names.filter_map(version_of_package).filter(is_ordinary).map(str::to_owned))
}

/// Version that an image of x86 states in its header. `None`: it is no such image.
///
/// `Documentation/arch/x86/boot.rst` of the kernel: magic `HdrS` at 0x202, `kernel_version` at 0x20e.
pub fn version_of_image(image: &[u8]) -> Option<&str> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let pointer = u16::from_le_bytes(image.get(0x20e..0x210)?.try_into().ok()?);
    let text = image.get(usize::from(pointer) + 0x200..)?;
    // `6.12.117+deb12-amd64 (debian-kernel@lists.debian.org) #1 SMP ...`
    let end = text.iter().position(|&byte| byte == b' ' || byte == 0)?;
    let version = std::str::from_utf8(&text[..end]).ok()?;
    // It names a directory.
    (!version.is_empty() && !version.contains('/')).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let ordered = [
            "5.10.0-30-amd64",
            "6.1.0-9-amd64",
            "6.1.0-56-amd64",
            "6.8.0-45-generic",
            "6.12.99+deb12-amd64",
            "6.12.117+deb12-amd64",
            "6.12.117+deb13-amd64",
        ];
        for pair in ordered.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(compare("6.1", "6.1"), Ordering::Equal);
        assert_eq!(compare("6.1", "6.1.1"), Ordering::Less);
        assert_eq!(newest(ordered.iter().map(ToString::to_string)).as_deref(), ordered.last().copied());
    }

    #[test]
    fn the_newest_ordinary_kernel_of_those_offered_is_chosen() {
        let debian = "linux-image-6.1.0-56-amd64 - Linux 6.1 for 64-bit PCs (signed)\n\
            linux-image-6.12-amd64 - Linux for 64-bit PCs (meta-package)\n\
            linux-image-6.12.101+deb12-amd64 - Linux 6.12 for 64-bit PCs (signed)\n\
            linux-image-6.12.99+deb12-amd64 - Linux 6.12 for 64-bit PCs (signed)\n\
            linux-image-6.12.117+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)\n\
            linux-image-6.12.117+deb12-rt-amd64 - Linux 6.12 for 64-bit PCs (signed), PREEMPT_RT\n\
            linux-image-6.12.117+deb12-amd64-dbg - Debug symbols\n\
            linux-image-6.12.117+deb12-amd64-unsigned - Linux 6.12 for 64-bit PCs\n\
            linux-image-amd64 - Linux for 64-bit PCs (meta-package)\n";
        assert_eq!(newest_offered(debian).as_deref(), Some("6.12.101+deb12-amd64"));
        let ubuntu = "linux-image-generic\nlinux-image-6.8.0-45-generic\nlinux-image-6.8.0-45-lowlatency\n\
            linux-image-unsigned-6.8.0-46-generic\n";
        assert_eq!(newest_offered(ubuntu).as_deref(), Some("6.8.0-45-generic"));
        assert_eq!(newest_offered("linux-image-amd64\nlinux-image-6.12-amd64\n"), None);
    }

    #[test]
    fn an_image_states_its_version() {
        let mut image = vec![0; 0x400];
        assert_eq!(version_of_image(&image), None);
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        assert_eq!(version_of_image(&image), None, "an empty one");
        image[0x300..0x310].copy_from_slice(b"6.1.0-56-amd64 (");
        assert_eq!(version_of_image(&image), Some("6.1.0-56-amd64"));
        let other: Vec<u8> = image.iter().map(|&byte| if byte == b'H' { b'h' } else { byte }).collect();
        assert_eq!(version_of_image(&other), None, "another magic");
        image[0x300..0x310].copy_from_slice(b"../../../etc/x (");
        assert_eq!(version_of_image(&image), None);
        image[0x20e..0x210].copy_from_slice(&0xffff_u16.to_le_bytes());
        assert_eq!(version_of_image(&image), None, "beyond its end");
    }
}

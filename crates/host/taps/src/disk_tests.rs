//! Tests of each write mode: file content, and a page cache free of it.

use super::*;
use std::fs::OpenOptions;
use std::io::Read;
use std::path::PathBuf;

/// An empty file on a disk (where the tests were built), gone with the test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        let directory = std::env::current_exe().unwrap().with_file_name("");
        Self(directory.join(format!("toll-disk-{name}-{}", std::process::id())))
    }

    fn open(&self) -> File {
        OpenOptions::new().write(true).create(true).truncate(true).open(&self.0).unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Pages of the file in the page cache.
fn cached_pages(path: &PathBuf) -> usize {
    let file = File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len() as usize;
    let (none, fd) = (std::ptr::null_mut(), file.as_raw_fd());
    // SAFETY: no address is asked for; the answer is checked.
    let at = unsafe { libc::mmap(none, bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let mut pages = vec![0u8; bytes.div_ceil(4096)];
    // SAFETY: what was just mapped, and a byte for each of its pages.
    assert_eq!(unsafe { libc::mincore(at, bytes, pages.as_mut_ptr()) }, 0);
    // SAFETY: what was mapped, and nothing borrows it.
    unsafe { libc::munmap(at, bytes) };
    pages.iter().filter(|&&page| page & 1 != 0).count()
}

/// Pieces of many lengths, 20 MB and a bit together.
fn pieces() -> Vec<Vec<u8>> {
    let lengths = [1usize, 4095, 4096, 4097, 70_000, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5, 777];
    let piece = |(nth, length): (usize, &usize)| (0..*length).map(|i| (i * 31 + nth * 7) as u8).collect();
    lengths.iter().cycle().take(24).enumerate().map(piece).collect()
}

#[test]
fn every_way_writes_what_it_was_given_and_leaves_the_cache_empty() {
    let expected: Vec<u8> = pieces().concat();
    for way in [WriteMode::DontCache, WriteMode::Direct, WriteMode::WriteBehind] {
        let place = TempFile::new(&format!("{way:?}"));
        let mut disk = DiskFile::with_mode(place.open(), way);
        if way == WriteMode::Direct {
            disk.try_direct().unwrap();
        }
        for piece in pieces() {
            disk.write(&piece).unwrap();
        }
        assert_eq!(disk.length(), expected.len() as u64);
        if disk.mode() != way {
            toll_testkit::skip!("this file system does not know {way:?}");
            continue;
        }
        disk.finish().unwrap();
        // What the kernel lets go it lets go once it is written: asking for that ends the wait.
        File::open(&place.0).unwrap().sync_all().unwrap();
        let cached = cached_pages(&place.0);
        assert!(cached < 64, "{way:?}: {cached} pages of {} are in the cache", expected.len() / 4096);
        assert!(std::fs::read(&place.0).unwrap() == expected, "{way:?}");
    }
}

#[test]
fn a_file_written_as_ever_stays_in_the_cache() {
    // Without this the test above would show nothing.
    let place = TempFile::new("plain");
    let mut disk = DiskFile::with_mode(place.open(), WriteMode::Stream);
    disk.write(&pieces().concat()).unwrap();
    disk.finish().unwrap();
    assert!(cached_pages(&place.0) > 1000);
}

#[test]
fn a_way_that_the_file_system_does_not_know_is_left_for_the_next() {
    // Shared memory is a page cache and nothing else.
    let path = PathBuf::from(format!("/dev/shm/toll-disk-{}", std::process::id()));
    let place = TempFile(path);
    let mut disk = DiskFile::new(place.open()).unwrap();
    let before = disk.mode();
    disk.write(b"abc").unwrap();
    disk.write(&[7; 5000]).unwrap();
    assert_ne!(before, WriteMode::DontCache, "shared memory was written past itself");
    assert_eq!(disk.mode(), before, "a mode that was known before the first write");
    disk.finish().unwrap();
    assert_eq!(std::fs::read(&place.0).unwrap(), [&b"abc"[..], &[7; 5000]].concat());
}

#[test]
fn what_is_no_file_is_written_plainly() {
    let (mut read, write) = std::io::pipe().unwrap();
    let file = File::from(std::os::fd::OwnedFd::from(write));
    let mut disk = DiskFile::new(file).unwrap();
    disk.write(b"abc").unwrap();
    assert_eq!(disk.mode(), WriteMode::Stream);
    disk.finish().unwrap();
    let mut found = String::new();
    read.read_to_string(&mut found).unwrap();
    assert_eq!(found, "abc");
}

/// A disk that is really full needs a file system of its own: `crates/toll/tests` has one.
#[test]
fn what_a_failed_write_left_behind_is_cut_off() {
    for way in [WriteMode::DontCache, WriteMode::WriteBehind] {
        let place = TempFile::new(&format!("full-{way:?}"));
        let mut disk = DiskFile::with_mode(place.open(), way);
        disk.write(&[1; 5000]).unwrap();
        // Half of what follows was written when the disk was full.
        disk.file.write_all_at(&[2; 300], 5000).unwrap();
        disk.roll_back();
        disk.write(&[3; 10]).unwrap();
        disk.finish().unwrap();
        assert_eq!(std::fs::read(&place.0).unwrap(), [&[1; 5000][..], &[3; 10]].concat(), "{way:?}");
    }
}

#[test]
fn a_piece_past_the_cache_that_fails_is_forgotten_whole() {
    let place = TempFile::new("half-direct");
    let mut disk = DiskFile::with_mode(place.open(), WriteMode::Direct);
    disk.try_direct().unwrap();
    disk.write(&[1; PIECE - 10]).unwrap();
    // A write of which the first piece was taken and the second was not.
    disk.buffer.write(&disk.file, &[2; 100]).unwrap();
    disk.roll_back();
    assert!(disk.write(b"more").unwrap_err().to_string().contains("failed halfway"));
    disk.finish().unwrap();
    assert!(std::fs::read(&place.0).unwrap() == vec![1; PIECE - 10]);
}

#[test]
fn a_write_of_nothing_says_nothing_of_the_way() {
    // In memory the first way is unknown.
    let path = PathBuf::from(format!("/dev/shm/toll-disk-nothing-{}", std::process::id()));
    let place = TempFile(path);
    let mut disk = DiskFile::new(place.open()).unwrap();
    disk.write(b"").unwrap();
    disk.write(b"something").unwrap();
    disk.finish().unwrap();
    assert_eq!(std::fs::read(&place.0).unwrap(), b"something");
}

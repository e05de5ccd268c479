//! A mapped file grows where it is, as long as it has room, and gives back all addresses.

#![allow(clippy::expect_used)] // a test that panics has failed

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use cqrepl_kernel::mem::{FileMap, Source};

/// A page on any machine, or several.
const PAGE: usize = 64 << 10;

/// A file of its own for a test; no name leads to it any more.
fn grown_file(name: &str) -> File {
    let path: PathBuf = std::env::temp_dir().join(format!("cqrepl-{}-{name}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("new");
    fs::remove_file(path).expect("it was made");
    file
}

/// Writes pages behind the file, each of them full of its number.
fn add_pages(file: &mut File, numbers: std::ops::Range<usize>) {
    file.seek(io::SeekFrom::End(0)).expect("a file");
    for number in numbers {
        file.write_all(&[number as u8; PAGE]).expect("space");
    }
}

fn holds(map: &FileMap, pages: usize) -> bool {
    // SAFETY: so many bytes are mapped for as long as the map is borrowed
    #[allow(unsafe_code)]
    let bytes = unsafe { std::slice::from_raw_parts(map.start().cast_const(), map.len()) };
    let source = Source::from(bytes);
    (0..pages).all(|page| source.holds(page * PAGE, &[page as u8; PAGE]))
}

/// The mappings of this process that begin at an address or behind it, up to another one.
fn mappings_within(start: usize, end: usize) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux");
    let starts =
        maps.lines().filter_map(|line| usize::from_str_radix(line.split('-').next()?, 16).ok());
    starts.filter(|at| (start..end).contains(at)).count()
}

#[test]
fn what_a_file_grows_by_is_one_mapping_behind_what_is_mapped() {
    let mut file = grown_file("grows");
    add_pages(&mut file, 0..3);
    let room = 64 * PAGE;
    let mut map = FileMap::new(file.as_raw_fd(), 2 * PAGE + 5, room, true).expect("mapped");
    let start = map.start();
    assert_eq!(map.len(), 2 * PAGE + 5);
    for pages in [3, 4, 20, 64] {
        let there = file.metadata().expect("open").len() as usize / PAGE;
        add_pages(&mut file, there..pages);
        assert!(map.extend(file.as_raw_fd(), pages * PAGE));
        assert_eq!((map.start(), map.len()), (start, pages * PAGE));
        assert!(holds(&map, pages));
        // what was mapped first, what it has grown by, and what is reserved behind it
        let of_it = mappings_within(start as usize, start as usize + room);
        assert_eq!(of_it, if pages < 64 { 3 } else { 2 });
    }
    assert!(!map.extend(file.as_raw_fd(), room + 1));
    assert!(holds(&map, 64));
    drop(map);
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux");
    assert!(!maps.contains(&format!("{}-grows", std::process::id())));
}

#[test]
fn addresses_are_given_back() {
    let mut file = grown_file("back");
    add_pages(&mut file, 0..2);
    for _ in 0..2000 {
        // all of them at once are more than there are
        let mut map = FileMap::new(file.as_raw_fd(), PAGE, 1 << 37, false).expect("mapped");
        assert!(map.extend(file.as_raw_fd(), 2 * PAGE));
    }
}

#[test]
fn without_room_a_file_is_mapped_and_cannot_grow() {
    let mut file = grown_file("exact");
    add_pages(&mut file, 0..2);
    for room in [0, PAGE, usize::MAX, usize::MAX / 2, 1 << 46] {
        let mut map = FileMap::new(file.as_raw_fd(), 2 * PAGE, room, false).expect("mapped");
        assert!(holds(&map, 2));
        assert!(!map.is_writable());
        assert!(!map.extend(file.as_raw_fd(), 3 * PAGE), "room {room}");
        assert!(map.extend(file.as_raw_fd(), PAGE), "it is mapped");
        assert_eq!(map.len(), 2 * PAGE);
    }
}

#[test]
fn what_the_system_refuses_leaves_all_as_it_was() {
    let mut file = grown_file("refused");
    add_pages(&mut file, 0..2);
    let mut map = FileMap::new(file.as_raw_fd(), PAGE, 8 * PAGE, false).expect("mapped");
    assert!(!map.extend(-1, 2 * PAGE));
    let listing = File::open("/proc/self/maps").expect("Linux");
    assert!(!map.extend(listing.as_raw_fd(), 2 * PAGE), "it cannot be mapped");
    assert_eq!(map.len(), PAGE);
    assert!(holds(&map, 1));
    assert!(FileMap::new(file.as_raw_fd(), 0, 0, false).is_err());
    assert!(FileMap::new(-1, PAGE, 2 * PAGE, false).is_err());
    assert!(FileMap::new(listing.as_raw_fd(), PAGE, 2 * PAGE, false).is_err());
}

#[test]
fn a_large_map_is_given_back_after_all_by_a_thread() {
    let file = grown_file("large");
    let length = 80 << 20;
    file.set_len(length as u64).expect("a sparse file");
    let map = FileMap::new(file.as_raw_fd(), length, 0, true).expect("mapped");
    let start = map.start() as usize;
    assert_eq!(mappings_within(start, start + length), 1);
    drop(map);
    let waits = std::iter::repeat_with(|| std::thread::sleep(std::time::Duration::from_millis(5)));
    let waited = waits.take(6000).take_while(|()| mappings_within(start, start + length) > 0);
    assert!(waited.count() < 6000);
}

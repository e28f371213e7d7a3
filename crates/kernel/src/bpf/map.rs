//! Maps: what a program and processes share.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

use super::BpfError;
use super::sys::{self, Command, MapCreate, MapElement};

// linux/bpf.h
const TYPE_HASH: u32 = 1;
const TYPE_ARRAY: u32 = 2;
const MMAPABLE: u32 = 1 << 10;

/// Bytes of the words that an array is made of.
const WORD: usize = size_of::<u64>();

/// A hash map in the kernel, of keys of `K` bytes and values of `V`.
#[derive(Debug)]
pub struct HashMap<const K: usize, const V: usize> {
    fd: OwnedFd,
}

impl<const K: usize, const V: usize> HashMap<K, V> {
    /// A new one, with room for so many entries.
    ///
    /// # Errors
    ///
    /// No permission, or the kernel refuses.
    pub fn create(name: &str, entries: u32) -> Result<Self, BpfError> {
        let fd = create(name, TYPE_HASH, K, V, entries, 0)?;
        Ok(Self { fd })
    }

    /// Sets the value of a key, whether or not it had one.
    ///
    /// # Errors
    ///
    /// The map is full.
    pub fn insert(&self, key: &[u8; K], value: &[u8; V]) -> Result<(), BpfError> {
        let mut element = self.element(key, ptr::from_ref(value).expose_provenance());
        // SAFETY: key and value are as long as those of the map, and are only read.
        let done = unsafe { sys::bpf(Command::MapUpdate, &mut element) };
        done.map(drop).map_err(BpfError::of("write an entry of a map"))
    }

    /// Removes a key. `false` if it was not there.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn remove(&self, key: &[u8; K]) -> Result<bool, BpfError> {
        let mut element = self.element(key, 0);
        // SAFETY: the key is as long as those of the map, and is only read.
        let done = unsafe { sys::bpf(Command::MapDelete, &mut element) };
        found(done, "remove an entry of a map")
    }

    /// The value of a key, if it is there.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn get(&self, key: &[u8; K]) -> Result<Option<[u8; V]>, BpfError> {
        let mut value = [0; V];
        let mut element = self.element(key, ptr::from_mut(&mut value).expose_provenance());
        // SAFETY: the key is only read, and the value has the room that those of the map need.
        let done = unsafe { sys::bpf(Command::MapLookup, &mut element) };
        found(done, "read an entry of a map").map(|found| found.then_some(value))
    }

    fn element(&self, key: &[u8; K], value: usize) -> MapElement {
        let key = ptr::from_ref(key).expose_provenance() as u64;
        MapElement { map_fd: number(&self.fd), unused: 0, key, value: value as u64, flags: 0 }
    }
}

impl<const K: usize, const V: usize> AsFd for HashMap<K, V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An array in the kernel that lies in this process's memory too. Everybody who has its descriptor can map it, without
/// any privilege.
#[derive(Debug)]
pub struct SharedArray {
    fd: OwnedFd,
    words: NonNull<AtomicU64>,
    entries: usize,
    words_per_entry: usize,
}

// SAFETY: the memory is nobody's own, and is only accessed by atomic operations.
unsafe impl Send for SharedArray {}
// SAFETY: as above.
unsafe impl Sync for SharedArray {}

impl SharedArray {
    /// A new one, of so many entries of so many words each. All are zero.
    ///
    /// # Errors
    ///
    /// No permission, or the kernel refuses.
    pub fn create(name: &str, words_per_entry: usize, entries: u32) -> Result<Self, BpfError> {
        let value = words_per_entry.saturating_mul(WORD);
        let fd = create(name, TYPE_ARRAY, size_of::<u32>(), value, entries, MMAPABLE)?;
        Self::map(fd, entries as usize, words_per_entry)
    }

    /// One that exists, by its descriptor, which another process may have made.
    ///
    /// # Errors
    ///
    /// The descriptor is of something else, or its memory cannot be had.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, BpfError> {
        // Asking bpf(2) needs a privilege before Linux 5.19.
        let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
        let text =
            std::fs::read_to_string(path).map_err(BpfError::of("read what a descriptor is"))?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let value = line.map(str::trim)?;
            value
                .strip_prefix("0x")
                .map_or_else(|| value.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
        };
        if field("map_type") != Some(TYPE_ARRAY) {
            return Err(BpfError::NoArray("it has another type"));
        }
        if field("map_flags").is_none_or(|flags| flags & MMAPABLE == 0) {
            return Err(BpfError::NoArray("it was made without leave to"));
        }
        let size =
            |name| field(name).map(|n| n as usize).ok_or(BpfError::NoArray("its size is not told"));
        let (value, entries) = (size("value_size")?, size("max_entries")?);
        if value == 0 || !value.is_multiple_of(WORD) {
            return Err(BpfError::NoArray("its entries are not made of words"));
        }
        Self::map(fd, entries, value / WORD)
    }

    fn map(fd: OwnedFd, entries: usize, words_per_entry: usize) -> Result<Self, BpfError> {
        let refused = BpfError::of("map an array into memory");
        let length = entries.checked_mul(words_per_entry).and_then(|words| words.checked_mul(WORD));
        let length = length.ok_or_else(|| refused(io::ErrorKind::InvalidInput.into()))?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at a place of the kernel's choice, changes no memory that is in use.
        let place = unsafe {
            libc::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if place == libc::MAP_FAILED {
            return Err(refused(io::Error::last_os_error()));
        }
        let words =
            NonNull::new(place.cast()).ok_or_else(|| refused(io::ErrorKind::OutOfMemory.into()))?;
        Ok(Self { fd, words, entries, words_per_entry })
    }

    /// Its entries.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether it has none, which the kernel does not permit.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The words of an entry, if there is one of this number.
    pub fn entry(&self, n: usize) -> Option<&[AtomicU64]> {
        self.words().chunks_exact(self.words_per_entry).nth(n)
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped until this is dropped, at the beginning of a page; the kernel never makes
        // the array shorter, and it and other processes change words of their own or whole ones in one step.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.entries * self.words_per_entry) }
    }
}

impl AsFd for SharedArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SharedArray {
    fn drop(&mut self) {
        let length = self.entries * self.words_per_entry * WORD;
        // SAFETY: it was mapped with this length, and no reference to it outlives this.
        unsafe { libc::munmap(self.words.as_ptr().cast(), length) };
    }
}

fn create(
    name: &str,
    kind: u32,
    key: usize,
    value: usize,
    entries: u32,
    flags: u32,
) -> Result<OwnedFd, BpfError> {
    // What is longer than that no kernel permits.
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut attributes = MapCreate {
        map_type: kind,
        key_size: size(key),
        value_size: size(value),
        max_entries: entries,
        map_flags: flags,
        map_name: sys::name(name),
        ..MapCreate::default()
    };
    // SAFETY: there are no pointers, and the command gives a descriptor.
    unsafe { sys::bpf_fd(Command::MapCreate, &mut attributes) }.map_err(BpfError::of("make a map"))
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Whether an entry was there.
fn found(done: io::Result<i32>, doing: &'static str) -> Result<bool, BpfError> {
    match done {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(BpfError::of(doing)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn or_skip<T>(needed: Result<T, BpfError>) -> Option<T> {
        lasthop_testing::or_skip(needed, BpfError::is_unavailable)
    }

    #[test]
    fn a_hash_map_gives_what_was_put_into_it() {
        let Some(map) = or_skip(HashMap::<3, 2>::create("test", 2)) else { return };
        assert_eq!(map.get(b"one").unwrap(), None);
        map.insert(b"one", &[1, 2]).unwrap();
        map.insert(b"two", &[3, 4]).unwrap();
        map.insert(b"one", &[5, 6]).unwrap();
        assert_eq!(map.get(b"one").unwrap(), Some([5, 6]));
        assert!(map.insert(b"six", &[7, 8]).is_err(), "it has room for two");
        assert!(map.remove(b"one").unwrap() && !map.remove(b"one").unwrap());
        assert_eq!(map.get(b"one").unwrap(), None);
    }

    #[test]
    fn who_has_the_descriptor_of_an_array_has_its_memory() {
        let Some(ours) = or_skip(SharedArray::create("test", 3, 1000)) else { return };
        let theirs = SharedArray::from_fd(ours.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(
            (theirs.len(), theirs.is_empty(), theirs.entry(0).unwrap().len()),
            (1000, false, 3)
        );
        ours.entry(999).unwrap()[2].store(7, Relaxed);
        assert_eq!(theirs.entry(999).unwrap()[2].load(Relaxed), 7);
        assert!(theirs.entry(1000).is_none());
        drop(ours);
        assert_eq!(theirs.entry(999).unwrap()[2].load(Relaxed), 7, "the map lives on");
    }

    #[test]
    fn other_descriptors_are_refused() {
        let file = SharedArray::from_fd(File::open("/dev/zero").unwrap().into());
        assert!(matches!(file, Err(BpfError::NoArray(_))), "{file:?}");
        let Some(map) = or_skip(HashMap::<4, 8>::create("test", 1)) else { return };
        let map = SharedArray::from_fd(map.as_fd().try_clone_to_owned().unwrap());
        assert!(matches!(map, Err(BpfError::NoArray(_))), "{map:?}");
    }
}

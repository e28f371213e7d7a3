//! Roles that one process in a network namespace has at a time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use thiserror::Error;

/// Where services of this host have what lives as long as they do.
const SERVICES: &str = "/run/lasthop";
/// Those whom a folder's owner does not want in it.
const OTHERS: u32 = 0o022;
/// How soon a lock that is taken is looked at again.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a role cannot be had.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process has it.
    #[error("{} is locked by another process", .0.display())]
    Taken(PathBuf),
    /// No folder can be used.
    #[error(
        "no place for a lock ({}); run it as a user who may write to /run/lasthop, with \
         `RuntimeDirectory=lasthop` in its unit, or set XDG_RUNTIME_DIR", tried.join(", ")
    )]
    NoFolder {
        /// The folders, and why not.
        tried: Vec<String>,
    },
    /// Whoever may write to the folder could take the lock away.
    #[error("{} is no folder that others cannot write to: chmod go-w it, or remove it", .0.display())]
    Open(PathBuf),
    /// The file cannot be used.
    #[error("cannot lock {}: {source}; if no lasthop of another user runs, remove it", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A role in the network namespace of the thread that took it. It is given up when this is dropped,
/// or the process ends in whatever way.
#[derive(Debug)]
pub struct Lock {
    folder: OwnedFd,
    name: String,
    /// Locked (flock(2)).
    _file: OwnedFd,
}

impl Lock {
    /// Takes `role`. For a process that is just ending `patience` is had.
    ///
    /// The lock is a file for the role and the namespace in /run/lasthop, or in the user's own runtime
    /// directory where that cannot be written to.
    ///
    /// # Errors
    ///
    /// [`LockError`], in one line that says what to do.
    pub fn take(role: &str, patience: Duration) -> Result<Self, LockError> {
        let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
        let own = own.map(|folder| PathBuf::from(folder).join("lasthop"));
        let folders: Vec<PathBuf> = [PathBuf::from(SERVICES)].into_iter().chain(own).collect();
        Self::take_in(&folders, role, patience)
    }

    /// As [`take`](Self::take), in the first of these folders that can be written to.
    fn take_in(folders: &[PathBuf], role: &str, patience: Duration) -> Result<Self, LockError> {
        let namespace = rustix::fs::stat(c"/proc/thread-self/ns/net");
        let namespace = namespace.map_err(|e| LockError::File {
            path: "/proc/thread-self/ns/net".into(),
            source: e.into(),
        })?;
        let name = format!("{role}-{}.lock", namespace.st_ino);
        let mut tried = Vec::new();
        for path in folders {
            match Self::take_at(path, &name, patience) {
                Err(LockError::File { path, source }) if is_closed(&source) => {
                    tried.push(format!("{}: {source}", path.display()));
                }
                outcome => return outcome,
            }
        }
        Err(LockError::NoFolder { tried })
    }

    fn take_at(path: &Path, name: &str, patience: Duration) -> Result<Self, LockError> {
        let folder = open_folder(path)?;
        let path = path.join(name);
        let fail = |e: Errno| LockError::File { path: path.clone(), source: e.into() };
        let start = Instant::now();
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = match rustix::fs::openat(&folder, name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => file,
                // Another user's, which nobody else may go past.
                Err(e) if stat(&folder, name).is_ok() => {
                    return Err(LockError::File {
                        path,
                        source: io::Error::other(io::Error::from(e)),
                    });
                }
                Err(e) => return Err(fail(e)),
            };
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Whoever had it may have removed it since it was opened here.
                Ok(()) => match (rustix::fs::fstat(&file), stat(&folder, name)) {
                    (Ok(own), Ok(there)) if is_same(&own, &there) => {
                        return Ok(Self { folder, name: name.to_owned(), _file: file });
                    }
                    _ => {}
                },
                Err(Errno::WOULDBLOCK) if start.elapsed() < patience => thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => return Err(LockError::Taken(path)),
                Err(e) => return Err(fail(e)),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is locked, so that it is nobody else's.
        let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
    }
}

/// Opens a folder that only its owner may write to; makes it if there is none.
fn open_folder(path: &Path) -> Result<OwnedFd, LockError> {
    let fail = |e: Errno| LockError::File { path: path.to_owned(), source: e.into() };
    let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
    let made = match rustix::fs::mkdir(path, mode) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(fail(e)),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| match e {
        Errno::LOOP | Errno::NOTDIR => LockError::Open(path.to_owned()),
        e => fail(e),
    })?;
    if made {
        // Others reach sockets there, whatever this process keeps from them elsewhere (umask).
        rustix::fs::fchmod(&folder, mode).map_err(fail)?;
    }
    let known = rustix::fs::fstat(&folder).map_err(fail)?;
    if known.st_mode & OTHERS != 0 {
        return Err(LockError::Open(path.to_owned()));
    }
    Ok(folder)
}

fn stat(folder: impl AsFd, name: &str) -> rustix::io::Result<Stat> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    let of = |stat: &Stat| (stat.st_dev, stat.st_ino);
    FileType::from_raw_mode(one.st_mode) == FileType::RegularFile && of(one) == of(other)
}

/// Whether this user cannot write there, or there is no such place.
fn is_closed(error: &io::Error) -> bool {
    let closed = [libc::EACCES, libc::EPERM, libc::EROFS, libc::ENOENT];
    error.raw_os_error().is_some_and(|n| closed.contains(&n))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const NONE: Duration = Duration::ZERO;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("lasthop-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn take(&self, patience: Duration) -> Result<Lock, LockError> {
            Lock::take_in(&[self.0.join("run")], "test", patience)
        }

        fn files(&self) -> Vec<PathBuf> {
            fs::read_dir(self.0.join("run")).unwrap().map(|e| e.unwrap().path()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn one_has_it_until_it_is_given_up_and_nothing_is_left() {
        let folder = Folder::new("lock-one");
        let lock = folder.take(NONE).unwrap();
        let [file] = folder.files().try_into().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(&folder.0.join("run"))), (0o600, 0o755));
        let error = folder.take(NONE).unwrap_err();
        assert!(matches!(&error, LockError::Taken(path) if *path == file), "{error}");
        let other = Lock::take_in(&[folder.0.join("run")], "another", NONE).unwrap();
        drop((lock, other));
        assert!(folder.files().is_empty());
        // What a process that was killed left is no lock.
        fs::write(&file, "").unwrap();
        let _lock = folder.take(NONE).unwrap();
    }

    #[test]
    fn whoever_waits_has_it_next_and_never_two_at_once() {
        let folder = Folder::new("lock-many");
        let inside = std::sync::atomic::AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let lock = folder.take(Duration::from_secs(60)).unwrap();
                        let others = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(others, 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert!(folder.files().is_empty());
    }

    /// SEC-32
    #[test]
    fn no_link_is_followed_and_no_folder_used_that_others_may_write_to() {
        let folder = Folder::new("lock-links");
        let lock = folder.take(NONE).unwrap();
        let [file] = folder.files().try_into().unwrap();
        drop(lock);
        let victim = folder.0.join("victim");
        symlink(&victim, &file).unwrap();
        let error = folder.take(NONE).unwrap_err().to_string();
        assert!(error.contains("remove it") && !victim.exists(), "{error}");
        fs::remove_file(&file).unwrap();

        let run = folder.0.join("run");
        fs::set_permissions(&run, fs::Permissions::from_mode(0o777)).unwrap();
        let error = folder.take(NONE).unwrap_err().to_string();
        assert!(error.contains("chmod go-w"), "{error}");
        fs::remove_dir(&run).unwrap();
        symlink(&folder.0, &run).unwrap();
        assert!(matches!(folder.take(NONE), Err(LockError::Open(_))));
    }

    #[test]
    fn where_there_is_no_place_what_was_tried_is_said_and_what_to_do() {
        let folder = Folder::new("lock-nowhere");
        let nowhere = folder.0.join("no/such/place");
        let own = folder.0.join("own");
        let lock = Lock::take_in(&[nowhere.clone(), own.clone()], "test", NONE).unwrap();
        assert_eq!(fs::read_dir(&own).unwrap().count(), 1);
        drop(lock);
        let error = Lock::take_in(&[nowhere], "test", NONE).unwrap_err().to_string();
        for said in ["no/such/place", "/run/lasthop", "XDG_RUNTIME_DIR", "RuntimeDirectory"] {
            assert!(error.contains(said), "{error}");
        }
    }
}

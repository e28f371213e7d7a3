//! Key files, and the entropy that keys are made of.
//!
//! A key file holds the secret half of a key pair, or a pre-shared key: one line of base64, beside empty
//! lines and lines that start with `#`. Only its owner may read it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lasthop_hop::seal::{
    Allowed, KeyError, Keypair, PresharedKey, PublicKey, SecretKey, TicketKey,
};
use lasthop_units::Seed;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;
use zeroize::Zeroizing;

/// No key file is longer; a wrong path (a disk image, a device) must not be read whole.
const MAX_LEN: u64 = 4096;
/// For the owner alone.
const MODE: u32 = 0o600;

/// Why a key file cannot be used or written.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// The operating system refused.
    #[error("cannot {doing} key file {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// Writing would overwrite a file.
    #[error("{} exists and may hold a key in use; it is not overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Others than the owner may read or write the secret.
    #[error(
        "key file {} is open to others than its owner (mode {mode:04o}): chmod 600 it, or make \
         a new key if somebody may have read it",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A directory, a device, or much longer than a key file.
    #[error("{} is not a key file: {found}", path.display())]
    NotAKeyFile {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// There is no line with a key.
    #[error("key file {} holds no key", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// There is more than one line with a key.
    #[error("key file {}, line {line}: a second key", path.display())]
    SecondKey {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// A line is not a key.
    #[error("key file {}, line {line}", path.display())]
    BadKey {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        source: KeyError,
    },
}

/// What to do if there is a file where a key is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// Leave it and fail.
    Keep,
    /// Replace it.
    Replace,
}

/// 32 bytes of the operating system's entropy: the one seed of a run.
///
/// # Errors
///
/// The operating system has none.
pub fn entropy() -> io::Result<Seed> {
    let mut bytes = Zeroizing::new([0; 32]);
    let mut have = 0;
    while have < bytes.len() {
        match getrandom(&mut bytes[have..], GetRandomFlags::empty()) {
            Ok(n) => have += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(Seed::from_bytes(*bytes))
}

/// A new key pair.
///
/// # Errors
///
/// The operating system has no entropy.
pub fn generate() -> io::Result<Keypair> {
    entropy().map(Keypair::generate)
}

/// A new pre-shared key.
///
/// # Errors
///
/// The operating system has no entropy.
pub fn generate_psk() -> io::Result<PresharedKey> {
    entropy().map(PresharedKey::generate)
}

/// Reads the key pair whose secret is in the file at `path`.
///
/// # Errors
///
/// The file cannot be read, is open to others than its owner, or does not hold one key.
pub fn load(path: &Path) -> Result<Keypair, KeyFileError> {
    read::<SecretKey>(path).map(Keypair::from)
}

/// Reads the keys of a fleet, each from its file.
///
/// # Errors
///
/// As [`load`], of the first file that cannot be used.
pub fn load_tickets(files: &[PathBuf]) -> Result<Vec<TicketKey>, KeyFileError> {
    files.iter().map(|path| read(path).map(|secret| TicketKey::new(&secret))).collect()
}

/// Reads the pre-shared key in the file at `path`.
///
/// # Errors
///
/// As [`load`].
pub fn load_psk(path: &Path) -> Result<PresharedKey, KeyFileError> {
    read(path)
}

/// What one end shares with others beside their key pairs, by their public keys.
#[derive(Clone, Default, Debug)]
pub struct PresharedKeys(BTreeMap<PublicKey, PresharedKey>);

impl PresharedKeys {
    /// Reads each from its file.
    ///
    /// # Errors
    ///
    /// As [`load`], of the first file that cannot be used.
    pub fn load<'a>(
        files: impl IntoIterator<Item = (PublicKey, &'a Path)>,
    ) -> Result<Self, KeyFileError> {
        files.into_iter().map(|(key, path)| Ok((key, read(path)?))).collect()
    }

    /// The one with `peer`; the default if there is none.
    pub fn with(&self, peer: &PublicKey) -> PresharedKey {
        self.0.get(peer).cloned().unwrap_or_default()
    }

    /// Those who may come, each with the one that is shared.
    pub fn allowed(&self, keys: impl IntoIterator<Item = PublicKey>) -> Vec<Allowed> {
        keys.into_iter().map(|key| Allowed { key, psk: self.with(&key) }).collect()
    }
}

impl FromIterator<(PublicKey, PresharedKey)> for PresharedKeys {
    fn from_iter<T: IntoIterator<Item = (PublicKey, PresharedKey)>>(all: T) -> Self {
        Self(all.into_iter().collect())
    }
}

/// Reads the key in the file at `path`.
fn read<K: FromStr<Err = KeyError>>(path: &Path) -> Result<K, KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.into(), doing: "read", source };
    let file = File::open(path).map_err(io)?;
    expect_private(path, &file)?;
    let mut text = Zeroizing::new(String::with_capacity(MAX_LEN as usize));
    match file.take(MAX_LEN).read_to_string(&mut text) {
        Ok(_) => parse(path, &text),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            Err(KeyFileError::NotAKeyFile { path: path.into(), found: "it is not text" })
        }
        Err(e) => Err(io(e)),
    }
}

fn expect_private(path: &Path, file: &File) -> Result<(), KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.into(), doing: "read", source };
    let metadata = file.metadata().map_err(io)?;
    let not = |found| Err(KeyFileError::NotAKeyFile { path: path.into(), found });
    if !metadata.is_file() {
        return not("it is not a regular file");
    }
    if metadata.len() > MAX_LEN {
        return not("it is too long");
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Exposed { path: path.into(), mode });
    }
    Ok(())
}

fn parse<K: FromStr<Err = KeyError>>(path: &Path, text: &str) -> Result<K, KeyFileError> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let (line, key) = lines.next().ok_or_else(|| KeyFileError::Empty { path: path.into() })?;
    let secret =
        key.parse().map_err(|source| KeyFileError::BadKey { path: path.into(), line, source })?;
    match lines.next() {
        None => Ok(secret),
        Some((line, _)) => Err(KeyFileError::SecondKey { path: path.into(), line }),
    }
}

/// Writes the secret of `keys` to a file at `path` that only its owner can read. At no moment is
/// there a file at `path` that is not whole.
///
/// # Errors
///
/// The file exists and is to be kept, or cannot be written; what was there is as before.
pub fn store(path: &Path, keys: &Keypair, existing: Existing) -> Result<(), KeyFileError> {
    write(path, &text_of(keys), existing)
}

/// Writes a pre-shared key to a file at `path`, as [`store`] does a secret key.
///
/// # Errors
///
/// As [`store`].
pub fn store_psk(path: &Path, psk: &PresharedKey, existing: Existing) -> Result<(), KeyFileError> {
    let text = Zeroizing::new(format!(
        "# lasthop pre-shared key: keep it to the owners of the two ends, which have the same.\n{}\n",
        psk.to_text().as_str()
    ));
    write(path, &text, existing)
}

fn text_of(keys: &Keypair) -> Zeroizing<String> {
    Zeroizing::new(format!(
        "# lasthop secret key: keep it to its owner. Its public half is\n# {}\n{}\n",
        keys.public(),
        keys.secret().to_text().as_str()
    ))
}

fn write(path: &Path, text: &str, existing: Existing) -> Result<(), KeyFileError> {
    let fail = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.into() },
        _ => KeyFileError::Io { path: path.into(), doing: "write", source },
    };
    if existing == Existing::Keep && path.symlink_metadata().is_ok() {
        return Err(KeyFileError::Exists { path: path.into() });
    }
    let draft = Draft::beside(path).map_err(fail)?;
    draft.fill(text).and_then(|()| draft.publish(path, existing)).map_err(fail)
}

/// A file under a passing name, removed unless it was published.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn beside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut draft = std::ffi::OsString::from(".");
        draft.push(name);
        draft.push(format!(".{}.new", std::process::id()));
        Ok(Self { path: path.with_file_name(draft) })
    }

    fn fill(&self, text: &str) -> io::Result<()> {
        // Left by a crash of a process that had our number.
        let _ = fs::remove_file(&self.path);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(MODE).open(&self.path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    fn publish(&self, path: &Path, existing: Existing) -> io::Result<()> {
        let flags = match existing {
            Existing::Keep => RenameFlags::NOREPLACE,
            Existing::Replace => RenameFlags::empty(),
        };
        renameat_with(CWD, &self.path, CWD, path, flags)?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder)?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After publishing there is nothing of this name.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::in_full;

    /// A folder that goes away with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("lasthop-keyfile-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("a folder for the test");
            Self(path)
        }

        fn file(&self, text: &str, mode: u32) -> PathBuf {
            let path = self.0.join("key");
            fs::write(&path, text).expect("a file for the test");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
            path
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("the folder");
            entries.map(|e| e.expect("entry").file_name().to_string_lossy().into()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The error and what it came from, as the command prints them.
    fn load_error(path: &Path) -> String {
        let e = in_full(&load(path).map(|_| ()).expect_err("not a good key file"));
        assert!(e.contains(&path.display().to_string()), "{e} does not name the file");
        e
    }

    #[test]
    fn a_stored_key_is_loaded_again_and_is_its_owners_alone() {
        let folder = Folder::new("store");
        let path = folder.0.join("key");
        let keys = generate().expect("entropy");
        store(&path, &keys, Existing::Keep).expect("stored");
        assert_eq!(load(&path).expect("loaded").public(), keys.public());
        let mode = fs::metadata(&path).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(folder.names(), ["key"], "nothing else is left behind");
    }

    #[test]
    fn a_key_is_overwritten_only_when_told_to() {
        let folder = Folder::new("force");
        let path = folder.0.join("key");
        let (old, new) = (generate().expect("entropy"), generate().expect("entropy"));
        assert_ne!(old.public(), new.public());
        store(&path, &old, Existing::Keep).expect("stored");
        let refused = store(&path, &new, Existing::Keep);
        assert!(matches!(refused, Err(KeyFileError::Exists { .. })));
        assert_eq!(load(&path).expect("loaded").public(), old.public());
        store(&path, &new, Existing::Replace).expect("replaced");
        assert_eq!(load(&path).expect("loaded").public(), new.public());
        assert_eq!(folder.names(), ["key"]);
    }

    /// SEC-43: a pre-shared key has the care that a secret key has.
    #[test]
    fn a_stored_pre_shared_key_is_loaded_again_is_its_owners_alone_and_is_not_overwritten() {
        let folder = Folder::new("psk");
        let path = folder.0.join("psk");
        let psk = generate_psk().expect("entropy");
        store_psk(&path, &psk, Existing::Keep).expect("stored");
        let mode = fs::metadata(&path).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let other = generate_psk().expect("entropy");
        assert_ne!(psk, other);
        let refused = store_psk(&path, &other, Existing::Keep);
        assert!(matches!(refused, Err(KeyFileError::Exists { .. })));
        assert_eq!(load_psk(&path).expect("loaded"), psk);
        store_psk(&path, &other, Existing::Replace).expect("replaced");
        assert_eq!(load_psk(&path).expect("loaded"), other);
    }

    /// SEC-43: the same mistakes have the same messages, with the file.
    #[test]
    fn what_is_wrong_with_a_pre_shared_keys_file_is_said_as_of_a_secret_keys() {
        let folder = Folder::new("badpsk");
        let good = generate_psk().expect("entropy").to_text();
        for (text, mode) in [
            (good.as_str(), 0o644),
            ("", 0o600),
            ("# mine\nabc\n", 0o600),
            (&format!("{}\n{}\n", good.as_str(), good.as_str()), 0o600),
        ] {
            let path = folder.file(text, mode);
            let said = in_full(&load_psk(&path).expect_err("not a good file"));
            assert_eq!(said, load_error(&path));
        }
        let nowhere = folder.0.join("nowhere");
        assert_eq!(in_full(&load_psk(&nowhere).expect_err("no file")), load_error(&nowhere));
    }

    #[test]
    fn a_race_for_the_name_is_lost_without_harm() {
        let folder = Folder::new("race");
        let path = folder.file("taken", 0o600);
        let draft = Draft::beside(&path).expect("a name");
        draft.fill(&text_of(&generate().expect("entropy"))).expect("written");
        let lost = draft.publish(&path, Existing::Keep).expect_err("taken");
        assert_eq!(lost.kind(), io::ErrorKind::AlreadyExists);
        drop(draft);
        assert_eq!(folder.names(), ["key"]);
        assert_eq!(fs::read_to_string(&path).expect("untouched"), "taken");
    }

    #[test]
    fn a_folder_that_does_not_exist_is_named() {
        let keys = generate().expect("entropy");
        let path = Path::new("/nonexistent-lasthop/key");
        let e = store(path, &keys, Existing::Keep).expect_err("no folder").to_string();
        assert!(e.contains("cannot write") && e.contains("/nonexistent-lasthop/key"), "{e}");
        assert!(load_error(path).contains("cannot read"));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = Folder::new("modes");
        let text = generate().expect("entropy").secret().to_text();
        for mode in [0o644, 0o640, 0o604, 0o620, 0o660] {
            let e = load_error(&folder.file(&text, mode));
            assert!(e.contains(&format!("{mode:04o}")) && e.contains("chmod 600"), "{e}");
        }
        for mode in [0o600, 0o400, 0o700] {
            assert!(load(&folder.file(&text, mode)).is_ok(), "{mode:o}");
        }
    }

    #[test]
    fn errors_in_a_file_are_reported_with_their_line() {
        let folder = Folder::new("bad");
        let good = generate().expect("entropy").secret().to_text();
        let cases = [
            (String::new(), "holds no key"),
            ("# only\n\n# comments\n".into(), "holds no key"),
            ("# mine\nabc\n".into(), "line 2: a key has 44 base64 characters, this has 3"),
            (format!("{}!=\n", &good[..42]), "line 1: a key is 44 characters of base64"),
            (format!("{}\n\n{}\n", good.as_str(), good.as_str()), "line 3: a second key"),
            ("x".repeat(5000), "too long"),
        ];
        for (text, expected) in cases {
            let e = load_error(&folder.file(&text, 0o600));
            assert!(e.contains(expected), "{e}");
        }
        assert!(load_error(&folder.0).contains("not a regular file"));
        let path = folder.file("", 0o600);
        fs::write(&path, [0xff, 0xfe]).expect("written");
        assert!(load_error(&path).contains("not text"));
    }

    #[test]
    fn comments_and_spaces_around_a_key_do_not_matter() {
        let folder = Folder::new("comments");
        let keys = generate().expect("entropy");
        let text = format!("\n# base 7\n  {}  \r\n\n# end", keys.secret().to_text().as_str());
        assert_eq!(load(&folder.file(&text, 0o600)).expect("loaded").public(), keys.public());
    }
}

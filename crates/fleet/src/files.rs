//! Files that are whole at every moment, and their owner's alone.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lasthop_daemon::keyfile::{self, Existing};

use crate::error::FleetError;
use crate::members::{self, Files};

/// For the owner alone: keys and addresses of mobiles are nobody else's business.
const MODE: u32 = 0o600;

/// Makes a folder if it is not there.
///
/// # Errors
///
/// The operating system refuses.
pub fn make_folder(path: &Path) -> Result<(), FleetError> {
    fs::create_dir_all(path).map_err(|source| FleetError::write(path, source))
}

/// Writes `text` to a file at `path`, in place of what is there.
///
/// # Errors
///
/// The operating system refuses; what was there is as before.
pub fn write(path: &Path, text: &str) -> Result<(), FleetError> {
    replace(path, text).map_err(|source| FleetError::write(path, source))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut draft = std::ffi::OsString::from(".");
    draft.push(name);
    draft.push(format!(".{}.new", std::process::id()));
    let draft = path.with_file_name(draft);
    let written = fill(&draft, text).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // It may not be there, and the first error tells more.
        let _ = fs::remove_file(&draft);
    }
    written?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn fill(draft: &Path, text: &str) -> io::Result<()> {
    // Left by a crash of a process that had our number.
    let _ = fs::remove_file(draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Writes a base's files where they differ from what is there: keys first, so that the file that names
/// them never names one that is not there. Says whether any did.
///
/// # Errors
///
/// The operating system refuses.
pub fn write_members(folder: &Path, files: &Files) -> Result<bool, FleetError> {
    let mut changed = false;
    for (name, key) in &files.tickets {
        let path = folder.join(name);
        let same = keyfile::load_psk(&path).is_ok_and(|there| there == *key);
        if !same {
            keyfile::store_psk(&path, key, Existing::Replace)?;
            changed = true;
        }
    }
    let path = folder.join(members::MEMBERS);
    if fs::read_to_string(&path).is_ok_and(|there| there == files.members) {
        return Ok(changed);
    }
    write(&path, &files.members)?;
    Ok(true)
}

/// Removes the files of ticket keys that are not in `kept` any more.
///
/// # Errors
///
/// The operating system refuses.
pub fn remove_old_tickets(folder: &Path, kept: &BTreeSet<String>) -> Result<(), FleetError> {
    let failed = |source| FleetError::write(folder, source);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(name) = name.to_str() else { continue };
        if members::is_ticket_file(name) && !kept.contains(name) {
            fs::remove_file(folder.join(name)).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use lasthop_hop::seal::PresharedKey;
    use lasthop_units::Seed;

    use super::*;

    #[test]
    fn files_are_written_only_where_they_differ_and_are_their_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let key = |n| PresharedKey::generate(Seed::from_u64(n));
        let mut files = Files {
            members: "allow = []\n".to_owned(),
            tickets: vec![("tickets-1.key".to_owned(), key(1))],
            problems: Vec::new(),
        };
        assert!(write_members(folder.path(), &files).unwrap());
        assert!(!write_members(folder.path(), &files).unwrap());
        files.tickets.insert(0, ("tickets-2.key".to_owned(), key(2)));
        assert!(write_members(folder.path(), &files).unwrap());
        files.tickets[0].1 = key(3);
        assert!(write_members(folder.path(), &files).unwrap());
        for entry in fs::read_dir(folder.path()).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        remove_old_tickets(folder.path(), &["tickets-2.key".to_owned()].into()).unwrap();
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["members.toml", "tickets-2.key"]);
    }
}

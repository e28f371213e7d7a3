//! Results directories: every finished run is a line that is never changed.
//!
//! | file | what |
//! | --- | --- |
//! | `manifest.json` | format and commit; written once |
//! | `scenario-HASH.toml` | each scenario text that was run here |
//! | `runs-I-of-N-K.jsonl` | one object a line for each run that one process finished |
//! | `runs/POINT/SEED/` | captures and series of a run, where the scenario asks for them |
//!
//! Each process writes a file of its own, so that shards need no lock, and a line that a crash cut
//! short is a run that did not happen.

mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lasthop_scenario::PointHash;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::shard::Shard;

pub use record::Record;

/// The format of the files in a results directory.
const FORMAT: u32 = 2;

const MANIFEST: &str = "manifest.json";

/// Why a results directory cannot be used.
#[derive(Debug, Error)]
pub enum ResultsError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The directory holds something else.
    #[error("{} is not empty and has no {MANIFEST}; give an empty or a new directory", .0.display())]
    Foreign(PathBuf),
    /// The directory is of another format.
    #[error(
        "{} has results of format {found}, and this is format {FORMAT}; give another directory, or \
         use the version of lasthop that wrote them",
        path.display()
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Its results come from other code.
    #[error(
        "{}: results of commit {found}, and this is {expected}; give another directory, or \
         --allow-other-commit to take the old results as they are",
        path.display()
    )]
    Commit {
        /// The file that says so.
        path: PathBuf,
        /// The commit that it names.
        found: String,
        /// The commit of this program.
        expected: String,
    },
    /// A line that is no record.
    #[error("{}:{line}: {message}; delete the line, and its run will be repeated", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// Two results of one run.
    #[error(
        "{}: seed {seed} of point {point} has two results that differ; one commit must give one \
         result, so delete the wrong line",
        path.display()
    )]
    Contradiction {
        /// The file with the second.
        path: PathBuf,
        /// The point.
        point: PointHash,
        /// The run's seed.
        seed: u64,
    },
}

/// What a results directory says about itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    commit: String,
}

/// A results directory and the runs that are in it.
#[derive(Debug)]
pub struct Results {
    directory: PathBuf,
    records: BTreeMap<(PointHash, u64), Record>,
}

impl Results {
    /// Opens a directory, or makes it, and reads what is there. `commit` is that of this program.
    ///
    /// # Errors
    ///
    /// The directory is not one of results, is of another format or, unless `any_commit`, of
    /// another commit; a file is damaged elsewhere than at its end.
    pub fn open(directory: &Path, commit: &str, any_commit: bool) -> Result<Self, ResultsError> {
        fs::create_dir_all(directory).map_err(at(directory))?;
        let manifest = manifest(directory, commit)?;
        if manifest.format != FORMAT {
            return Err(ResultsError::Format {
                path: directory.to_owned(),
                found: manifest.format,
            });
        }
        let same = |path: &Path, found: &str| {
            if any_commit || found == commit {
                return Ok(());
            }
            Err(ResultsError::Commit {
                path: path.to_owned(),
                found: found.to_string(),
                expected: commit.to_string(),
            })
        };
        same(&directory.join(MANIFEST), &manifest.commit)?;
        let mut results = Self { directory: directory.to_owned(), records: BTreeMap::new() };
        for path in record_files(directory)? {
            for record in read(&path)? {
                same(&path, &record.commit)?;
                results.add(record, &path)?;
            }
        }
        Ok(results)
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The result of one run, if it is there.
    pub fn get(&self, point: PointHash, seed: u64) -> Option<&Record> {
        self.records.get(&(point, seed))
    }

    /// All results, by point and seed.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    /// Keeps the text of a scenario whose runs are to come. Returns its SHA-256.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn keep_scenario(&self, text: &str) -> Result<String, ResultsError> {
        let hash: String =
            Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        let path = self.directory.join(format!("scenario-{}.toml", &hash[..16]));
        if !path.exists() {
            publish(&path, text.as_bytes()).map_err(at(&path))?;
        }
        Ok(hash)
    }

    /// A file for the runs of this process.
    pub fn writer(&self, shard: Shard) -> Writer {
        Writer { directory: self.directory.clone(), shard, file: None }
    }

    fn add(&mut self, record: Record, path: &Path) -> Result<(), ResultsError> {
        let key = (record.point, record.seed);
        match self.records.get(&key) {
            // Two processes may have run the same.
            Some(known) if known.agrees(&record) || known.commit != record.commit => Ok(()),
            Some(_) => Err(ResultsError::Contradiction {
                path: path.to_owned(),
                point: record.point,
                seed: record.seed,
            }),
            None => {
                self.records.insert(key, record);
                Ok(())
            }
        }
    }
}

/// Appends the runs of one process to a file of its own, which it makes with the first.
#[derive(Debug)]
pub struct Writer {
    directory: PathBuf,
    shard: Shard,
    file: Option<(PathBuf, File)>,
}

impl Writer {
    /// Appends a run.
    ///
    /// # Errors
    ///
    /// The file cannot be made or written.
    pub fn append(&mut self, record: &Record) -> Result<(), ResultsError> {
        if self.file.is_none() {
            self.file = Some(create(&self.directory, self.shard)?);
        }
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let mut line = record.line();
        line.push('\n');
        // One call for the whole line: what a crash leaves of it is at the file's end.
        file.write_all(line.as_bytes()).map_err(at(path))
    }
}

/// Makes the first file of this shard that nobody has yet.
fn create(directory: &Path, shard: Shard) -> Result<(PathBuf, File), ResultsError> {
    for n in 0_u32.. {
        let name = format!("runs-{}-of-{}-{n:03}.jsonl", shard.index(), shard.of());
        let path = directory.join(name);
        match OpenOptions::new().append(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(ResultsError::Io { path, source }),
        }
    }
    Err(at(directory)(io::ErrorKind::AlreadyExists.into()))
}

/// Reads the manifest, or writes it where there is nothing yet.
fn manifest(directory: &Path, commit: &str) -> Result<Manifest, ResultsError> {
    let path = directory.join(MANIFEST);
    if !path.exists() {
        let temporary = |e: &fs::DirEntry| e.file_name().to_string_lossy().starts_with('.');
        let entries = fs::read_dir(directory).map_err(at(directory))?;
        if entries.flatten().any(|e| !temporary(&e) && e.path() != path) && !path.exists() {
            return Err(ResultsError::Foreign(directory.to_owned()));
        }
        let manifest = Manifest { format: FORMAT, commit: commit.to_string() };
        let text = serde_json::to_string_pretty(&manifest).map_err(|e| at(&path)(e.into()))?;
        publish(&path, format!("{text}\n").as_bytes()).map_err(at(&path))?;
    }
    let text = fs::read_to_string(&path).map_err(at(&path))?;
    serde_json::from_str(&text).map_err(|e| at(&path)(e.into()))
}

/// Files that this process has begun to publish.
static TURNS: AtomicU64 = AtomicU64::new(0);

/// Writes a file so that it is either whole or not there. Who comes second leaves it as it is.
fn publish(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Another thread may be at the same file: what is linked must not be written to any more.
    let turn = TURNS.fetch_add(1, Ordering::Relaxed);
    let temporary = directory.join(format!(".{name}.{}.{turn}", std::process::id()));
    fs::write(&temporary, content)?;
    // A link fails where the name is taken; a rename would replace what another process reads.
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    match linked {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn record_files(directory: &Path) -> Result<Vec<PathBuf>, ResultsError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(at(directory))? {
        let path = entry.map_err(at(directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("runs-") && name.ends_with(".jsonl") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The records of one file. A last line without an end is a run that was not finished.
fn read(path: &Path) -> Result<Vec<Record>, ResultsError> {
    let bytes = fs::read(path).map_err(at(path))?;
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let mut records = Vec::new();
    for (i, line) in bytes[..whole].split(|b| *b == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        records.push(serde_json::from_slice(line).map_err(|e| ResultsError::Line {
            path: path.to_owned(),
            line: i + 1,
            message: e.to_string(),
        })?);
    }
    Ok(records)
}

fn at(path: &Path) -> impl Fn(io::Error) -> ResultsError + '_ {
    |source| ResultsError::Io { path: path.to_owned(), source }
}

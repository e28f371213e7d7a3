use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::*;

const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

/// A 64-bit little-endian ELF with one program header for each of `kinds`.
fn elf(kinds: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[32] = 64;
    bytes[54] = 56;
    bytes[56] = kinds.len() as u8;
    for kind in kinds {
        let mut header = [0; 56];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        bytes.extend(header);
    }
    bytes
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn write(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o755);
    options.open(path).unwrap().write_all(bytes).unwrap();
}

fn said(path: &Path) -> Option<String> {
    doubt(CWD, &c_path(path), true).map(|doubt| doubt.to_string())
}

fn doubt_about(bytes: &[u8]) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    write(&path, bytes);
    said(&path)
}

#[test]
fn a_program_without_an_interpreter_is_static() {
    let doubt = doubt_about(&elf(&[1, 2])).unwrap();
    assert!(doubt.ends_with("program is statically linked"), "{doubt}");
}

#[test]
fn a_dynamic_program_is_not_doubted() {
    assert_eq!(doubt_about(&elf(&[PT_INTERP, 1])), None);
}

#[test]
fn a_program_that_does_not_hear_of_the_library_is_doubted() {
    let folder = tempfile::tempdir().unwrap();
    let path = c_path(&folder.path().join("program"));
    write(&folder.path().join("program"), &elf(&[PT_INTERP]));
    assert!(doubt(CWD, &path, true).is_none());
    let doubt = doubt(CWD, &path, false).unwrap().to_string();
    assert!(doubt.ends_with("is started without LD_PRELOAD"), "{doubt}");
}

#[test]
fn a_go_note_is_recognised() {
    let mut bytes = elf(&[PT_INTERP, PT_NOTE]);
    let note = bytes.len() as u8;
    bytes[64 + 56 + 8] = note;
    bytes.extend([4, 0, 0, 0, 20, 0, 0, 0, 4, 0, 0, 0, b'G', b'o', 0, 0]);
    assert!(doubt_about(&bytes).unwrap().contains("Go program"));
}

#[test]
fn a_program_of_another_word_size_is_doubted() {
    let mut bytes = elf(&[PT_INTERP]);
    bytes[4] = if cfg!(target_pointer_width = "64") { 1 } else { 2 };
    assert!(doubt_about(&bytes).unwrap().contains("word size"));
}

#[test]
fn a_script_is_as_good_as_its_interpreter() {
    let folder = tempfile::tempdir().unwrap();
    let [program, script] = ["interpreter", "script"].map(|name| folder.path().join(name));
    write(&program, &elf(&[]));
    write(&script, format!("#! {} -x\nhello\n", program.display()).as_bytes());
    assert!(said(&script).unwrap().ends_with("interpreter is statically linked"));
}

#[test]
fn what_cannot_be_read_or_run_is_left_to_execve() {
    assert_eq!(said(Path::new("/no/such/program")), None);
    assert_eq!(said(Path::new("/")), None);
    assert_eq!(doubt_about(b""), None);
    assert_eq!(doubt_about(b"\x7fELF\x02"), None);
    assert_eq!(doubt_about(&[b'x'; 100]), None);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, elf(&[])).unwrap();
    assert_eq!(said(&path), None);
}

#[test]
fn a_script_that_interprets_itself_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("loop");
    write(&path, format!("#!{}\n", path.display()).as_bytes());
    assert_eq!(said(&path), None);
}

#[test]
fn an_open_program_is_judged_where_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    write(&path, &elf(&[]));
    let file = std::fs::File::open(&path).unwrap();
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(9)).unwrap();
    let doubt = doubt_of_file(file.as_fd(), true).unwrap().to_string();
    assert_eq!(doubt, "a program is statically linked");
    assert_eq!(rustix::fs::tell(&file), Ok(9));
}

#[test]
fn a_name_is_sought_along_the_path_and_a_path_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    for folder in [&first, &second] {
        std::fs::create_dir(folder).unwrap();
    }
    // What cannot be run is passed over.
    std::fs::write(first.join("tool"), "text").unwrap();
    write(&second.join("tool"), &elf(&[]));
    let path = format!("/no/such:{}:{}", first.display(), second.display());
    let found = |name: &CStr, path: Option<&str>| {
        let mut room = Room::default();
        find(name, path.map(str::as_bytes), &mut room).map(CStr::to_owned)
    };
    assert_eq!(found(c"tool", Some(&path)), Some(c_path(&second.join("tool"))));
    assert_eq!(found(c"no-such-tool", Some(&path)), None);
    assert_eq!(found(c"./tool", Some(&path)).as_deref(), Some(c"./tool"));
    assert_eq!(found(c"sh", None).as_deref(), Some(c"/bin/sh"));
    assert_eq!(found(c"tool", Some(&"x".repeat(5000))), None);
}

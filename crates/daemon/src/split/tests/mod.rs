//! Tests of records, of streams on sockets, and of both ends together.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod ends;
mod moving;
mod records;

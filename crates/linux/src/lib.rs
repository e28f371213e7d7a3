//! The Linux world: machines on kernel sockets.

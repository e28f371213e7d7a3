pub(crate) mod base;
pub(crate) mod demo;
pub(crate) mod exec;
pub(crate) mod keygen;
pub(crate) mod mobile;
pub(crate) mod radio;
pub(crate) mod status;
